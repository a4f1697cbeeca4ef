//! Values in the JSON form of the corpora, in which values of different types differ. See `oracle/values.go`.

use std::fmt::Write;

use fairgate_cel::{CelBytes, CelDuration, CelMap, CelTimestamp, CelType, CelValue};
use serde_json::{Value, json};

/// The JSON of a value, in the form that [`canonical`] gives.
pub(crate) fn json_of(value: &CelValue<'_>) -> Value {
    match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => json!(value),
        CelValue::Int(value) => json!({ "int": value }),
        CelValue::Uint(value) => json!({ "uint": value }),
        CelValue::Double(value) => json!({ "double": double_text(*value) }),
        CelValue::String(text) => json!(&**text),
        CelValue::Bytes(bytes) => json!({ "bytes": hex(bytes) }),
        CelValue::Duration(value) => json!({ "duration": value.nanoseconds() }),
        CelValue::Timestamp(value) => {
            json!({ "timestamp": [value.seconds(), value.nanoseconds()] })
        }
        CelValue::List(list) => list.iter().map(|element| json_of(&element)).collect(),
        CelValue::Map(map) => {
            let mut pairs = Vec::new();
            let mut at = 0;
            while let Some((key, value)) = map.entry_at(at) {
                pairs.push(json!([json_of(&key), json_of(&value)]));
                at += 1;
            }
            json!({ "map": sorted(pairs) })
        }
        CelValue::Type(of) => json!({ "type": of.runtime_name() }),
        CelValue::Optional(None) => json!({ "optional": [] }),
        CelValue::Optional(Some(of)) => json!({ "optional": [json_of(of.value())] }),
        CelValue::Opaque(of) => {
            let hidden = of.type_name().starts_with("kubernetes.authorization.");
            let text = if hidden { String::new() } else { of.print() };
            json!({ of.type_name(): text })
        }
    }
}

fn sorted(mut pairs: Vec<Value>) -> Vec<Value> {
    pairs.sort_by_key(|pair| pair[0].to_string());
    pairs
}

/// A text for each double, which does not depend on how the original prints its digits.
fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    format!("{value:e}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().fold(0, |bits, c| bits << 6 | digit(*c)) << (6 * (4 - chunk.len()));
        bytes.extend(&bits.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}

/// Converts a value of a corpus to the form of [`json_of`].
pub(crate) fn canonical(value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(canonical).collect(),
        Value::Object(tagged) => {
            let (tag, inside) = tagged.iter().next().expect("a value has one tag");
            let inside = match (&**tag, inside) {
                ("double", Value::String(text)) => {
                    json!(double_text(text.parse().expect("a double")))
                }
                ("timestamp", inside) => {
                    json_of(&value_of(&json!({ "timestamp": inside })))["timestamp"].clone()
                }
                ("bytes", Value::String(text)) => json!(hex(&base64(text))),
                ("map", Value::Array(pairs)) => {
                    let pairs = pairs
                        .iter()
                        .map(|pair| json!([canonical(&pair[0]), canonical(&pair[1])]));
                    Value::Array(sorted(pairs.collect()))
                }
                ("optional", inside) => canonical(inside),
                (_, inside) => inside.clone(),
            };
            json!({ tag: inside })
        }
        other => other.clone(),
    }
}

/// Reads a value of a corpus, for bindings.
pub(crate) fn value_of(value: &Value) -> CelValue<'static> {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::String(text) => CelValue::from(text.clone()),
        Value::Array(all) => CelValue::list(all.iter().map(value_of).collect()).expect("small"),
        Value::Number(number) => panic!("an untagged number {number}"),
        Value::Object(tagged) => {
            let (tag, inside) = tagged.iter().next().expect("a value has one tag");
            let text = || inside.as_str().expect("a text");
            match &**tag {
                "int" => CelValue::Int(inside.as_i64().expect("an int")),
                "uint" => CelValue::Uint(inside.as_u64().expect("a uint")),
                "double" => CelValue::Double(text().parse().expect("a double")),
                "bytes" => CelValue::Bytes(CelBytes::from(base64(text()))),
                "duration" => CelValue::Duration(CelDuration::from_nanoseconds(
                    inside.as_i64().expect("an int"),
                )),
                "timestamp" => CelValue::Timestamp(
                    CelTimestamp::parse(text())
                        .expect("a time")
                        .expect("in range"),
                ),
                "type" => CelValue::type_value(type_of(text())),
                "map" => {
                    let pairs = inside.as_array().expect("pairs");
                    let pairs = pairs
                        .iter()
                        .map(|pair| (value_of(&pair[0]), value_of(&pair[1])));
                    CelValue::Map(CelMap::new(pairs.collect()).expect("keys are keys"))
                }
                tag => panic!("no binding has a {tag}"),
            }
        }
    }
}

/// Reads the name of a type, such as `map(string, list(dyn))`.
pub(crate) fn type_of(text: &str) -> CelType {
    let (name, parameters) = match text.split_once('(') {
        Some((name, rest)) => (
            name,
            split(rest.strip_suffix(')').expect("a closing parenthesis")),
        ),
        None => (text, Vec::new()),
    };
    let mut parameters = parameters.into_iter().map(type_of);
    let mut next = || parameters.next().unwrap_or(CelType::Dyn);
    match name {
        "dyn" | "any" => CelType::Dyn,
        "null" | "null_type" => CelType::Null,
        "bool" => CelType::Bool,
        "int" => CelType::Int,
        "uint" => CelType::Uint,
        "double" => CelType::Double,
        "string" => CelType::String,
        "bytes" => CelType::Bytes,
        "timestamp" | "google.protobuf.Timestamp" => CelType::Timestamp,
        "duration" | "google.protobuf.Duration" => CelType::Duration,
        "list" => CelType::list(next()),
        "map" => CelType::map(next(), next()),
        "optional_type" => CelType::optional(next()),
        "type" => CelType::type_of(next()),
        name => CelType::opaque(name),
    }
}

/// Splits a text at the commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts
}
