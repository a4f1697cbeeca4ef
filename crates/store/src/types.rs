//! What calls to a [`Store`](crate::Store) take and return.

use std::sync::Arc;

use crate::entry::StoreEntry;

/// The revision at which to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRevision {
    /// The newest, linearizable: includes every write that any replica acknowledged before the call. May
    /// cost a round trip.
    Newest,
    /// The cached state, at `Store::cached_revision`. Needs no round trip, and works while the store cannot
    /// be reached.
    Cached,
    /// The state right after this revision, which is at least `Store::floor`.
    Exactly(u64),
}

/// The expected state of a key before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no entry.
    Absent,
    /// The entry has this revision.
    At(u64),
}

impl Precondition {
    /// Whether `current` is as expected.
    pub(crate) fn holds(self, current: Option<&Arc<StoreEntry>>) -> bool {
        match (self, current) {
            (Self::Absent, None) => true,
            (Self::At(revision), Some(entry)) => entry.revision == revision,
            _ => false,
        }
    }
}

/// The outcome of a write that did not fail.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// The write took place and is durable.
    Done {
        /// The revision of the change; if nothing changed, the present revision of the entry.
        revision: u64,
        /// The entry before the write.
        before: Option<Arc<StoreEntry>>,
        /// The entry after the write; `None` after a deletion.
        after: Option<Arc<StoreEntry>>,
    },
    /// The precondition did not hold and nothing was written. Holds the present entry.
    Lost(Option<Arc<StoreEntry>>),
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// The entries, ordered by key.
    pub entries: Vec<Arc<StoreEntry>>,
    /// The revision at which the page was read.
    pub revision: u64,
    /// How many entries follow the last one; 0 on the last page.
    pub remaining: u64,
}

impl ListPage {
    /// Whether another page follows.
    pub fn more(&self) -> bool {
        self.remaining > 0
    }
}

/// The memory use of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// The number of present entries.
    pub entries: usize,
    /// The number of changes in the history.
    pub events: usize,
    /// The approximate memory of the history in bytes, without the present entries.
    pub(crate) history_bytes: usize,
    /// The number of open watches.
    pub watches: usize,
}

/// Whether a store serves reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreHealth {
    /// The first load is in progress.
    Unread,
    /// Reads and writes succeed.
    Ready,
    /// Reads and writes succeed, but a further failure may end that. Holds what has failed.
    Impaired(Arc<str>),
    /// Reads and deletions succeed, and nothing can be stored. Holds the error message.
    ReadOnly(Arc<str>),
    /// Reads or writes fail; [`ReadRevision::Cached`] still works if the store was loaded before. Holds the
    /// error message.
    Degraded(Arc<str>),
}
