//! The store in a file, for a single process.
//!
//! All objects are in memory, in a `Mirror`; the file makes them durable. One thread writes it. Writes
//! that queue up during a commit are committed together. Each is still compared with the state at its
//! turn and gets its own revision, and none is visible before it is durable.
//!
//! The file is a redb database: copy-on-write B-trees with checksums, no log to replay, pure Rust.
//! Two-phase commit is on. It costs a second flush, but damage to acknowledged writes is an error when
//! the file is opened. With one phase, damage to the last commit looks like a crash during it, and the
//! commit would silently be undone.
//!
//! Space is allocated before it is used, and some of it is reserved, so that deletions succeed on a full disk; see `disk`.
//!
//! Checksums cannot detect that the whole file is an old copy. The revision in the lock file does.
//!
//! The history is in the file too, so a watch resumes across restarts. See `file` for the tables.
//!
//! Not here: several processes. A second one is refused; `etcd` is for that.

mod at_rest;
mod batch;
mod database;
mod disk;
mod file;
mod migration;
mod settings;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    thread,
};

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};

pub use self::{
    at_rest::{StoreAtRest, read_at_rest},
    settings::LocalSettings,
};
use self::{
    batch::{Op, PendingWrite, WriteRequest},
    disk::{Disk, SystemDisk},
    writer::WriterThread,
};
use crate::{
    entry::{StoreEntry, check_key, check_size},
    error::StoreError,
    history::HistoryLimits,
    mirror::Mirror,
    store::{Store, StoreFuture},
    types::{ListPage, Precondition, ReadRevision, StoreHealth, StoreSize, WriteOutcome},
    usage::{StoreUsage, WriteBounds},
    watch::Watch,
};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// How many writes the queue of the writer thread holds; further writes wait for room.
const QUEUE: usize = 256;

/// A store in a file.
///
/// Dropping it commits the queued writes and closes the file, which blocks.
#[derive(Debug)]
pub struct LocalStore {
    mirror: Arc<Mirror>,
    limits: HistoryLimits,
    /// `None` only while it is dropped.
    ops: Option<mpsc::Sender<Op>>,
    /// Bounds what is in `ops`.
    room: Arc<Semaphore>,
    thread: Option<thread::JoinHandle<()>>,
}

impl LocalStore {
    /// Opens or creates the file. Blocks until it was read and checked.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`], [`StoreError::Corrupt`], [`StoreError::Foreign`] for a format that is
    /// not ours, [`StoreError::Full`], [`StoreError::Io`].
    pub fn open(settings: LocalSettings, clock: Clock) -> Result<Self, StoreError> {
        Self::open_on(Arc::new(SystemDisk), settings, clock)
    }

    fn open_on(
        disk: Arc<dyn Disk>,
        settings: LocalSettings,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let (on_open, opened) = mpsc::sync_channel(1);
        let local = Self::spawn(disk, settings, clock, Some(on_open))?;
        match opened.recv() {
            Ok(result) => result.map(|()| local),
            Err(_) => Err(StoreError::Failed("its thread ended".to_owned())),
        }
    }

    /// As [`open`](Self::open), but returns at once, and tries again every second after a failure. Until
    /// it succeeds, reads and writes fail, and [`health`](Store::health) has the cause.
    ///
    /// # Errors
    ///
    /// Only when the system cannot start a thread.
    pub fn start(settings: LocalSettings, clock: Clock) -> Result<Self, StoreError> {
        Self::spawn(Arc::new(SystemDisk), settings, clock, None)
    }

