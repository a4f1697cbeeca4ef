//! Quoted text as Go's `strconv.Quote` writes it, which error messages and field paths show.

use std::{
    fmt::{self, Write},
    sync::OnceLock,
};

use crate::later_characters::is_later;

/// Text that is printed in double quotes, with characters that are not printable escaped: `%q` of a string.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        write_escaped(f, self.0)?;
        f.write_char('"')
    }
}

/// The same of bytes, of which those that are not UTF-8 are escaped as `\xff`.
#[derive(Clone, Copy, Debug)]
pub struct QuotedBytes<'a>(pub &'a [u8]);

impl fmt::Display for QuotedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            write_escaped(f, chunk.valid())?;
            for byte in chunk.invalid() {
                write_hex(f, "\\x", u32::from(*byte), 2)?;
            }
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
        escape(f, self.0, '\'')?;
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

/// Writes a text as it is between double quotes. A long text can be written in pieces.
///
/// # Errors
///
/// That of `to`.
pub fn write_escaped(to: &mut impl Write, text: &str) -> fmt::Result {
    let mut rest = text;
    // Most characters stand for themselves.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    loop {
        let plain = rest.bytes().position(|byte| !is_plain(byte));
        let (before, after) = rest.split_at(plain.unwrap_or(rest.len()));
        to.write_str(before)?;
        let Some(c) = after.chars().next() else {
            return Ok(());
        };
        escape(to, c, '"')?;
        rest = &after[c.len_utf8()..];
    }
}

fn escape(to: &mut impl Write, c: char, quote: char) -> fmt::Result {
    match c {
        '\\' => to.write_str(r"\\"),
        '\x07' => to.write_str(r"\a"),
        '\x08' => to.write_str(r"\b"),
        '\x0c' => to.write_str(r"\f"),
        '\n' => to.write_str(r"\n"),
        '\r' => to.write_str(r"\r"),
        '\t' => to.write_str(r"\t"),
        '\x0b' => to.write_str(r"\v"),
        c if c == quote => {
            to.write_char('\\')?;
            to.write_char(c)
        }
        c if is_printable(c) => to.write_char(c),
        c if c.is_ascii() => write_hex(to, "\\x", c.into(), 2),
        c if u32::from(c) < 0x1_0000 => write_hex(to, "\\u", c.into(), 4),
        c => write_hex(to, "\\U", c.into(), 8),
    }
}

/// Writes a number with so many digits, at most 8. Large texts have many characters that are written so, and the
/// formatting of the standard library takes many times as long.
fn write_hex(to: &mut impl Write, before: &str, number: u32, digits: usize) -> fmt::Result {
    let mut text = [0; 8];
    for (place, digit) in text[..digits].iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize];
    }
    to.write_str(before)?;
    to.write_str(std::str::from_utf8(&text[..digits]).unwrap_or_default())
}

/// For each 256 characters, which of them are printable. Finding that of one character takes a search, so it is done once for all
/// characters around one that is asked for.
static PRINTABLE: [OnceLock<[u64; 4]>; 0x1100] = [const { OnceLock::new() }; 0x1100];

/// Whether Go's `unicode.IsPrint` holds: letters, marks, numbers, punctuation, symbols and the plain space, of Unicode 15.0.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        // Most text is, and messages quote values of any length.
        return !c.is_ascii_control();
    }
    let number = u32::from(c);
    let block = PRINTABLE[(number >> 8) as usize].get_or_init(|| printable_block(number >> 8));
    block[(number >> 6 & 3) as usize] >> (number & 63) & 1 == 1
}

fn printable_block(block: u32) -> [u64; 4] {
    let mut printable = [0; 4];
    for low in 0..256 {
        let c = char::from_u32(block << 8 | low);
        if c.is_some_and(|c| is_printable_now(c) && !is_later(c)) {
            printable[(low >> 6) as usize] |= 1 << (low & 63);
        }
    }
    printable
}

/// Whether a character is printable in the Unicode of the standard library.
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
    fn bytes_that_are_no_text_are_numbers() {
        let quoted = QuotedBytes(b"a\xff\xc3\xa9\x01").to_string();
        assert_eq!(quoted, r#""a\xffé\x01""#);
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
