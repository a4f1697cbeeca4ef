//! The code of a program: a tree in an arena, with variables as numbers.

use std::collections::HashSet;
use std::sync::Arc;

use super::{CelCostFn, CelFunction, CelFunctionDecl};
use crate::value::{CelValue, MapKey};

/// The number of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeId(u32);

impl CodeId {
    pub(super) fn of_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("the size of programs is bounded"))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A piece of code.
pub(super) enum Code {
    Const(CelValue<'static>),
    Attribute(Box<Attribute>),
    Unary(UnaryOperator, CodeId),
    Binary {
        operator: BinaryOperator,
        cost: OperatorCost,
        left: CodeId,
        right: CodeId,
    },
    And(Box<[CodeId]>),
    Or(Box<[CodeId]>),
    Call(Box<CallCode>),
    List {
        elements: Box<[CodeId]>,
        optional: Box<[bool]>,
    },
    Map(Box<[EntryCode]>),
    /// An object literal, which no environment can make.
    Object(Box<str>, Box<[CodeId]>),
    Fold(Box<FoldCode>),
    /// `value in [constants]`
    InSet(CodeId, HashSet<MapKey>),
    /// `left.or(right)`
    OptionalOr(CodeId, CodeId),
    /// `left.orValue(right)`
    OptionalOrValue(CodeId, CodeId),
    /// `accumulator + list` where the accumulator's next value is computed.
    Append {
        accumulator: u32,
        list: CodeId,
    },
    /// `cel.@mapInsert(accumulator, …)` where the accumulator's next value is computed.
    Insert {
        accumulator: u32,
        args: Box<[CodeId]>,
    },
}

pub(super) struct EntryCode {
    pub(super) key: CodeId,
    pub(super) value: CodeId,
    pub(super) optional: bool,
}

/// A variable or another value, and what is selected of it.
pub(super) struct Attribute {
    pub(super) root: AttributeRoot,
    pub(super) qualifiers: Vec<Qualifier>,
    /// `has(…)`: whether the last qualifier finds something.
    pub(super) test_only: bool,
}

pub(super) enum AttributeRoot {
    Variable(u32),
    Local(u32),
    Code(CodeId),
    Conditional {
        condition: CodeId,
        yes: CodeId,
        no: CodeId,
    },
}

pub(super) struct Qualifier {
    pub(super) key: QualifierKey,
    pub(super) optional: bool,
}

pub(super) enum QualifierKey {
    /// A field name or a constant key of text.
    Field(Box<str>),
    Const(CelValue<'static>),
    Code(CodeId),
}

/// A call of a function that is not built into the evaluator.
pub(super) struct CallCode {
    pub(super) function: Arc<CelFunctionDecl>,
    /// The overload, if only one is possible.
    pub(super) overload: Option<usize>,
    pub(super) args: Box<[CodeId]>,
    pub(super) cost: CallCost,
    /// Stops at the first argument that is an error, and then costs nothing.
    pub(super) stops_early: bool,
    /// The implementation for a constant argument.
    pub(super) prepared: Option<Arc<dyn CelFunction>>,
}

/// Whom to ask for the cost of a call, one after the other.
#[derive(Clone, Copy)]
pub(super) struct CallCost {
    pub(super) overload: Option<CelCostFn>,
    pub(super) function: Option<CelCostFn>,
}

/// A comprehension; its variables are numbers of locals.
pub(super) struct FoldCode {
    pub(super) range: CodeId,
    pub(super) accumulator: u32,
    pub(super) variable: u32,
    pub(super) second_variable: Option<u32>,
    pub(super) condition: CodeId,
    pub(super) step: CodeId,
    pub(super) result: CodeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnaryOperator {
    Not,
    Negate,
    NotStrictlyFalse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    Equals,
    NotEquals,
    In,
}

/// What an operator costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorCost {
    One,
    /// By the size of both operands together.
    Sum,
    /// By the size of the smaller one.
    Smaller,
    /// As [`Smaller`](Self::Smaller), but what opaque values say.
    Equality,
    /// The number of elements of the second one.
    ListSize,
}
