//! JSON values as Go's `fmt` prints them, once decoded to `interface{}`.
//!
//! In Go, integers that fit are `int64`; all other numbers, including larger integers, are
//! `float64`.

use std::fmt::{self, Write as _};

use serde_json::{Map, Number, Value};

use fairgate_gotext::{Quoted, float};

/// A value that prints as Go's `%v` prints it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'v>(pub(crate) &'v Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Number(number) => write_number(f, number),
            Value::String(text) => f.write_str(text),
            Value::Array(items) => write_list(f, items),
            Value::Object(map) => PlainMap(map).fmt(f),
        }
    }
}

/// A map that prints as Go's `%v` prints it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainMap<'v>(pub(crate) &'v Map<String, Value>);

impl fmt::Display for PlainMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("map[")?;
        for (index, (key, value)) in self.0.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            write!(f, "{blank}{key}:{}", Plain(value))?;
        }
        f.write_char(']')
    }
}

/// A list that prints as Go's `%v` prints it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainList<'v>(pub(crate) &'v [Value]);

impl fmt::Display for PlainList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0)
    }
}

/// A value that prints as Go's `%s` prints it, which is meant for strings only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainText<'v>(pub(crate) &'v Value);

impl fmt::Display for PlainText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("%!s(<nil>)"),
            value @ (Value::Bool(_) | Value::Number(_)) => {
                write!(f, "%!s({}={})", type_name(value), Plain(value))
            }
            value => Plain(value).fmt(f),
        }
    }
}

/// The name of a value's type, as `%T` prints it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The name of a value's type, as `%s` prints its `reflect.Type`, of which null has none.
pub(crate) fn type_name_as_text(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        value => type_name(value),
    }
}

/// A value that prints as Go's `%#v` prints it: as Go source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoSource<'v>(pub(crate) &'v Value);

impl fmt::Display for GoSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::String(text) => Quoted(text).fmt(f),
            value @ (Value::Bool(_) | Value::Number(_)) => Plain(value).fmt(f),
            Value::Array(items) => write_list_source(f, items),
            Value::Object(fields) => write_map_source(f, fields),
        }
    }
}

fn write_list_source(f: &mut fmt::Formatter<'_>, items: &[Value]) -> fmt::Result {
    f.write_str("[]interface {}{")?;
    for (index, item) in items.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(f, "{comma}{}", GoSource(item))?;
    }
    f.write_char('}')
}

fn write_map_source(f: &mut fmt::Formatter<'_>, fields: &Map<String, Value>) -> fmt::Result {
    f.write_str("map[string]interface {}{")?;
    for (index, (key, value)) in fields.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(f, "{comma}{}:{}", Quoted(key), GoSource(value))?;
    }
    f.write_char('}')
}

fn write_list(f: &mut fmt::Formatter<'_>, items: &[Value]) -> fmt::Result {
    f.write_char('[')?;
    for (index, item) in items.iter().enumerate() {
        let blank = if index > 0 { " " } else { "" };
        write!(f, "{blank}{}", Plain(item))?;
    }
    f.write_char(']')
}

fn write_number(f: &mut fmt::Formatter<'_>, number: &Number) -> fmt::Result {
    if let Some(whole) = number.as_i64() {
        return write!(f, "{whole}");
    }
    f.write_str(&float::shortest(number.as_f64().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::deep_documents::on_half_of_the_stack;

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        let value = json!([
            1e30,
            1.5,
            -0.0,
            5.0,
            1e20,
            1e21,
            1e-4,
            1.25e-5,
            -7,
            u64::MAX
        ]);
        assert_eq!(
            Plain(&value).to_string(),
            "[1e+30 1.5 -0 5 1e+20 1e+21 0.0001 1.25e-05 -7 1.8446744073709552e+19]"
        );
    }

    #[test]
    fn maps_are_printed_in_the_order_of_their_keys() {
        let value = json!({"b": [null, true, {}], "a": "x y"});
        assert_eq!(Plain(&value).to_string(), "map[a:x y b:[<nil> true map[]]]");
        assert_eq!(PlainText(&json!(1)).to_string(), "%!s(int64=1)");
        assert_eq!(PlainText(&json!("x")).to_string(), "x");
    }

    #[test]
    fn values_are_printed_as_go_source() {
        let value = json!({"b": [1, 1.5, null, true], "a": "x y"});
        assert_eq!(
            GoSource(&value).to_string(),
            r#"map[string]interface {}{"a":"x y", "b":[]interface {}{1, 1.5, interface {}(nil), true}}"#
        );
        assert_eq!(type_name(&value), "map[string]interface {}");
        assert_eq!(type_name_as_text(&Value::Null), "%!s(<nil>)");
    }

    #[test]
    fn go_source_of_a_deep_value_costs_the_same_for_each_level() {
        on_half_of_the_stack(|| {
            for wrap in [
                (|value| Value::Array(vec![value])) as fn(Value) -> Value,
                |value| Value::Object([("a".to_owned(), value)].into_iter().collect()),
            ] {
                let cost = |levels| {
                    let value = (0..levels).fold(json!(1), |value, _| wrap(value));
                    allocation_counter::measure(|| drop(GoSource(&value).to_string())).bytes_total
                };
                let (half, all) = (cost(4_000), cost(8_000));
                assert!(all < half * 5 / 2, "{half} {all}");
            }
        });
    }
}
