//! An object of a list.
//!
//! Decoded, an object takes many times its length. So a large one is decoded only while it is looked at or written: a list of
//! such objects never has more than one of them decoded. Smaller ones are decoded once and cached with their entry, which makes
//! the next list cheaper.

use std::sync::Arc;

use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::StoreEntry;

use super::stored;
use fairgate_apihttp::status_error::StatusError;

/// An object of a list.
#[derive(Clone, Debug)]
pub(crate) enum ListedObject {
    Decoded(Arc<Object>),
    Large(&'static Kind, Arc<StoreEntry>),
}

impl ListedObject {
    /// The object of an entry.
    ///
    /// # Errors
    ///
    /// 500, when the entry is not an object of this kind.
    pub(crate) fn of(kind: &'static Kind, entry: &Arc<StoreEntry>) -> Result<Self, StatusError> {
        if stored::is_large(entry) {
            return Ok(Self::Large(kind, Arc::clone(entry)));
        }
        stored::object(kind, entry).map(Self::Decoded)
    }

    /// The object.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(crate) fn object(&self) -> Result<Arc<Object>, StatusError> {
        match self {
            Self::Decoded(object) => Ok(Arc::clone(object)),
            Self::Large(kind, entry) => stored::object(kind, entry),
        }
    }
}
