//! The policy objects in a store, read at one revision as they are there.
//!
//! Not here: following them ([`crate::store`]).

use serde_json::Value;

use crate::document::PolicyDocument;
use fairgate_base::tasks;
use fairgate_objects::{
    kind::Kind,
    kinds::{FLOW_SCHEMA, PRIORITY_LEVEL},
};
use fairgate_store::{ReadRevision, Store, StoreEntry, StoreError};

/// The kinds of policy objects.
pub(crate) const KINDS: [&Kind; 2] = [&PRIORITY_LEVEL, &FLOW_SCHEMA];

/// The policy objects of a store at a revision, as they were, without what does not affect a policy. Reads them on the
/// blocking pool.
///
/// # Errors
///
/// The store does not respond, or no longer has the revision, or an object cannot be read.
pub(crate) async fn documents_at(
    store: &dyn Store,
    revision: u64,
) -> Result<Vec<PolicyDocument>, StoreError> {
    let mut entries = Vec::new();
    for kind in KINDS {
        let at = ReadRevision::Exactly(revision);
        let page = store.list(&kind.key_prefix(), None, None, at).await?;
        entries.extend(page.entries);
    }
    let read = async move {
        let originals = entries.iter().map(|entry| {
            let object = serde_json::from_slice(&entry.bytes()).map_err(|error| {
                StoreError::Failed(format!("{} cannot be read: {error}", entry.key))
            })?;
            Ok(PolicyDocument {
                origin: origin(entry),
                object: without_status(object),
            })
        });
        originals.collect()
    };
    tasks::on_blocking_pool(read).await
}

/// Where an entry is, for messages.
pub(crate) fn origin(entry: &StoreEntry) -> String {
    format!("{} at {}", entry.key, entry.revision)
}

/// An object without status and managed fields, which are most of it and do not affect the policy.
pub(crate) fn without_status(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    }
    object
}
