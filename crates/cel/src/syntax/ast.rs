//! Syntax trees, in an arena: nodes refer to each other by number, so dropping a tree never recurses.

use crate::value::CelValue;

/// The number of a node in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(pub(crate) u32);

impl ExprId {
    /// The number of the node at `index`. Trees have far fewer nodes than `u32` can number.
    pub(crate) fn of_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("the number of nodes is bounded"))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node of a syntax tree.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    /// A part of the expression that could not be parsed.
    Error,
    Literal(CelValue<'static>),
    Ident(Box<str>),
    Select {
        operand: ExprId,
        field: Box<str>,
        /// Whether this is a presence test: `has(operand.field)`.
        test_only: bool,
    },
    Call {
        function: Box<str>,
        target: Option<ExprId>,
        args: Box<[ExprId]>,
    },
    List {
        elements: Box<[ExprId]>,
        /// For each element, whether it is written `?element`; empty if no element is.
        optional: Box<[bool]>,
    },
    Map(Box<[MapEntry]>),
    /// An object literal `Name{field: value}`.
    Object {
        name: Box<str>,
        fields: Box<[MessageField]>,
    },
    Fold(Box<Fold>),
}

/// `key: value` of a map literal, or `?key: value`.
#[derive(Clone, Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: ExprId,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

/// `name: value` of an object literal, or `?name: value`.
#[derive(Clone, Debug)]
pub(crate) struct MessageField {
    pub(crate) name: Box<str>,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
    /// The position of the colon, in code points. Errors about the field are reported there.
    pub(crate) offset: u32,
}

/// A comprehension, to which macros such as `all` and `map` expand. [`FoldParts`](super::FoldParts) explains the fields.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) range: ExprId,
    pub(crate) variable: Box<str>,
    pub(crate) second_variable: Option<Box<str>>,
    pub(crate) accumulator: Box<str>,
    pub(crate) init: ExprId,
    pub(crate) condition: ExprId,
    pub(crate) step: ExprId,
    pub(crate) result: ExprId,
}

/// A syntax tree.
#[derive(Debug)]
pub(crate) struct Ast {
    pub(crate) nodes: Vec<Expr>,
    /// For each node its position, in code points.
    pub(crate) offsets: Vec<u32>,
    pub(crate) root: ExprId,
}

impl Ast {
    pub(crate) fn expr(&self, id: ExprId) -> &Expr {
        &self.nodes[id.index()]
    }

    pub(crate) fn offset(&self, id: ExprId) -> u32 {
        self.offsets[id.index()]
    }

    /// The dotted name of a chain of selections that begins with an identifier, such as `a.b.c`.
    pub(crate) fn qualified_name(&self, id: ExprId) -> Option<String> {
        let mut parts: Vec<&str> = Vec::new();
        let mut at = id;
        loop {
            match self.expr(at) {
                Expr::Ident(name) => {
                    parts.push(name);
                    parts.reverse();
                    return Some(parts.join("."));
                }
                Expr::Select {
                    operand,
                    field,
                    test_only: false,
                } => {
                    parts.push(field);
                    at = *operand;
                }
                _ => return None,
            }
        }
    }
}

/// Calls `each` with the direct children of an expression.
pub(crate) fn children(expr: &Expr, mut each: impl FnMut(ExprId)) {
    match expr {
        Expr::Error | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select { operand, .. } => each(*operand),
        Expr::Call { target, args, .. } => {
            target.iter().copied().for_each(&mut each);
            args.iter().copied().for_each(each);
        }
        Expr::List { elements, .. } => elements.iter().copied().for_each(each),
        Expr::Map(entries) => {
            for entry in entries {
                each(entry.key);
                each(entry.value);
            }
        }
        Expr::Object { fields, .. } => fields.iter().for_each(|field| each(field.value)),
        Expr::Fold(fold) => {
            let parts = [
                fold.range,
                fold.init,
                fold.condition,
                fold.step,
                fold.result,
            ];
            parts.into_iter().for_each(each);
        }
    }
}
