//! JSON patch, RFC 6902: a list of operations, each of which must fit.
//!
//! The crate `json-patch` would suffice for the standard, but it has no negative indices, bounds neither
//! operations nor copies, and cannot report unknown or repeated members of an operation.

use std::{collections::BTreeSet, iter::Peekable};

use serde_json::Value;

use super::{
    PatchError, Patched, document::DoesNotApply, document::JsonDocument, mismatch, undecodable,
    unless_ignored,
};
use crate::{
    codec::{
        FieldValidation,
        json::{self, SyntaxError},
        no_type_meta,
        tree::{JsonMember, JsonNode},
    },
    go,
    schema::canonical::{MAX_PROBLEMS, Source as _},
};
use fairgate_gotext::Quoted;

/// How many operations a patch may have.
const MAX_OPERATIONS: usize = 10_000;
/// The members of an operation.
const MEMBERS: [&str; 4] = ["op", "path", "from", "value"];

/// Applies a JSON patch. Costs `O(object + patch)` and a bounded amount for shifting items of
/// lists.
///
/// # Errors
///
/// [`PatchError::BadRequest`], if the patch is not a list of operations; [`PatchError::TooLarge`], if
/// there are more than 10000; [`PatchError::Unprocessable`], if one does not fit the object; [`PatchError::TooDeep`], if the server could not
/// read what they make of it.
pub fn json_patch(
    object: &Value,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Patched, PatchError> {
    let patch = json::read(patch).map_err(|error| undecodable(validation, error))?;
    let value = patch.to_value();
    let operations = match &value {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => {
            let wanted = match validation {
                FieldValidation::Ignore => "value of type jsonpatch.Patch",
                FieldValidation::Warn | FieldValidation::Strict => {
                    "value of type []handlers.jsonPatchOp"
                }
            };
            return Err(undecodable(validation, mismatch(other, wanted)));
        }
    };
    check_types(operations, validation)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = JsonDocument::new(object.clone());
    for operation in operations {
        apply(&mut document, operation).map_err(|DoesNotApply| PatchError::Unprocessable)?;
    }
    if let Some(open) = document.too_deep() {
        let patched = go::json(&document.root);
        let why = no_type_meta(&SyntaxError::TooDeep(open));
        return Err(PatchError::TooDeep { patched, why });
    }
    Ok(Patched {
        value: document.root,
        problems: unless_ignored(problems(&patch), validation),
        patch: None,
    })
}

/// Checks that every operation is an object and, unless validation is off, that its text members are strings.
fn check_types(operations: &[Value], validation: FieldValidation) -> Result<(), PatchError> {
    let fail = |value: &Value, wanted: &str| Err(undecodable(validation, mismatch(value, wanted)));
    for operation in operations {
        match operation {
            Value::Null => {}
            Value::Object(_) if validation == FieldValidation::Ignore => {}
            Value::Object(operation) => {
                for name in ["op", "path", "from"] {
                    match operation.get(name) {
                        None | Some(Value::Null | Value::String(_)) => {}
                        Some(other) => {
                            let wanted = format!("struct field jsonPatchOp.{name} of type string");
                            return fail(other, &wanted);
                        }
                    }
                }
            }
            other if validation == FieldValidation::Ignore => {
                return fail(other, "value of type jsonpatch.Operation");
            }
            other => return fail(other, "value of type handlers.jsonPatchOp"),
        }
    }
    Ok(())
}

/// What is reported to a strict caller: unknown and repeated members of operations;
/// in the order of the text.
fn problems(patch: &JsonNode<'_>) -> Vec<String> {
    let JsonNode::List(operations) = patch else {
        return Vec::new();
    };
    let duplicates = patch.duplicates();
    let mut duplicates = duplicates.into_iter().peekable();
    let mut problems = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        if let JsonNode::Object(members) = operation {
            operation_problems(index, members, &mut duplicates, &mut problems);
        }
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
    }
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn operation_problems(
    index: usize,
    members: &[JsonMember<'_>],
    duplicates: &mut Peekable<impl Iterator<Item = String>>,
    problems: &mut Vec<String>,
) {
    let mut seen = BTreeSet::new();
    for (name, _) in members {
        let path = Quoted(&format!("[{index}].{name}")).to_string();
        let first = seen.insert(name);
        let itself = format!("duplicate field {path}");
        // Its members, or its items.
        let stem = itself.trim_end_matches('"');
        let inside = |text: &String| {
            let rest = text.strip_prefix(stem);
            rest.is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        if MEMBERS.contains(&&**name) {
            if !first {
                problems.extend(duplicates.next_if_eq(&itself).map(|text| reported(&text)));
            }
            while let Some(text) = duplicates.next_if(inside) {
                problems.push(reported(&text));
            }
        } else {
            // The contents of an unknown member are not checked.
            while duplicates
                .next_if(|text| *text == itself || inside(text))
                .is_some()
            {}
            if first {
                problems.push(reported(&format!("unknown field {path}")));
            }
        }
    }
}

fn reported(problem: &str) -> String {
    format!("json patch {problem}")
}

fn apply(document: &mut JsonDocument, operation: &Value) -> Result<(), DoesNotApply> {
    let text = |name| {
        operation
            .get(name)
            .and_then(Value::as_str)
            .ok_or(DoesNotApply)
    };
    let value = operation.get("value");
    let path = text("path")?;
    match text("op")? {
        // A missing value means null.
        "add" => document.add(path, value.cloned().unwrap_or_default()),
        "replace" => document.replace(path, value.cloned().unwrap_or_default()),
        "remove" => document.remove(path).map(drop),
        "move" => document.move_to(text("from")?, path),
        "copy" => document.copy_to(text("from")?, path),
        "test" => document.test(path, value),
        _ => Err(DoesNotApply),
    }
}
