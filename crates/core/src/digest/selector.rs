//! The grammars of field and label selectors.
//!
//! The terms of a field selector, for whoever matches objects, and whether a label selector decodes.
//! Everything is bytes, because a decoded query need not be UTF-8. Not here: matching objects.

use std::borrow::Cow;

use smallvec::SmallVec;

/// A field selector: terms `field=value`, `field==value`, `field!=value`, all of which must hold.
#[derive(Debug)]
pub(super) struct FieldTerms<'a>(SmallVec<[FieldTerm<'a>; 4]>);

impl<'a> FieldTerms<'a> {
    /// Reads a selector; see [`field_terms`]. `None` when any term is malformed.
    pub(super) fn parse(selector: &'a [u8]) -> Option<Self> {
        field_terms(selector).ok().map(Self)
    }

    /// The value that the first term about `field` in sorted order requires of it.
    pub(super) fn required(&self, field: &[u8]) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| &*term.value)
    }
}

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm<'a> {
    /// The field, neither checked nor trimmed.
    pub field: &'a [u8],
    /// Whether the field must have the value, or any other.
    pub equal: bool,
    /// The value, escapes resolved.
    pub value: Cow<'a, [u8]>,
}

/// Why a term of a field selector is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldTermError<'a> {
    /// This term has no operator.
    NoOperator(&'a [u8]),
    /// A backslash is followed by this, which does not begin with a backslash, `,` or `=`.
    BadEscape(&'a [u8]),
    /// A value has this byte, `,` or `=`, without a backslash before it.
    Unescaped(u8),
}

/// The terms of a field selector, sorted as kube-apiserver sorts them before it reads them: so which of
/// several terms of one field counts, and which error is found first, does not depend on their order
/// in the text. The empty selector has none.
///
/// Costs `O(n log n)` in the length.
///
/// # Errors
///
/// [`FieldTermError`] for the first term, in sorted order, that is malformed.
pub fn field_terms(selector: &[u8]) -> Result<SmallVec<[FieldTerm<'_>; 4]>, FieldTermError<'_>> {
    let mut terms = split_terms(selector);
    terms.sort_unstable();
    terms
        .into_iter()
        .filter(|term| !term.is_empty())
        .map(FieldTerm::parse)
        .collect()
}

/// Splits at each `,` that no backslash protects.
fn split_terms(selector: &[u8]) -> SmallVec<[&[u8]; 4]> {
    let mut protected = false;
    selector
        .split(|&byte| {
            let separates = byte == b',' && !protected;
            protected = byte == b'\\' && !protected;
            separates
        })
        .collect()
}

impl<'a> FieldTerm<'a> {
    fn parse(term: &'a [u8]) -> Result<Self, FieldTermError<'a>> {
        let at = term
            .iter()
            .enumerate()
            .position(|(i, &b)| b == b'=' || b == b'!' && term.get(i + 1) == Some(&b'='))
            .ok_or(FieldTermError::NoOperator(term))?;
        let (field, rest) = term.split_at(at);
        let (equal, value) = match rest {
            [b'!', b'=', value @ ..] => (false, value),
            [b'=', b'=', value @ ..] | [_, value @ ..] => (true, value),
            [] => return Err(FieldTermError::NoOperator(term)),
        };
        Ok(Self {
            field,
            equal,
            value: unescape(value)?,
        })
    }
}

/// Resolves `\\`, `\,` and `\=`; any other escape and a raw `,` or `=` are errors.
fn unescape(value: &[u8]) -> Result<Cow<'_, [u8]>, FieldTermError<'_>> {
    if !value.iter().any(|b| b"\\,=".contains(b)) {
        return Ok(Cow::Borrowed(value));
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [byte, after @ ..] = rest {
        rest = after;
        out.push(match byte {
            b'\\' => match after {
                [escaped @ (b'\\' | b',' | b'='), after @ ..] => {
                    rest = after;
                    *escaped
                }
                _ => return Err(FieldTermError::BadEscape(after)),
            },
            b',' | b'=' => return Err(FieldTermError::Unescaped(*byte)),
            _ => *byte,
        });
    }
    Ok(Cow::Owned(out))
}

/// Whether `selector` is a label selector: requirements separated by commas; none at all is fine.
///
/// Costs `O(n)` and allocates nothing.
pub(super) fn is_label_selector(selector: &[u8]) -> bool {
    let mut tokens = Tokens::new(selector);
    if tokens.next_is(Token::End) {
        return true;
    }
    loop {
        if requirement(&mut tokens).is_none() {
            return false;
        }
        match tokens.take() {
            Token::End => return true,
            Token::Comma => {}
            _ => return false,
        }
    }
}

/// Reads one requirement, up to the comma or end that must follow it.
fn requirement(tokens: &mut Tokens<'_>) -> Option<()> {
    let absent = tokens.eat(Token::Not);
    let key = tokens.word()?;
    if !is_key(key) {
        return None;
    }
    if absent || tokens.next_is(Token::End) || tokens.next_is(Token::Comma) {
        return Some(());
    }
    match tokens.take() {
        Token::Word(b"in" | b"notin") => set(tokens),
        Token::Equal => is_value(exact_value(tokens)?).then_some(()),
        Token::Order => {
            let value = exact_value(tokens)?;
            (is_value(value) && is_number(value)).then_some(())
        }
        _ => None,
    }
}

/// Reads the value of a comparison; nothing before a comma or the end is the empty value.
fn exact_value<'a>(tokens: &mut Tokens<'a>) -> Option<&'a [u8]> {
    if tokens.next_is(Token::End) || tokens.next_is(Token::Comma) {
        return Some(b"");
    }
    tokens.word()
}

/// Reads a parenthesised list of values, separated by commas; any of them may be empty.
fn set(tokens: &mut Tokens<'_>) -> Option<()> {
    if !tokens.eat(Token::Open) {
        return None;
    }
    loop {
        if let Token::Word(value) = tokens.next {
            tokens.take();
            if !is_value(value) {
                return None;
            }
        }
        match tokens.take() {
            Token::Comma => {}
            Token::Close => return Some(()),
            _ => return None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Comma,
    Open,
    Close,
    /// `!`
    Not,
    /// `=`, `==` or `!=`
    Equal,
    /// `<` or `>`
    Order,
    Word(&'a [u8]),
}

/// The tokens of a label selector, one ahead.
struct Tokens<'a> {
    rest: &'a [u8],
    next: Token<'a>,
}

impl<'a> Tokens<'a> {
    fn new(selector: &'a [u8]) -> Self {
        let mut tokens = Self {
            rest: selector,
            next: Token::End,
        };
        tokens.take();
        tokens
    }

    /// Takes the next token.
    fn take(&mut self) -> Token<'a> {
        std::mem::replace(&mut self.next, lex(&mut self.rest))
    }

    /// Takes the next token if it is `token`.
    fn eat(&mut self, token: Token<'_>) -> bool {
        let is_next = self.next_is(token);
        if is_next {
            self.take();
        }
        is_next
    }

    fn next_is(&self, token: Token<'_>) -> bool {
        self.next == token
    }

    /// Takes the next token if it is a word; `in` and `notin` are words too.
    fn word(&mut self) -> Option<&'a [u8]> {
        match self.take() {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Cuts one token off `rest`. A NUL ends the selector where a token would begin, and is skipped
/// behind a token: the server's lexer does not tell it from the end of input.
fn lex<'a>(rest: &mut &'a [u8]) -> Token<'a> {
    let start = rest
        .iter()
        .position(|&b| !is_blank(b))
        .unwrap_or(rest.len());
    let text = &rest[start..];
    let (token, length) = match text {
        [] | [0, ..] => {
            *rest = &[];
            return Token::End;
        }
        [b',', ..] => (Token::Comma, 1),
        [b'(', ..] => (Token::Open, 1),
        [b')', ..] => (Token::Close, 1),
        [b'!' | b'=', b'=', ..] => (Token::Equal, 2),
        [b'!', ..] => (Token::Not, 1),
        [b'=', ..] => (Token::Equal, 1),
        [b'<' | b'>', ..] => (Token::Order, 1),
        _ => {
            let end = text
                .iter()
                .position(|&b| ends_word(b))
                .unwrap_or(text.len());
            (Token::Word(&text[..end]), end)
        }
    };
    let after = &text[length..];
    *rest = after.strip_prefix(b"\0").unwrap_or(after);
    token
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn ends_word(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, 0 | b',' | b'(' | b')' | b'!' | b'=' | b'<' | b'>')
}

/// Whether `key` is a label's key: a name, after an optional DNS subdomain and `/`.
fn is_key(key: &[u8]) -> bool {
    match key.iter().position(|&b| b == b'/') {
        None => is_name(key),
        Some(slash) => is_subdomain(&key[..slash]) && is_name(&key[slash + 1..]),
    }
}

/// Whether `name` is 1 to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(name: &[u8]) -> bool {
    let at_ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    name.len() <= 63
        && at_ends(name.first())
        && at_ends(name.last())
        && name
            .iter()
            .all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_value(value: &[u8]) -> bool {
    value.is_empty() || is_name(value)
}

/// Whether `domain` is a DNS subdomain: at most 253 characters in dotted labels of lower-case
/// letters, digits and inner `-`.
fn is_subdomain(domain: &[u8]) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let at_ends = |byte: Option<&u8>| byte.is_some_and(|&b| alphanumeric(b));
    domain.len() <= 253
        && domain.split(|&b| b == b'.').all(|label| {
            at_ends(label.first())
                && at_ends(label.last())
                && label.iter().all(|&b| alphanumeric(b) || b == b'-')
        })
}

fn is_number(digits: &[u8]) -> bool {
    std::str::from_utf8(digits).is_ok_and(|digits| digits.parse::<i64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(selector: &str) -> Option<String> {
        let fields = FieldTerms::parse(selector.as_bytes()).expect("the selector is well-formed");
        let value = fields.required(b"f")?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn a_field_selector_requires_the_first_value_in_sorted_order() {
        let cases = [
            ("", None),
            (",,", None),
            ("f=a", Some("a")),
            ("f==a", Some("a")),
            ("f!=a", None),
            ("f=", Some("")),
            ("f=b,f=a", Some("a")),
            ("f=b,f==c", Some("c")),
            ("f==b,f=9", Some("9")),
            ("f=a,f=", Some("")),
            ("f!=x,f=a", Some("a")),
            ("z=1,,f=a", Some("a")),
            (" f=a", None),
            ("f =a", None),
            ("f= a ", Some(" a ")),
            ("=a", None),
            ("!=a", None),
            ("f!a=b", None),
            ("f=a!b", Some("a!b")),
            (r"f=a\\,b=c", Some(r"a\")),
            (r"f=a\,b", Some("a,b")),
            (r"f=a\=b", Some("a=b")),
            (r"f=a\,", Some("a,")),
            (r"f\=a", None),
            ("f=\u{e4}", Some("\u{e4}")),
        ];
        for (selector, expected) in cases {
            assert_eq!(required(selector).as_deref(), expected, "{selector}");
        }
    }

    #[test]
    fn one_malformed_term_fails_the_whole_field_selector() {
        let selectors = [
            "f",
            "f=a,oops",
            "f!a",
            "f===a",
            "f=a=b",
            "f!==a",
            r"f=\a",
            r"f=a\,b=c",
            r"f=a\",
            r"x\,f=a\n",
        ];
        for selector in selectors {
            let fields = FieldTerms::parse(selector.as_bytes());
            assert!(fields.is_none(), "{selector}");
        }
    }

    #[test]
    fn label_selectors_of_every_form_decode() {
        let selectors = [
            "",
            "  ",
            "a",
            "!a",
            "! a",
            "a=b",
            "a==b",
            "a!=b",
            "a = b",
            "a=",
            "a=,b",
            "a==",
            "a!=",
            "a>5",
            "a < 0",
            "a in (b)",
            "a in (b,c)",
            "a notin (b, c )",
            "a in()",
            "a in (,)",
            "a in (b,,c)",
            "a in (,,)",
            "a in (b,)",
            "in in (in,notin)",
            "notin",
            "!in",
            "a=in",
            "a=b,!c,d in (e),f",
            "\ta\n=\rb ",
            "example.com/a",
            "a-b.c/D_e.f=G-h",
            "1/2=3",
            "0",
            "a\0",
            "a \0)(",
        ];
        for selector in selectors {
            assert!(is_label_selector(selector.as_bytes()), "{selector}");
        }
    }

    #[test]
    fn malformed_label_selectors_do_not_decode() {
        let selectors = [
            ",",
            "a,",
            ",a",
            "a,,b",
            "a b",
            "!",
            "!!a",
            "!a=b",
            "!a in (b)",
            "=",
            "=a",
            "a===b",
            "a=!b",
            "a=b=c",
            "a=b c",
            "a in",
            "a in b",
            "a in (",
            "a in (b",
            "a in (b c)",
            "a in b)",
            "a in (b))",
            "a in (!)",
            "a in (-)",
            "a>",
            "a>b",
            "a>-1",
            "a<1.5",
            "a>99999999999999999999",
            "a=b)",
            "(a)",
            "a=-b",
            "a=b-",
            "-a",
            "a_",
            "/a",
            "a/",
            "a/b/c",
            "A/b",
            "a..b/c",
            "-a/b",
            "a_b/c",
            "a=b/c",
            "a=\u{e4}",
            "\u{e4}",
            "a\0b",
            "x=\0y,",
        ];
        for selector in selectors {
            assert!(!is_label_selector(selector.as_bytes()), "{selector}");
        }
    }

    #[test]
    fn names_have_at_most_63_characters_and_domains_253() {
        let decodes = |name: usize, domain: usize| {
            let (name, domain) = ("a".repeat(name), "a".repeat(domain));
            is_label_selector(format!("{domain}/{name}={name}").as_bytes())
        };
        assert!(decodes(63, 253));
        assert!(!decodes(64, 253));
        assert!(!decodes(63, 254));
    }
}
