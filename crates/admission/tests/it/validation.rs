//! What clients may write, compared with Kubernetes' own validation.
//!
//! `tests/cluster/admissionvalidation` writes the cases.

use fairgate_admission::validate;
use serde_json::Value;

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
