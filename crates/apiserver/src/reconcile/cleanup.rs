//! Deletes hosted objects of namespaces that the upstream has deleted.

use std::collections::BTreeMap;

use super::{Hosted, ReconcileError};
use crate::namespaces::NamespaceState;
use fairgate_store::StoreError;

/// How often a namespace is read again because others change its objects meanwhile.
const TRIES: usize = 20;

impl Hosted {
    /// The namespaces with hosted objects, each with the UID that it had when the first of them was created, if that is
    /// known. Costs `O(objects)`.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn namespaces_in_use(&self) -> Result<BTreeMap<String, Option<String>>, StoreError> {
        self.state.namespaces_in_use().await
    }

    /// Deletes the objects of a namespace that is being deleted, does not exist any more, or is not the one in which
    /// they were created. Returns whether it exists and is not being deleted.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`]; some of the objects may have been deleted.
    pub async fn clean_namespace(&self, namespace: &str) -> Result<bool, ReconcileError> {
        let Some(namespaces) = &self.state.namespaces else {
            return Ok(true);
        };
        for _ in 0..TRIES {
            let contents = self.state.namespace_contents(namespace).await?;
            // Read after the objects: if the namespace is another one by now, all of them are older than that.
            let state = namespaces.state(namespace).await;
            let state = state.map_err(|why| ReconcileError::Namespace {
                namespace: namespace.to_owned(),
                why,
            })?;
            let uid = match &state {
                NamespaceState::Active { uid } => Some(&**uid),
                NamespaceState::Terminating | NamespaceState::Absent => None,
            };
            let settled = contents.is_empty()
                || self
                    .state
                    .settle_namespace(namespace, &contents, uid)
                    .await?;
            if settled {
                return Ok(uid.is_some());
            }
        }
        Err(ReconcileError::Namespace {
            namespace: namespace.to_owned(),
            why: "its objects are being changed".to_owned(),
        })
    }
}
