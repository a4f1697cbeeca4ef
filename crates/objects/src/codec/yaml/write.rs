//! YAML text that every parser reads in the same way.
//!
//! Parsers of YAML 1.1, such as kubectl's, read an unquoted `yes` as true and `1_0` as ten; parsers of YAML 1.2
//! do not. So all text that is not certainly a plain word is written in quotes, as in JSON, which is also YAML.

use std::fmt::Write as _;

use serde_json::Value;

/// Words that some parsers do not read as text.
const TAKEN: [&str; 11] = [
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf",
];

/// The text of a value: one document, keys in alphabetical order.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        _ => {
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
    out
}

/// The text of an entry of a list that is a member of the document: the lines that [`encode`] writes for it.
pub fn encode_entry(value: &Value) -> String {
    let mut out = "- ".to_owned();
    if is_block(value) {
        block(value, 2, &mut out);
    } else {
        out.push_str(&scalar(value));
        out.push('\n');
    }
    out
}

/// A list or object that is not empty, from the beginning of a line.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(fields) => {
            for (index, (key, value)) in fields.iter().enumerate() {
                // The first key is on the same line as the `- ` before it.
                if index > 0 || out.is_empty() || out.ends_with('\n') {
                    pad(indent, out);
                }
                out.push_str(&text(key));
                out.push(':');
                member(value, indent, out);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 || out.is_empty() || out.ends_with('\n') {
                    pad(indent, out);
                }
                out.push_str("- ");
                if is_block(item) {
                    block(item, indent + 2, out);
                } else {
                    out.push_str(&scalar(item));
                    out.push('\n');
                }
            }
        }
        _ => {}
    }
}

/// The value after a key and its colon.
fn member(value: &Value, indent: usize, out: &mut String) {
    if !is_block(value) {
        out.push(' ');
        out.push_str(&scalar(value));
        out.push('\n');
        return;
    }
    out.push('\n');
    // A list need not be indented more than its key.
    let deeper = if value.is_array() { indent } else { indent + 2 };
    block(value, deeper, out);
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        _ => value.to_string(),
    }
}

/// A text, in quotes unless every parser reads it as text without them.
fn text(string: &str) -> String {
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || b"/_".contains(byte);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.-+=".contains(&byte);
    // Such as a hash in base64: no number and no time has an equals sign.
    let is_base64 =
        string.len() > 1 && !string.starts_with(['=', '-', '.']) && string.ends_with('=');
    let is_word = (is_base64 || string.as_bytes().first().is_some_and(begins))
        && string.bytes().all(is_plain);
    if is_word && !TAKEN.contains(&string.to_ascii_lowercase().as_str()) {
        string.to_owned()
    } else {
        quoted(string)
    }
}

/// A text in quotes, as in JSON. Characters that JSON allows and YAML does not, or reads as line breaks, are escaped.
fn quoted(string: &str) -> String {
    let mut out = String::with_capacity(string.len() + 2);
    for c in Value::from(string).to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_that_yaml_could_read_as_another_type_is_quoted() {
        let value = json!({
            "a": "yes", "b": ["On", "1.5", "a: b", "x/y-z", "", "0x1f", "ä", "1+Z/w=", "+1==", "=", "a+b=c"],
            "c": {"d": [{"e": 1, "f": null}, [], {}], "g": true}, "h": {}, "y": -1.5,
        });
        let text = encode(&value);
        assert_eq!(
            text,
            "a: \"yes\"\nb:\n- \"On\"\n- \"1.5\"\n- \"a: b\"\n- x/y-z\n- \"\"\n- \"0x1f\"\n- \"ä\"\n\
             - 1+Z/w=\n- +1==\n- \"=\"\n- a+b=c\nc:\n  d:\n  \
             - e: 1\n    f: null\n  - []\n  - {}\n  g: true\nh: {}\n\"y\": -1.5\n"
        );
        let read = super::super::parse(text.as_bytes()).unwrap();
        assert_eq!(read.value, value);
    }

    #[test]
    fn entries_are_written_as_they_are_within_their_document() {
        let entries =
            json!([{"a": 1, "b": ["x", {"c": null}]}, {}, [], [1, [2]], "no", {"d": {"e": {}}}]);
        let document = encode(&json!({"items": entries}));
        let written = entries.as_array().unwrap().iter().map(encode_entry);
        assert_eq!(document, format!("items:\n{}", written.collect::<String>()));
    }

    #[test]
    fn characters_that_yaml_does_not_allow_or_reads_as_line_breaks_are_escaped() {
        let text = "a\u{7f}b\u{85}c\u{9f}d\u{2028}e\u{2029}f\u{feff}g\u{fffe}h\u{ffff}i\u{a0}j\n";
        let value = json!({"a": text});
        let written = encode(&value);
        assert_eq!(
            written,
            "a: \"a\\u007fb\\u0085c\\u009fd\\u2028e\\u2029f\\ufeffg\\ufffeh\\uffffi\u{a0}j\\n\"\n"
        );
        let read = super::super::parse(written.as_bytes()).unwrap();
        assert_eq!(read.value, value);
    }

    #[test]
    fn lists_in_lists_round_trip() {
        let value = json!([[1, [2, {"a": [3]}]], {"b": [[4]]}]);
        let read = super::super::parse(encode(&value).as_bytes()).unwrap();
        assert_eq!(read.value, value);
    }
}
