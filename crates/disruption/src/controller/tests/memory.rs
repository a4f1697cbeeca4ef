//! What budgets take in memory, in counted bytes. Their owners choose what they hold, so what a budget takes is bounded by what it
//! takes in JSON.

use fairgate_core::time::Time;
use serde_json::{Map, Value, json};

use super::{ControllerStep, DisruptionController, StatusWriteOutcome, start};
use crate::budget::DisruptionBudget;

/// What the controller keeps of large budgets, in percent of their JSON.
const LARGE: usize = 200;
/// What a small budget may take beside its JSON, in bytes.
const SMALL: usize = 1300;

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
            match controller.step(now, start()) {
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

#[test]
fn a_small_budget_takes_little_beside_its_json() {
    const BUDGETS: usize = 2000;
    let budgets: Vec<_> = (0..BUDGETS)
        .map(|number| {
            budget(
                &format!("web-{number}"),
                &json!({"matchLabels": {"app": format!("web-{number}")}}),
                &json!({}),
            )
            .to_string()
        })
        .collect();
    let stored: usize = budgets.iter().map(String::len).sum();
    let each = (kept(&budgets, u64::MAX).saturating_sub(stored)) / BUDGETS;
    println!(
        "{} bytes of JSON, and {each} bytes beside",
        stored / BUDGETS
    );
    assert!(each <= SMALL, "{each} bytes beside the JSON");
}
