//! Values as Go prints them, for messages that clients show and compare.
//!
//! Not here: paths ([`super::path`]), whose text forms use what is here.

use serde_json::{Number, Value};

use crate::schema::canonical::quote::Quoted;

/// A string in double quotes, as `%q` prints it.
pub(super) fn quoted(text: &str) -> String {
    Quoted(text).to_string()
}

/// A value as `%v` prints it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => numeral(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(plain), " ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(k, v)| format!("{k}:{}", plain(v)));
            format!("map[{}]", joined(fields, " "))
        }
    }
}

/// A value as `%#v` prints it: Go source.
pub(super) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Bool(_) | Value::Number(_) => plain(value),
        Value::Array(items) => {
            format!(
                "[]interface {{}}{{{}}}",
                joined(items.iter().map(source), ", ")
            )
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(k, v)| format!("{}:{}", quoted(k), source(v)));
            format!("map[string]interface {{}}{{{}}}", joined(fields, ", "))
        }
    }
}

/// The name of a value's type, as `%T` prints it.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Compact JSON with the characters escaped that HTML would take for markup.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// A number in its shortest form, with an exponent outside of 1e-4 … 1e21.
pub(super) fn numeral(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if float == 0.0 || (1e-4..1e21).contains(&float.abs()) {
        return format!("{float}");
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

fn joined(parts: impl Iterator<Item = String>, between: &str) -> String {
    parts.collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let value = json!({"b": [1, 1.5, null, true], "a": "x y"});
        assert_eq!(plain(&value), "map[a:x y b:[1 1.5 <nil> true]]");
        assert_eq!(
            source(&value),
            r#"map[string]interface {}{"a":"x y", "b":[]interface {}{1, 1.5, interface {}(nil), true}}"#
        );
        assert_eq!(type_name(&value), "map[string]interface {}");
    }

    #[test]
    fn floats_get_an_exponent_where_go_gives_them_one() {
        for (float, text) in [
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (100_000.0, "100000"),
            (0.25, "0.25"),
        ] {
            assert_eq!(plain(&json!(float)), text);
        }
    }

    #[test]
    fn json_hides_what_html_would_take_for_markup() {
        assert_eq!(json(&json!("a<b>&c")), r#""a\u003cb\u003e\u0026c""#);
    }
}
