//! Why a pattern is refused.

/// What is wrong with a pattern, in the words of Go's package `regexp`, and the part of it that is.
pub(super) type Refused = (&'static str, String);

pub(super) const INVALID_ESCAPE: &str = "invalid escape sequence";
pub(super) const INVALID_RANGE: &str = "invalid character class range";
