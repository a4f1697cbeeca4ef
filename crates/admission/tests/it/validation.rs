//! What clients may write, compared with Kubernetes' own validation.
//!
//! `tests/cluster/admissionvalidation` writes the cases.

use fairgate_admission::validate;
use serde_json::{Value, json};

const CASES: &str = include_str!("../corpus/validation.jsonl");

#[test]
fn policies_and_bindings_have_the_same_errors_as_in_the_original() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let object = &case["object"];
        let found = match case["kind"].as_str().unwrap() {
            "policy" => validate::validate_policy(object, case.get("old")),
            "binding" => validate::validate_binding(object),
            "status" => validate::validate_policy_status(object),
            other => panic!("{other}"),
        };
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected: Vec<&str> = case["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| error.as_str().unwrap())
            .collect();
        count += 1;
        if found != expected {
            wrong.push(format!(
                "{}:\n  ours:     {found:#?}\n  original: {expected:#?}",
                case["name"]
            ));
        }
    }
    assert!(count >= 50, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In the pinned release every function that a stored expression may use can be used in a new one, too: the corpus of
/// `crates/cel/oracle` would tell. What a newer release has stored is unknown here as well, so that its conditions are
/// the one part that may stay as it is.
#[test]
fn a18_a_stored_condition_that_no_new_policy_may_have_stays_if_it_is_not_touched() {
    let newer = || json!([{"name": "a", "expression": "object.spec.inTheFuture().isFine()"}]);
    let policy = |conditions: Value, expression: &str| {
        json!({
            "metadata": {"name": "example.com"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
                    "namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"},
                "matchConditions": conditions,
                "validations": [{"expression": expression}],
            },
        })
    };
    let errors = |new: &Value, old: Option<&Value>| {
        let errors = validate::validate_policy(new, old);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let stored = policy(newer(), "true");
    let refused = errors(&stored, None);
    assert_eq!(refused.len(), 1, "{refused:#?}");
    assert!(
        refused[0].starts_with("spec.matchConditions[0].expression"),
        "{refused:#?}"
    );

    assert_eq!(errors(&stored, Some(&stored)), [""; 0]);
    assert_eq!(
        errors(&policy(newer(), "object.spec.x > 1"), Some(&stored)),
        [""; 0]
    );
    let mut touched = newer();
    touched[0]["name"] = json!("b");
    assert_eq!(errors(&policy(touched, "true"), Some(&stored)).len(), 1);
    // The original compiles validations each time, with what stored expressions may use.
    let validation = policy(json!([]), "object.spec.inTheFuture()");
    assert_eq!(errors(&validation, Some(&validation)).len(), 1);
}

#[test]
fn a_long_name_is_not_shown_with_each_of_many_annotations() {
    let annotations: Vec<Value> = (0..1_000)
        .map(|at| json!({"key": format!("a b{at}"), "valueExpression": "'x'"}))
        .collect();
    let policy = json!({"metadata": {"name": "n".repeat(100_000)}, "spec": {"auditAnnotations": annotations}});
    let errors = validate::validate_policy(&policy, None);
    let bytes: usize = errors.iter().map(|error| error.to_string().len()).sum();
    assert!(bytes < 4 << 20, "{bytes}");
}
