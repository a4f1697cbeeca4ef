//! Quoted strings as Go writes them.

use std::fmt::Write;

/// A string literal of Go, in double quotes, as its `%q` prints it.
pub(crate) fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    let mut rest = text;
    // Most characters stand for themselves.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    loop {
        let plain = rest.bytes().position(|byte| !is_plain(byte));
        let (before, after) = rest.split_at(plain.unwrap_or(rest.len()));
        quoted.push_str(before);
        let Some(c) = after.chars().next() else {
            break;
        };
        push_escaped(&mut quoted, c);
        rest = &after[c.len_utf8()..];
    }
    quoted.push('"');
    quoted
}

fn push_escaped(to: &mut String, c: char) {
    match c {
        '"' | '\\' => to.extend(['\\', c]),
        '\u{7}' => to.push_str("\\a"),
        '\u{8}' => to.push_str("\\b"),
        '\u{c}' => to.push_str("\\f"),
        '\n' => to.push_str("\\n"),
        '\r' => to.push_str("\\r"),
        '\t' => to.push_str("\\t"),
        '\u{b}' => to.push_str("\\v"),
        _ if is_printable(c) => to.push(c),
        _ if u32::from(c) < 0x80 => {
            write!(to, "\\x{:02x}", u32::from(c)).expect("writing to a string does not fail");
        }
        _ if u32::from(c) < 0x1_0000 => {
            write!(to, "\\u{:04x}", u32::from(c)).expect("writing to a string does not fail");
        }
        _ => write!(to, "\\U{:08x}", u32::from(c)).expect("writing to a string does not fail"),
    }
}

/// Whether Go's `%q` prints the character as it is: letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // This is the only access to the standard library's table of printable characters. It counts marks as printable
    // only after another character.
    let mut text = String::from("a");
    text.push(c);
    text.escape_debug().nth(1) == Some(c)
}

/// Bytes as Go's `%q` prints them as a string: invalid UTF-8 as `\xff`.
pub(crate) fn go_quote_bytes(bytes: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_escaped(&mut quoted, c);
        }
        for byte in chunk.invalid() {
            write!(quoted, "\\x{byte:02x}").expect("writing to a string does not fail");
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        assert_eq!(go_quote("a\"b\\\n\u{7}"), r#""a\"b\\\n\a""#);
        assert_eq!(go_quote("é☺ \u{301}"), "\"é☺ \u{301}\"");
        assert_eq!(go_quote("\u{0}\u{7f}"), r#""\x00\x7f""#);
        assert_eq!(
            go_quote("\u{a0}\u{200b}\u{f0000}"),
            r#""\u00a0\u200b\U000f0000""#
        );
        assert_eq!(go_quote_bytes(b"a\xff\xc3\xa9"), "\"a\\xffé\"");
    }
}
