//! Encodes JSON as protobuf. A table for each message lists its fields.
//!
//! Messages are proto3: zero values are omitted, except in a `oneof`. Extensions (`x-…`) are embedded as
//! YAML; JSON is YAML, so they are written as JSON.

use ProtoField::{Any, Anys, Flag, Many, Number, One, Text, Texts, Whole};
use serde_json::Value;

/// The maximum depth of a document; deeper values are omitted. The JSON parser has the same limit.
pub(super) const DEPTH: u32 = 128;

/// How an object is encoded as a message.
pub(super) struct ProtoMessage {
    /// Number, key and shape of each field.
    pub(super) fields: &'static [(u32, &'static str, ProtoField)],
    /// Number of the field that extensions go to; 0 for none.
    pub(super) extensions: u32,
}

/// The type of a field.
pub(super) enum ProtoField {
    Text,
    Texts,
    Flag,
    Whole,
    Number,
    /// A value of any shape.
    Any,
    /// A list of such values.
    Anys,
    /// A message.
    One(EncodeField),
    /// A list of messages.
    Many(EncodeField),
}

/// Encodes a value as a message; `None` if it has another shape. The number is the remaining depth.
pub(super) type EncodeField = fn(&Value, u32) -> Option<Vec<u8>>;

/// Encodes a `$ref`, if the value is one.
pub(super) fn json_reference(value: &Value) -> Option<Vec<u8>> {
    let reference = value.get("$ref")?.as_str()?;
    Some(only(1, reference.as_bytes()))
}

/// A list, or one value as a list.
pub(super) fn one_or_many(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        one => std::slice::from_ref(one),
    }
}

/// An object with any keys: a repeated pair of a name and a message.
pub(super) fn map(value: &Value, encode: EncodeField, depth: u32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for (name, value) in value.as_object()? {
        named(&mut out, 1, name, value, encode, depth.checked_sub(1)?);
    }
    Some(out)
}

/// Like [`map`], but keys that begin with `x-` are encoded as extensions.
pub(super) fn extensible_map(
    value: &Value,
    encode: EncodeField,
    entries: u32,
    extensions: u32,
    depth: u32,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for (name, value) in value.as_object()? {
        if is_extension(name) {
            extension(&mut out, extensions, name, value);
        } else {
            named(
                &mut out,
                entries,
                name,
                value,
                encode,
                depth.checked_sub(1)?,
            );
        }
    }
    Some(out)
}

fn named(
    out: &mut Vec<u8>,
    number: u32,
    name: &str,
    value: &Value,
    encode: EncodeField,
    depth: u32,
) {
    if let Some(value) = encode(value, depth) {
        pair(out, number, name, &value);
    }
}

fn extension(out: &mut Vec<u8>, number: u32, name: &str, value: &Value) {
    pair(out, number, name, &any(value));
}

fn pair(out: &mut Vec<u8>, number: u32, name: &str, value: &[u8]) {
    let mut pair = only(1, name.as_bytes());
    bytes(&mut pair, 2, value);
    bytes(out, number, &pair);
}

fn is_extension(name: &str) -> bool {
    name.starts_with("x-")
}

fn any(value: &Value) -> Vec<u8> {
    let yaml = format!("{value}\n");
    only(2, yaml.as_bytes())
}

/// An object, by its table; `None` for other values, and for those that are too deep.
pub(super) fn message(table: &ProtoMessage, value: &Value, depth: u32) -> Option<Vec<u8>> {
    let depth = depth.checked_sub(1)?;
    let object = value.as_object()?;
    let mut out = Vec::new();
    for (number, key, shape) in table.fields {
        if let Some(value) = object.get(*key) {
            field(&mut out, *number, shape, value, depth);
        }
    }
    if table.extensions != 0 {
        for (name, value) in object.iter().filter(|(name, _)| is_extension(name)) {
            extension(&mut out, table.extensions, name, value);
        }
    }
    Some(out)
}

/// Writes a field, unless its value is zero or has another shape.
fn field(out: &mut Vec<u8>, number: u32, shape: &ProtoField, value: &Value, depth: u32) {
    match shape {
        Text => {
            if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
                bytes(out, number, text.as_bytes());
            }
        }
        Flag => {
            if value.as_bool() == Some(true) {
                tag(out, number, VARINT);
                out.push(1);
            }
        }
        Whole => {
            if let Some(whole) = value.as_i64().filter(|whole| *whole != 0) {
                tag(out, number, VARINT);
                varint(out, whole.cast_unsigned());
            }
        }
        Number => {
            if let Some(float) = value.as_f64().filter(|float| *float != 0.0) {
                tag(out, number, FIXED64);
                out.extend(float.to_le_bytes());
            }
        }
        Any => bytes(out, number, &any(value)),
        One(encode) => {
            if let Some(value) = encode(value, depth) {
                bytes(out, number, &value);
            }
        }
        Texts => {
            for text in list(value).iter().filter_map(Value::as_str) {
                bytes(out, number, text.as_bytes());
            }
        }
        Anys => many(out, number, |value, _| Some(any(value)), value, depth),
        Many(encode) => many(out, number, *encode, value, depth),
    }
}

fn many(out: &mut Vec<u8>, number: u32, encode: EncodeField, values: &Value, depth: u32) {
    for value in list(values) {
        if let Some(value) = encode(value, depth) {
            bytes(out, number, &value);
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

fn tag(out: &mut Vec<u8>, number: u32, wire: u32) {
    varint(out, u64::from(number << 3 | wire));
}

/// Writes a length-delimited field: a string, or an encoded message.
pub(super) fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    tag(out, number, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A message of one field.
pub(super) fn only(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 6);
    bytes(&mut out, number, value);
    out
}

/// A message of one boolean in a `oneof`, which is written even if false.
pub(super) fn only_flag(number: u32, value: bool) -> Vec<u8> {
    let mut out = Vec::new();
    tag(&mut out, number, VARINT);
    out.push(u8::from(value));
    out
}

/// A message of one number, written even if zero.
pub(super) fn only_number(number: u32, value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    tag(&mut out, number, FIXED64);
    out.extend(value.to_le_bytes());
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // The lowest seven bits, with the bit that says that more follow.
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
