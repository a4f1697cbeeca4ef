//! Quoted text as Go's `strconv.Quote` writes it, which error messages and field paths show.

use std::fmt::{self, Write};

use crate::later_characters::is_later;

/// Text that is printed in double quotes, with characters that are not printable escaped.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            escape(c, '"', f)?;
        }
        f.write_char('"')
    }
}

/// A character that is printed in single quotes.
#[derive(Clone, Copy, Debug)]
pub struct QuotedChar(pub char);

impl fmt::Display for QuotedChar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('\'')?;
        escape(self.0, '\'', f)?;
        f.write_char('\'')
    }
}

/// Text that is printed in double quotes as Go's package `time` prints it: control characters and bytes outside
/// ASCII are escaped as `\x` and two hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct TimeQuoted<'a>(pub &'a [u8]);

impl fmt::Display for TimeQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for &byte in self.0 {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                b' '..=0x7f => f.write_char(char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_char('"')
    }
}

fn escape(c: char, quote: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match c {
        '\\' => f.write_str(r"\\"),
        '\x07' => f.write_str(r"\a"),
        '\x08' => f.write_str(r"\b"),
        '\x0c' => f.write_str(r"\f"),
        '\n' => f.write_str(r"\n"),
        '\r' => f.write_str(r"\r"),
        '\t' => f.write_str(r"\t"),
        '\x0b' => f.write_str(r"\v"),
        c if c == quote => write!(f, "\\{c}"),
        c if is_printable(c) => f.write_char(c),
        c if c < ' ' || c == '\x7f' => write!(f, "\\x{:02x}", u32::from(c)),
        c if u32::from(c) < 0x10000 => write!(f, "\\u{:04x}", u32::from(c)),
        c => write!(f, "\\U{:08x}", u32::from(c)),
    }
}

/// Whether Go's `unicode.IsPrint` holds: letters, marks, numbers, punctuation, symbols and the plain space, of Unicode 15.0.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        // Most text is, and messages quote values of any length.
        return !c.is_ascii_control();
    }
    is_printable_now(c) && !is_later(c)
}

/// The same of the Unicode of the standard library.
fn is_printable_now(c: char) -> bool {
    // Not `char::escape_debug`, which escapes a mark that stands alone.
    matches!(c, '\'' | '"' | '\\') || {
        let mut text = [0; 5];
        text[0] = b'a';
        let length = 1 + c.encode_utf8(&mut text[1..]).len();
        std::str::from_utf8(&text[..length]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_go_quotes_it() {
        for (text, quoted) in [
            ("a\"b", r#""a\"b""#),
            ("it's", r#""it's""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("é<\u{fffd}\u{301}😀", "\"é<\u{fffd}\u{301}😀\""),
            (
                "\u{a0}\u{2028}\u{fffe}\u{e000}",
                r#""\u00a0\u2028\ufffe\ue000""#,
            ),
            ("\u{e0001}", r#""\U000e0001""#),
            ("a\\b", r#""a\\b""#),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
    }

    #[test]
    fn a_character_escapes_the_single_quote_and_no_other() {
        assert_eq!(QuotedChar('\'').to_string(), r"'\''");
        assert_eq!(QuotedChar('"').to_string(), "'\"'");
        assert_eq!(QuotedChar('\0').to_string(), r"'\x00'");
    }

    /// What Go's package `unicode` says of each character.
    const UNICODE: &str = include_str!("../../cel/tests/corpus/unicode.jsonl");

    #[test]
    fn the_characters_that_are_printed_are_those_of_go() {
        let line = UNICODE.lines().find(|line| line.contains("printable"));
        let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
        let ranges = line["printable"].as_str().unwrap();
        let number = |text: &str| u32::from_str_radix(text, 16).unwrap();
        let mut expected = std::collections::BTreeSet::new();
        for range in ranges.split(' ') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            expected.extend(number(first)..=number(last));
        }
        let differ = |c: &char| is_printable(*c) != expected.contains(&u32::from(*c));
        let wrong: Vec<char> = (' '..=char::MAX).filter(differ).collect();
        let mut found: Vec<(u32, u32)> = Vec::new();
        for c in wrong.iter().map(|c| u32::from(*c)) {
            match found.last_mut() {
                Some((_, last)) if *last + 1 == c => *last = c,
                _ => found.push((c, c)),
            }
        }
        assert!(found.is_empty(), "{found:x?}");
    }
}
