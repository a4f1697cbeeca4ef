//! From tokens to a syntax tree.
//!
//! A recursive descent parser with binding powers. Depth is limited as in the original. While parsing, nested
//! expressions, relations and arithmetic are limited to [`MAX_DEPTH`]. The resulting tree is limited to the same depth,
//! to which chains of operators, selections, calls and indexes count. Chains of `&&`, `||`, `!` and `-` do not nest.

use std::collections::HashMap;

use super::ast::{Ast, Expr, ExprId, MapEntry, MessageField};
use super::lexer::{Token, TokenKind, tokens};
use super::literals;
use super::macros::{CelMacro, MAX_NODES, MacroExpansion};
use crate::source::{CelIssues, CodePosition};
use crate::value::{CelBytes, CelValue};

/// The longest expression, in code points.
pub(crate) const MAX_CODE_POINTS: usize = 100_000;

/// The maximum depth of expressions.
const MAX_DEPTH: u32 = 250;

/// Reserved words, which cannot be identifiers.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The macros of an environment: by name, number of arguments, and whether they are called on a target.
pub(crate) type Macros = HashMap<(Box<str>, usize, bool), CelMacro>;

/// Parses `source`.
///
/// # Errors
///
/// All errors that were found, sorted by position.
pub(crate) fn parse(
    source: &str,
    macros: &Macros,
    optional_syntax: bool,
) -> Result<Ast, CelIssues> {
    let mut issues = CelIssues::new(source);
    let size = source.chars().count();
    if size > MAX_CODE_POINTS {
        let message = format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"
        );
        // The source is not kept in the error, because it may be of any length.
        let mut issues = CelIssues::new("");
        issues.report(CodePosition::NONE, message);
        return Err(issues);
    }
    let tokens = tokens(source, &mut issues);
    let ast = Ast {
        nodes: Vec::new(),
        offsets: Vec::new(),
        root: ExprId(0),
    };
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        ast,
        issues,
        macros,
        optional_syntax,
        too_large: false,
        exprs: 0,
        sums: 0,
        relations: 0,
    };
    if let Ok(root) = parser.whole() {
        parser.ast.root = root.id;
    }
    if parser.too_large {
        let message = format!("expression has more than {MAX_NODES} parts");
        parser.issues.report(CodePosition::NONE, message);
    }
    if parser.issues.is_empty() {
        return Ok(parser.ast);
    }
    parser.issues.sort();
    Err(parser.issues)
}

/// Parsing cannot continue. The error has been reported.
struct Stop;

/// A parsed expression, and how deep it nests as the original counts it.
#[derive(Clone, Copy)]
struct Parsed {
    id: ExprId,
    depth: u32,
}

struct Parser<'s> {
    tokens: &'s [Token<'s>],
    at: usize,
    ast: Ast,
    issues: CelIssues,
    macros: &'s Macros,
    optional_syntax: bool,
    too_large: bool,
    /// The depth of nested expressions, sums and relations at the current token.
    exprs: u32,
    sums: u32,
    relations: u32,
}

