//! Values as Go prints them, for messages that quote a patch.

use std::fmt::{self, Write as _};

use serde_json::{Map, Number, Value};

/// A value that prints as Go's `%v` prints it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printed<'v>(pub(super) &'v Value);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Number(number) => write_number(f, number),
            Value::String(text) => f.write_str(text),
            Value::Array(items) => write_list(f, items),
            Value::Object(map) => PrintedMap(map).fmt(f),
        }
    }
}

/// A map that prints as Go's `%v` prints it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrintedMap<'v>(pub(super) &'v Map<String, Value>);

impl fmt::Display for PrintedMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("map[")?;
        for (index, (key, value)) in self.0.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            write!(f, "{blank}{key}:{}", Printed(value))?;
        }
        f.write_char(']')
    }
}

/// A list that prints as Go's `%v` prints it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrintedList<'v>(pub(super) &'v [Value]);

impl fmt::Display for PrintedList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0)
    }
}

/// A value that prints as Go's `%s` prints it, which takes only texts without complaint.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrintedAsText<'v>(pub(super) &'v Value);

impl fmt::Display for PrintedAsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("%!s(<nil>)"),
            value @ (Value::Bool(_) | Value::Number(_)) => {
                write!(f, "%!s({}={})", type_name(value), Printed(value))
            }
            value => Printed(value).fmt(f),
        }
    }
}

/// The Go type that a value is decoded to.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A document as Go writes it into a message: JSON in which no character could be taken for HTML.
pub(super) fn json(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        // Outside of strings JSON has none of these.
        if escapes(c) {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
}

/// Whether Go's JSON escapes a character that ours does not.
pub(super) fn escapes(c: char) -> bool {
    matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

fn write_list(f: &mut fmt::Formatter<'_>, items: &[Value]) -> fmt::Result {
    f.write_char('[')?;
    for (index, item) in items.iter().enumerate() {
        let blank = if index > 0 { " " } else { "" };
        write!(f, "{blank}{}", Printed(item))?;
    }
    f.write_char(']')
}

fn write_number(f: &mut fmt::Formatter<'_>, number: &Number) -> fmt::Result {
    if let Some(whole) = number.as_i64() {
        return write!(f, "{whole}");
    }
    let number = number.as_f64().unwrap_or_default();
    let scientific = format!("{number:e}");
    match scientific.split_once('e').map(|(m, e)| (m, e.parse())) {
        Some((mantissa, Ok(exponent))) if !(-4..21).contains(&exponent) => {
            let exponent: i32 = exponent;
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(f, "{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => write!(f, "{number}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            Printed(&value).to_string(),
            "[1e+30 1.5 -0 5 100000000000000000000 1e+21 0.0001 1.25e-05 -7 1.8446744073709552e+19]"
                .replace("1.8446744073709552e+19", "18446744073709552000")
        );
    }

    #[test]
    fn maps_are_printed_in_the_order_of_their_keys() {
        let value = json!({"b": [null, true, {}], "a": "x y"});
        assert_eq!(
            Printed(&value).to_string(),
            "map[a:x y b:[<nil> true map[]]]"
        );
        assert_eq!(PrintedAsText(&json!(1)).to_string(), "%!s(int64=1)");
        assert_eq!(PrintedAsText(&json!("x")).to_string(), "x");
    }

    #[test]
    fn json_in_messages_has_nothing_that_html_would_take() {
        assert_eq!(
            json(&json!({"a<": "\u{2028}&"})),
            r#"{"a\u003c":"\u2028\u0026"}"#
        );
    }
}
