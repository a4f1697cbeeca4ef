//! JSON as Go's `encoding/json` writes it, where `serde_json` writes it otherwise.

use std::fmt::Write as _;

use serde_json::Value;

/// A document as Go writes it into a message: JSON with the characters of HTML escaped.
pub(crate) fn json(value: &Value) -> String {
    escape_html(&value.to_string())
}

/// The text of a JSON document with the characters escaped that Go escapes for the sake of HTML.
pub fn escape_html(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // These characters occur in strings only.
        if escapes(c) {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
}

/// Whether Go's encoder escapes a character that `serde_json` does not.
fn escapes(c: char) -> bool {
    matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

/// A floating-point number as Go's encoder writes it: with the fewest digits that identify it,
/// without a fraction if it has none, and with an exponent if it is very small or large.
pub(crate) fn float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    #[test]
    fn json_in_messages_escapes_the_characters_of_html() {
        assert_eq!(
            json(&value!({"a<": "\u{2028}&"})),
            r#"{"a\u003c":"\u2028\u0026"}"#
        );
    }

    #[test]
    fn markup_in_strings_is_escaped() {
        assert_eq!(json(&value!("a<b>&c")), r#""a\u003cb\u003e\u0026c""#);
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (number, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (0.000_001, "0.000001"),
            (0.0, "0"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
