//! Reading JSON text, with the errors that Go's `encoding/json` gives.

use std::borrow::Cow;

use crate::{
    codec::tape::{JsonTape, JsonToken, TokenCount},
    schema::canonical::MAX_OBJECTS,
};
use fairgate_gotext::{QuotedChar, push_utf8};

/// Lists and objects that may be open at once: as many as Go's `encoding/json` and `sigs.k8s.io/json` allow.
///
/// Whoever reads a text recurses over its value, be it to drop it, and needs a stack of `STACK_BYTES` of `fairgate_base::stack`.
pub const MAX_DEPTH: usize = 10_000;

/// So many bytes of a text make a token, in bodies of usual form.
const TOKEN_BYTES: usize = 8;
/// The most tokens for which there is room before they are read: a long text may be one string.
const MAX_GUESS: usize = 1024;

/// Why a text is not JSON. The message is Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// It ends too early.
    #[error("unexpected end of JSON input")]
    End,
    /// An unexpected character.
    #[error("invalid character {} {context}", QuotedChar(char::from(*.byte)))]
    Unexpected {
        /// The first byte of the character; a space stands for the end of the text.
        byte: u8,
        /// What was being read.
        context: &'static str,
    },
    /// More lists and objects are open at once than [`MAX_DEPTH`].
    #[error("invalid character {} exceeded max depth", QuotedChar(char::from(*.0)))]
    TooDeep(u8),
    /// More than `MAX_OBJECTS` objects.
    #[error("more than {MAX_OBJECTS} objects")]
    TooManyObjects,
}

/// A text that was read.
pub(in super::super) struct ScannedText<'a> {
    pub(in super::super) tape: JsonTape<'a>,
    /// The part of the text that is the value, if it is in its plainest form: printable ASCII without escapes, and no white space between
    /// tokens.
    pub(in super::super) plain: Option<&'a [u8]>,
}

/// The value of the whole `text`.
pub(in super::super) fn read(text: &[u8]) -> Result<ScannedText<'_>, SyntaxError> {
    let mut scanner = Scanner {
        text,
        utf8: std::str::from_utf8(text).ok(),
        at: 0,
        depth: 0,
        objects: 0,
        is_plain: true,
        tokens: Vec::with_capacity((text.len() / TOKEN_BYTES).min(MAX_GUESS)),
    };
    scanner.next_token();
    let start = scanner.at;
    scanner.is_plain = text.chunks(256).all(is_plain);
    scanner.value()?;
    let plain = scanner.is_plain.then(|| &text[start..scanner.at]);
    match scanner.next_token() {
        None => Ok(ScannedText {
            tape: JsonTape::new(scanner.tokens),
            plain,
        }),
        Some(_) => Err(scanner.unexpected("after top-level value")),
    }
}

/// Whether all bytes are ASCII and no DEL. Without a way out, so that they are compared many at a time.
fn is_plain(bytes: &[u8]) -> bool {
    let is_odd = |byte: &u8| u8::from(*byte >= 0x7f);
    bytes.iter().fold(0, |any, byte| any | is_odd(byte)) == 0
}

/// How many of eight bytes of a string come before the first that does not stand for itself; `None` if all do. The first byte is the lowest.
fn ordinary_of_eight(eight: u64) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // The lowest byte that is less than `limit`, which is at most 128, has its high bit set, and so may bytes above it.
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit) & !bytes & HIGH;
    let is = |byte: u8| below(eight ^ (ONES * u64::from(byte)), 1);
    let special = below(eight, u64::from(b' ')) | is(b'"') | is(b'\\');
    (special != 0).then_some(special.trailing_zeros() as usize / 8)
}

