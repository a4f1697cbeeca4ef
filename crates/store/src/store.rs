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

/// The pending result of an operation.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Versioned objects with watch. Used as `Arc<dyn Store>`.
///
/// Keys begin with `/`, prefixes begin and end with it; see `check_key`. Dropping a
/// future does not cancel a write that is in progress.
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
    /// beyond the newest, [`StoreError::BadKey`], and any failure of the store itself.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<NonZeroUsize>,
        at: ReadRevision,
    ) -> StoreFuture<'a, ListPage>;

    /// Puts `value` at `key`, or deletes it (`None`), if the key is as `expected` at that moment.
    ///
    /// A write of the stored bytes changes nothing: the outcome is [`WriteOutcome::Done`] with the present
    /// revision of the entry. So is a deletion of an absent key that is expected to be absent.
    ///
    /// # Errors
    ///
    /// After [`StoreError::Full`], [`TooLarge`](StoreError::TooLarge), [`BadKey`](StoreError::BadKey),
    /// [`Locked`](StoreError::Locked), [`Foreign`](StoreError::Foreign) and
    /// [`Denied`](StoreError::Denied) nothing was written; after any other error the write may have taken
    /// place.
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

    /// The revision of the cache, which has every change up to it; 0 before the first load.
    fn cached_revision(&self) -> u64;

    /// Waits until [`cached_revision`](Self::cached_revision) is at least `revision`. There is no timeout:
    /// the caller sets one.
    ///
    /// # Errors
    ///
    /// None at present: while a store is down, this waits.
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

    /// Drops history beyond the [`HistoryLimits`](crate::HistoryLimits). To be called periodically, for
    /// example every 10 seconds.
    ///
    /// # Errors
    ///
    /// When the new floor could not be written. The next call tries again.
    fn maintain(&self, now: Time) -> StoreFuture<'_, ()>;

    /// Whether reads and writes succeed at present.
    fn health(&self) -> StoreHealth;

    /// How much is in memory, for metrics.
    fn size(&self) -> StoreSize;

    /// Whether the entry at `key`, or those below it together if it ends with `/`, have more than so many bytes in the
    /// cache. Costs `O(entries below it)`, until there are more.
    fn has_more_than(&self, bytes: usize, key: &str) -> bool;
}