    fn spawn(
        disk: Arc<dyn Disk>,
        settings: LocalSettings,
        clock: Clock,
        on_open: Option<mpsc::SyncSender<Result<(), StoreError>>>,
    ) -> Result<Self, StoreError> {
        let mirror = Arc::new(Mirror::new());
        let limits = settings.limits;
        let (ops, inbox) = mpsc::channel();
        let path = settings.path.clone();
        let mut writer = WriterThread::new(disk, settings, clock, mirror.clone());
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&inbox, on_open))
            .map_err(|source| StoreError::Io {
                path,
                doing: "starting its thread",
                source: Arc::new(source),
            })?;
        Ok(Self {
            mirror,
            limits,
            ops: Some(ops),
            room: Arc::new(Semaphore::new(QUEUE)),
            thread: Some(thread),
        })
    }

    async fn submit<T>(
        &self,
        op: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> WriteRequest,
    ) -> Result<T, StoreError> {
        let gone = || StoreError::Failed("its thread ended; restart fairgate".to_owned());
        let room = self.room.clone().acquire_owned().await;
        let room = room.map_err(|_| gone())?;
        let (reply, outcome) = oneshot::channel();
        let op = Op {
            request: op(reply),
            room,
        };
        let ops = self.ops.as_ref().ok_or_else(gone)?;
        ops.send(op).map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        self.ops = None;
        if let Some(thread) = self.thread.take() {
            // The thread catches panics of the database; any other panic was printed already.
            let _ = thread.join();
        }
    }
}

impl Store for LocalStore {
    fn get<'a>(
        &'a self,
        key: &'a str,
        at: ReadRevision,
    ) -> StoreFuture<'a, Option<Arc<StoreEntry>>> {
        Box::pin(async move {
            check_key(key)?;
            match at {
                ReadRevision::Newest | ReadRevision::Cached => self.mirror.get(key),
                ReadRevision::Exactly(revision) => self.mirror.get_at(key, revision),
            }
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<NonZeroUsize>,
        at: ReadRevision,
    ) -> StoreFuture<'a, ListPage> {
        Box::pin(async move {
            match at {
                ReadRevision::Newest | ReadRevision::Cached => {
                    self.mirror.list(prefix, after, limit)
                }
                ReadRevision::Exactly(revision) => {
                    self.mirror.list_at(prefix, after, limit, revision)
                }
            }
        })
    }

    fn write_within<'a>(
        &'a self,
        key: &'a str,
        expected: Precondition,
        value: Option<Bytes>,
        bounds: WriteBounds,
    ) -> StoreFuture<'a, WriteOutcome> {
        Box::pin(async move {
            check_key(key)?;
            check_size(key, value.as_ref())?;
            let key = Arc::from(key);
            self.submit(|reply| {
                WriteRequest::Write(PendingWrite {
                    key,
                    expected,
                    value,
                    bounds,
                    reply,
                })
            })
            .await
        })
    }

    fn revision(&self) -> StoreFuture<'_, u64> {
        // There is no other writer, and a write is in the mirror before it is acknowledged.
        Box::pin(async move {
            match self.mirror.revision() {
                0 => Err(self.mirror.not_loaded()),
                revision => Ok(revision),
            }
        })
    }

    fn cached_revision(&self) -> u64 {
        self.mirror.revision()
    }

    fn wait_for(&self, revision: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.mirror.wait_for(revision).await;
            Ok(())
        })
    }

    fn watch(&self, prefix: &str, after: u64) -> Result<Watch, StoreError> {
        Watch::new(&self.mirror, prefix, after)
    }

    fn floor(&self) -> u64 {
        self.mirror.floor()
    }

    fn maintain(&self, now: Time) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.mirror.forget_stale(now);
            let floor = self.mirror.due_floor(now, &self.limits);
            if floor <= self.mirror.floor() {
                return Ok(());
            }
            self.submit(|reply| WriteRequest::Raise { floor, reply })
                .await
        })
    }

    fn health(&self) -> StoreHealth {
        self.mirror.health()
    }

    fn size(&self) -> StoreSize {
        self.mirror.size()
    }

    fn usage(&self, prefix: &str) -> StoreUsage {
        self.mirror.usage(prefix)
    }

    fn usages(&self) -> Vec<(Arc<str>, StoreUsage)> {
        self.mirror.usages()
    }

    fn has_more_than(&self, bytes: usize, key: &str) -> bool {
        self.mirror.has_more_than(bytes, key)
    }
}
