//! Validation of the label selectors in objects, in the API server's words and order.

use serde_json::{Value, json};

use crate::field_error::{ApiFieldError, MOST_ERRORS};
use fairgate_gotext::names;

fn texts(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

fn is_bad_value(value: &Value) -> bool {
    !names::label_value(value.as_str().unwrap_or_default()).is_empty()
}

/// Whether an expression has an invalid label value.
pub(crate) fn has_bad_value(selector: &Value) -> bool {
    texts(&selector["matchExpressions"])
        .any(|(_, expression)| texts(&expression["values"]).any(|(_, value)| is_bad_value(value)))
}

/// Adds the errors in the selector at `at`. If `tolerant`, the values of expressions may be invalid labels.
pub fn validate(at: &str, selector: &Value, tolerant: bool, errors: &mut Vec<ApiFieldError>) {
    let field = &format!("{at}.matchLabels");
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        if errors.len() >= MOST_ERRORS {
            return;
        }
        let wrong = names::qualified(key);
        errors.extend(
            wrong
                .iter()
                .map(|text| ApiFieldError::invalid(field, &json!(key), text)),
        );
        let wrong = names::label_value(value.as_str().unwrap_or_default());
        errors.extend(
            wrong
                .iter()
                .map(|text| ApiFieldError::invalid(field, value, text)),
        );
    }
    for (index, expression) in texts(&selector["matchExpressions"]) {
        if errors.len() >= MOST_ERRORS {
            return;
        }
        let field = format!("{at}.matchExpressions[{index}]");
        let values = &expression["values"];
        let is_empty = texts(values).next().is_none();
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if is_empty => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(ApiFieldError::required(&format!("{field}.values"), detail));
            }
            "Exists" | "DoesNotExist" if !is_empty => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(ApiFieldError::forbidden(&format!("{field}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let field = format!("{field}.operator");
                let detail = "not a valid selector operator";
                errors.push(ApiFieldError::invalid(&field, &json!(other), detail));
            }
        }
        let key = expression["key"].as_str().unwrap_or_default();
        let at_key = format!("{field}.key");
        let wrong = names::qualified(key);
        errors.extend(
            wrong
                .iter()
                .map(|text| ApiFieldError::invalid(&at_key, &json!(key), text)),
        );
        for (index, value) in texts(values).filter(|_| !tolerant) {
            if errors.len() >= MOST_ERRORS {
                return;
            }
            let field = format!("{field}.values[{index}]");
            let wrong = names::label_value(value.as_str().unwrap_or_default());
            errors.extend(
                wrong
                    .iter()
                    .map(|text| ApiFieldError::invalid(&field, value, text)),
            );
        }
    }
}
