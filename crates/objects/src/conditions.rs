//! Validation of the conditions in the status of objects, in the API server's words and order.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::field_error::{ApiFieldError, MOST_ERRORS};
use fairgate_gotext::names;

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed \
    by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or \
    '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', \
    regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
/// The longest reason and message of a condition, in bytes.
const MAX_REASON: usize = 1 << 10;
const MAX_MESSAGE: usize = 32 << 10;

/// Adds the errors in the conditions at `at`.
pub fn validate(at: &str, conditions: &Value, errors: &mut Vec<ApiFieldError>) {
    let mut types = HashSet::new();
    for (index, condition) in conditions.as_array().into_iter().flatten().enumerate() {
        if errors.len() >= MOST_ERRORS {
            return;
        }
        let field = format!("{at}[{index}]");
        let ty = &condition["type"];
        if !types.insert(ty.as_str().unwrap_or_default()) {
            errors.push(ApiFieldError::duplicate(&format!("{field}.type"), ty));
        }
        check_condition(&field, condition, errors);
    }
}

fn check_condition(field: &str, condition: &Value, errors: &mut Vec<ApiFieldError>) {
    let at = |member: &str| format!("{field}.{member}");
    let text = |member: &str| condition[member].as_str().unwrap_or_default();
    for problem in names::qualified(text("type")) {
        let error = ApiFieldError::invalid(&at("type"), &json!(text("type")), problem);
        errors.push(error);
    }
    let status = text("status");
    if !STATUSES.contains(&status) {
        let error = ApiFieldError::unsupported(&at("status"), &json!(status), &STATUSES);
        errors.push(error);
    }
    let generation = &condition["observedGeneration"];
    if generation.as_i64().is_some_and(|generation| generation < 0) {
        let detail = "must be greater than or equal to zero";
        errors.push(ApiFieldError::invalid(
            &at("observedGeneration"),
            generation,
            detail,
        ));
    }
    if text("lastTransitionTime").is_empty() {
        errors.push(ApiFieldError::required(&at("lastTransitionTime"), ""));
    }
    match text("reason") {
        "" => errors.push(ApiFieldError::required(&at("reason"), "")),
        reason => {
            if !is_reason(reason) {
                errors.push(ApiFieldError::invalid(
                    &at("reason"),
                    &json!(reason),
                    REASON,
                ));
            }
            if reason.len() > MAX_REASON {
                errors.push(ApiFieldError::too_long(&at("reason"), MAX_REASON));
            }
        }
    }
    if text("message").len() > MAX_MESSAGE {
        errors.push(ApiFieldError::too_long(&at("message"), MAX_MESSAGE));
    }
}

/// `[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?`
fn is_reason(reason: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = reason.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| is_end(*byte))
        && bytes
            .iter()
            .all(|byte| is_end(*byte) || matches!(byte, b',' | b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_must_be_complete_and_of_different_types() {
        let good = json!({
            "type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
            "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z", "observedGeneration": 1,
        });
        let errors = |conditions: Value| -> Vec<String> {
            let mut errors = Vec::new();
            validate("status.conditions", &conditions, &mut errors);
            errors.iter().map(ApiFieldError::to_string).collect()
        };
        assert!(errors(json!([good])).is_empty());
        assert_eq!(
            errors(json!([good, good])),
            ["status.conditions[1].type: Duplicate value: \"DisruptionAllowed\""]
        );
        assert_eq!(
            errors(json!([{"type": "a"}])),
            [
                "status.conditions[0].status: Unsupported value: \"\": supported values: \"False\", \"True\", \"Unknown\"",
                "status.conditions[0].lastTransitionTime: Required value",
                "status.conditions[0].reason: Required value",
            ]
        );
        let problems = errors(json!([{}]));
        let of_type = "status.conditions[0].type: Invalid value: \"\": name part must ";
        assert!(
            problems[..2]
                .iter()
                .all(|problem| problem.starts_with(of_type)),
            "{problems:?}"
        );
        for (member, value, detail) in [
            (
                "status",
                json!("true"),
                "supported values: \"False\", \"True\", \"Unknown\"",
            ),
            (
                "observedGeneration",
                json!(-1),
                "must be greater than or equal to zero",
            ),
            ("reason", json!("a b"), REASON),
            ("reason", json!("a:"), REASON),
            (
                "message",
                json!("x".repeat(MAX_MESSAGE + 1)),
                "may not be more than 32768 bytes",
            ),
        ] {
            let mut bad = good.clone();
            bad[member] = value;
            let field = format!("status.conditions[0].{member}");
            let errors = errors(json!([bad]));
            let fits = |error: &String| {
                error.starts_with(&format!("{field}: ")) && error.ends_with(detail)
            };
            assert!(errors.len() == 1 && fits(&errors[0]), "{errors:?}");
        }
    }
}
