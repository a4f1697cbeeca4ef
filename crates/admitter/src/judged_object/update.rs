//! Changes of stored objects.

use serde_json::{Map, Value};

use super::{
    changes,
    creation::{named, secret_names},
    metadata_mut,
    table::{CreatedStatus, ResourceStrategy},
    take,
};

impl ResourceStrategy {
    /// The object of a PUT or patch.
    pub(super) fn update(&self, object: &mut Value, old: &Value) {
        settle_metadata(object, old, &[]);
        if let Some(members) = object.as_object_mut() {
            if self.status != CreatedStatus::Ordinary {
                take(members, "status", Some(old));
            }
            for key in self.kept {
                take(members, key, Some(old));
            }
        }
        match (self.group, self.resource) {
            ("", "namespaces") => named(object),
            ("", "serviceaccounts") => secret_names(object),
            ("", "secrets") => {
                if let Some(members) = object.as_object_mut() {
                    fill(members, "type", Some(old), &[""]);
                }
            }
            ("apps", "daemonsets") => template_generation(object, old),
            _ => {}
        }
        changes::count(self.counted, object, old);
    }
}

/// Keeps the metadata that only the server sets, and these fields of it.
pub(super) fn settle_metadata(object: &mut Value, old: &Value, stored: &[&str]) {
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    let old = old.get("metadata");
    for key in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        take(metadata, key, old);
    }
    for key in stored {
        take(metadata, key, old);
    }
    // Another UID, or another version, is refused.
    fill(metadata, "uid", old, &[""]);
    fill(metadata, "resourceVersion", old, &["", "0"]);
    let is_unowned = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    if metadata.get("managedFields").is_none_or(is_unowned) {
        take(metadata, "managedFields", old);
    }
}

/// Keeps the annotation that counts the templates of a daemon set, which is a field of its own in the server.
pub(super) fn template_generation(object: &mut Value, old: &Value) {
    const ANNOTATION: &str = "deprecated.daemonset.template.generation";
    let stored = old.pointer("/metadata/annotations");
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    let annotations = metadata.entry("annotations");
    let annotations = annotations.or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(annotations) = annotations {
        take(annotations, ANNOTATION, stored);
    }
}

/// Gives a field the value that is stored if it has none, or one of these.
fn fill(members: &mut Map<String, Value>, key: &str, old: Option<&Value>, none: &[&str]) {
    let value = members.get(key).and_then(Value::as_str).unwrap_or("");
    if none.contains(&value) {
        take(members, key, old);
    }
}
