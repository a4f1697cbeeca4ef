//! The UIDs of the namespaces in which hosted objects were created.
//!
//! The key of an object contains the name of its namespace, and a namespace that is deleted and created again has the same
//! name. So the store also has a record of the UID of each namespace in which an object was created. If the current
//! namespace has another UID, the objects are deleted before the new UID is recorded; so all objects belong to the
//! namespace whose UID is recorded. Writes are conditional, so that several gateways that share a store can do this at the
//! same time without deleting a new object. Whoever creates an object reads the record again afterwards: an object that was
//! stored after its namespace was cleaned up is deleted by the one who created it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use fairgate_store::{Precondition, ReadRevision, StoreEntry, StoreError, WriteOutcome};

use crate::{namespaces::NamespaceState, state::ApiState};

/// The prefix of the records, followed by the name of the namespace. No API group is called `fairgate.dev`.
const PREFIX: &str = "/fairgate.dev/namespaces/";

/// How often the record and the objects are read again when another gateway has changed them meanwhile.
const TRIES: usize = 20;

/// The content of the store for one namespace, at one revision.
pub(crate) struct NamespaceContents {
    /// The record; `None` if no object was ever created there, or by a version without records.
    record: Option<Arc<StoreEntry>>,
    /// All objects.
    objects: Vec<Arc<StoreEntry>>,
}

impl NamespaceContents {
    /// Whether there is neither an object nor a record.
    pub(crate) fn is_empty(&self) -> bool {
        self.record.is_none() && self.objects.is_empty()
    }

    /// Whether the objects were created in the namespace with this UID; `None` if that is not known.
    fn are_of(&self, uid: &str) -> Option<bool> {
        let record = self.record.as_ref()?;
        Some(record.bytes() == uid.as_bytes())
    }

    fn expected(&self) -> Precondition {
        match &self.record {
            Some(record) => Precondition::At(record.revision),
            None => Precondition::Absent,
        }
    }
}

