//! Literals, identifiers, calls, lists, maps, objects and parentheses.

use super::{
    CelBytes, CelValue, Expr, ExprId, MapEntry, MessageField, Parsed, Parser, RESERVED, Stop,
    Token, TokenKind, literals,
};

/// Where an expression begins. The original lists other tokens as expected at each of these places.
#[derive(Clone, Copy)]
pub(super) enum ExpressionStart {
    Anywhere,
    Arguments,
    List,
    Map,
    Index,
}

impl ExpressionStart {
    /// The set of expected tokens, as error messages print it.
    fn expected(self) -> String {
        let symbols = match self {
            Self::Anywhere => "'[', '{', '(', '.', '-', '!'",
            Self::Arguments => "'[', '{', '(', ')', '.', '-', '!'",
            Self::List => "'[', ']', '{', '(', '.', ',', '-', '!', '?'",
            Self::Map => "'[', '{', '}', '(', '.', ',', '-', '!', '?'",
            Self::Index => "'[', '{', '(', '.', '-', '!', '?'",
        };
        let literals =
            "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";
        format!("{{{symbols}, {literals}}}")
    }
}

impl<'s> Parser<'s> {
    /// Reports an error if no expression can begin with the next token.
    pub(super) fn begins(&mut self, at: ExpressionStart) -> Result<(), Stop> {
        let token = self.peek();
        let begins = match token.kind {
            TokenKind::Symbol => ["(", "[", "{", ".", "-", "!"].contains(&token.text),
            TokenKind::In | TokenKind::End | TokenKind::EscapedIdent => false,
            _ => true,
        };
        if begins {
            return Ok(());
        }
        Err(self.unexpected(&at.expected()))
    }

    pub(super) fn primary(&mut self) -> Result<Parsed, Stop> {
        let token = self.peek();
        match (token.kind, token.text) {
            (TokenKind::Symbol, "(") => {
                self.next();
                let inside = self.expr()?;
                self.expect(")")?;
                Ok(inside)
            }
            (TokenKind::Symbol, "[") => self.list(),
            (TokenKind::Symbol, "{") => self.map(),
            (TokenKind::Symbol, ".") | (TokenKind::Ident, _) => self.name(),
            (TokenKind::Symbol, "-") => self.literal(true),
            (TokenKind::Symbol | TokenKind::In | TokenKind::End | TokenKind::EscapedIdent, _) => {
                Err(self.unexpected(&ExpressionStart::Anywhere.expected()))
            }
            _ => self.literal(false),
        }
    }

    /// A literal; `negative` if a minus sign precedes it, which belongs to signed numbers only.
    fn literal(&mut self, negative: bool) -> Result<Parsed, Stop> {
        let first = self.peek();
        if negative {
            self.next();
            if !matches!(self.peek().kind, TokenKind::Int | TokenKind::Float) {
                return Err(self.no_alternative("-"));
            }
        }
        let token = self.next();
        let value = match token.kind {
            TokenKind::Int => literals::int(token.text, negative)
                .map(CelValue::Int)
                .ok_or("invalid int literal"),
            TokenKind::Uint => literals::uint(token.text)
                .map(CelValue::Uint)
                .ok_or("invalid uint literal"),
            TokenKind::Float => literals::double(token.text, negative)
                .map(CelValue::Double)
                .ok_or("invalid double literal"),
            TokenKind::String => literals::unescape(token.text, false).map(|text| {
                // Nothing is lost: escapes in strings produce whole characters.
                CelValue::from(String::from_utf8_lossy(&text).into_owned())
            }),
            TokenKind::Bytes => literals::unescape(&token.text[1..], true)
                .map(|bytes| CelValue::Bytes(CelBytes::from(bytes))),
            TokenKind::True => Ok(CelValue::Bool(true)),
            TokenKind::False => Ok(CelValue::Bool(false)),
            _ => Ok(CelValue::Null),
        };
        let expr = match value {
            Ok(value) => Expr::Literal(value),
            Err(message) => {
                self.report(first.offset, message);
                Expr::Error
            }
        };
        Ok(self.leaf(first.offset, expr))
    }

