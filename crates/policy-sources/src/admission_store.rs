//! Admission policies from the store of the hosted API.
//!
//! After each change of a policy or binding all of them are read again, at one revision.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use fairgate_base::{background, clock::Clock};

use fairgate_admission::kinds::{ADMISSION_KINDS, VALIDATING_ADMISSION_POLICY};
use fairgate_core::{
    finding::{Finding, Severity},
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::{ReadRevision, Store, StoreEntry, StoreError, StoreEvent, StoreHealth, Watch};

use crate::{
    document::PolicyDocument,
    document_set::{PolicyDocuments, PolicySource},
    store::SETTLE,
};

/// The pause after a failure of the store.
const PAUSE: Duration = Duration::from_millis(500);

/// Follows the admission policies in a store.
pub struct AdmissionStore {
    store: Arc<dyn Store>,
    /// Sees the changes since the last set; `None` if that is not known, and everything is read again.
    watch: Option<Watch>,
    clock: Clock,
    /// Since when the store may have other policies than those of the last set that somebody took.
    behind: Arc<Mutex<Option<Time>>>,
    /// Whether a set has been returned, which the caller is done with when it asks for the next one.
    is_delivered: bool,
}

impl std::fmt::Debug for AdmissionStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionStore").finish_non_exhaustive()
    }
}

impl AdmissionStore {
    /// Follows the policies in `store`.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        let behind = Arc::new(Mutex::new(Some(clock.now())));
        Self {
            store,
            watch: None,
            clock,
            behind,
            is_delivered: false,
        }
    }

    /// Reads for how long it has not been certain that the last set is what the store has: the store does not respond, or has
    /// changed and could not be read since. To be called regularly.
    pub fn silence(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        let (clock, store) = (self.clock.clone(), Arc::clone(&self.store));
        let behind = Arc::clone(&self.behind);
        let last = Mutex::new(clock.now());
        move || {
            let now = clock.now();
            let mut last = lock(&last);
            if matches!(
                store.health(),
                StoreHealth::Ready | StoreHealth::Impaired(_) | StoreHealth::ReadOnly(_)
            ) {
                *last = now;
            }
            let since = lock(&behind).map_or(*last, |since| since.min(*last));
            now.since(since)
        }
    }

    /// Waits for a change since the last set. Returns at once if it is not known whether there was one.
    async fn changed(&mut self) {
        while let Some(watch) = &mut self.watch {
            match watch.next().await {
                Ok(events) if !events.iter().any(|event| is_policy(event)) => {}
                // A change, or the watch fell too far behind.
                Ok(_) | Err(_) => self.watch = None,
            }
        }
    }

    async fn list(&mut self) -> Result<PolicyDocuments, StoreError> {
        self.store.wait_for(1).await?;
        let mut entries = Vec::new();
        let mut at = ReadRevision::Cached;
        let mut revision = 0;
        for kind in ADMISSION_KINDS {
            let page = self.store.list(&kind.key_prefix(), None, None, at).await?;
            revision = page.revision;
            at = ReadRevision::Exactly(revision);
            entries.push((kind, page.entries));
        }
        let prefix = VALIDATING_ADMISSION_POLICY.group_prefix();
        let watch = self.store.watch(&prefix, revision)?;
        // Policies may be many, and large.
        let documents = background::run(move || documents(&entries)).await;
        let documents = documents.map_err(|error| StoreError::Failed(error.to_string()))?;
        // Only together with its set: if the call is cancelled before, the next one has to list again.
        self.watch = Some(watch);
        Ok(documents)
    }
}

impl PolicySource for AdmissionStore {
    type Set = PolicyDocuments;

    async fn next(&mut self) -> PolicyDocuments {
        let mut logged = String::new();
        if std::mem::take(&mut self.is_delivered) {
            *lock(&self.behind) = None;
        }
        loop {
            self.changed().await;
            lock(&self.behind).get_or_insert(self.clock.now());
            // The writer gets its response first, and changes in short succession are processed together.
            tokio::time::sleep(SETTLE).await;
            match self.list().await {
                Ok(set) => {
                    self.is_delivered = true;
                    return set;
                }
                Err(error) => {
                    let text = error.to_string();
                    if logged != text {
                        tracing::warn!(%error, "cannot read the admission policies in the store; trying again");
                        logged = text;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn is_policy(event: &StoreEvent) -> bool {
    let mut kinds = ADMISSION_KINDS.into_iter();
    kinds.any(|kind| event.key.starts_with(&kind.key_prefix()))
}

fn documents(entries: &[(&'static Kind, Vec<Arc<StoreEntry>>)]) -> PolicyDocuments {
    let mut set = PolicyDocuments::default();
    let entries = (entries.iter()).flat_map(|(kind, of)| of.iter().map(move |entry| (kind, entry)));
    for (kind, entry) in entries {
        match document(kind, entry) {
            Ok(document) => set.documents.push(document),
            Err(finding) => set.findings.push(*finding),
        }
    }
    set
}

/// The object of an entry; if it cannot be read, a warning, since the others have effect.
fn document(kind: &'static Kind, entry: &StoreEntry) -> Result<PolicyDocument, Box<Finding>> {
    let origin = format!("{} in the store at {}", entry.key, entry.revision);
    match Object::decode(kind, &entry.bytes(), entry.revision) {
        Ok(object) => {
            let mut object = object.stored().clone();
            object["apiVersion"] = kind.api_version(kind.versions[0].name).into();
            object["kind"] = kind.kind.into();
            Ok(PolicyDocument { origin, object })
        }
        Err(error) => Err(Box::new(Finding {
            severity: Severity::Warning,
            origin,
            kind: kind.kind.to_owned(),
            name: String::new(),
            field: String::new(),
            message: format!("cannot be read, so it has no effect: {error}"),
            remedy: "delete it and create it again".to_owned(),
        })),
    }
}