impl ApiState {
    /// Prepares the creation of an object in the namespace with this UID: deletes the objects of an earlier namespace
    /// of the same name, and records the UID. Usually it is recorded already, which takes one read from memory. Returns
    /// `false` if it lost the race against other writers each time, or the namespace is another one by now.
    pub(crate) async fn enter_namespace(
        &self,
        namespace: &str,
        uid: &str,
    ) -> Result<bool, StoreError> {
        let key = record_key(namespace);
        let known = self.store.get(&key, ReadRevision::Cached).await?;
        if known.is_some_and(|record| record.bytes() == uid.as_bytes()) {
            return Ok(true);
        }
        for _ in 0..TRIES {
            let contents = self.namespace_contents(namespace).await?;
            // Read after the objects: if this is the namespace by now, all of them are older than it. An older reading could be of
            // the namespace before theirs.
            if contents.are_of(uid) == Some(false) && !self.is_namespace(namespace, uid).await {
                return Ok(false);
            }
            if self
                .settle_namespace(namespace, &contents, Some(uid))
                .await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the namespace is active and has this UID now. `false` if that cannot be found out.
    async fn is_namespace(&self, namespace: &str, uid: &str) -> bool {
        let Some(namespaces) = &self.namespaces else {
            return false;
        };
        let state = namespaces.state(namespace).await;
        state.is_ok_and(|state| matches!(state, NamespaceState::Active { uid: now } if now == uid))
    }

    /// Whether the recorded UID of the namespace is this one, by a linearizable read.
    pub(crate) async fn namespace_is(
        &self,
        namespace: &str,
        uid: &str,
    ) -> Result<bool, StoreError> {
        let key = record_key(namespace);
        let record = self.store.get(&key, ReadRevision::Newest).await?;
        Ok(record.is_some_and(|record| record.bytes() == uid.as_bytes()))
    }

    /// Deletes the objects of an earlier namespace, and records the UID of the current one. `uid` is `None` if there is no
    /// namespace of this name any more. Returns `false` if the record or an object has changed since `contents` was read.
    pub(crate) async fn settle_namespace(
        &self,
        namespace: &str,
        contents: &NamespaceContents,
        uid: Option<&str>,
    ) -> Result<bool, StoreError> {
        let are_current = match uid {
            Some(uid) => contents.are_of(uid),
            None => Some(false),
        };
        if are_current == Some(true) {
            return Ok(true);
        }
        // Without a record, the objects were created by a version of fairgate that kept no records: they stay.
        let are_outdated = are_current == Some(false);
        if are_outdated && !self.delete_contents(contents).await? {
            return Ok(false);
        }
        let recorded = self.record(namespace, contents, uid).await?;
        let deleted = contents.objects.len();
        if recorded && are_outdated && deleted > 0 {
            tracing::info!(%namespace, deleted, "deleted the hosted objects of a deleted namespace");
        }
        Ok(recorded)
    }

    /// The objects and the record of a namespace, by a linearizable read.
    pub(crate) async fn namespace_contents(
        &self,
        namespace: &str,
    ) -> Result<NamespaceContents, StoreError> {
        let mut at = ReadRevision::Newest;
        let mut objects = Vec::new();
        for kind in self.kinds.iter().filter(|kind| kind.namespaced) {
            let prefix = format!("{}{namespace}/", kind.key_prefix());
            let page = self.store.list(&prefix, None, None, at).await?;
            at = ReadRevision::Exactly(page.revision);
            objects.extend(page.entries);
        }
        let record = self.store.get(&record_key(namespace), at).await?;
        Ok(NamespaceContents { record, objects })
    }

    /// Deletes the objects on condition that they have not changed; returns `false` if one has. Finalizers do not delay
    /// this: they apply only while the namespace exists.
    async fn delete_contents(&self, contents: &NamespaceContents) -> Result<bool, StoreError> {
        let mut all = true;
        for object in &contents.objects {
            let expected = Precondition::At(object.revision);
            let outcome = self.store.write(&object.key, expected, None).await?;
            // One that is gone is as good as deleted.
            all &= !matches!(outcome, WriteOutcome::Lost(Some(_)));
        }
        Ok(all)
    }

    /// Replaces or deletes the record that was read with `contents`; `false` if it has changed since.
    async fn record(
        &self,
        namespace: &str,
        contents: &NamespaceContents,
        uid: Option<&str>,
    ) -> Result<bool, StoreError> {
        let uid = uid.map(|uid| Bytes::copy_from_slice(uid.as_bytes()));
        let key = record_key(namespace);
        let outcome = self.store.write(&key, contents.expected(), uid).await?;
        Ok(matches!(outcome, WriteOutcome::Done { .. }))
    }

    /// The namespaces of which the store has objects or a record, with the recorded UID. Reads the cache.
    pub(crate) async fn namespaces_in_use(
        &self,
    ) -> Result<BTreeMap<String, Option<String>>, StoreError> {
        let page = self
            .store
            .list(PREFIX, None, None, ReadRevision::Cached)
            .await?;
        let uid = |entry: &StoreEntry| String::from_utf8(entry.bytes().into()).ok();
        let mut all: BTreeMap<_, _> = page
            .entries
            .iter()
            .filter_map(|entry| Some((entry.key.strip_prefix(PREFIX)?.to_owned(), uid(entry))))
            .collect();
        // A version without records may have created objects, too.
        for kind in self.kinds.iter().filter(|kind| kind.namespaced) {
            let prefix = kind.key_prefix();
            let store = &self.store;
            let page = store
                .list(&prefix, None, None, ReadRevision::Cached)
                .await?;
            let names = page.entries.iter().filter_map(|entry| {
                let (namespace, _) = entry.key.strip_prefix(&prefix)?.split_once('/')?;
                Some(namespace)
            });
            for namespace in names.collect::<BTreeSet<_>>() {
                if !all.contains_key(namespace) {
                    all.insert(namespace.to_owned(), None);
                }
            }
        }
        Ok(all)
    }
}

fn record_key(namespace: &str) -> String {
    format!("{PREFIX}{namespace}")
}
