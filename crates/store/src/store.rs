//! The trait that both stores implement.

use std::{num::NonZeroUsize, pin::Pin, sync::Arc};

use bytes::Bytes;

use crate::{
    entry::StoreEntry,
    error::StoreError,
    types::{ListPage, Precondition, ReadRevision, StoreHealth, StoreSize, WriteOutcome},
    usage::{StoreUsage, UsageChange, WriteBounds},
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
    ) -> StoreFuture<'a, WriteOutcome> {
        self.write_within(key, expected, value, WriteBounds::default())
    }

    /// As [`write`](Self::write), unless the write would exceed one of the limits in `bounds`. Of what is over a limit already, only
    /// growth is refused. Costs `O(limits)`, whatever is stored.
    ///
    /// A local store decides this at the write's turn, so concurrent writes never exceed a limit together. Stores that
    /// share an etcd compare with what their watches have delivered, and with their own writes in progress: while `n` of
    /// them write at once, each may use up what it sees as free, so at most `n` times that is added before all have seen
    /// the writes of the others.
    ///
    /// # Errors
    ///
    /// [`StoreError::OverLimit`], after which nothing was written, and those of [`write`](Self::write).
    fn write_within<'a>(
        &'a self,
        key: &'a str,
        expected: Precondition,
        value: Option<Bytes>,
        bounds: WriteBounds,
    ) -> StoreFuture<'a, WriteOutcome>;

    /// Whether a write that changes the length of a value would be within its bounds at present. For writes that do not
    /// take place: [`write_within`](Self::write_within) checks the others itself.
    ///
    /// # Errors
    ///
    /// [`StoreError::OverLimit`].
    fn check(
        &self,
        bounds: &WriteBounds,
        before: Option<usize>,
        after: Option<usize>,
    ) -> Result<(), StoreError> {
        let change = UsageChange::between(before, after);
        let mut limits = bounds.limits.iter();
        limits
            .try_for_each(|limit| limit.check(self.usage(&limit.prefix), change))
            .map_err(StoreError::OverLimit)
    }

    /// What the present entries below `prefix` take, in the cache. Costs `O(1)`.
    fn usage(&self, prefix: &str) -> StoreUsage;

    /// The same for every prefix that has entries, in no order. Costs `O(prefixes)`, of which there is one for each
    /// resource and namespace.
    fn usages(&self) -> Vec<(Arc<str>, StoreUsage)>;

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

    /// How many servers of the store do not answer at present.
    fn members_away(&self) -> usize {
        0
    }

    /// How much is in memory, for metrics.
    fn size(&self) -> StoreSize;

    /// Whether the entry at `key`, or those below it together if it ends with `/`, have more than so many bytes in the
    /// cache. Costs `O(entries below it)`, until there are more.
    fn has_more_than(&self, bytes: usize, key: &str) -> bool;
}
