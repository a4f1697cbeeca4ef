//! Writing messages.

use serde_json::{Map, Value};

use crate::{
    codec::json,
    schema::{Field, Presence, Struct, Type, canonical::time},
};

/// The message of an object in canonical form for `shape`; it does not contain `kind` and `apiVersion`.
///
/// Costs time linear in the size of the object, for each level of it.
pub fn encode(shape: &Struct, object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    if let Value::Object(object) = object {
        message(shape, object, &mut out);
    }
    out
}

/// Appends a field of bytes.
pub(in super::super) fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    tag(number, 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a field with a number.
fn put_varint(number: u32, value: u64, out: &mut Vec<u8>) {
    tag(number, 0, out);
    varint(value, out);
}

fn tag(number: u32, wire: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn message(shape: &Struct, object: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut fields: Vec<&Field> = shape
        .fields
        .iter()
        .filter(|field| field.number > 0)
        .collect();
    fields.sort_unstable_by_key(|field| field.number);
    for field in fields {
        let value = object.get(field.name).unwrap_or(&Value::Null);
        if value.is_null() && (field.presence == Presence::Pointer || is_many(&field.ty)) {
            continue;
        }
        match (&field.ty, value) {
            (Type::List(list), Value::Array(items)) => {
                for item in items {
                    put(field.number, &list.item, item, out);
                }
            }
            (Type::Map(ty), Value::Object(entries)) => {
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    put_bytes(1, key.as_bytes(), &mut entry);
                    put(2, ty, value, &mut entry);
                    put_bytes(field.number, &entry, out);
                }
            }
            (ty, value) => put(field.number, ty, value, out),
        }
    }
}

fn is_many(ty: &Type) -> bool {
    matches!(ty, Type::List(_) | Type::Map(_))
}

/// Appends one value; an absent one as its zero value.
fn put(number: u32, ty: &Type, value: &Value, out: &mut Vec<u8>) {
    match ty {
        Type::Text => put_bytes(number, value.as_str().unwrap_or_default().as_bytes(), out),
        Type::Int32 | Type::Int64 => put_varint(number, int(value), out),
        Type::Flag => put_varint(number, u64::from(value.as_bool().unwrap_or_default()), out),
        Type::Time => put_bytes(number, &moment(value), out),
        Type::Raw => {
            let mut message = Vec::new();
            put_bytes(1, &json::encode_raw(value), &mut message);
            put_bytes(number, &message, out);
        }
        Type::IntOrString => put_bytes(number, &int_or_string(value), out),
        Type::Object(shape) => {
            let mut nested = Vec::new();
            if let Value::Object(object) = value {
                message(shape, object, &mut nested);
            } else {
                message(shape, &Map::new(), &mut nested);
            }
            put_bytes(number, &nested, out);
        }
        Type::List(_) | Type::Map(_) => {}
    }
}

fn int(value: &Value) -> u64 {
    value.as_i64().unwrap_or_default().cast_unsigned()
}

fn moment(value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    if let Some(seconds) = value.as_str().and_then(time::seconds) {
        put_varint(1, seconds.cast_unsigned(), &mut message);
        put_varint(2, 0, &mut message);
    }
    message
}

fn int_or_string(value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    put_varint(1, u64::from(value.is_string()), &mut message);
    put_varint(2, int(value), &mut message);
    put_bytes(
        3,
        value.as_str().unwrap_or_default().as_bytes(),
        &mut message,
    );
    message
}
