//! The code of a program: a tree in an arena, with variables as numbers.

use std::sync::Arc;

use super::constants::ConstantSet;
use super::{CelFunction, CelFunctionDecl};
use crate::declarations::CostRule;
use crate::value::CelValue;

/// The number of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeId(u32);

impl CodeId {
    pub(super) fn of_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("the size of programs is bounded"))
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A piece of code.
pub(super) enum Code {
    Const(CelValue<'static>),
    Attribute(Box<Attribute>),
    /// A variable of a comprehension, by number, without any qualifier.
    Local(u32),
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
    /// An object literal. Its evaluation always fails, because no environment can construct objects.
    Object(Box<str>, Box<[CodeId]>),
    Fold(Box<FoldCode>),
    /// `value in [constants]`
    InSet(CodeId, Box<ConstantSet>),
    /// `left.or(right)`
    OptionalOr(CodeId, CodeId),
    /// `left.orValue(right)`
    OptionalOrValue(CodeId, CodeId),
    /// `accumulator + list` as the step of a comprehension.
    Append {
        accumulator: u32,
        list: CodeId,
    },
    /// `cel.@mapInsert(accumulator, …)` as the step of a comprehension; `args` without the accumulator.
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

/// A variable or another value, with the selections and indexes that follow it.
pub(super) struct Attribute {
    pub(super) root: AttributeRoot,
    pub(super) qualifiers: Vec<Qualifier>,
    /// Whether this is `has(…)`, which tests whether the last qualifier finds something.
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
    /// A field name, or a key that is a string literal.
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
    /// Whether the call ends, without a cost, at an argument that is an error and not the last one.
    pub(super) stops_early: bool,
    /// The implementation that was prepared for a constant argument.
    pub(super) prepared: Option<Arc<dyn CelFunction>>,
}

/// The functions that compute the cost of a call; the first that returns a cost applies.
#[derive(Clone, Copy)]
pub(super) struct CallCost {
    pub(super) overload: Option<CostRule>,
    pub(super) function: Option<CostRule>,
}

/// A comprehension. Its variables are given as numbers of locals.
pub(super) struct FoldCode {
    pub(super) range: CodeId,
    pub(super) accumulator: u32,
    pub(super) variable: u32,
    pub(super) second_variable: Option<u32>,
    pub(super) condition: FoldCondition,
    pub(super) step: CodeId,
    pub(super) result: CodeId,
    /// The text that it looks for, if it does nothing else.
    pub(super) searched: Option<CodeId>,
}

/// When a comprehension goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldCondition {
    /// To the end.
    Always,
    /// As long as the accumulator is not this value: `all` and `exists`.
    Unless(bool),
    /// As long as this is not `false`.
    Code(CodeId),
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

/// How the cost of an operator is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorCost {
    One,
    /// A tenth of the sizes of both operands together.
    Sum,
    /// A tenth of the size of the smaller operand.
    Smaller,
    /// As [`Smaller`](Self::Smaller), unless the left operand is an opaque value with a cost of its own.
    Equality,
    /// The size of the right operand.
    ListSize,
}
