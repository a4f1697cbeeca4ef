//! From text to tokens.

use crate::source::{CelIssues, CodePosition};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Ident,
    /// An identifier between backticks.
    EscapedIdent,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    True,
    False,
    Null,
    In,
    /// An operator or a bracket; its text tells which.
    Symbol,
    End,
}

/// A token of an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'s> {
    pub(super) kind: TokenKind,
    pub(super) text: &'s str,
    /// Where it starts, in code points.
    pub(super) offset: u32,
}

const SYMBOLS: [&str; 26] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%", "\u{0}", "\u{0}",
];

/// The tokens of `source`, the last of which is [`TokenKind::End`]. Text that is not a token is reported and skipped.
pub(super) fn tokens<'s>(source: &'s str, issues: &mut CelIssues) -> Vec<Token<'s>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let mut offset = 0_u32;
    while !rest.is_empty() {
        let (kind, length) = next_token(rest);
        let text = &rest[..length];
        match kind {
            Scanned::Token(kind) => tokens.push(Token { kind, text, offset }),
            Scanned::Blank => {}
            Scanned::Unknown => {
                let shown = text
                    .replace('\n', "\\n")
                    .replace('\t', "\\t")
                    .replace('\r', "\\r");
                let message = format!("Syntax error: token recognition error at: '{shown}'");
                issues.report(CodePosition::at(offset), message);
            }
        }
        offset += u32::try_from(text.chars().count()).expect("the size of sources is bounded");
        rest = &rest[length..];
    }
    tokens.push(Token {
        kind: TokenKind::End,
        text: "<EOF>",
        offset,
    });
    tokens
}

enum Scanned {
    Token(TokenKind),
    /// White space or a comment.
    Blank,
    Unknown,
}

/// The token or blank text at the start of `rest`, and its length in bytes.
fn next_token(rest: &str) -> (Scanned, usize) {
    let bytes = rest.as_bytes();
    let first = bytes[0];
    if matches!(first, b' ' | b'\t' | b'\r' | b'\n' | 0x0c) {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0c);
        return (
            Scanned::Blank,
            bytes.iter().take_while(|b| blank(b)).count(),
        );
    }
    if rest.starts_with("//") {
        return (Scanned::Blank, rest.find('\n').unwrap_or(rest.len()));
    }
    if let Some(string) = string_literal(rest) {
        return string;
    }
    if first.is_ascii_alphabetic() || first == b'_' {
        let length = word_length(bytes);
        let kind = match &rest[..length] {
            "in" => TokenKind::In,
            "true" => TokenKind::True,
            "false" => TokenKind::False,
            "null" => TokenKind::Null,
            _ => TokenKind::Ident,
        };
        return (Scanned::Token(kind), length);
    }
    if first.is_ascii_digit() || (first == b'.' && bytes.get(1).is_some_and(u8::is_ascii_digit)) {
        let (kind, length) = number(bytes);
        return (Scanned::Token(kind), length);
    }
    if first == b'`' {
        return escaped_ident(bytes);
    }
    if let Some(symbol) = SYMBOLS
        .iter()
        .find(|symbol| rest.starts_with(**symbol) && first != 0)
    {
        return (Scanned::Token(TokenKind::Symbol), symbol.len());
    }
    let length = rest.chars().next().map_or(1, char::len_utf8);
    (Scanned::Unknown, length)
}

fn word_length(bytes: &[u8]) -> usize {
    let of_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    bytes.iter().take_while(of_word).count()
}

fn digits(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count()
}

/// The kind and the length of the number at the start of `bytes`.
fn number(bytes: &[u8]) -> (TokenKind, usize) {
    let is_unsigned = |at: usize| matches!(bytes.get(at), Some(b'u' | b'U'));
    if bytes.starts_with(b"0x") {
        let hex = bytes[2..]
            .iter()
            .take_while(|b| b.is_ascii_hexdigit())
            .count();
        if hex > 0 {
            return if is_unsigned(2 + hex) {
                (TokenKind::Uint, 3 + hex)
            } else {
                (TokenKind::Int, 2 + hex)
            };
        }
    }
    let whole = digits(bytes);
    let mut length = whole;
    let mut kind = TokenKind::Int;
    if bytes.get(length) == Some(&b'.') {
        let fraction = digits(&bytes[length + 1..]);
        if fraction > 0 {
            length += 1 + fraction;
            kind = TokenKind::Float;
        }
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = bytes.get(length + 1 + sign..).map_or(0, digits);
        if exponent > 0 {
            return (TokenKind::Float, length + 1 + sign + exponent);
        }
    }
    if kind == TokenKind::Int && is_unsigned(length) {
        return (TokenKind::Uint, length + 1);
    }
    (kind, length)
}

