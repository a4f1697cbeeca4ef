//! Policy objects from the store of the hosted API.
//!
//! A set contains all of them at one revision. A new one is yielded when a field changes that a policy depends
//! on. Objects are listed once and then followed by watch, so a change costs the parsing of one object.

#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    document_set::{DocumentSet, Originals, PolicySource, Revision},
    logging::LoggedWarnings,
    stored_documents::{KINDS, origin, without_status},
};
use fairgate_base::tasks;
use fairgate_core::{
    apf::objects::ParsedDocument,
    finding::{Finding, Severity},
};
use fairgate_objects::kinds::FLOW_SCHEMA;
use fairgate_store::{
    ReadRevision, Store, StoreEntry, StoreError, StoreEvent, Watch, local::StoreAtRest,
};

/// The pause before a retry after the store failed.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a change is held back: its writer gets the response first, and changes in short succession are
/// processed together.
pub const SETTLE: Duration = Duration::from_millis(5);

/// Follows the policy objects in a store.
pub struct StoreSource {
    store: Arc<dyn Store>,
    /// `None` until the objects were listed, and after the watch fell behind.
    watch: Option<Watch>,
    /// All objects by key.
    objects: BTreeMap<Arc<str>, StoredDocument>,
    /// The revision up to which `objects` are known.
    revision: u64,
    /// Later changes, which `objects` lack.
    unread: Vec<Arc<StoreEvent>>,
    /// Whether something changed since the last set.
    changed: bool,
    /// Whether sets can be read again as they were.
    has_originals: bool,
    logged: LoggedWarnings,
}

/// An object of the store, parsed; or why it cannot be read.
#[derive(PartialEq)]
enum StoredDocument {
    Parsed(Arc<ParsedDocument>),
    Unreadable(Box<Finding>),
}

impl std::fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSource")
            .field("objects", &self.objects.len())
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}

impl StoreSource {
    /// Follows the objects in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            watch: None,
            objects: BTreeMap::new(),
            revision: 0,
            unread: Vec::new(),
            changed: false,
            has_originals: false,
            logged: LoggedWarnings::default(),
        }
    }

    /// Whether sets can be read again as they were, to be kept.
    #[must_use]
    pub fn with_originals(mut self, wanted: bool) -> Self {
        self.has_originals = wanted;
        self
    }

    /// Waits until something has changed, and [`SETTLE`] longer. Cancel-safe.
    async fn change(&mut self) -> Result<(), StoreError> {
        // What a call that was cancelled has left.
        self.take().await;
        while !self.changed {
            match &mut self.watch {
                None => self.list().await?,
                Some(watch) => match watch.next().await {
                    Ok(events) => {
                        self.unread.extend(events);
                        self.take().await;
                    }
                    // The watch fell too far behind: list everything again.
                    Err(_) => self.watch = None,
                },
            }
        }
        tokio::time::sleep(SETTLE).await;
        while let Some(watch) = &mut self.watch {
            match watch.ready() {
                Ok(events) if events.is_empty() => break,
                Ok(events) => {
                    self.unread.extend(events);
                    self.take().await;
                }
                Err(_) => self.watch = None,
            }
        }
        Ok(())
    }

    /// Lists everything, and watches from that revision.
    async fn list(&mut self) -> Result<(), StoreError> {
        self.store.wait_for(1).await?;
        let mut entries = Vec::new();
        let mut at = ReadRevision::Cached;
        for kind in KINDS {
            let prefix = kind.key_prefix();
            let page = self.store.list(&prefix, None, None, at).await?;
            self.revision = page.revision;
            at = ReadRevision::Exactly(page.revision);
            entries.extend(page.entries);
        }
        let prefix = FLOW_SCHEMA.group_prefix();
        let watch = self.store.watch(&prefix, self.revision)?;
        let read = async move {
            let entries = entries.iter();
            let documents = entries.map(|entry| (Arc::clone(&entry.key), document(entry)));
            documents.collect()
        };
        self.objects = tasks::on_blocking_pool(read).await;
        self.watch = Some(watch);
        self.unread.clear();
        self.changed = true;
        Ok(())
    }

    /// Applies the changes that were not read yet. Large objects take long to read: that is done on another thread.
    async fn take(&mut self) {
        if let Some(last) = self.unread.last() {
            self.revision = last.revision;
        }
        self.unread.retain(|event| is_policy(event));
        if self.unread.is_empty() {
            return;
        }
        let events = self.unread.clone();
        let read = async move {
            let after = events.iter().map(|event| event.after.as_ref());
            after
                .map(|entry| entry.map(|entry| document(entry)))
                .collect()
        };
        let documents: Vec<Option<StoredDocument>> = tasks::on_blocking_pool(read).await;
        for (event, document) in self.unread.drain(..).zip(documents) {
            let known = match document {
                Some(document) => {
                    let same = |before: &StoredDocument| before.has_same_policy(&document);
                    if self.objects.get(&event.key).is_some_and(same) {
                        continue;
                    }
                    self.objects.insert(Arc::clone(&event.key), document)
                }
                None => self.objects.remove(&event.key),
            };
            self.changed |= known.is_some() || event.after.is_some();
        }
    }

    /// All objects.
    fn set(&self) -> DocumentSet {
        let mut set = set_of(self.revision, self.objects.values());
        let stored = || Originals::Stored(Arc::clone(&self.store), self.revision);
        set.originals = self.has_originals.then(stored);
        set
    }
}

