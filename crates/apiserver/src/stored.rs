//! Decodes the objects in the store, each once.
//!
//! What is computed from an entry (the value, the other versions, their JSON) is cached in the entry, so
//! that lists and watches of any number of clients share it.

use std::sync::Arc;

use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::StoreEntry;

use crate::status_error::StatusError;

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
    Ok(entry.memo.get_or_make(|| object))
}
