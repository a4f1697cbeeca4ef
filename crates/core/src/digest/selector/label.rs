//! Label selectors: `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`,
//! `key>5` and `key<5`, separated by commas.

use fairgate_gotext::names;

/// Whether `selector` is a label selector; the empty one is.
///
/// Costs `O(n)` and allocates nothing.
pub(in super::super) fn is_label_selector(selector: &[u8]) -> bool {
    let mut parser = LabelSelectorParser::new(selector);
    loop {
        let mut valid = true;
        match parser.next_requirement(|operator, value| valid &= is_operand(operator, value)) {
            Ok(Some(_)) if valid => {}
            Ok(None) => return true,
            Ok(Some(_)) | Err(_) => return false,
        }
    }
}

/// Whether an operator takes this value.
fn is_operand(operator: LabelOperator, value: &[u8]) -> bool {
    // No label value begins with `-`, so that the numbers of `>` and `<` are never negative.
    names::is_label_value(value)
        && match operator {
            LabelOperator::GreaterThan | LabelOperator::LessThan => is_number(value),
            _ => true,
        }
}

fn is_number(digits: &[u8]) -> bool {
    std::str::from_utf8(digits).is_ok_and(|digits| digits.parse::<i64>().is_ok())
}

/// One requirement of a label selector, without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelRequirement<'a> {
    /// The label's key, which is valid.
    pub key: &'a [u8],
    /// How the label is compared with the values.
    pub operator: LabelOperator,
}

/// How a requirement compares a label with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// The label exists; no value.
    Exists,
    /// The label does not exist; no value.
    DoesNotExist,
    /// The label has one of the values.
    In,
    /// The label has none of the values, or does not exist.
    NotIn,
    /// The label has the value.
    Equals,
    /// The label has another value, or does not exist.
    NotEquals,
    /// The label is a number above the value.
    GreaterThan,
    /// The label is a number below the value.
    LessThan,
}

/// Why a text is not a label selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelSyntaxError<'a> {
    /// A token that is not allowed in this place.
    UnexpectedToken {
        /// The token; empty at the end of the text.
        found: &'a [u8],
        /// What is allowed there.
        expected: ExpectedToken,
    },
    /// A requirement is about this key, which no label can have.
    InvalidKey(&'a [u8]),
}

/// What is allowed in a place of a label selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedToken {
    /// At the beginning: a requirement, or nothing at all.
    RequirementOrEnd,
    /// After a comma: another requirement.
    Requirement,
    /// After a requirement: a comma, or the end.
    CommaOrEnd,
    /// A key.
    Key,
    /// After a key: an operator.
    Operator,
    /// After a comparison: its value.
    Value,
    /// After `in` and `notin`: `(`.
    OpeningParenthesis,
    /// After `(`: the first value, which may be empty.
    FirstValue,
    /// After a comma in a list: the next value, which may be empty.
    NextValue,
    /// After a value in a list: a comma or `)`.
    CommaOrClosingParenthesis,
}

/// Reads a label selector, one requirement at a time.
///
/// It allocates nothing; callers that need the values collect them.
#[derive(Debug)]
pub struct LabelSelectorParser<'a> {
    tokens: Tokens<'a>,
    is_first: bool,
}

impl<'a> LabelSelectorParser<'a> {
    /// Begins to read `selector`.
    pub fn new(selector: &'a [u8]) -> Self {
        Self {
            tokens: Tokens::new(selector),
            is_first: true,
        }
    }

