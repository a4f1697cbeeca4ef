//! Why an evaluation has no value.

use std::fmt;

use super::CelValue;

/// What an operation gives: a value, or why there is none.
pub type CelResult<'a> = Result<CelValue<'a>, CelError>;

/// Why an evaluation has no value. Prints as the original prints it, for example `no such key: name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelError(Box<(CelErrorKind, Box<str>)>);

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CelErrorKind {
    /// An error that `&&`, `||`, `all` and `exists` may absorb.
    Evaluation,
    /// The cost went over the limit; nothing absorbs that.
    CostLimit,
    /// The host interrupted the evaluation; nothing absorbs that.
    Interrupted,
}

impl CelError {
    /// An error of an operation.
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self(Box::new((CelErrorKind::Evaluation, message.into())))
    }

    /// `no such overload`
    pub fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    /// `no such key: <key>`
    pub fn no_such_key(key: &CelValue<'_>) -> Self {
        Self::new(format!("no such key: {key}"))
    }

    /// No overload of `function` takes values of the types of `arguments`.
    pub fn no_such_call(function: &str, arguments: &[CelValue<'_>]) -> Self {
        let types: Vec<_> = arguments.iter().map(CelValue::type_name).collect();
        Self::new(format!(
            "no such overload: {function}({})",
            types.join(", ")
        ))
    }

    pub(crate) fn cost_limit() -> Self {
        let message = "operation cancelled: actual cost limit exceeded";
        Self(Box::new((CelErrorKind::CostLimit, message.into())))
    }

    pub(crate) fn interrupted() -> Self {
        let message = "operation interrupted";
        Self(Box::new((CelErrorKind::Interrupted, message.into())))
    }

    /// What kind of error it is.
    pub fn kind(&self) -> CelErrorKind {
        self.0.0
    }

    /// The text.
    pub fn message(&self) -> &str {
        &self.0.1
    }

    /// Whether no operator may absorb this error.
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
