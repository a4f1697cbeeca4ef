//! Selectors of objects by label and by field, as lists, watches and collections take them.
//!
//! Each sort is read from a query's text into a form that objects are tested against, and fails in
//! the API server's words. Reading costs `O(n log n)` in the length of the text, whatever is in it.
//!
//! Not here: the grammars (`fairgate_core::digest`), and which value of a parameter counts.

pub(crate) mod field;
pub(crate) mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;

/// Why a selector cannot be read, in the words of the API server's 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);

impl From<String> for SelectorError {
    fn from(text: String) -> Self {
        Self(text)
    }
}
