//! Which objects have changed since a reconciler last processed them.
//!
//! Objects are listed once and then followed by watch, so that a change among many objects costs the
//! work for one. The objects themselves are not kept: most are not read again.

use std::{collections::BTreeSet, fmt, sync::Arc};

use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::{ReadRevision, Store, StoreError, Watch};

/// The keys of objects that remain to be processed.
pub(super) struct ChangedObjects {
    store: Arc<dyn Store>,
    kinds: Vec<&'static Kind>,
    /// `None` until the objects were listed, and after the watch fell behind.
    watch: Option<Watch>,
    /// In the order of keys, each with the number of its kind.
    pending: BTreeSet<(usize, Arc<str>)>,
}

impl fmt::Debug for ChangedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangedObjects")
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

/// An object to be processed.
pub(super) struct ChangedObject {
    pub(super) kind: &'static Kind,
    pub(super) name: String,
    /// As it is now, in its stored version; `None` if it was deleted or cannot be read.
    pub(super) object: Option<Object>,
    id: (usize, Arc<str>),
}

impl ChangedObjects {
    /// Starts with all objects of these kinds; later changes follow.
    pub(super) fn new(store: Arc<dyn Store>, kinds: Vec<&'static Kind>) -> Self {
        Self {
            store,
            kinds,
            watch: None,
            pending: BTreeSet::new(),
        }
    }

    /// Records what has changed since the last call. The first call lists all objects, and so does one after the watch
    /// fell behind; any other costs `O(changes)`. Returns whether it listed them: objects that were deleted before are
    /// not recorded then.
    ///
    /// # Errors
    ///
    /// [`StoreError`], if the objects have to be listed. The next call lists them again.
    pub(super) async fn collect(&mut self) -> Result<bool, StoreError> {
        loop {
            let Some(watch) = &mut self.watch else {
                self.list().await?;
                return Ok(true);
            };
            match watch.ready() {
                Ok(events) if events.is_empty() => return Ok(false),
                Ok(events) => events.iter().for_each(|event| self.note(&event.key)),
                Err(_) => self.watch = None,
            }
        }
    }

    async fn list(&mut self) -> Result<(), StoreError> {
        let mut at = ReadRevision::Cached;
        let mut watch = None;
        for (number, kind) in self.kinds.iter().enumerate() {
            let page = self.store.list(&kind.key_prefix(), None, None, at).await?;
            at = ReadRevision::Exactly(page.revision);
            if watch.is_none() {
                watch = Some(self.store.watch("/", page.revision)?);
            }
            let keys = page.entries.iter().map(|entry| Arc::clone(&entry.key));
            self.pending.extend(keys.map(|key| (number, key)));
        }
        // Only once all kinds are listed: the watch shows no earlier changes.
        self.watch = watch;
        Ok(())
    }

    /// Records that the object at `key` has to be processed, if it is of one of the kinds.
    fn note(&mut self, key: &Arc<str>) {
        let kinds = &mut self.kinds.iter();
        if let Some(number) = kinds.position(|kind| key.starts_with(&kind.key_prefix())) {
            self.pending.insert((number, Arc::clone(key)));
        }
    }

    /// Records that an object has to be processed although it has not changed.
    pub(super) fn add(&mut self, kind: &Kind, name: &str) {
        self.note(&format!("{}{name}", kind.key_prefix()).into());
    }

    /// The first object to be processed after `last`, objects of the first kind first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub(super) async fn next(
        &self,
        last: Option<&ChangedObject>,
    ) -> Result<Option<ChangedObject>, StoreError> {
        let next = match last {
            None => self.pending.first(),
            Some(last) => {
                let mut rest = self.pending.range(last.id.clone()..);
                rest.find(|id| **id != last.id)
            }
        };
        let Some(id) = next else { return Ok(None) };
        let kind = self.kinds[id.0];
        let entry = self.store.get(&id.1, ReadRevision::Cached).await?;
        let object = entry.and_then(|entry| {
            // The entry's memo is not used: it would keep a value that is needed only once.
            match Object::decode(kind, &entry.bytes(), entry.revision) {
                Ok(object) => Some(object),
                Err(error) => {
                    tracing::warn!(key = %entry.key, %error, "skipping an object that cannot be read");
                    None
                }
            }
        });
        Ok(Some(ChangedObject {
            kind,
            name: id.1[kind.key_prefix().len()..].to_owned(),
            object,
            id: id.clone(),
        }))
    }

    /// Records that `object` was processed.
    pub(super) fn done(&mut self, object: &ChangedObject) {
        self.pending.remove(&object.id);
    }
}
