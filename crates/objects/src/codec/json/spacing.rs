//! JSON text with other white space between its tokens: its values, their form, and the order of members stay.

/// The JSON text `json` with a line for each member and entry, as Go's encoder indents, and no newline at its
/// end.
///
/// Costs time linear in its length. A text that is not JSON is indented by its brackets.
pub fn indent(json: &[u8]) -> Vec<u8> {
    indent_at(json, 0)
}

/// The same, for a text that is within so many lists and objects.
pub fn indent_at(json: &[u8], mut depth: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * json.len());
    // The last token opened a list or an object, which is empty so far.
    let mut is_open = false;
    for token in Tokens(json) {
        let is_end = matches!(token, b"}" | b"]");
        if is_end {
            depth = depth.saturating_sub(1);
        }
        if is_end != is_open {
            line(&mut out, depth);
        }
        out.extend_from_slice(token);
        is_open = matches!(token, b"{" | b"[");
        match token {
            b"{" | b"[" => depth += 1,
            b"," => line(&mut out, depth),
            b":" => out.push(b' '),
            _ => {}
        }
    }
    out
}

/// The JSON text `json` without white space. Costs time linear in its length.
pub fn compact(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    Tokens(json).for_each(|token| out.extend_from_slice(token));
    out
}

/// The tokens of the rest of a text: brackets, commas, colons, and the texts of strings, numbers and names.
struct Tokens<'a>(&'a [u8]);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.trim_ascii_start();
        let length = match *rest.first()? {
            b'"' => string_length(rest),
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            _ => {
                let is_end = |byte: &u8| b"{}[],:\" \t\r\n\x0c".contains(byte);
                rest.iter().position(is_end).unwrap_or(rest.len())
            }
        };
        let (token, rest) = rest.split_at(length);
        self.0 = rest;
        Some(token)
    }
}

/// The length of the string at the beginning of `text`, with its quotation marks.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    for (index, &byte) in text.iter().enumerate().skip(1) {
        if byte == b'"' && !is_escaped {
            return index + 1;
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    text.len()
}

fn line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', 2 * depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::encode_plain;
    use serde_json::{Value, json};

    #[test]
    fn a_text_is_indented_as_its_value_is_written() {
        for value in [
            json!({"a": [], "b": {}, "c": [1, [2.5, "x"], {"d": null}], "e": "{\"q\": [\\\", ] }"}),
            json!([]),
            json!("a: , b"),
            json!([[[]], {"a": {}}]),
        ] {
            let written = encode_plain(&value, true);
            assert_eq!(indent(&encode_plain(&value, false)), written);
            assert_eq!(indent(&written), written);
            assert_eq!(compact(&written), value.to_string().as_bytes());
        }
    }

    #[test]
    fn members_and_values_are_not_changed() {
        let text = br#"{"z":1.0,"a":"\u003c\\"}"#;
        assert_eq!(
            String::from_utf8(indent(text)).unwrap(),
            "{\n  \"z\": 1.0,\n  \"a\": \"\\u003c\\\\\"\n}"
        );
        assert_eq!(compact(&indent(text)), text);
        assert_eq!(
            serde_json::from_slice::<Value>(&indent(text)).unwrap()["a"],
            "<\\"
        );
    }

    #[test]
    fn any_bytes_are_accepted() {
        for bytes in [&b"]]]"[..], b"\"\\", b"{\"a\":[", b"\xff,,:"] {
            assert!(indent(bytes).len() >= bytes.len());
            assert_eq!(compact(bytes), bytes);
        }
    }
}