struct Scanner<'a> {
    text: &'a [u8],
    /// The same, if all of it is UTF-8.
    utf8: Option<&'a str>,
    at: usize,
    depth: usize,
    objects: usize,
    /// Whether neither an escape nor white space between tokens has been found.
    is_plain: bool,
    tokens: Vec<JsonToken<'a>>,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte that is not white space, without taking it.
    fn next_token(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
            self.is_plain = false;
        }
        self.peek()
    }

    /// The error for the next byte, where white space counts as the end of the text.
    fn unexpected(&self, context: &'static str) -> SyntaxError {
        self.peek()
            .map_or(SyntaxError::End, |byte| SyntaxError::Unexpected {
                byte,
                context,
            })
    }

    /// The error for the next byte within a token, where the end of the text counts as white space.
    fn broken(&self, context: &'static str) -> SyntaxError {
        SyntaxError::Unexpected {
            byte: self.peek().unwrap_or(b' '),
            context,
        }
    }

    fn value(&mut self) -> Result<(), SyntaxError> {
        match self.next_token() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => {
                let text = self.string()?;
                self.tokens.push(JsonToken::Text(text));
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => {
                const CONTEXT: [&str; 3] = [
                    "in literal true (expecting 'r')",
                    "in literal true (expecting 'u')",
                    "in literal true (expecting 'e')",
                ];
                self.literal(b"rue", &CONTEXT, JsonToken::Flag(true))
            }
            Some(b'f') => {
                const CONTEXT: [&str; 4] = [
                    "in literal false (expecting 'a')",
                    "in literal false (expecting 'l')",
                    "in literal false (expecting 's')",
                    "in literal false (expecting 'e')",
                ];
                self.literal(b"alse", &CONTEXT, JsonToken::Flag(false))
            }
            Some(b'n') => {
                const CONTEXT: [&str; 3] = [
                    "in literal null (expecting 'u')",
                    "in literal null (expecting 'l')",
                    "in literal null (expecting 'l')",
                ];
                self.literal(b"ull", &CONTEXT, JsonToken::Null)
            }
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn literal(
        &mut self,
        rest: &[u8],
        contexts: &[&'static str],
        token: JsonToken<'a>,
    ) -> Result<(), SyntaxError> {
        self.at += 1;
        for (byte, context) in rest.iter().zip(contexts) {
            if self.peek() != Some(*byte) {
                return Err(self.broken(context));
            }
            self.at += 1;
        }
        self.tokens.push(token);
        Ok(())
    }

    /// What a list or an object of so many parts is, that begins with the token at `start`.
    fn count(&self, start: usize, parts: u32) -> TokenCount {
        let tokens = u32::try_from(self.tokens.len() - start - 1);
        TokenCount {
            parts,
            tokens: tokens.expect("a text is shorter than 4 GiB"),
        }
    }

    fn open(&mut self, bracket: u8) -> Result<(), SyntaxError> {
        if self.depth >= MAX_DEPTH {
            return Err(SyntaxError::TooDeep(bracket));
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    fn list(&mut self) -> Result<(), SyntaxError> {
        self.open(b'[')?;
        let (start, mut items) = (self.tokens.len(), 0);
        self.tokens.push(JsonToken::List(TokenCount::default()));
        if self.next_token() == Some(b']') {
            self.close();
            return Ok(());
        }
        loop {
            self.value()?;
            items += 1;
            match self.next_token() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.close();
                    self.tokens[start] = JsonToken::List(self.count(start, items));
                    return Ok(());
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn object(&mut self) -> Result<(), SyntaxError> {
        self.open(b'{')?;
        self.objects += 1;
        if self.objects > MAX_OBJECTS {
            return Err(SyntaxError::TooManyObjects);
        }
        let (start, mut members) = (self.tokens.len(), 0);
        self.tokens.push(JsonToken::Object(TokenCount::default()));
        if self.next_token() == Some(b'}') {
            self.close();
            return Ok(());
        }
        loop {
            if self.next_token() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            if self.next_token() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.tokens.push(JsonToken::Text(key));
            self.value()?;
            members += 1;
            match self.next_token() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.close();
                    self.tokens[start] = JsonToken::Object(self.count(start, members));
                    return Ok(());
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        // A digit behind a leading 0 is left to the caller, which reports it as Go does.
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]);
        let text = text.expect("a number is ASCII");
        self.tokens.push(JsonToken::Number(text));
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self, context: &'static str) -> Result<(), SyntaxError> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.broken(context));
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        self.skip_ordinary();
        if self.peek() == Some(b'"')
            && let Some(utf8) = self.utf8
        {
            let string = &utf8[start..self.at];
            self.at += 1;
            return Ok(Cow::Borrowed(string));
        }
        self.at = start;
        self.unescaped().map(Cow::Owned)
    }

    /// Takes the bytes of a string that stand for themselves.
    fn skip_ordinary(&mut self) {
        let mut rest = &self.text[self.at..];
        while let Some((eight, after)) = rest.split_first_chunk() {
            if let Some(ordinary) = ordinary_of_eight(u64::from_le_bytes(*eight)) {
                self.at += ordinary;
                return;
            }
            self.at += eight.len();
            rest = after;
        }
        let is_special = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
        self.at += rest.iter().position(is_special).unwrap_or(rest.len());
    }

    /// The rest of a string that may have escapes, or bytes that are not UTF-8.
    fn unescaped(&mut self) -> Result<String, SyntaxError> {
        let mut string = String::new();
        loop {
            let start = self.at;
            self.skip_ordinary();
            push_utf8(&mut string, &self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.is_plain = false;
                    self.escape(&mut string)?;
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self, string: &mut String) -> Result<(), SyntaxError> {
        let c = match self.peek() {
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'u') => {
                self.at += 1;
                let unit = self.hex()?;
                return self.unit(unit, string);
            }
            _ => return Err(self.broken("in string escape code")),
        };
        self.at += 1;
        string.push(c);
        Ok(())
    }

    /// Four hexadecimal digits.
    fn hex(&mut self) -> Result<u32, SyntaxError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let digit = digit.ok_or_else(|| self.broken(r"in \u hexadecimal character escape"))?;
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    /// A UTF-16 unit, with the second unit if it begins a surrogate pair.
    fn unit(&mut self, unit: u32, string: &mut String) -> Result<(), SyntaxError> {
        if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                string.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(());
            }
            // Not the other half of a pair: read again by itself, as Go does.
            self.at = back;
        }
        string.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }
}
