//! Writing the JSON of a document.
//!
//! It is also the YAML of the same document, because an apply is read as YAML: characters that YAML takes for line breaks,
//! or does not allow, are escaped.

use std::io::Write as _;

use crate::schema::canonical::{Source, View};

/// The text of a document, in one line.
pub(super) fn text<'a, S: Source<'a>>(document: S) -> Vec<u8> {
    let mut text = Vec::new();
    value(document, &mut text);
    text
}

fn value<'a, S: Source<'a>>(node: S, text: &mut Vec<u8>) {
    match node.view() {
        View::Null => text.extend_from_slice(b"null"),
        View::Flag(true) => text.extend_from_slice(b"true"),
        View::Flag(false) => text.extend_from_slice(b"false"),
        View::Number(number) => text.extend_from_slice(number.as_bytes()),
        View::Text(string) => quoted(string, text),
        View::List(items) => {
            text.push(b'[');
            for (index, item) in items.enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                value(item, text);
            }
            text.push(b']');
        }
        View::Object(members) => {
            text.push(b'{');
            for (index, (key, member)) in members.enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                quoted(key, text);
                text.push(b':');
                value(member, text);
            }
            text.push(b'}');
        }
    }
}

fn quoted(string: &str, text: &mut Vec<u8>) {
    text.push(b'"');
    // Nearly all texts are printable ASCII.
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && !matches!(byte, b'"' | b'\\');
    let mut rest = string;
    if string.bytes().all(is_plain) {
        text.extend_from_slice(rest.as_bytes());
        rest = "";
    }
    while let Some(at) = rest.find(needs_escape) {
        let (plain, from) = rest.split_at(at);
        text.extend_from_slice(plain.as_bytes());
        let mut chars = from.chars();
        match chars.next() {
            Some(c @ ('"' | '\\')) => text.extend_from_slice(&[b'\\', c as u8]),
            Some('\n') => text.extend_from_slice(b"\\n"),
            Some('\t') => text.extend_from_slice(b"\\t"),
            Some('\r') => text.extend_from_slice(b"\\r"),
            Some(c) => {
                write!(text, "\\u{:04x}", u32::from(c)).expect("writing to a vector cannot fail");
            }
            None => {}
        }
        rest = chars.as_str();
    }
    text.extend_from_slice(rest.as_bytes());
    text.push(b'"');
}

fn needs_escape(c: char) -> bool {
    matches!(
        c,
        '"' | '\\' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    ) || c.is_control()
}