    /// Reads the next requirement, or `None` at the end. `on_value` gets each of its values, not yet
    /// checked, and also values in front of an error.
    ///
    /// # Errors
    ///
    /// [`LabelSyntaxError`] for the first token that does not fit; there is nothing to read after one.
    pub fn next_requirement(
        &mut self,
        mut on_value: impl FnMut(LabelOperator, &'a [u8]),
    ) -> Result<Option<LabelRequirement<'a>>, LabelSyntaxError<'a>> {
        if !self.find_requirement()? {
            return Ok(None);
        }
        let absent = self.tokens.next.kind == TokenKind::Not;
        if absent {
            self.tokens.take();
        }
        let key = self.tokens.word(ExpectedToken::Key)?;
        // Checked before the operator is read, as the server does: of two mistakes, clients see its error about this one.
        if !names::is_label_key(key) {
            return Err(LabelSyntaxError::InvalidKey(key));
        }
        let operator = if absent {
            LabelOperator::DoesNotExist
        } else if self.tokens.ends_requirement() {
            LabelOperator::Exists
        } else {
            let operator = operator(self.tokens.take())?;
            let on_value = |value| on_value(operator, value);
            match operator {
                LabelOperator::In | LabelOperator::NotIn => self.tokens.value_list(on_value)?,
                _ => self.tokens.single_value(on_value)?,
            }
            operator
        };
        Ok(Some(LabelRequirement { key, operator }))
    }

    /// Moves to the beginning of the next requirement, if there is one.
    fn find_requirement(&mut self) -> Result<bool, LabelSyntaxError<'a>> {
        let expected = if std::mem::take(&mut self.is_first) {
            // The empty selector selects everything; after a comma, however, a requirement must follow.
            if self.tokens.next.kind == TokenKind::End {
                return Ok(false);
            }
            ExpectedToken::RequirementOrEnd
        } else {
            let separator = self.tokens.take();
            match separator.kind {
                TokenKind::End => return Ok(false),
                TokenKind::Comma => ExpectedToken::Requirement,
                _ => return Err(separator.unexpected(ExpectedToken::CommaOrEnd)),
            }
        };
        match self.tokens.next {
            Token {
                kind: TokenKind::Word | TokenKind::Not,
                ..
            } => Ok(true),
            other => Err(other.unexpected(expected)),
        }
    }
}

fn operator(token: Token<'_>) -> Result<LabelOperator, LabelSyntaxError<'_>> {
    Ok(match token.kind {
        TokenKind::Equal => LabelOperator::Equals,
        TokenKind::NotEqual => LabelOperator::NotEquals,
        TokenKind::Greater => LabelOperator::GreaterThan,
        TokenKind::Less => LabelOperator::LessThan,
        TokenKind::Word if token.text == b"in" => LabelOperator::In,
        TokenKind::Word if token.text == b"notin" => LabelOperator::NotIn,
        _ => return Err(token.unexpected(ExpectedToken::Operator)),
    })
}

/// One token, with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    kind: TokenKind,
    /// As written; empty at the end.
    text: &'a [u8],
}

impl<'a> Token<'a> {
    fn unexpected(self, expected: ExpectedToken) -> LabelSyntaxError<'a> {
        LabelSyntaxError::UnexpectedToken {
            found: self.text,
            expected,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    End,
    Comma,
    Open,
    Close,
    /// `!`
    Not,
    /// `=` or `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>`
    Greater,
    /// `<`
    Less,
    /// A key or a value; or `in` or `notin`, depending on the place.
    Word,
}

/// The tokens of a label selector, one ahead.
#[derive(Debug)]
struct Tokens<'a> {
    rest: &'a [u8],
    next: Token<'a>,
}

impl<'a> Tokens<'a> {
    fn new(selector: &'a [u8]) -> Self {
        let mut rest = selector;
        let next = lex(&mut rest);
        Self { rest, next }
    }

    /// Takes the next token. After the end there is another end.
    fn take(&mut self) -> Token<'a> {
        std::mem::replace(&mut self.next, lex(&mut self.rest))
    }

    /// Whether the next token ends a requirement.
    fn ends_requirement(&self) -> bool {
        matches!(self.next.kind, TokenKind::End | TokenKind::Comma)
    }

    /// Takes the next token, which has to be a word; `in` and `notin` are words too.
    fn word(&mut self, expected: ExpectedToken) -> Result<&'a [u8], LabelSyntaxError<'a>> {
        let token = self.take();
        match token.kind {
            TokenKind::Word => Ok(token.text),
            _ => Err(token.unexpected(expected)),
        }
    }

    /// Reads the value of a comparison; nothing before a comma or the end is the empty value.
    fn single_value(
        &mut self,
        mut on_value: impl FnMut(&'a [u8]),
    ) -> Result<(), LabelSyntaxError<'a>> {
        on_value(if self.ends_requirement() {
            b""
        } else {
            self.word(ExpectedToken::Value)?
        });
        Ok(())
    }

    /// Reads values in parentheses, separated by commas; any of them may be empty.
    fn value_list(
        &mut self,
        mut on_value: impl FnMut(&'a [u8]),
    ) -> Result<(), LabelSyntaxError<'a>> {
        let open = self.take();
        if open.kind != TokenKind::Open {
            return Err(open.unexpected(ExpectedToken::OpeningParenthesis));
        }
        let mut expected = ExpectedToken::FirstValue;
        loop {
            match self.next.kind {
                TokenKind::Word => on_value(self.take().text),
                // The token stays: it is also what ends this empty value, below.
                TokenKind::Comma | TokenKind::Close => on_value(b""),
                _ => return Err(self.next.unexpected(expected)),
            }
            let token = self.take();
            match token.kind {
                TokenKind::Comma => expected = ExpectedToken::NextValue,
                TokenKind::Close => return Ok(()),
                _ => return Err(token.unexpected(ExpectedToken::CommaOrClosingParenthesis)),
            }
        }
    }
}

