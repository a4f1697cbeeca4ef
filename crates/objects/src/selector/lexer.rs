//! The tokens of a label selector.

/// One token, with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind,
    /// As written; empty at the end.
    pub(super) text: &'t str,
}

/// The sort of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Comma,
    Open,
    Close,
    /// `!`
    Not,
    /// `=`, `==`, `!=`, `<` or `>`
    Sign,
    /// A key or a value; or `in` or `notin`, which only the place tells apart.
    Word,
}

/// The tokens of a selector, one ahead.
pub(super) struct Tokens<'t> {
    rest: &'t str,
    next: Token<'t>,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(selector: &'t str) -> Self {
        let mut tokens = Self {
            rest: selector,
            next: Token {
                kind: Kind::End,
                text: "",
            },
        };
        tokens.take();
        tokens
    }

    /// The next token, which stays.
    pub(super) fn peek(&self) -> Token<'t> {
        self.next
    }

    /// Takes the next token. Behind the end there is another end.
    pub(super) fn take(&mut self) -> Token<'t> {
        let (next, rest) = lex(self.rest);
        self.rest = rest;
        std::mem::replace(&mut self.next, next)
    }

    /// Whether the next token ends a requirement.
    pub(super) fn at_boundary(&self) -> bool {
        matches!(self.next.kind, Kind::End | Kind::Comma)
    }
}

/// Cuts one token off. A NUL ends the selector where a token would begin, and is skipped behind a
/// token: the server's lexer does not tell it from the end.
fn lex(text: &str) -> (Token<'_>, &str) {
    let text = text.trim_start_matches(is_blank);
    let mut chars = text.chars();
    let (kind, length) = match (chars.next(), chars.next()) {
        (None | Some('\0'), _) => (Kind::End, 0),
        (Some(','), _) => (Kind::Comma, 1),
        (Some('('), _) => (Kind::Open, 1),
        (Some(')'), _) => (Kind::Close, 1),
        (Some('!' | '='), Some('=')) => (Kind::Sign, 2),
        (Some('!'), _) => (Kind::Not, 1),
        (Some('=' | '<' | '>'), _) => (Kind::Sign, 1),
        _ => (Kind::Word, text.find(ends_word).unwrap_or(text.len())),
    };
    let (token, rest) = text.split_at(length);
    let rest = match kind {
        Kind::End => "",
        _ => rest.strip_prefix('\0').unwrap_or(rest),
    };
    (Token { kind, text: token }, rest)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn ends_word(c: char) -> bool {
    is_blank(c) || matches!(c, '\0' | ',' | '(' | ')' | '!' | '=' | '<' | '>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(selector: &str) -> Vec<&str> {
        let mut tokens = Tokens::new(selector);
        std::iter::from_fn(|| Some(tokens.take()).filter(|token| token.kind != Kind::End))
            .map(|token| token.text)
            .collect()
    }

    #[test]
    fn signs_are_as_long_as_can_be() {
        assert_eq!(texts("a===b"), ["a", "==", "=", "b"]);
        assert_eq!(texts("!!=a<>b"), ["!", "!=", "a", "<", ">", "b"]);
        assert_eq!(
            texts(" in\t(x,\u{e4} )"),
            ["in", "(", "x", ",", "\u{e4}", ")"]
        );
    }

    #[test]
    fn a_nul_ends_the_text_where_a_token_would_begin() {
        assert_eq!(texts("a \0b"), ["a"]);
        assert_eq!(texts("a\0b=\0c"), ["a", "b", "=", "c"]);
    }
}
