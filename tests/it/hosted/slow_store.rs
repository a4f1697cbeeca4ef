//! A store and an API for tests that need a hosted API without a gateway.

use std::{
    future::ready,
    num::NonZeroUsize,
    sync::{Arc, Mutex, OnceLock},
};

use bytes::Bytes;
use fairgate_apiserver::{AdminEndpoints, AdminFuture};
use fairgate_core::time::Time;
use fairgate_store::{
    ListPage, Precondition, ReadRevision, Store, StoreEntry, StoreError, StoreFuture, StoreHealth,
    StoreSize, StoreUsage, Watch, WriteBounds, WriteOutcome, local::LocalStore,
};

/// No operator endpoints.
pub struct NoAdmin;

impl AdminEndpoints for NoAdmin {
    fn ask<'a>(&'a self, _: &'a str, _: &'a str, _: bool) -> AdminFuture<'a> {
        Box::pin(ready(None))
    }
}

/// What happens before an object is written.
pub type Meanwhile = Box<dyn Fn() -> StoreFuture<'static, ()> + Send + Sync>;

/// A local store in which something may happen before an object is written, and lists may fail.
pub struct SlowStore {
    store: LocalStore,
    pub meanwhile: OnceLock<Meanwhile>,
    /// Lists of keys with this in them fail.
    pub unlisted: Mutex<Option<&'static str>>,
}

impl SlowStore {
    pub fn new(store: LocalStore) -> Self {
        Self {
            store,
            meanwhile: OnceLock::new(),
            unlisted: Mutex::default(),
        }
    }
}

impl Store for SlowStore {
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
        if self
            .unlisted
            .lock()
            .unwrap()
            .is_some_and(|unlisted| prefix.contains(unlisted))
        {
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
            let is_object = key.contains("poddisruptionbudgets") && value.is_some();
            if let (Some(meanwhile), true) = (self.meanwhile.get(), is_object) {
                meanwhile().await?;
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
