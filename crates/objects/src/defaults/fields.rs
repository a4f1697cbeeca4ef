//! Fields of objects as Go's defaulting functions see them: a field that is absent is one that is nil or zero.

use serde_json::{Map, Value};

/// The fields of an object.
pub(super) type FieldMap = Map<String, Value>;

/// The object that a pointer refers to, if there is one.
pub(super) fn object<'o>(parent: &'o mut FieldMap, name: &str) -> Option<&'o mut FieldMap> {
    parent.get_mut(name)?.as_object_mut()
}

/// The object in a field that always has one: it is made if it is absent. None if the field has another type.
pub(super) fn object_or_insert<'o>(
    parent: &'o mut FieldMap,
    name: &str,
) -> Option<&'o mut FieldMap> {
    set_if_nil(parent, name, Map::new);
    object(parent, name)
}

/// The objects of a list.
pub(super) fn items<'o>(
    parent: &'o mut FieldMap,
    name: &str,
) -> impl Iterator<Item = &'o mut FieldMap> {
    let list = parent.get_mut(name).and_then(Value::as_array_mut);
    (list.into_iter().flatten()).filter_map(Value::as_object_mut)
}

/// The text of a field; empty if there is none.
pub(super) fn text<'o>(parent: &'o FieldMap, name: &str) -> &'o str {
    parent.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a field is nil: absent or null.
pub(super) fn is_nil(parent: &FieldMap, name: &str) -> bool {
    parent.get(name).is_none_or(Value::is_null)
}

/// Whether a field is nil, zero, or has no elements. A boolean is never taken for zero.
pub(super) fn is_zero(parent: &FieldMap, name: &str) -> bool {
    parent.get(name).is_none_or(|value| match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    })
}

/// Sets a field that is a pointer and nil.
pub(super) fn set_if_nil<V: Into<Value>>(
    parent: &mut FieldMap,
    name: &str,
    value: impl FnOnce() -> V,
) {
    if is_nil(parent, name) {
        parent.insert(name.to_owned(), value().into());
    }
}

/// Sets a field that is nil to a plain value.
pub(super) fn default_if_nil(parent: &mut FieldMap, name: &str, value: impl Into<Value>) {
    set_if_nil(parent, name, || value);
}

/// Sets a field that is zero.
pub(super) fn default_if_zero(parent: &mut FieldMap, name: &str, value: impl Into<Value>) {
    if is_zero(parent, name) {
        parent.insert(name.to_owned(), value.into());
    }
}
