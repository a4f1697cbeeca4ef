//! Why a pattern is refused.

/// The error of Go's package `regexp` about a pattern, and the part of the pattern that is invalid.
pub(super) type Refused = (&'static str, String);

pub(super) const INVALID_ESCAPE: &str = "invalid escape sequence";
pub(super) const INVALID_RANGE: &str = "invalid character class range";
pub(super) const TOO_DEEP: &str = "expression nests too deeply";
pub(super) const TOO_LARGE: &str = "expression too large";
