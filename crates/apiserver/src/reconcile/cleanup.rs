//! Deletes hosted objects of namespaces that the upstream has deleted.

use std::collections::BTreeSet;

use http::Method;

use super::{Hosted, ReconcileError};
use crate::namespaces::NamespaceState;
use fairgate_store::ReadRevision;

impl Hosted {
    /// Deletes the objects of namespaces that are being deleted or do not exist any more.
    ///
    /// # Errors
    ///
    /// [`ReconcileError`], of the first deletion that failed.
    pub async fn clean_namespaces(&self) -> Result<(), ReconcileError> {
        let Some(namespaces) = &self.state.namespaces else {
            return Ok(());
        };
        for kind in self.state.kinds.iter().filter(|kind| kind.namespaced) {
            let prefix = kind.key_prefix();
            let store = &self.state.store;
            let page = store
                .list(&prefix, None, None, ReadRevision::Cached)
                .await?;
            let in_use: BTreeSet<String> = page
                .entries
                .iter()
                .filter_map(|entry| {
                    let (namespace, _) = entry.key.strip_prefix(&prefix)?.split_once('/')?;
                    Some(namespace.to_owned())
                })
                .collect();
            for namespace in in_use {
                match namespaces.state(&namespace).await {
                    Ok(NamespaceState::Terminating | NamespaceState::Absent) => {}
                    Ok(NamespaceState::Active) => continue,
                    Err(why) => {
                        tracing::debug!(%namespace, %why, "the state of a namespace is not known");
                        continue;
                    }
                }
                let api_version = kind.api_version(kind.stored().name);
                let plural = kind.plural;
                let path = format!("/apis/{api_version}/namespaces/{namespace}/{plural}");
                self.call(Method::DELETE, &path, "", "application/json", None)
                    .await?;
                tracing::info!(
                    %namespace,
                    resource = %kind.group_resource(),
                    "deleted the objects of a deleted namespace"
                );
            }
        }
        Ok(())
    }
}
