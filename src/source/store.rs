//! Policy objects from the store of the hosted API.
//!
//! A set contains all of them at one revision. A new one is yielded when a field changes that a policy depends
//! on.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    DocumentSet, PolicyDocument, PolicySource, Revision, same_policy, warnings::LoggedWarnings,
};
use fairgate_core::finding::{Finding, Severity};
use fairgate_objects::{
    kind::Kind,
    kinds::{FLOW_SCHEMA, PRIORITY_LEVEL},
};
use fairgate_store::{ReadRevision, Store, StoreEntry, StoreError, StoreEvent, Watch};

/// The kinds of policy objects.
const KINDS: [&Kind; 2] = [&PRIORITY_LEVEL, &FLOW_SCHEMA];

/// The pause before a retry after the store failed.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// How long a change is held back: its writer gets the response first, and changes in short succession are
/// processed together.
pub(crate) const SETTLE: std::time::Duration = std::time::Duration::from_millis(5);

/// Follows the policy objects in a store.
pub(crate) struct StoreSource {
    store: Arc<dyn Store>,
    watch: Option<Watch>,
    /// The documents of the last set by key, with their revisions: most of them are reused.
    known: BTreeMap<Arc<str>, (u64, PolicyDocument)>,
    /// Whether something changed since the last set.
    changed: bool,
    logged: LoggedWarnings,
}

impl std::fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored")
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}

impl StoreSource {
    /// Follows the objects in `store`.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            watch: None,
            known: BTreeMap::new(),
            changed: true,
            logged: LoggedWarnings::default(),
        }
    }

    /// Waits for a change, and [`SETTLE`] longer.
    async fn change(&mut self) {
        if self.changed {
            return;
        }
        while !self.changed {
            let Some(watch) = &mut self.watch else {
                self.changed = true;
                return;
            };
            match watch.next().await {
                Ok(events) => self.changed = events.iter().any(|event| matters(event)),
                // The watch fell too far behind: list everything again.
                Err(_) => self.watch = None,
            }
        }
        tokio::time::sleep(SETTLE).await;
    }

    /// Lists everything, and watches from that revision.
    async fn read(&mut self) -> Result<DocumentSet, StoreError> {
        self.store.wait_for(1).await?;
        let mut entries = Vec::new();
        let mut at = ReadRevision::Cached;
        let mut revision = 0;
        for kind in KINDS {
            let prefix = kind.key_prefix();
            let page = self.store.list(&prefix, None, None, at).await?;
            revision = page.revision;
            at = ReadRevision::Exactly(revision);
            entries.extend(page.entries);
        }
        self.watch = Some(self.store.watch(&FLOW_SCHEMA.group_prefix(), revision)?);
        self.changed = false;
        let mut set = DocumentSet {
            revision: Revision(revision.to_string()),
            documents: Vec::new(),
            findings: Vec::new(),
        };
        let mut before = std::mem::take(&mut self.known);
        for entry in entries {
            let same = before.remove(&entry.key);
            let same = same.filter(|(revision, _)| *revision == entry.revision);
            match same.map_or_else(|| document(&entry), |(_, document)| Ok(document)) {
                Ok(document) => {
                    set.documents.push(document.clone());
                    let known = (entry.revision, document);
                    self.known.insert(Arc::clone(&entry.key), known);
                }
                Err(finding) => set.findings.push(*finding),
            }
        }
        Ok(set)
    }
}

impl PolicySource for StoreSource {
    async fn next(&mut self) -> DocumentSet {
        loop {
            self.change().await;
            match self.read().await {
                Ok(set) => return set,
                Err(error) => {
                    tracing::debug!(%error, "the policy objects cannot be read from the store");
                    self.changed = true;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn report(&mut self, revision: &Revision, applied: bool, findings: &[Finding]) {
        let Revision(revision) = revision;
        self.logged.log(findings);
        if applied {
            tracing::info!(%revision, warnings = self.logged.warnings(), "policy objects applied");
        } else {
            tracing::error!(%revision, "policy objects rejected; the last good policy stays in force");
        }
    }
}

fn document(entry: &StoreEntry) -> Result<PolicyDocument, Box<Finding>> {
    let origin = format!("{} at {}", entry.key, entry.revision);
    match serde_json::from_slice(&entry.value) {
        Ok(value) => Ok(PolicyDocument {
            origin,
            value: Arc::new(without_status(value)),
        }),
        Err(error) => Err(Box::new(Finding {
            // One malformed object must not keep all others from taking effect.
            severity: Severity::Warning,
            origin,
            kind: String::new(),
            name: String::new(),
            field: String::new(),
            message: format!("cannot be read: {error}"),
            remedy: "delete the object and create it again".to_owned(),
        })),
    }
}

/// An object without status and managed fields, which are most of it and do not affect the policy.
fn without_status(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    }
    object
}

/// Whether a policy can depend on a change.
fn matters(event: &StoreEvent) -> bool {
    match (&event.before, &event.after) {
        (Some(before), Some(after)) => !same_entries(before, after),
        _ => true,
    }
}

fn same_entries(before: &StoreEntry, after: &StoreEntry) -> bool {
    let read = |entry: &StoreEntry| serde_json::from_slice::<Value>(&entry.value).ok();
    match (read(before), read(after)) {
        (Some(before), Some(after)) => same_policy(&before, &after),
        (before, after) => before.is_none() && after.is_none(),
    }
}
