//! What the type checker says, compared with Kubernetes' own.
//!
//! `tests/cluster/admissiontypes` writes the cases.

use fairgate_admission::{expression_warnings, kinds::ADMISSION_KINDS};
use fairgate_objects::{kind::Kind, kinds::KINDS};
use serde_json::Value;

const CASES: &str = include_str!("../corpus/types.jsonl");

#[test]
fn expressions_have_the_same_warnings_as_in_the_original() {
    let kinds: Vec<_> = KINDS.into_iter().chain(ADMISSION_KINDS).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut found = expression_warnings(&case["policy"], &kinds);
        for warning in &mut found {
            let text = warning["warning"].as_str().unwrap();
            warning["warning"] = without_numbers(text, &kinds).into();
        }
        let expected = case["warnings"].as_array().unwrap();
        count += expected.len();
        if found != *expected {
            wrong.push(format!(
                "{}:\n  ours:     {found:#?}\n  original: {expected:#?}",
                case["name"]
            ));
        }
    }
    assert!(count >= 50, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Types have numbers, which are others in the original.
fn without_numbers(text: &str, kinds: &[&Kind]) -> String {
    let mut text = text.to_owned();
    for kind in kinds {
        for number in [1, 2] {
            text = text.replace(&format!("{}{number}", kind.kind), kind.kind);
        }
    }
    text
}
