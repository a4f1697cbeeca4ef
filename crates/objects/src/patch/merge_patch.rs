//! JSON merge patch, RFC 7396.
//!
//! Two things are upstream's own: nulls in objects that lists hold are dropped where the list takes
//! the place of anything but an object, and a list as the whole patch takes the place of the whole
//! document, unless the caller validates.

use serde_json::{Map, Value};

use super::{PatchError, Patched, mismatch, undecodable, unless_ignored};
use crate::codec::{FieldValidation, json};

/// Applies a merge patch. Costs `O(object + patch)`.
///
/// # Errors
///
/// [`PatchError::BadRequest`], if the patch is no JSON or no object.
pub fn merge_patch(
    object: &Value,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Patched, PatchError> {
    let parsed = json::parse(patch).map_err(|error| match validation {
        FieldValidation::Ignore => not_a_patch(),
        FieldValidation::Warn | FieldValidation::Strict => undecodable(validation, error),
    })?;
    let problems = unless_ignored(parsed.duplicates, validation);
    let value = match parsed.value {
        Value::Object(patch) => {
            let mut value = object.clone();
            match &mut value {
                Value::Object(target) => merge(target, patch),
                other => *other = without_nulls(Value::Object(patch)),
            }
            value
        }
        Value::Null => return Err(not_a_patch()),
        other if validation != FieldValidation::Ignore => {
            let wanted = "value of type map[string]interface {}";
            return Err(undecodable(validation, mismatch(&other, wanted)));
        }
        list @ Value::Array(_) => without_nulls(list),
        _ => return Err(not_a_patch()),
    };
    Ok(Patched {
        value,
        problems,
        patch: None,
    })
}

fn not_a_patch() -> PatchError {
    PatchError::BadRequest("Invalid JSON Patch".to_owned())
}

fn merge(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match (target.get_mut(&key), value) {
            (_, Value::Null) => {
                target.remove(&key);
            }
            (Some(Value::Object(current)), Value::Object(patch)) => merge(current, patch),
            (Some(current @ Value::Object(_)), value) => *current = value,
            (_, value) => {
                target.insert(key, without_nulls(value));
            }
        }
    }
}

/// Drops null members everywhere, but no null items of lists.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ];
        for (object, patch, expected) in cases {
            let text = patch.to_string();
            let patched = merge_patch(&object, text.as_bytes(), FieldValidation::Strict).unwrap();
            assert_eq!(patched.value, expected, "{object} {patch}");
        }
    }
}
