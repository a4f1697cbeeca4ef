//! Macros: calls that the parser replaces with other expressions.

use super::ast::{Ast, Expr, ExprId, Fold, MapEntry, children};
use crate::value::CelValue;

/// The name of the accumulator of comprehensions. It is not a valid identifier, so no expression can refer to it.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The name of the accumulator in earlier releases of the original. Variables of macros may not have this name either.
pub(crate) const OLD_ACCUMULATOR: &str = "__result__";

/// The maximum number of nodes of a tree. It is needed because macros can copy their target.
pub(crate) const MAX_NODES: usize = 500_000;

/// The maximum number of nodes of one copy. Copies of copies grow exponentially.
const MAX_COPIED: usize = 20_000;

/// Expands a call of a macro: returns the expression that replaces the call, or `None` if the call stays as it is.
///
/// # Errors
///
/// The error in the arguments, with its position.
pub type ExpandMacro = fn(
    &mut MacroExpansion<'_>,
    target: Option<ExprId>,
    args: &[ExprId],
) -> Result<Option<ExprId>, MacroError>;

/// An error in a call of a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacroError {
    /// The expression that is wrong.
    pub at: ExprId,
    /// The message.
    pub message: String,
}

/// A macro: `target.name(args)` or `name(args)` with a fixed number of arguments.
#[derive(Clone, Debug)]
pub struct CelMacro {
    pub(crate) name: Box<str>,
    pub(crate) member: bool,
    pub(crate) args: usize,
    pub(crate) expand: ExpandMacro,
}

impl CelMacro {
    /// A macro that is called as `name(args)`.
    pub fn global(name: &str, args: usize, expand: ExpandMacro) -> Self {
        let name = name.into();
        Self {
            name,
            member: false,
            args,
            expand,
        }
    }

    /// A macro that is called as `target.name(args)`.
    pub fn member(name: &str, args: usize, expand: ExpandMacro) -> Self {
        Self {
            member: true,
            ..Self::global(name, args, expand)
        }
    }

    /// The name, which may have dots (`cel.bind`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of arguments, without the target.
    pub fn args(&self) -> usize {
        self.args
    }

    /// Whether it is called on a target.
    pub fn is_member(&self) -> bool {
        self.member
    }
}

/// Builds the expression that replaces a macro's call.
#[derive(Debug)]
pub struct MacroExpansion<'p> {
    pub(super) ast: &'p mut Ast,
    /// The position of the call, in code points.
    pub(super) offset: u32,
    pub(super) too_large: &'p mut bool,
}

/// A comprehension to build; see [`MacroExpansion::fold`].
#[derive(Clone, Debug)]
pub struct FoldParts<'p> {
    /// The list or map to iterate over.
    pub range: ExprId,
    /// The variable for the element of a list or the key of a map. With a second variable, the one for the index of a
    /// list or the key of a map.
    pub variable: &'p str,
    /// The variable for the element of a list or the value of a map.
    pub second_variable: Option<&'p str>,
    /// The name of the accumulator, usually [`MacroExpansion::ACCUMULATOR`].
    pub accumulator: &'p str,
    /// The initial value of the accumulator.
    pub init: ExprId,
    /// Evaluated before each iteration; `false` ends the loop.
    pub condition: ExprId,
    /// The value of the accumulator after an iteration.
    pub step: ExprId,
    /// The value of the whole comprehension, evaluated after the loop.
    pub result: ExprId,
}

