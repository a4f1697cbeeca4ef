//! The annotation in which kubectl stores what it applied on the client side.
//!
//! Server-side apply by kubectl keeps the annotation up to date, so that users can return to client-side apply.
//! It also takes over the fields that the annotation contains, so that users can change to server-side apply
//! without conflicts.

use serde_json::Value;

use super::{
    field_set::field_set, path_set::PathSet, validate::DuplicateItems,
    versioned_object::VersionedObject,
};
use crate::go;

/// The annotation's key.
pub(super) const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The limit for the sum of all annotations in bytes, including keys.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// The paths to which the annotation of a live object gives the values that they still have. `None` if there is
/// no annotation of the object's version that fits its table.
pub(super) fn owned(live: &VersionedObject<'_>) -> Option<PathSet> {
    let text = live.value()["metadata"]["annotations"][ANNOTATION].as_str()?;
    let applied: Value = serde_json::from_str(text).ok()?;
    let stated = live.object();
    if applied["apiVersion"] != stated["apiVersion"] || applied["kind"] != stated["kind"] {
        return None;
    }
    let applied = live.with(body_of(applied));
    applied.validate(DuplicateItems::Refused).ok()?;
    let comparison = applied.compare(live);
    let set = field_set(applied.ty(), applied.value());
    Some(
        set.difference(&comparison.removed)
            .difference(&comparison.into_set_now()),
    )
}

fn body_of(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

/// Writes the applied object into the annotation, if there is one; if that would make all annotations
/// too large, removes it.
pub(super) fn sync(object: &mut Value, applied: &Value) {
    let annotations = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    let Some(annotations) = annotations else {
        return;
    };
    let earlier = annotations.get(ANNOTATION).and_then(Value::as_str);
    if earlier.is_none_or(str::is_empty) {
        return;
    }
    let text = format!("{}\n", go::json(&without_annotation(applied)));
    annotations.insert(ANNOTATION.to_owned(), text.into());
    let bytes: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if bytes > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn without_annotation(applied: &Value) -> Value {
    let mut applied = applied.clone();
    if let Some(Value::Object(metadata)) = applied.get_mut("metadata") {
        let plain = match metadata.get_mut("annotations") {
            Some(Value::Object(annotations)) if annotations.values().all(Value::is_string) => {
                annotations.remove(ANNOTATION);
                true
            }
            _ => false,
        };
        if !plain {
            metadata.remove("annotations");
        }
    }
    applied
}