/// Cuts one token off `rest`. A NUL ends the selector where a token would begin, and is skipped
/// after a token: the server's lexer does not distinguish it from the end of input.
fn lex<'a>(rest: &mut &'a [u8]) -> Token<'a> {
    let mut text = *rest;
    while let [b' ' | b'\t' | b'\r' | b'\n', after @ ..] = text {
        text = after;
    }
    let (kind, length) = match text {
        [] | [0, ..] => {
            *rest = &[];
            return Token {
                kind: TokenKind::End,
                text: &[],
            };
        }
        [b',', ..] => (TokenKind::Comma, 1),
        [b'(', ..] => (TokenKind::Open, 1),
        [b')', ..] => (TokenKind::Close, 1),
        [b'=', b'=', ..] => (TokenKind::Equal, 2),
        [b'=', ..] => (TokenKind::Equal, 1),
        [b'!', b'=', ..] => (TokenKind::NotEqual, 2),
        [b'!', ..] => (TokenKind::Not, 1),
        [b'>', ..] => (TokenKind::Greater, 1),
        [b'<', ..] => (TokenKind::Less, 1),
        _ => {
            let end = text.iter().position(|&b| ends_word(b));
            (TokenKind::Word, end.unwrap_or(text.len()))
        }
    };
    let (text, after) = text.split_at(length);
    *rest = after.strip_prefix(b"\0").unwrap_or(after);
    Token { kind, text }
}

/// Whether this is a blank, or begins another token, or is NUL.
fn ends_word(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\r' | b'\n' | 0 | b',' | b'(' | b')' | b'!' | b'=' | b'<' | b'>'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn tokens(selector: &str) -> Vec<&str> {
        let mut tokens = Tokens::new(selector.as_bytes());
        std::iter::from_fn(|| Some(tokens.take()).filter(|token| token.kind != TokenKind::End))
            .map(|token| std::str::from_utf8(token.text).expect("the selector is UTF-8"))
            .collect()
    }

    #[test]
    fn the_longest_operator_is_taken() {
        assert_eq!(tokens("a===b"), ["a", "==", "=", "b"]);
        assert_eq!(tokens("!!=a<>b"), ["!", "!=", "a", "<", ">", "b"]);
        assert_eq!(
            tokens(" in\t(x,\u{e4} )"),
            ["in", "(", "x", ",", "\u{e4}", ")"]
        );
    }

    #[test]
    fn a_nul_ends_the_text_where_a_token_would_begin() {
        assert_eq!(tokens("a \0b"), ["a"]);
        assert_eq!(tokens("a\0b=\0c"), ["a", "b", "=", "c"]);
    }

    #[test]
    fn the_first_token_that_does_not_fit_is_named() {
        let cases: [(&str, &str, ExpectedToken); 10] = [
            (",a", ",", ExpectedToken::RequirementOrEnd),
            ("a,", "", ExpectedToken::Requirement),
            ("a=b c", "c", ExpectedToken::CommaOrEnd),
            ("!=a", "!=", ExpectedToken::RequirementOrEnd),
            ("! =a", "=", ExpectedToken::Key),
            ("a b", "b", ExpectedToken::Operator),
            ("a==)", ")", ExpectedToken::Value),
            ("a in b", "b", ExpectedToken::OpeningParenthesis),
            ("a in (!)", "!", ExpectedToken::FirstValue),
            ("a in (b,=)", "=", ExpectedToken::NextValue),
        ];
        for (selector, found, expected) in cases {
            let found = found.as_bytes();
            let error = LabelSyntaxError::UnexpectedToken { found, expected };
            let mut parser = LabelSelectorParser::new(selector.as_bytes());
            let result = loop {
                match parser.next_requirement(|_, _| {}) {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            assert_eq!(result, Some(error), "{selector}");
        }
    }
}
