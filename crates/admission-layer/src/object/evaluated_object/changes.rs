//! What the generation of an object counts.
//!
//! The server compares objects with their defaults. A PUT that leaves defaults out looks like a change here: policies that skip
//! what is unchanged then evaluate once too often, and not once too rarely.

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

/// The annotation that counts the templates of a daemon set, which is a field of its own in the server.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Gives a new daemon set the annotation that counts its templates.
pub(super) fn first_template_generation(object: &mut Value) {
    let sent = template_generation(object).and_then(Value::as_str);
    let sent: i64 = sent.and_then(|sent| sent.parse().ok()).unwrap_or(0);
    set_template_generation(object, Some(json!(sent.max(1).to_string())));
}

/// Keeps the annotation that counts the templates of a daemon set, and counts another template.
pub(super) fn count_templates(object: &mut Value, old: &Value) {
    const TEMPLATE: &str = "/spec/template";
    let stored = template_generation(old);
    let counted = stored
        .and_then(Value::as_str)
        .and_then(|stored| stored.parse::<i64>().ok());
    let is_another = differ(object.pointer(TEMPLATE), old.pointer(TEMPLATE));
    let generation = match counted {
        Some(counted) if is_another => Some(json!(counted.wrapping_add(1).to_string())),
        _ => stored.cloned(),
    };
    set_template_generation(object, generation);
}

pub(super) fn template_generation(set: &Value) -> Option<&Value> {
    set.pointer(&format!("/metadata/annotations/{TEMPLATE_GENERATION}"))
}

pub(super) fn set_template_generation(object: &mut Value, generation: Option<Value>) {
    let Some(metadata) = super::metadata_mut(object) else {
        return;
    };
    let annotations = metadata.entry("annotations");
    let annotations = annotations.or_insert_with(|| json!({}));
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Value::Object(annotations) = annotations {
        match generation {
            Some(generation) => annotations.insert(TEMPLATE_GENERATION.to_owned(), generation),
            None => annotations.remove(TEMPLATE_GENERATION),
        };
    }
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
    let [new, old] = [new, old].map(|of| Value::Object(others(of)));
    differ(Some(&new), Some(&old))
}

/// Whether two values differ. Absent and empty are the same at any depth, as in the server's types.
fn differ(new: Option<&Value>, old: Option<&Value>) -> bool {
    match (filled(new), filled(old)) {
        (Some(Value::Object(new)), Some(Value::Object(old))) => {
            let is_gone = |key: &&String| !new.contains_key(*key);
            let gone = old.keys().filter(is_gone);
            let mut all = new.keys().chain(gone);
            all.any(|key| differ(new.get(key), old.get(key)))
        }
        (Some(Value::Array(new)), Some(Value::Array(old))) => {
            let mut both = new.iter().zip(old);
            new.len() != old.len() || both.any(|(new, old)| differ(Some(new), Some(old)))
        }
        (new, old) => new != old,
    }
}

/// The value, unless it is empty.
fn filled(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_at_any_depth_is_as_what_is_absent() {
        let differ = |new: Value, old: Value| super::differ(Some(&new), Some(&old));
        let with = |rules: Value| json!({"a": {"rules": rules, "b": [{"c": 1}]}});
        assert!(!differ(with(json!([])), with(Value::Null)));
        assert!(!differ(
            with(json!({})),
            json!({"a": {"b": [{"c": 1, "d": []}]}})
        ));
        assert!(differ(with(json!([1])), with(Value::Null)));
        assert!(differ(with(json!([])), json!({"a": {"b": [{"c": 2}]}})));
        assert!(differ(json!({"a": [1]}), json!({"a": [1, 2]})));
        assert!(differ(json!({"a": 1}), json!({"b": 1})));
        assert!(differ(json!({}), json!({"b": 1})));
    }
}
