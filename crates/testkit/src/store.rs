//! A store in a file that does what a test wants meanwhile, and may fail to list.

use std::{
    fs,
    future::ready,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use fairgate_core::time::Time;
use fairgate_store::{
    ListPage, Precondition, ReadRevision, Store, StoreEntry, StoreError, StoreFuture, StoreHealth,
    StoreSize, StoreUsage, Watch, WriteBounds, WriteOutcome, local::LocalStore,
};

/// What happens before an object is written.
pub type Meanwhile = Box<dyn Fn() -> StoreFuture<'static, ()> + Send + Sync>;

/// A local store in which something may happen before an object is written, and lists may fail although it says that it is well.
pub struct TestStore {
    store: LocalStore,
    /// Is removed in the end.
    directory: Option<PathBuf>,
    /// Happens before a key with the text is written, not before one is deleted.
    pub before_writes: OnceLock<(&'static str, Meanwhile)>,
    /// Lists of prefixes with this in them fail.
    unlisted: Mutex<Option<&'static str>>,
    lists: AtomicUsize,
    is_full: AtomicBool,
}

impl TestStore {
    /// A store that does what this one does.
    pub fn new(store: LocalStore) -> Self {
        Self::with(store, None)
    }

    /// The same; removes the directory of its file when it is dropped.
    pub fn in_directory(store: LocalStore, directory: PathBuf) -> Self {
        Self::with(store, Some(directory))
    }

    fn with(store: LocalStore, directory: Option<PathBuf>) -> Self {
        Self {
            store,
            directory,
            before_writes: OnceLock::new(),
            unlisted: Mutex::default(),
            lists: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    /// From now on lists of prefixes with this text in them fail; none, if there is none.
    pub fn refuse_lists(&self, text: Option<&'static str>) {
        *self.unlisted.lock().unwrap() = text;
    }

    /// From now on writes of values fail as on a full disk, except essential ones.
    pub fn fill_disk(&self) {
        self.is_full.store(true, Ordering::SeqCst);
    }

    /// How many lists were asked for.
    pub fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

impl Store for TestStore {
    fn get<'a>(
        &'a self,
        key: &'a str,
        at: ReadRevision,
    ) -> StoreFuture<'a, Option<Arc<StoreEntry>>> {
        self.store.get(key, at)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<NonZeroUsize>,
        at: ReadRevision,
    ) -> StoreFuture<'a, ListPage> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        let unlisted = *self.unlisted.lock().unwrap();
        if unlisted.is_some_and(|unlisted| prefix.contains(unlisted)) {
            return Box::pin(ready(Err(StoreError::Failed("it is away".to_owned()))));
        }
        self.store.list(prefix, after, limit, at)
    }

    fn write_within<'a>(
        &'a self,
        key: &'a str,
        expected: Precondition,
        value: Option<Bytes>,
        bounds: WriteBounds,
    ) -> StoreFuture<'a, WriteOutcome> {
        Box::pin(async move {
            if let Some((text, meanwhile)) = self.before_writes.get()
                && value.is_some()
                && key.contains(text)
            {
                meanwhile().await?;
            }
            if value.is_some() && !bounds.is_essential && self.is_full.load(Ordering::SeqCst) {
                let place = "/data".to_owned();
                return Err(StoreError::Full { place });
            }
            self.store.write_within(key, expected, value, bounds).await
        })
    }

    fn revision(&self) -> StoreFuture<'_, u64> {
        self.store.revision()
    }

    fn cached_revision(&self) -> u64 {
        self.store.cached_revision()
    }

    fn wait_for(&self, revision: u64) -> StoreFuture<'_, ()> {
        self.store.wait_for(revision)
    }

    fn watch(&self, prefix: &str, after: u64) -> Result<Watch, StoreError> {
        self.store.watch(prefix, after)
    }

    fn floor(&self) -> u64 {
        self.store.floor()
    }

    fn maintain(&self, now: Time) -> StoreFuture<'_, ()> {
        self.store.maintain(now)
    }

    fn health(&self) -> StoreHealth {
        self.store.health()
    }

    fn members_away(&self) -> usize {
        self.store.members_away()
    }

    fn size(&self) -> StoreSize {
        self.store.size()
    }

    fn usage(&self, prefix: &str) -> StoreUsage {
        self.store.usage(prefix)
    }

    fn usages(&self) -> Vec<(Arc<str>, StoreUsage)> {
        self.store.usages()
    }

    fn has_more_than(&self, bytes: usize, key: &str) -> bool {
        self.store.has_more_than(bytes, key)
    }
}
