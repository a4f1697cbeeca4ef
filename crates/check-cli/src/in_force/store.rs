//! The policy of a gateway that is stopped, from the file of its store.

use std::path::Path;

use super::NotRead;
use fairgate_policy_sources::{DocumentSet, store::set_at_rest};
use fairgate_store::{StoreError, local::read_at_rest};

/// The objects in the store at `path`; `None` if there is no file. Nothing is written.
pub(crate) fn read(path: &Path) -> Result<Option<DocumentSet>, NotRead> {
    let read = read_at_rest(path).map_err(|error| {
        let from = path.display().to_string();
        match error {
            StoreError::Locked { .. } => NotRead::new(
                from,
                "a running gateway has the store open, and is the only one that may read it",
                "ask that gateway: --server with the URL of its admin port (admin.address)",
            ),
            error => NotRead::new(
                from,
                format!("the store cannot be read: {}", with_source(&error)),
                "run this as the user of the gateway, or ask the running gateway with --server",
            ),
        }
    })?;
    Ok(read.as_ref().map(set_at_rest))
}

fn with_source(error: &StoreError) -> String {
    fairgate_upstream::client::with_causes(error)
}
