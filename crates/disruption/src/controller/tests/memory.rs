//! What budgets take in memory, in counted bytes. Their owners choose what they hold, so what a budget takes is bounded by what it
//! takes in JSON.

use fairgate_core::time::Time;
use serde_json::{Map, Value, json};

use super::{ControllerStep, DisruptionController, StatusWriteOutcome, start};
use crate::budget::DisruptionBudget;

/// What the controller keeps of large budgets, in percent of their JSON.
const LARGE: usize = 200;
/// What it keeps of small ones, in percent of theirs: as they are created, and with a status. A store keeps less than their JSON,
/// so a hosted budget takes less than three times what is stored.
const CREATED: usize = 260;
const WITH_CONDITION: usize = 155;

fn budget(name: &str, selector: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2024-01-01T00:00:00Z", "annotations": annotations,
        },
        "spec": {"minAvailable": 1, "selector": selector},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0},
    })
}

fn texts(count: u32, text: impl Fn(u32) -> String) -> Vec<String> {
    (0..count).map(text).collect()
}

/// Large contents of a budget: its selector, and its annotations.
fn large() -> Vec<(&'static str, Value, Value)> {
    let expressions = |all: Vec<Value>| json!({"matchExpressions": all});
    let of = |key: &str, operator: &str, values: &[String]| json!({"key": key, "operator": operator, "values": values});
    let short = texts(20_000, |number| number.to_string());
    let long = texts(3_000, |number| format!("{number:060}"));
    let keys = texts(6_000, |number| format!("key-{number}"));
    let labels = texts(16_000, |number| format!("k{number:x}"));
    let labels: Map<_, _> = labels.into_iter().map(|key| (key, json!(""))).collect();
    let exist = keys
        .iter()
        .map(|key| json!({"key": key, "operator": "Exists"}));
    let exclude = keys.iter().map(|key| of(key, "NotIn", &["x".to_owned()]));
    let mut notes = Map::new();
    notes.extend(
        texts(5_000, |number| format!("a{number}"))
            .into_iter()
            .map(|key| (key, json!(""))),
    );
    vec![
        (
            "short values",
            expressions(vec![of("app", "In", &short)]),
            json!({}),
        ),
        (
            "long values",
            expressions(vec![of("app", "In", &long)]),
            json!({}),
        ),
        (
            "excluded values",
            expressions(vec![of("app", "NotIn", &short)]),
            json!({}),
        ),
        ("labels that exist", expressions(exist.collect()), json!({})),
        (
            "labels without a value",
            expressions(exclude.collect()),
            json!({}),
        ),
        ("labels", json!({"matchLabels": labels}), json!({})),
        (
            "a long annotation",
            json!({}),
            json!({"text": "x".repeat(200_000)}),
        ),
        ("many annotations", json!({}), Value::Object(notes)),
    ]
}

/// The bytes that a controller keeps of budgets, after it has worked on them.
fn kept(budgets: &[String], selector_terms: u64) -> usize {
    let mut controller = DisruptionController::new(selector_terms);
    let heap = allocation_counter::measure(|| {
        for text in budgets {
            let object = serde_json::from_str(text).unwrap();
            controller.apply_budget(DisruptionBudget::from_value(object).unwrap());
        }
        let mut now = Time::ZERO;
        loop {
            let step = controller.step(now, start());
            // As whoever runs it does: they are passed on at once.
            drop((controller.take_events(), controller.take_reports()));
            match step {
                ControllerStep::Continue => {}
                ControllerStep::WriteStatus(..) => {
                    controller.written(StatusWriteOutcome::Written, now, start());
                }
                ControllerStep::Wait(None) => break,
                ControllerStep::Wait(Some(at)) => now = at,
                other => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(controller.counts().budgets, budgets.len());
    usize::try_from(heap.bytes_current).unwrap()
}

#[test]
fn a_large_budget_takes_at_most_twice_its_json() {
    let mut mistakes = Vec::new();
    for (what, selector, annotations) in large() {
        let budgets: Vec<_> = (0..3)
            .map(|number| budget(&format!("b{number}"), &selector, &annotations).to_string())
            .collect();
        let stored: usize = budgets.iter().map(String::len).sum();
        for (limit, selector_terms) in [("within", u64::MAX), ("over", 10)] {
            let percent = kept(&budgets, selector_terms) * 100 / stored;
            println!(
                "{what}, {limit} the limit: {stored} bytes of JSON, {percent} % of that in memory"
            );
            if percent > LARGE {
                mistakes.push(format!("{what}, {limit} the limit: {percent} %"));
            }
        }
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

/// The budget of one Deployment, as it is first created.
fn created(number: usize) -> Value {
    budget(
        &format!("web-{number}"),
        &json!({"matchLabels": {"app": format!("web-{number}")}}),
        &json!({}),
    )
}

/// The same as an API keeps it once its status was written.
fn with_condition(number: usize) -> Value {
    let mut budget = created(number);
    let owned = |names: &[&str]| {
        let names = names.iter().map(|name| (format!("f:{name}"), json!({})));
        Value::Object(names.collect())
    };
    budget["metadata"]["managedFields"] = json!([
        {
            "manager": "kubectl-create", "operation": "Update", "apiVersion": "policy/v1", "time": "2024-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": owned(&["minAvailable", "selector"])},
        },
        {
            "manager": "fairgate", "operation": "Update", "apiVersion": "policy/v1", "time": "2024-01-01T00:00:01Z",
            "fieldsType": "FieldsV1", "subresource": "status",
            "fieldsV1": {"f:status": owned(&[
                "conditions", "currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods", "observedGeneration",
            ])},
        },
    ]);
    budget["status"] = json!({
        "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 0,
        "conditions": [{
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": 1, "reason": "InsufficientPods",
            "message": "", "lastTransitionTime": "2024-01-01T00:00:01Z",
        }],
    });
    budget
}

#[test]
fn a_small_budget_takes_at_most_so_much_of_its_json() {
    const BUDGETS: usize = 2000;
    let mut mistakes = Vec::new();
    let all = |make: fn(usize) -> Value| (0..BUDGETS).map(move |number| make(number).to_string());
    for (what, budgets, most) in [
        ("created", all(created), CREATED),
        ("with a condition", all(with_condition), WITH_CONDITION),
    ] {
        let budgets: Vec<_> = budgets.collect();
        let stored: usize = budgets.iter().map(String::len).sum();
        let each = kept(&budgets, u64::MAX);
        let percent = each * 100 / stored;
        let (stored, each) = (stored / BUDGETS, each / BUDGETS);
        println!("{what}: {stored} bytes of JSON, {each} in memory, {percent} %");
        if percent > most {
            mistakes.push(format!("{what}: {percent} %"));
        }
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}
