//! Which fields an object in canonical form has: the empty ones that are always written, and none that is left out when empty.

use serde_json::{Map, Value};
use smallvec::SmallVec;

use crate::schema::{Field, Presence, Struct, Type};

/// What happens to lists and maps that are empty and always written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyValues {
    /// They are null, as after storage.
    Null,
    /// They stay what they are, as in a server until the object is stored.
    Kept,
}

/// Brings an object whose values have the right types into canonical form, for example after
/// something was set or removed in it. Keys without a field stay.
pub(crate) fn complete(shape: &Struct, object: &mut Map<String, Value>) {
    complete_with(shape, object, EmptyValues::Null);
}

pub(super) fn complete_with(shape: &Struct, object: &mut Map<String, Value>, empty: EmptyValues) {
    let mut unset: SmallVec<[&str; 8]> = SmallVec::new();
    for (name, value) in object.iter_mut() {
        if let Some(field) = shape.field(name)
            && !complete_field(field, value, empty)
        {
            unset.push(field.name);
        }
    }
    for name in unset {
        object.remove(name);
    }
    for field in shape.fields {
        let may_appear = field.presence == Presence::Always || field.is_embedded_object();
        if may_appear && !object.contains_key(field.name) {
            let mut value = Value::Null;
            if complete_field(field, &mut value, empty) {
                object.insert(field.name.to_owned(), value);
            }
        }
    }
}

/// Brings the value of a field, or null if it has none, into canonical form. Returns whether the field is present then.
fn complete_field(field: &Field, value: &mut Value, empty: EmptyValues) -> bool {
    let ty = &field.ty;
    if value.is_null() && field.is_embedded_object() {
        *value = Value::Object(Map::new());
    }
    complete_value(ty, value, empty);
    match field.presence {
        Presence::Pointer | Presence::Nullable => !value.is_null(),
        Presence::NonZero => !is_zero(value),
        Presence::Always => {
            let is_collection = matches!(ty, Type::List(_) | Type::Map(_));
            if value.is_null() || empty == EmptyValues::Null && is_collection && is_zero(value) {
                *value = zero(ty);
            }
            true
        }
    }
}

impl Field {
    /// Whether its value is an object that is there whether or not it was given.
    fn is_embedded_object(&self) -> bool {
        matches!(self.ty, Type::Object(_)) && !self.presence.is_pointer()
    }
}

/// Brings a value of type `ty` into canonical form.
fn complete_value(ty: &Type, value: &mut Value, empty: EmptyValues) {
    match (ty, value) {
        (Type::Object(shape), Value::Object(object)) => complete_with(shape, object, empty),
        (Type::List(list), Value::Array(items)) => {
            for item in items {
                complete_value(&list.item, item, empty);
            }
        }
        (Type::Map(map), Value::Object(entries)) => {
            for (_, value) in entries.iter_mut() {
                complete_value(&map.value, value, empty);
            }
        }
        _ => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// What a Go value of this type is before something is decoded into it.
pub fn zero(ty: &Type) -> Value {
    match ty {
        Type::Text => Value::String(String::new()),
        Type::Int32 | Type::Int64 | Type::IntOrString => Value::from(0),
        Type::Flag => Value::Bool(false),
        Type::Quantity => Value::from("0"),
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::Raw
        | Type::RawExtension
        | Type::List(_)
        | Type::Map(_) => Value::Null,
        Type::Object(_) => Value::Object(Map::new()),
    }
}
