//! Label and field selectors of lists, watches and collections.
//!
//! Parsing a selector costs `O(n log n)` in the length of its text, and fails with kube-apiserver's
//! messages.
//!
//! Not here: the grammars (`fairgate_core::digest`), and which value of a repeated parameter
//! is used.

pub(crate) mod field;
pub(crate) mod label;
mod packed_list;
mod rules;

pub use field::FieldSelector;
pub use label::LabelSelector;
pub use rules::LabelSet;

/// Why a selector cannot be parsed: the message of kube-apiserver's 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);

impl From<String> for SelectorError {
    fn from(text: String) -> Self {
        Self(text)
    }
}