/// The policy objects of a store that was read while nobody had it open.
pub fn set_at_rest(store: &StoreAtRest) -> DocumentSet {
    let is_policy = |entry: &&Arc<StoreEntry>| {
        let mut kinds = KINDS.into_iter();
        kinds.any(|kind| entry.key.starts_with(&kind.key_prefix()))
    };
    let entries = store.entries.iter().filter(is_policy);
    set_of(
        store.revision,
        entries
            .map(|entry| document(entry))
            .collect::<Vec<_>>()
            .iter(),
    )
}

fn set_of<'a>(revision: u64, objects: impl Iterator<Item = &'a StoredDocument>) -> DocumentSet {
    let mut set = DocumentSet {
        revision: Revision(revision.to_string()),
        documents: Vec::new(),
        findings: Vec::new(),
        originals: None,
    };
    for object in objects {
        match object {
            StoredDocument::Parsed(document) => set.documents.push(Arc::clone(document)),
            StoredDocument::Unreadable(finding) => set.findings.push((**finding).clone()),
        }
    }
    set
}

impl StoredDocument {
    fn has_same_policy(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Parsed(one), Self::Parsed(other)) => one.has_same_policy(other),
            (one, other) => one == other,
        }
    }
}

impl PolicySource for StoreSource {
    type Set = DocumentSet;

    async fn next(&mut self) -> DocumentSet {
        while let Err(error) = self.change().await {
            tracing::debug!(%error, "FlowSchemas and levels cannot be read from the store");
            tokio::time::sleep(PAUSE).await;
        }
        self.changed = false;
        self.set()
    }

    async fn report(&mut self, revision: &Revision, applied: bool, findings: &[Finding]) {
        let Revision(revision) = revision;
        self.logged.log(findings);
        if applied {
            tracing::info!(%revision, warnings = self.logged.warnings(), "flow control policy applied");
        } else {
            tracing::error!(%revision, "flow control policy rejected; the policy in force stays");
        }
    }
}

fn is_policy(event: &StoreEvent) -> bool {
    let mut kinds = KINDS.into_iter();
    kinds.any(|kind| event.key.starts_with(&kind.key_prefix()))
}

fn document(entry: &StoreEntry) -> StoredDocument {
    let origin = origin(entry);
    match serde_json::from_slice(&entry.bytes()) {
        Ok(value) => {
            let document = ParsedDocument::parse(&origin, without_status(value));
            StoredDocument::Parsed(Arc::new(document))
        }
        Err(error) => StoredDocument::Unreadable(Box::new(Finding::without_object(
            // Without it requests could be in another level: all objects stay as they were, and that is shown.
            Severity::Error,
            origin,
            format!("cannot be read: {error}"),
            "delete its key from the store, or restore the store from a backup",
        ))),
    }
}
