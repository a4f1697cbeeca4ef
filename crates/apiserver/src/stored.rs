//! Decodes the objects in the store, most of them once.
//!
//! What is computed from an entry (the value, the other versions, their JSON) is cached in the entry, so
//! that lists and watches of any number of clients share it. That is many times the length of the entry, so large objects are
//! not cached: decoding one takes milliseconds, and there are few of them.

use std::sync::Arc;

use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::StoreEntry;

use crate::status_error::StatusError;

/// The least length in bytes of an object that is not cached.
const LARGE: usize = 32 << 10;

/// Whether the object of an entry is too large to be cached.
pub(crate) fn is_large(entry: &StoreEntry) -> bool {
    entry.length() >= LARGE
}

/// The object in an entry of the store.
///
/// # Errors
///
/// 500, when the entry is not an object of this kind.
pub(crate) fn object(kind: &'static Kind, entry: &StoreEntry) -> Result<Arc<Object>, StatusError> {
    if let Some(known) = entry.memo.get::<Object>() {
        return Ok(known);
    }
    let object = Object::decode(kind, &entry.bytes(), entry.revision)
        .map_err(|error| StatusError::internal(error.to_string()))?;
    if is_large(entry) {
        return Ok(Arc::new(object));
    }
    Ok(entry.memo.get_or_make(|| object))
}
