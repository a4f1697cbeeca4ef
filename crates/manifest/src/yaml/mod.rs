//! Reads YAML and JSON text into plain values. Only this module uses the YAML library.
//!
//! Every document becomes a [`serde_json::Value`]. YAML that JSON cannot express is an error: keys that are
//! not scalars, numbers such as `.inf`. Since a file may be hostile (a `ConfigMap`, a pipe), the text is bounded
//! in size and depth, and what its aliases expand to is bounded by its length: a few lines cannot become
//! gigabytes.
//!
//! There are three functions. [`documents()`] reads what people write for fairgate, and is strict: a repeated key is
//! an error. [`manifest()`] reads bodies sent to an API server, which must accept what kube-apiserver accepts:
//! booleans of YAML 1.1 such as `yes`, and repeated keys, which it reports. [`exact()`] does the same, but refuses what
//! kube-apiserver may read otherwise.
//!
//! [`lines()`] says on which lines the keys of a document stand, for messages about their values, and
//! [`located_documents()`] reads documents together with these lines.
//!
//! Not here: what the values mean.

mod documents;
mod events;
mod exact;
mod lines;
mod manifest;
mod scalars;

use std::cell::Cell;

use serde::de;

pub use self::{
    documents::documents,
    exact::{ExactError, exact},
    lines::{LocatedDocument, lines, located_documents},
    manifest::{MAX_REPEATED, Manifest, NO_JSON, NO_KEY, RepeatedKey, manifest},
};

/// The longest text that is read: 16 MiB.
pub const MAX_BYTES: usize = 16 << 20;

/// Brackets that may be open at once, including those in comments and strings; also dashes that open lists in one line.
///
/// The library refuses values nested deeper than 128. But its scanner runs first, and its time grows with the
/// square of the open brackets, its memory by a hundred times the number of dashes.
const MAX_OPEN_BRACKETS: usize = 1000;

/// How many times its own length a text may expand to by aliases.
const EXPANSION: usize = 4;

/// Why a text cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// The text is longer than [`MAX_BYTES`].
    #[error("longer than {} MiB; split it", MAX_BYTES >> 20)]
    TooLong,
    /// The text is not UTF-8.
    #[error("not UTF-8 from byte {valid_up_to} on; save it as UTF-8")]
    NotUtf8 {
        /// The number of valid bytes before the first invalid one.
        valid_up_to: usize,
    },
    /// More brackets are open at once than in any real document.
    #[error("more than {MAX_OPEN_BRACKETS} brackets or dashes are open at once; flatten it")]
    TooDeep,
    /// The text of a body has so many scalars, lists and mappings that reading it would take too much memory.
    #[error(
        "more than {} scalars, lists and mappings; send it as JSON",
        events::MAX_EVENTS
    )]
    TooManyParts,
    /// The text is not YAML, or YAML that JSON cannot express.
    #[error("document {document}: {message}")]
    Syntax {
        /// The number of the document in the text, from 1.
        document: usize,
        /// The parser's message, with line and column.
        message: String,
    },
}

/// The text of a file without its byte order mark, if it is neither too long nor invalid UTF-8.
fn checked(text: &[u8]) -> Result<&str, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::TooLong);
    }
    let text = std::str::from_utf8(text).map_err(|error| YamlError::NotUtf8 {
        valid_up_to: error.valid_up_to(),
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Refuses a text that would keep the scanner busy for too long; see [`MAX_OPEN_BRACKETS`].
fn check_depth(text: &str) -> Result<(), YamlError> {
    let mut open = 0_usize;
    // Each dash of `- - - a` opens a list. On separate lines each needs more spaces than the one before.
    let (mut dashes, mut before) = (0_usize, b'\n');
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        match byte {
            b'-' | b'?' if before.is_ascii_whitespace() => dashes += 1,
            b' ' | b'\t' => {}
            _ => dashes = 0,
        }
        before = byte;
        if open.max(dashes) > MAX_OPEN_BRACKETS {
            return Err(YamlError::TooDeep);
        }
    }
    Ok(())
}

/// What the values of a text may still cost: a unit for each node and for each byte of its scalars.
struct ExpansionBudget(Cell<usize>);

impl ExpansionBudget {
    /// The budget of a text, which suffices if aliases do not repeat too much of it.
    fn of(text: &str) -> Self {
        Self(Cell::new(
            text.len().saturating_mul(EXPANSION).saturating_add(1024),
        ))
    }

    fn unlimited() -> Self {
        Self(Cell::new(usize::MAX))
    }

    fn spend<E: de::Error>(&self, cost: usize) -> Result<(), E> {
        let left = self
            .0
            .get()
            .checked_sub(cost)
            .ok_or_else(|| E::custom("aliases expand to too much; write the parts out"))?;
        self.0.set(left);
        Ok(())
    }
}
