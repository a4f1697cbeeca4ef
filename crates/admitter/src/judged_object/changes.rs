//! What the generation of an object counts.
//!
//! The server compares objects with their defaults. A PUT that leaves defaults out looks like a change here: policies that skip
//! what is unchanged then judge once too often, and not once too rarely.

use serde_json::{Map, Value, json};

/// The part of an object whose changes its generation counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spec {
    /// These members.
    Members(&'static [&'static str]),
    /// `spec` and the annotations.
    WithAnnotations,
    /// All members but the metadata, and the labels.
    AllAndLabels,
    /// All members but the metadata.
    AllButMetadata,
    /// `spec`, but a new object has the generation that the client sends.
    OnUpdate,
    /// Nothing: it stays 1.
    Never,
}

impl Spec {
    fn differs(self, new: &Value, old: &Value) -> bool {
        let at = |pointer: &str| differ(new.pointer(pointer), old.pointer(pointer));
        match self {
            Self::Members(members) => members.iter().any(|key| differ(new.get(key), old.get(key))),
            Self::OnUpdate => differ(new.get("spec"), old.get("spec")),
            Self::WithAnnotations => {
                differ(new.get("spec"), old.get("spec")) || at("/metadata/annotations")
            }
            Self::AllAndLabels => others_differ(new, old) || at("/metadata/labels"),
            Self::AllButMetadata => others_differ(new, old),
            Self::Never => false,
        }
    }
}

/// Gives an object the generation that it has after a change of the stored one.
pub(super) fn count(counted: Option<Spec>, object: &mut Value, old: &Value) {
    let before = old.pointer("/metadata/generation").cloned();
    let differs = counted.is_some_and(|spec| spec.differs(object, old));
    let generation = match before {
        _ if differs => {
            let before = before.as_ref().and_then(Value::as_i64);
            Some(json!(before.unwrap_or(0).wrapping_add(1)))
        }
        before => before,
    };
    let Some(metadata) = super::metadata_mut(object) else {
        return;
    };
    match generation {
        Some(generation) => metadata.insert("generation".to_owned(), generation),
        None => metadata.remove("generation"),
    };
}

/// Whether any member but the metadata differs.
fn others_differ(new: &Value, old: &Value) -> bool {
    let others = |of: &Value| -> Map<String, Value> {
        let members = of.as_object().into_iter().flatten();
        let others =
            members.filter(|(key, _)| !["metadata", "apiVersion", "kind"].contains(&&***key));
        others
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    others(new) != others(old)
}

/// Whether two values differ. Absent and empty are the same, as in the server's types.
fn differ(new: Option<&Value>, old: Option<&Value>) -> bool {
    fn filled(value: Option<&Value>) -> Option<&Value> {
        value.filter(|value| match value {
            Value::Null => false,
            Value::Object(members) => !members.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => true,
        })
    }
    filled(new) != filled(old)
}
