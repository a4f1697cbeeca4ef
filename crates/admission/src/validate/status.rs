//! Validation of the status of policies, which the type checker writes.

use serde_json::Value;

use super::{items, text};
use fairgate_objects::{conditions, field_error::ApiFieldError};

/// The errors in the status of a policy. Whether a `fieldRef` is a `JSONPath` is not checked: nobody evaluates it.
pub fn validate(policy: &Value) -> Vec<ApiFieldError> {
    let status = &policy["status"];
    let mut errors = Vec::new();
    let warnings = &status["typeChecking"]["expressionWarnings"];
    for (index, warning) in items(warnings) {
        let at = format!("status.typeChecking.expressionWarnings[{index}]");
        for (member, value) in [
            ("warning", text(&warning["warning"])),
            ("fieldRef", text(&warning["fieldRef"]).trim()),
        ] {
            if value.is_empty() {
                errors.push(ApiFieldError::required(&format!("{at}.{member}"), ""));
            }
        }
    }
    conditions::validate("status.conditions", &status["conditions"], &mut errors);
    errors
}
