//! Why a pattern is refused.

/// What is wrong with a pattern, as Go's package `regexp` words it, and the invalid part.
pub(super) type Refused = (&'static str, String);

pub(super) const INVALID_ESCAPE: &str = "invalid escape sequence";
pub(super) const INVALID_RANGE: &str = "invalid character class range";
