//! The errors of evaluations.

use std::fmt;
use std::sync::Arc;

use super::CelValue;

/// The result of an operation: a value or an error.
pub type CelResult<'a> = Result<CelValue<'a>, CelError>;

/// An error of an evaluation. It prints as in the original, for example `no such key: name`. Cloning it is cheap,
/// however long its text is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelError(Arc<(CelErrorKind, Box<str>)>);

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CelErrorKind {
    /// An error that `&&`, `||`, `all` and `exists` may absorb.
    Evaluation,
    /// The cost limit was exceeded. No operator absorbs this error.
    CostLimit,
    /// The host interrupted the evaluation. No operator absorbs this error.
    Interrupted,
    /// A limit was exceeded that the original does not have: the evaluation took more than
    /// [`DEFAULT_WORK_LIMIT`](crate::DEFAULT_WORK_LIMIT) steps, or the limit that the host has set; or a value or a pattern
    /// became too large. What the original would have found is not known, so no operator absorbs this error.
    OwnLimit,
}

impl CelError {
    /// An error of kind [`CelErrorKind::Evaluation`] with this message.
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self(Arc::new((CelErrorKind::Evaluation, message.into())))
    }

    /// `no such overload`
    pub fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    /// `no such overload: <function>(<types of the arguments>)`
    pub fn no_such_call(function: &str, arguments: &[CelValue<'_>]) -> Self {
        let types: Vec<_> = arguments.iter().map(CelValue::type_name).collect();
        Self::new(format!(
            "no such overload: {function}({})",
            types.join(", ")
        ))
    }

    pub(crate) fn cost_limit() -> Self {
        let message = "operation cancelled: actual cost limit exceeded";
        Self(Arc::new((CelErrorKind::CostLimit, message.into())))
    }

    pub(crate) fn work_limit() -> Self {
        Self::own_limit(
            "operation cancelled: the expression does too much work that its cost does not count",
        )
    }

    /// An error of kind [`CelErrorKind::OwnLimit`] with this message.
    pub fn own_limit(message: impl Into<Box<str>>) -> Self {
        Self(Arc::new((CelErrorKind::OwnLimit, message.into())))
    }

    pub(crate) fn interrupted() -> Self {
        let message = "operation interrupted";
        Self(Arc::new((CelErrorKind::Interrupted, message.into())))
    }

    /// The kind of this error.
    #[inline]
    pub fn kind(&self) -> CelErrorKind {
        self.0.0
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.0.1
    }

    /// Whether this error ends the evaluation, because no operator may absorb it.
    #[inline]
    pub(crate) fn is_final(&self) -> bool {
        self.kind() != CelErrorKind::Evaluation
    }
}

impl fmt::Display for CelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for CelError {}
