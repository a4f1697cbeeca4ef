//! Conversion of a JSON tree to the types of its table, as in kube-apiserver's converter of
//! unstructured objects. It has its own error messages, and accepts numbers that the decoder of
//! JSON text does not.
//!
//! Not here: unknown fields, times, and the canonical form; see [`crate::schema::canonical`].

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Number, Value};

use crate::schema::{Struct, Type};

/// Converts the numbers in `object` to the types of `shape`: `5.0` becomes 5, and a number of more than 32 bits
/// is truncated to its lowest 32 bits. A list of numbers that stands for bytes becomes their text, of the lowest 8 bits of each.
///
/// Costs time linear in the size of `object`; the recursion is as deep as `shape`.
///
/// # Errors
///
/// kube-apiserver's message for the first value that does not fit.
pub fn restore(shape: &Struct, object: &mut Value) -> Result<(), String> {
    let fields = match object {
        Value::Null => return Ok(()),
        Value::Object(fields) => fields,
        other => return Err(format!("cannot restore struct from: {}", go_kind(other))),
    };
    for field in shape.fields {
        if let Some(value) = fields.get_mut(field.name) {
            restore_value(&field.ty, value)?;
        }
    }
    Ok(())
}

fn restore_value(ty: &Type, value: &mut Value) -> Result<(), String> {
    match (ty, value) {
        // Times and raw JSON are read from their text in either case.
        (
            Type::Time
            | Type::MicroTime
            | Type::Raw
            | Type::RawExtension
            | Type::IntOrString
            | Type::Quantity,
            _,
        )
        | (_, Value::Null)
        | (Type::Text | Type::Bytes, Value::String(_))
        | (Type::Flag, Value::Bool(_)) => Ok(()),
        (Type::Object(shape), value) => restore(shape, value),
        (Type::List(list), Value::Array(items)) => items
            .iter_mut()
            .try_for_each(|item| restore_value(&list.item, item)),
        (Type::Map(map), Value::Object(entries)) => entries
            .iter_mut()
            .try_for_each(|(_, value)| restore_value(&map.value, value)),
        (Type::Bytes, value @ Value::Array(_)) => {
            let numbers = value.as_array().into_iter().flatten();
            let bytes: Vec<u8> = numbers.map(byte).collect::<Result<_, _>>()?;
            *value = STANDARD.encode(bytes).into();
            Ok(())
        }
        (Type::List(_) | Type::Bytes, value) => {
            Err(format!("cannot restore slice from {}", go_kind(value)))
        }
        (Type::Map(_), value) => Err(format!("cannot restore map from {}", go_kind(value))),
        // Go could convert a number to a character, but does not do so for JSON.
        (Type::Text, Value::Number(number)) if !number.is_f64() => {
            Err("cannot convert int64 to string".to_owned())
        }
        (Type::Int32 | Type::Int64, Value::Number(number)) => {
            let whole = integer(number)
                .ok_or_else(|| format!("cannot convert float64 to {}", go_name(ty)))?;
            *number = match ty {
                Type::Int32 => low_bits(whole).into(),
                _ => whole.into(),
            };
            Ok(())
        }
        (ty, _) => Err(format!("unrecognized type: {}", go_name(ty))),
    }
}

/// One of the numbers that stand for bytes.
fn byte(item: &Value) -> Result<u8, String> {
    match item {
        Value::Null => Ok(0),
        Value::Number(number) => {
            let whole = integer(number).ok_or("cannot convert float64 to uint8")?;
            let [low, ..] = whole.to_le_bytes();
            Ok(low)
        }
        _ => Err("unrecognized type: uint8".to_owned()),
    }
}

fn integer(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| whole(number.as_f64()?))
}

/// A number without a fraction, as an integer.
fn whole(number: f64) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "values beyond the range saturate"
    )]
    (number.fract() == 0.0).then_some(number as i64)
}

fn low_bits(number: i64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The name of a value's type in Go.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// The name of a simple type in Go.
fn go_name(ty: &Type) -> &'static str {
    match ty {
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Flag => "bool",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{core_v1, flowcontrol_v1::FLOW_SCHEMA};

    fn restored(mut value: Value) -> Result<Value, String> {
        restore(&FLOW_SCHEMA, &mut value).map(|()| value)
    }

    #[test]
    fn wrong_types_are_reported_with_the_messages_of_kube_apiserver() {
        let precedence = |value: Value| json!({"spec": {"matchingPrecedence": value}});
        let rules = |value: Value| json!({"spec": {"rules": value}});
        let labels = |value: Value| json!({"metadata": {"labels": value}});
        for (value, message) in [
            (rules(json!({"a": 1})), "cannot restore slice from map"),
            (rules(json!("x")), "cannot restore slice from string"),
            (rules(json!([1])), "cannot restore struct from: int64"),
            (rules(json!([[1]])), "cannot restore struct from: slice"),
            (precedence(json!("x")), "unrecognized type: int32"),
            (precedence(json!([1])), "unrecognized type: int32"),
            (precedence(json!(1.5)), "cannot convert float64 to int32"),
            (labels(json!("x")), "cannot restore map from string"),
            (labels(json!({"a": 1})), "cannot convert int64 to string"),
            (labels(json!({"a": {}})), "unrecognized type: string"),
            (json!({"spec": true}), "cannot restore struct from: bool"),
            (
                json!({"metadata": {"generation": 1.5}}),
                "cannot convert float64 to int64",
            ),
            (
                rules(json!([{"resourceRules": [{"clusterScope": 1}]}])),
                "unrecognized type: bool",
            ),
            // The first in the order of the fields counts.
            (
                json!({"metadata": {"labels": "x"}, "spec": 1}),
                "cannot restore map from string",
            ),
        ] {
            assert_eq!(restored(value.clone()).unwrap_err(), message, "{value}");
        }
    }

    #[test]
    fn numbers_are_converted_to_their_type() {
        let precedence = |value: Value| json!({"spec": {"matchingPrecedence": value}});
        for (given, restored_to) in [
            (json!(5.0), json!(5)),
            (json!(99_999_999_999_i64), json!(1_215_752_191)),
        ] {
            assert_eq!(restored(precedence(given)), Ok(precedence(restored_to)));
        }
    }

    #[test]
    fn numbers_may_stand_for_bytes() {
        let restored = |data: Value| {
            let mut secret = json!({"data": {"a": data}});
            restore(&core_v1::SECRET, &mut secret).map(|()| secret["data"]["a"].take())
        };
        for (given, restored_to) in [
            (json!([]), json!("")),
            (json!([101, 118.0, 105, 108]), json!("ZXZpbA==")),
            (json!([300, -1, null]), json!("LP8A")),
            (json!("ZXZpbA=="), json!("ZXZpbA==")),
            (json!(null), json!(null)),
        ] {
            assert_eq!(restored(given), Ok(restored_to));
        }
        for (given, message) in [
            (json!([1.5]), "cannot convert float64 to uint8"),
            (json!(["x"]), "unrecognized type: uint8"),
            (json!({}), "cannot restore slice from map"),
        ] {
            assert_eq!(restored(given), Err(message.to_owned()));
        }
    }
}
