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
}