impl MacroExpansion<'_> {
    /// The usual name of accumulators.
    pub const ACCUMULATOR: &'static str = ACCUMULATOR;

    fn add(&mut self, expr: Expr) -> ExprId {
        self.add_at(expr, self.offset)
    }

    fn add_at(&mut self, expr: Expr, offset: u32) -> ExprId {
        if self.ast.nodes.len() >= MAX_NODES {
            *self.too_large = true;
            return ExprId(0);
        }
        let id = ExprId::of_index(self.ast.nodes.len());
        self.ast.nodes.push(expr);
        self.ast.offsets.push(offset);
        id
    }

    /// The name, if `id` is a plain identifier.
    pub fn identifier(&self, id: ExprId) -> Option<&str> {
        match self.ast.expr(id) {
            Expr::Ident(name) => Some(name),
            _ => None,
        }
    }

    /// Whether `id` is a constant, the literal of a map or an object, or what has an error and is nothing.
    pub fn is_literal_or_map(&self, id: ExprId) -> bool {
        let expr = self.ast.expr(id);
        matches!(
            expr,
            Expr::Error | Expr::Literal(_) | Expr::Map(_) | Expr::Object { .. }
        )
    }

    /// The operand and the field, if `id` is `operand.field`.
    pub fn selection(&self, id: ExprId) -> Option<(ExprId, &str)> {
        match self.ast.expr(id) {
            Expr::Select { operand, field, .. } => Some((*operand, field)),
            _ => None,
        }
    }

    /// A literal.
    pub fn literal(&mut self, value: CelValue<'static>) -> ExprId {
        self.add(Expr::Literal(value))
    }

    /// A variable.
    pub fn ident(&mut self, name: &str) -> ExprId {
        self.add(Expr::Ident(name.into()))
    }

    /// A reference to the accumulator with the usual name.
    pub fn accumulator(&mut self) -> ExprId {
        self.ident(ACCUMULATOR)
    }

    /// `function(args)`; operators are called `_+_`, `_&&_`, `_?_:_`, `!_` and so on.
    pub fn call(&mut self, function: &str, args: &[ExprId]) -> ExprId {
        self.add(Expr::Call {
            function: function.into(),
            target: None,
            args: args.into(),
        })
    }

    /// `target.function(args)`
    pub fn member_call(&mut self, function: &str, target: ExprId, args: &[ExprId]) -> ExprId {
        self.add(Expr::Call {
            function: function.into(),
            target: Some(target),
            args: args.into(),
        })
    }

    /// `has(operand.field)`
    pub fn presence_test(&mut self, operand: ExprId, field: &str) -> ExprId {
        self.add(Expr::Select {
            operand,
            field: field.into(),
            test_only: true,
        })
    }

    /// `[elements]`
    pub fn list(&mut self, elements: &[ExprId]) -> ExprId {
        self.add(Expr::List {
            elements: elements.into(),
            optional: [].into(),
        })
    }

    /// `{key: value}`
    pub fn map(&mut self, entries: &[(ExprId, ExprId)]) -> ExprId {
        let entries = entries.iter().map(|(key, value)| MapEntry {
            key: *key,
            value: *value,
            optional: false,
        });
        let entries = entries.collect();
        self.add(Expr::Map(entries))
    }

    /// A comprehension.
    pub fn fold(&mut self, parts: &FoldParts<'_>) -> ExprId {
        self.add(Expr::Fold(Box::new(Fold {
            range: parts.range,
            variable: parts.variable.into(),
            second_variable: parts.second_variable.map(Into::into),
            accumulator: parts.accumulator.into(),
            init: parts.init,
            condition: parts.condition,
            step: parts.step,
            result: parts.result,
        })))
    }

    /// A copy of `id` with all its descendants. If the copy is too large, or makes the tree too large, the expression
    /// is refused.
    pub fn copy(&mut self, id: ExprId) -> ExprId {
        let mut order = vec![id];
        let mut next = 0;
        while let Some(at) = order.get(next).copied() {
            children(self.ast.expr(at), |child| order.push(child));
            next += 1;
            if order.len() > MAX_COPIED || order.len() + self.ast.nodes.len() > MAX_NODES {
                *self.too_large = true;
                return id;
            }
        }
        // `order` is breadth first, so children get consecutive numbers in the order of `children`.
        let first = self.ast.nodes.len();
        let total = order.len();
        let mut free = 1;
        let mut copies: Vec<Expr> = Vec::with_capacity(total);
        for at in &order {
            let mut expr = self.ast.expr(*at).clone();
            renumber(&mut expr, || {
                free += 1;
                ExprId::of_index(first + free - 1)
            });
            copies.push(expr);
        }
        for (expr, of) in copies.into_iter().zip(&order) {
            let offset = self.ast.offset(*of);
            self.add_at(expr, offset);
        }
        ExprId::of_index(first)
    }

    /// An error about the argument `at`.
    pub fn error(&self, at: ExprId, message: impl Into<String>) -> MacroError {
        let message = message.into();
        MacroError { at, message }
    }
}

/// Replaces the numbers of the children of `expr`, in the order of [`children`].
fn renumber(expr: &mut Expr, mut next: impl FnMut() -> ExprId) {
    match expr {
        Expr::Error | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select { operand, .. } => *operand = next(),
        Expr::Call { target, args, .. } => {
            for of in target.iter_mut().chain(args) {
                *of = next();
            }
        }
        Expr::List { elements, .. } => elements.iter_mut().for_each(|of| *of = next()),
        Expr::Map(entries) => {
            for entry in entries {
                entry.key = next();
                entry.value = next();
            }
        }
        Expr::Object { fields, .. } => fields.iter_mut().for_each(|field| field.value = next()),
        Expr::Fold(fold) => {
            let fold = &mut **fold;
            let parts = [
                &mut fold.range,
                &mut fold.init,
                &mut fold.condition,
                &mut fold.step,
                &mut fold.result,
            ];
            for of in parts {
                *of = next();
            }
        }
    }
}
