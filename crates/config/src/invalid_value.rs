//! What is wrong with a value of the configuration.

/// Why a value is invalid, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidValue {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl InvalidValue {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}
