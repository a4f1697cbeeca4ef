//! The trait that both stores implement.

use std::{num::NonZeroUsize, pin::Pin, sync::Arc};

use bytes::Bytes;

use crate::{
    entry::StoreEntry,
    error::StoreError,
    types::{ListPage, Precondition, ReadRevision, StoreHealth, StoreSize, WriteOutcome},
    watch::Watch,
};
use fairgate_core::time::Time;

/// What a store answers, later.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Versioned objects with watch. Used as `Arc<dyn Store>`.
///
/// Keys begin with `/`, prefixes begin and end with it; see [`check_key`](crate::check_key). Dropping an answer before
/// it is ready stops the waiting, not a write that is under way.
pub trait Store: Send + Sync {
    /// The entry at `key`, if there is one.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    fn get<'a>(
        &'a self,
        key: &'a str,
        at: ReadRevision,
    ) -> StoreFuture<'a, Option<Arc<StoreEntry>>>;

    /// The entries below `prefix` in order of their keys' bytes: those whose key is greater than
    /// `after`, at most `limit`. All are of one revision, which the page names.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] when `at` is below the floor, [`StoreError::Future`] when it is
    /// beyond the newest, [`StoreError::BadKey`], and whatever keeps the store from answering.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<NonZeroUsize>,
        at: ReadRevision,
    ) -> StoreFuture<'a, ListPage>;

    /// Puts `value` at `key`, or deletes it (`None`), if the key is as `expected` at that moment.
    ///
    /// Bytes equal to those stored are no change: the answer is [`WriteOutcome::Done`] with the revision
    /// that the entry has. So is deleting what is absent and expected to be.
    ///
    /// # Errors
    ///
    /// After [`StoreError::Full`], [`TooLarge`](StoreError::TooLarge), [`BadKey`](StoreError::BadKey),
    /// [`Locked`](StoreError::Locked), [`Foreign`](StoreError::Foreign) and
    /// [`Denied`](StoreError::Denied) nothing was written; after any other the write may have happened
    /// or not.
    fn write<'a>(
        &'a self,
        key: &'a str,
        expected: Precondition,
        value: Option<Bytes>,
    ) -> StoreFuture<'a, WriteOutcome>;

    /// The newest revision, linearizable: at least that of every write acknowledged before the call.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached.
    fn revision(&self) -> StoreFuture<'_, u64>;

    /// The revision up to which this process has seen everything; 0 before it has seen anything.
    fn cached_revision(&self) -> u64;

    /// Waits until [`cached_revision`](Self::cached_revision) is at least `revision`. For ever, should
    /// that never come: the caller bounds it.
    ///
    /// # Errors
    ///
    /// None at present; a store that is down is waited for.
    fn wait_for(&self, revision: u64) -> StoreFuture<'_, ()>;

    /// Every change below `prefix` with a revision greater than `after`, in order, without gaps.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] when `after` is below the floor; [`StoreError::Unavailable`] before
    /// the store was read for the first time; [`StoreError::BadKey`].
    fn watch(&self, prefix: &str, after: u64) -> Result<Watch, StoreError>;

    /// The oldest revision that can still be read, and after which a watch can still start.
    fn floor(&self) -> u64;

    /// Drops history beyond the [`HistoryLimits`](crate::HistoryLimits). To be called now and then, say every 10 seconds.
    ///
    /// # Errors
    ///
    /// When that could not be written. Nothing is lost; the next call tries again.
    fn maintain(&self, now: Time) -> StoreFuture<'_, ()>;

    /// Whether reads and writes get through.
    fn health(&self) -> StoreHealth;

    /// How much is in memory, for metrics.
    fn size(&self) -> StoreSize;
}