impl<'s> Parser<'s> {
    fn peek(&self) -> Token<'s> {
        self.tokens[self.at]
    }

    fn next(&mut self) -> Token<'s> {
        let token = self.tokens[self.at];
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    fn is(&self, symbol: &str) -> bool {
        let token = self.peek();
        token.kind == TokenKind::Symbol && token.text == symbol
    }

    /// Consumes and returns the next token if it is `symbol`.
    fn take(&mut self, symbol: &str) -> Option<Token<'s>> {
        self.is(symbol).then(|| self.next())
    }

    fn expect(&mut self, symbol: &str) -> Result<Token<'s>, Stop> {
        match self.take(symbol) {
            Some(token) => Ok(token),
            None => Err(self.unexpected(&format!("'{symbol}'"))),
        }
    }

    fn unexpected(&mut self, expected: &str) -> Stop {
        let token = self.peek();
        let message = format!(
            "Syntax error: mismatched input '{}' expecting {expected}",
            token.text
        );
        self.issues.report(CodePosition::at(token.offset), message);
        Stop
    }

    fn report(&mut self, offset: u32, message: impl Into<String>) {
        self.issues.report(CodePosition::at(offset), message);
    }

    fn add(&mut self, offset: u32, expr: Expr) -> ExprId {
        if self.ast.nodes.len() >= MAX_NODES {
            self.too_large = true;
            return ExprId(0);
        }
        let id = ExprId::of_index(self.ast.nodes.len());
        self.ast.nodes.push(expr);
        self.ast.offsets.push(offset);
        id
    }

    fn leaf(&mut self, offset: u32, expr: Expr) -> Parsed {
        let id = self.add(offset, expr);
        Parsed { id, depth: 0 }
    }

    /// `depth` plus one; stops if `depth` is the maximum.
    fn deeper(&mut self, depth: u32) -> Result<u32, Stop> {
        if depth >= MAX_DEPTH {
            let message = "max recursion depth exceeded";
            self.issues.report(CodePosition::NONE, message);
            return Err(Stop);
        }
        Ok(depth + 1)
    }

    fn check_depth(&mut self, depth: u32) -> Result<(), Stop> {
        if depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            self.issues.report(CodePosition::NONE, message);
            return Err(Stop);
        }
        Ok(())
    }

    fn whole(&mut self) -> Result<Parsed, Stop> {
        let root = self.expr()?;
        let token = self.peek();
        if token.kind != TokenKind::End {
            let message = format!(
                "Syntax error: mismatched input '{}' expecting <EOF>",
                token.text
            );
            self.report(token.offset, message);
            return Err(Stop);
        }
        Ok(root)
    }

    /// `or ('?' or ':' expr)?`
    fn expr(&mut self) -> Result<Parsed, Stop> {
        self.exprs += 1;
        self.check_depth(self.exprs)?;
        let condition = self.logical("||")?;
        let parsed = match self.take("?") {
            None => condition,
            Some(op) => {
                let yes = self.logical("||")?;
                self.expect(":")?;
                let no = self.expr()?;
                let depth = condition.depth.max(yes.depth).max(no.depth);
                let depth = self.deeper(depth)?;
                let args = [condition.id, yes.id, no.id];
                let id = self.global(op.offset, "_?_:_", &args);
                Parsed { id, depth }
            }
        };
        self.exprs -= 1;
        Ok(parsed)
    }

    /// A chain of `||`, or of `&&`: one call with all terms.
    fn logical(&mut self, op: &str) -> Result<Parsed, Stop> {
        let mut first = self.logical_term(op)?;
        let Some(mut token) = self.take(op) else {
            return Ok(first);
        };
        let mut terms = vec![first.id];
        // The operator in the middle is the root of the original's balanced tree.
        let mut offsets = Vec::new();
        loop {
            offsets.push(token.offset);
            let term = self.logical_term(op)?;
            first.depth = first.depth.max(term.depth);
            terms.push(term.id);
            match self.take(op) {
                Some(next) => token = next,
                None => break,
            }
        }
        let function = if op == "||" { "_||_" } else { "_&&_" };
        first.id = self.global(offsets[offsets.len() / 2], function, &terms);
        Ok(first)
    }

    fn logical_term(&mut self, op: &str) -> Result<Parsed, Stop> {
        match op {
            "||" => self.logical("&&"),
            _ => self.relation(),
        }
    }

    /// `sum (('<' | … | 'in') sum)*`
    fn relation(&mut self) -> Result<Parsed, Stop> {
        self.relations += 1;
        self.check_depth(self.relations)?;
        let mut left = self.sum(1)?;
        loop {
            let token = self.peek();
            let function = match (token.kind, token.text) {
                (TokenKind::In, _) => "@in",
                (TokenKind::Symbol, "<") => "_<_",
                (TokenKind::Symbol, "<=") => "_<=_",
                (TokenKind::Symbol, ">=") => "_>=_",
                (TokenKind::Symbol, ">") => "_>_",
                (TokenKind::Symbol, "==") => "_==_",
                (TokenKind::Symbol, "!=") => "_!=_",
                _ => break,
            };
            self.next();
            self.relations += 1;
            self.check_depth(self.relations)?;
            let right = self.sum(1)?;
            self.relations -= 1;
            left = self.binary(token.offset, function, left, right)?;
        }
        self.relations -= 1;
        Ok(left)
    }

    fn binary(
        &mut self,
        offset: u32,
        function: &str,
        left: Parsed,
        right: Parsed,
    ) -> Result<Parsed, Stop> {
        let depth = self.deeper(left.depth.max(right.depth))?;
        let id = self.global(offset, function, &[left.id, right.id]);
        Ok(Parsed { id, depth })
    }

    /// Sums (binding `power` 1) and products (2).
    fn sum(&mut self, power: u32) -> Result<Parsed, Stop> {
        self.sums += 1;
        self.check_depth(self.sums)?;
        let mut left = self.unary()?;
        loop {
            let token = self.peek();
            let (function, binding) = match (token.kind, token.text) {
                (TokenKind::Symbol, "*") => ("_*_", 2),
                (TokenKind::Symbol, "/") => ("_/_", 2),
                (TokenKind::Symbol, "%") => ("_%_", 2),
                (TokenKind::Symbol, "+") => ("_+_", 1),
                (TokenKind::Symbol, "-") => ("_-_", 1),
                _ => break,
            };
            if binding < power {
                break;
            }
            self.next();
            let right = self.sum(binding + 1)?;
            left = self.binary(token.offset, function, left, right)?;
        }
        self.sums -= 1;
        Ok(left)
    }

    /// `!…` and `-…`. An even number of the same operator has no effect.
    fn unary(&mut self) -> Result<Parsed, Stop> {
        let first = self.peek();
        let function = match (first.kind, first.text) {
            (TokenKind::Symbol, "!") => "!_",
            (TokenKind::Symbol, "-") => "-_",
            _ => return self.member(),
        };
        let mut count = 0_usize;
        while self.is(first.text) {
            self.next();
            count += 1;
        }
        let number = matches!(self.peek().kind, TokenKind::Int | TokenKind::Float);
        if function == "-_" && count == 1 && number {
            self.at -= 1;
            return self.member();
        }
        let operand = self.member()?;
        if count.is_multiple_of(2) {
            return Ok(operand);
        }
        let id = self.global(first.offset, function, &[operand.id]);
        Ok(Parsed { id, ..operand })
    }

    /// `primary ('.' field | '.' call | '[' index ']')*`
    fn member(&mut self) -> Result<Parsed, Stop> {
        let mut operand = self.primary()?;
        loop {
            if let Some(dot) = self.take(".") {
                operand = self.selection(dot, operand)?;
            } else if let Some(open) = self.take("[") {
                operand = self.index(open, operand)?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn selection(&mut self, dot: Token<'s>, operand: Parsed) -> Result<Parsed, Stop> {
        let optional = self.take("?").is_some();
        let name = self.next();
        match name.kind {
            TokenKind::Ident => {}
            TokenKind::EscapedIdent => {
                self.report(name.offset, "unsupported syntax: '`'");
                return Err(Stop);
            }
            _ => {
                let message = match name.kind {
                    TokenKind::True | TokenKind::False | TokenKind::Null => {
                        format!("mismatched input '{}' expecting IDENTIFIER", name.text)
                    }
                    TokenKind::End => "no viable alternative at input '.'".to_owned(),
                    _ => format!("no viable alternative at input '.{}'", name.text),
                };
                self.report(name.offset, format!("Syntax error: {message}"));
                return Err(Stop);
            }
        }
        if !optional && let Some(open) = self.take("(") {
            return self.member_call(open, operand, name.text);
        }
        let depth = self.deeper(operand.depth)?;
        if optional {
            self.need_optional_syntax(dot.offset, ".?");
            let field = CelValue::from(name.text.to_owned());
            let field = self.add(name.offset, Expr::Literal(field));
            let id = self.global(dot.offset, "_?._", &[operand.id, field]);
            return Ok(Parsed { id, depth });
        }
        let id = self.add(
            dot.offset,
            Expr::Select {
                operand: operand.id,
                field: name.text.into(),
                test_only: false,
            },
        );
        Ok(Parsed { id, depth })
    }

    fn need_optional_syntax(&mut self, offset: u32, syntax: &str) {
        if !self.optional_syntax {
            self.report(offset, format!("unsupported syntax '{syntax}'"));
        }
    }

    fn member_call(&mut self, open: Token<'s>, target: Parsed, name: &str) -> Result<Parsed, Stop> {
        let (args, depth) = self.arguments()?;
        let depth = self.deeper(depth.max(target.depth))?;
        let id = self.call_or_macro(open.offset, name, Some(target.id), &args);
        Ok(Parsed { id, depth })
    }

    fn index(&mut self, open: Token<'s>, operand: Parsed) -> Result<Parsed, Stop> {
        let optional = self.take("?").is_some();
        if !optional {
            self.begins(ExpressionStart::Index)?;
        }
        let index = self.expr()?;
        self.expect("]")?;
        let function = if optional {
            self.need_optional_syntax(open.offset, "[?");
            "_[?_]"
        } else {
            "_[_]"
        };
        self.binary(open.offset, function, operand, index)
    }

    /// The arguments of a call after its opening parenthesis, and their depth.
    fn arguments(&mut self) -> Result<(Vec<ExprId>, u32), Stop> {
        let (mut args, mut depth) = (Vec::new(), 0);
        if self.take(")").is_some() {
            return Ok((args, depth));
        }
        self.begins(ExpressionStart::Arguments)?;
        loop {
            let arg = self.expr()?;
            depth = depth.max(arg.depth);
            args.push(arg.id);
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok((args, depth))
    }

    fn global(&mut self, offset: u32, function: &str, args: &[ExprId]) -> ExprId {
        self.call_or_macro(offset, function, None, args)
    }

    fn call_or_macro(
        &mut self,
        offset: u32,
        function: &str,
        target: Option<ExprId>,
        args: &[ExprId],
    ) -> ExprId {
        let key = (function.into(), args.len(), target.is_some());
        if let Some(found) = self.macros.get(&key) {
            let mut expansion = MacroExpansion {
                ast: &mut self.ast,
                offset,
                too_large: &mut self.too_large,
            };
            match (found.expand)(&mut expansion, target, args) {
                Ok(Some(id)) => return id,
                Ok(None) => {}
                Err(error) => {
                    let at = self.ast.offset(error.at);
                    self.report(at, error.message);
                    return self.add(at, Expr::Error);
                }
            }
        }
        let function = function.into();
        let args = args.into();
        self.add(
            offset,
            Expr::Call {
                function,
                target,
                args,
            },
        )
    }
}

mod primary;

use primary::ExpressionStart;
