//! Quoted strings as Go writes them.

use std::fmt::Write;
use std::sync::OnceLock;

use super::{CelError, CelWork, work_of_bytes};
use crate::unicode;

/// How many bytes are quoted between two looks at the interrupt.
const PIECE: usize = 64 << 10;

/// A string literal of Go, in double quotes, as its `%q` prints it.
pub(crate) fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    push_quoted(&mut quoted, text);
    quoted.push('"');
    quoted
}

/// [`go_quote`] for texts that may be long: in pieces, each of which takes steps.
///
/// # Errors
///
/// When no steps are left, or the host interrupts the evaluation.
pub(crate) fn go_quote_in_steps(text: &str, work: &mut CelWork<'_>) -> Result<String, CelError> {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let before = quoted.len();
        push_quoted(&mut quoted, &rest[..end]);
        work.burn(work_of_bytes(quoted.len() - before))?;
        rest = &rest[end..];
    }
    quoted.push('"');
    Ok(quoted)
}

/// Adds a text as it is between the quotes.
fn push_quoted(quoted: &mut String, text: &str) {
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
        push_escaped(quoted, c);
        rest = &after[c.len_utf8()..];
    }
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
        _ if u32::from(c) < 0x80 => push_hex(to, "\\x", c, 2),
        _ if u32::from(c) < 0x1_0000 => push_hex(to, "\\u", c, 4),
        _ => push_hex(to, "\\U", c, 8),
    }
}

/// Writes a character as a number of so many digits, at most 8. Large texts have many such characters, and the
/// formatting of the standard library takes many times as long.
fn push_hex(to: &mut String, before: &str, c: char, digits: usize) {
    let mut text = [0; 8];
    for (place, digit) in text[..digits].iter_mut().rev().enumerate() {
        let value = (u32::from(c) >> (4 * place)) & 0xf;
        *digit = b"0123456789abcdef"[value as usize];
    }
    to.push_str(before);
    to.push_str(std::str::from_utf8(&text[..digits]).unwrap_or_default());
}

/// For each 256 characters, which of them are printable. Finding that of one character takes a search, so it is done once for all
/// characters around one that is asked for.
static PRINTABLE: [OnceLock<[u64; 4]>; 0x1100] = [const { OnceLock::new() }; 0x1100];

/// Whether Go's `%q` prints the character as it is: letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let number = u32::from(c);
    let block = PRINTABLE[(number >> 8) as usize].get_or_init(|| printable_block(number >> 8));
    block[(number >> 6 & 3) as usize] >> (number & 63) & 1 == 1
}

fn printable_block(block: u32) -> [u64; 4] {
    let mut printable = [0; 4];
    for low in 0..256 {
        if char::from_u32(block << 8 | low).is_some_and(unicode::is_printable) {
            printable[(low >> 6) as usize] |= 1 << (low & 63);
        }
    }
    printable
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

    #[test]
    fn what_is_remembered_of_characters_is_what_was_found() {
        for c in ('\u{80}'..='\u{20ff}').chain('\u{1f000}'..='\u{1f2ff}') {
            assert_eq!(is_printable(c), unicode::is_printable(c), "{c:?}");
        }
    }
}