fn escaped_ident(bytes: &[u8]) -> (Scanned, usize) {
    let inside = bytes[1..]
        .iter()
        .take_while(|b| b.is_ascii_alphanumeric() || b"_.-/ ".contains(b))
        .count();
    if inside > 0 && bytes.get(1 + inside) == Some(&b'`') {
        return (Scanned::Token(TokenKind::EscapedIdent), inside + 2);
    }
    (Scanned::Unknown, 1)
}

/// The string or bytes literal at the start of `rest`, if one starts there.
fn string_literal(rest: &str) -> Option<(Scanned, usize)> {
    let bytes = rest.as_bytes();
    let mut at = 0;
    let kind = if matches!(bytes[0], b'b' | b'B') {
        at += 1;
        TokenKind::Bytes
    } else {
        TokenKind::String
    };
    let raw = matches!(bytes.get(at), Some(b'r' | b'R'));
    at += usize::from(raw);
    let quote = *bytes.get(at)?;
    if quote != b'"' && quote != b'\'' {
        return None;
    }
    let tripled = bytes[at..].starts_with(&[quote; 3]);
    let opening = if tripled { 3 } else { 1 };
    match end_of_string(&bytes[at + opening..], quote, tripled, raw) {
        Ok(length) => Some((Scanned::Token(kind), at + opening + length)),
        // Not a valid triple-quoted literal: the first two quotes are an empty string.
        Err(_) if tripled => Some((Scanned::Token(kind), at + 2)),
        Err(length) => {
            let mut end = (at + opening + length).min(rest.len());
            while !rest.is_char_boundary(end) {
                end += 1;
            }
            Some((Scanned::Unknown, end))
        }
    }
}

/// The length in bytes up to the end of the closing quotes, or up to the byte at which the literal is invalid.
fn end_of_string(bytes: &[u8], quote: u8, tripled: bool, raw: bool) -> Result<usize, usize> {
    let mut at = 0;
    loop {
        let byte = *bytes.get(at).ok_or(at)?;
        match byte {
            _ if byte == quote && !tripled => return Ok(at + 1),
            _ if byte == quote && bytes[at..].starts_with(&[quote; 3]) => return Ok(at + 3),
            b'\n' | b'\r' if !tripled => return Err(at),
            b'\\' if !raw => at += escape_length(&bytes[at..]).ok_or(at + 2)?,
            _ => at += 1,
        }
    }
}

/// The length in bytes of the escape at the start of `bytes`, if it is valid.
fn escape_length(bytes: &[u8]) -> Option<usize> {
    let hex = |count: usize| {
        let digits = bytes.get(2..2 + count)?;
        digits
            .iter()
            .all(u8::is_ascii_hexdigit)
            .then_some(2 + count)
    };
    match bytes.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => {
            Some(2)
        }
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => {
            let digits = bytes.get(2..4)?;
            let octal = digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
            octal.then_some(4)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<(TokenKind, &str)> {
        let mut issues = CelIssues::new(source);
        let tokens = tokens(source, &mut issues);
        assert!(issues.is_empty(), "{issues}");
        let end = tokens.len() - 1;
        tokens[..end].iter().map(|t| (t.kind, t.text)).collect()
    }

    #[test]
    fn the_longest_token_is_taken() {
        use TokenKind::{Float, Ident, Int, Symbol, Uint};
        assert_eq!(kinds("1.5e3"), [(Float, "1.5e3")]);
        assert_eq!(kinds("1.e"), [(Int, "1"), (Symbol, "."), (Ident, "e")]);
        assert_eq!(kinds("0xFFu"), [(Uint, "0xFFu")]);
        assert_eq!(kinds("1e"), [(Int, "1"), (Ident, "e")]);
        assert_eq!(kinds(".5"), [(Float, ".5")]);
        assert_eq!(kinds("a<=b"), [(Ident, "a"), (Symbol, "<="), (Ident, "b")]);
        assert_eq!(kinds("inner // in"), [(Ident, "inner")]);
    }

    #[test]
    fn strings_end_at_their_closing_quotes() {
        use TokenKind::{Bytes, String};
        for text in [
            r#""a\"b""#,
            "'''a'b''c'''",
            r"r'\'",
            "\"\"\"a\n\"\"\"",
            r"'\x41\u0041\101\U00000041'",
            "''",
        ] {
            assert_eq!(kinds(text), [(String, text)]);
        }
        assert_eq!(kinds("b'é'"), [(Bytes, "b'é'")]);
        assert_eq!(kinds("bR'a'"), [(Bytes, "bR'a'")]);
    }

    #[test]
    fn text_that_is_not_a_token_is_reported() {
        for (source, message) in [
            ("'abc", "token recognition error at: ''abc'"),
            ("#", "token recognition error at: '#'"),
            (r"'\q'", r"token recognition error at: ''\q'"),
            ("'é\n'", "token recognition error at: ''é'"),
        ] {
            let mut issues = CelIssues::new(source);
            tokens(source, &mut issues);
            assert_eq!(
                issues.issues()[0].message,
                format!("Syntax error: {message}")
            );
        }
    }
}
