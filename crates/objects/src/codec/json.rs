//! JSON text: reading it with the errors of Go's decoder, writing it as Go's encoder does.
//!
//! Accepts what Go accepts, as deep as Go does ([`MAX_DEPTH`]), with one narrower bound: `canonical::MAX_OBJECTS`.
//!
//! Values are dropped, compared, cloned and written by recursion, as all of `serde_json` does it. So are they walked here: a thread that
//! reads what a client has sent has a stack of `STACK_BYTES` of `fairgate_base::stack`.
//!
//! Not here: what the values mean, and which fields there are.

mod scan;
mod spacing;
#[cfg(test)]
mod tests;
mod write;

use serde_json::Value;

use super::{tape::JsonTape, tree::JsonNode};
use crate::schema::canonical::Source;

pub(super) use scan::read as scan;
pub use scan::{MAX_DEPTH, SyntaxError};
pub use spacing::{compact, indent, indent_at};
pub(crate) use write::encode_part;
pub use write::{encode, encode_list, encode_plain, encode_raw};

/// A parsed text.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedText {
    /// The value. A duplicate key has its last value.
    ///
    /// Integers are `i64` or `u64`; numbers with a point or an exponent are `f64`.
    pub value: Value,
    /// Duplicate keys: `duplicate field "spec.rules[0].foo"` of JSON, `line 2: key "a" already set in map` of
    /// YAML.
    pub duplicates: Vec<String>,
}

/// Reads `text`.
///
/// Costs time linear in its length, and up to about a hundred bytes of memory for each byte.
///
/// # Errors
///
/// [`SyntaxError`], if it is not one JSON value.
pub fn parse(text: &[u8]) -> Result<ParsedText, SyntaxError> {
    let tape = read_tape(text)?;
    let value = tape.root().to_value();
    let mut duplicates = Vec::new();
    if tape.has_duplicates() {
        duplicates = tape.into_node().duplicates();
    }
    Ok(ParsedText { value, duplicates })
}

/// Reads `text`, and keeps the order of its members.
///
/// # Errors
///
/// As [`parse`].
pub(crate) fn read(text: &[u8]) -> Result<JsonNode<'_>, SyntaxError> {
    read_tape(text).map(JsonTape::into_node)
}

/// The same, as it is best looked at once.
///
/// # Errors
///
/// As [`parse`].
pub(crate) fn read_tape(text: &[u8]) -> Result<JsonTape<'_>, SyntaxError> {
    scan::read(text).map(|scanned| scanned.tape)
}
