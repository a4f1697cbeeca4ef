//! Writing messages.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{
    codec::json,
    schema::{Field, Inline, List, Struct, Type},
};
use fairgate_gotext::time;

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
    let numbered = shape.fields.iter().filter(|field| field.number > 0);
    let mut parts: Vec<Part> = numbered.map(Part::Field).collect();
    parts.extend(shape.inline.iter().map(Part::Inline));
    // In the order of Go's generated code, so that the bytes are the same.
    parts.sort_unstable_by_key(Part::number);
    for part in parts {
        match part {
            Part::Field(field) => {
                let value = object.get(field.name).unwrap_or(&Value::Null);
                if !(value.is_null() && (field.presence.is_pointer() || is_nil(&field.ty))) {
                    put(field.number, &field.ty, value, out);
                }
            }
            Part::Inline(inline) => {
                let mut nested = Vec::new();
                message(inline.shape, object, &mut nested);
                put_bytes(inline.number, &nested, out);
            }
        }
    }
}

/// What a message consists of.
#[derive(Clone, Copy)]
enum Part {
    Field(&'static Field),
    Inline(&'static Inline),
}

impl Part {
    fn number(&self) -> u32 {
        match self {
            Self::Field(field) => field.number,
            Self::Inline(inline) => inline.number,
        }
    }
}

/// Whether a field of this type is left out if it is null, although it is not a pointer.
fn is_nil(ty: &Type) -> bool {
    matches!(ty, Type::List(_) | Type::Map(_) | Type::Bytes)
}

/// Appends one value; an absent one as its zero value.
fn put(number: u32, ty: &Type, value: &Value, out: &mut Vec<u8>) {
    match ty {
        Type::Text => put_bytes(number, value.as_str().unwrap_or_default().as_bytes(), out),
        Type::Int32 | Type::Int64 => put_varint(number, int(value), out),
        Type::Flag => put_varint(number, u64::from(value.as_bool().unwrap_or_default()), out),
        Type::Bytes => {
            let bytes = STANDARD.decode(value.as_str().unwrap_or_default());
            put_bytes(number, &bytes.unwrap_or_default(), out);
        }
        Type::Time => put_bytes(number, &moment(value), out),
        Type::MicroTime => put_bytes(number, &micro_moment(value), out),
        Type::Raw | Type::RawExtension => {
            let mut message = Vec::new();
            if !value.is_null() {
                put_bytes(1, &json::encode_raw(value), &mut message);
            }
            put_bytes(number, &message, out);
        }
        Type::Quantity => {
            let mut message = Vec::new();
            put_bytes(1, value.as_str().unwrap_or("0").as_bytes(), &mut message);
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
        Type::List(list) if list.message => {
            let mut nested = Vec::new();
            items(1, list, value, &mut nested);
            put_bytes(number, &nested, out);
        }
        Type::List(list) => items(number, list, value, out),
        Type::Map(map) => {
            let entries = value.as_object().into_iter().flatten();
            for (key, value) in entries {
                let mut entry = Vec::new();
                put_bytes(1, key.as_bytes(), &mut entry);
                // Go leaves a nil slice out of the entry.
                if !(value.is_null() && matches!(map.value, Type::Bytes)) {
                    put(2, &map.value, value, &mut entry);
                }
                put_bytes(number, &entry, out);
            }
        }
    }
}

fn items(number: u32, list: &List, value: &Value, out: &mut Vec<u8>) {
    for item in value.as_array().into_iter().flatten() {
        put(number, &list.item, item, out);
    }
}

fn int(value: &Value) -> u64 {
    value.as_i64().unwrap_or_default().cast_unsigned()
}

fn moment(value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    if let Some(seconds) = value.as_str().and_then(time::seconds) {
        put_varint(1, seconds.cast_unsigned(), &mut message);
        // Nanoseconds, which are none; Go writes them all the same.
        put_varint(2, 0, &mut message);
    }
    message
}

fn micro_moment(value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    if let Some((seconds, nanos)) = value.as_str().and_then(time::seconds_and_nanos) {
        put_varint(1, seconds.cast_unsigned(), &mut message);
        put_varint(2, u64::from(nanos), &mut message);
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