    /// An identifier, a call or an object literal; the name may start with a dot.
    fn name(&mut self) -> Result<Parsed, Stop> {
        let start = self.peek();
        let dot = if self.take(".").is_some() { "." } else { "" };
        let token = self.peek();
        if token.kind != TokenKind::Ident {
            return Err(self.no_alternative(dot));
        }
        if let Some(object) = self.object(dot)? {
            return Ok(object);
        }
        self.next();
        if RESERVED.contains(&token.text) {
            if self.take("(").is_some() {
                self.arguments()?;
            }
            let message = format!("reserved identifier: {}", token.text);
            self.report(start.offset, message);
            return Ok(self.leaf(start.offset, Expr::Error));
        }
        let name = format!("{dot}{}", token.text);
        if let Some(open) = self.take("(") {
            let (args, depth) = self.arguments()?;
            let id = self.global(open.offset, &name, &args);
            return Ok(Parsed { id, depth });
        }
        Ok(self.leaf(token.offset, Expr::Ident(name.into())))
    }

    /// Reports that nothing can begin with `before` and the next token.
    fn no_alternative(&mut self, before: &str) -> Stop {
        let token = self.peek();
        let message = format!(
            "Syntax error: no viable alternative at input '{before}{}'",
            token.text
        );
        self.report(token.offset, message);
        Stop
    }

    /// An object literal `a.b{field: value}`, if one begins at the next token.
    fn object(&mut self, dot: &str) -> Result<Option<Parsed>, Stop> {
        let rest = &self.tokens[self.at..];
        let mut length = 1;
        let is = |at: usize, symbol: &str| {
            rest.get(at)
                .is_some_and(|token| token.kind == TokenKind::Symbol && token.text == symbol)
        };
        while is(length, ".")
            && rest
                .get(length + 1)
                .is_some_and(|token| token.kind == TokenKind::Ident)
        {
            length += 2;
        }
        if !is(length, "{") {
            return Ok(None);
        }
        let texts: Vec<_> = rest[..length].iter().map(|token| token.text).collect();
        let name = format!("{dot}{}", texts.concat());
        self.at += length;
        let open = self.next();
        let (fields, depth) = self.fields()?;
        let id = self.add(
            open.offset,
            Expr::Object {
                name: name.into(),
                fields: fields.into(),
            },
        );
        Ok(Some(Parsed { id, depth }))
    }

    fn fields(&mut self) -> Result<(Vec<MessageField>, u32), Stop> {
        let (mut fields, mut depth) = (Vec::new(), 0);
        while !(self.is("}") || fields.is_empty() && self.is(",")) {
            let optional = self.optional_mark();
            let name = self.next();
            if name.kind != TokenKind::Ident {
                self.at -= usize::from(name.kind != TokenKind::End);
                return Err(self.unexpected("IDENTIFIER"));
            }
            let colon = self.expect(":")?;
            let value = self.expr()?;
            depth = depth.max(value.depth);
            fields.push(MessageField {
                name: name.text.into(),
                value: value.id,
                optional,
                offset: colon.offset,
            });
            if self.take(",").is_none() {
                break;
            }
        }
        self.take(",");
        self.expect("}")?;
        Ok((fields, depth))
    }

    /// Consumes the question mark before an optional entry. Returns whether there is one.
    fn optional_mark(&mut self) -> bool {
        let Some(mark) = self.take("?") else {
            return false;
        };
        self.need_optional_syntax(mark.offset, "?");
        true
    }

    fn list(&mut self) -> Result<Parsed, Stop> {
        let open: Token<'s> = self.next();
        let (mut elements, mut optional, mut depth) = (Vec::new(), Vec::new(), 0);
        while !(self.is("]") || elements.is_empty() && self.is(",")) {
            if elements.is_empty() && !self.is("?") {
                self.begins(ExpressionStart::List)?;
            }
            optional.push(self.optional_mark());
            let element: Parsed = self.expr()?;
            depth = depth.max(element.depth);
            elements.push(element.id);
            if self.take(",").is_none() {
                break;
            }
        }
        self.take(",");
        self.expect("]")?;
        if !optional.contains(&true) {
            optional.clear();
        }
        let id: ExprId = self.add(
            open.offset,
            Expr::List {
                elements: elements.into(),
                optional: optional.into(),
            },
        );
        Ok(Parsed { id, depth })
    }

    fn map(&mut self) -> Result<Parsed, Stop> {
        let open = self.next();
        let (mut entries, mut depth) = (Vec::new(), 0);
        while !(self.is("}") || entries.is_empty() && self.is(",")) {
            if entries.is_empty() && !self.is("?") {
                self.begins(ExpressionStart::Map)?;
            }
            let optional = self.optional_mark();
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push(MapEntry {
                key: key.id,
                value: value.id,
                optional,
            });
            if self.take(",").is_none() {
                break;
            }
        }
        self.take(",");
        self.expect("}")?;
        let id = self.add(open.offset, Expr::Map(entries.into()));
        Ok(Parsed { id, depth })
    }
}
