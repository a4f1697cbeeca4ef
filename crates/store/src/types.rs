//! What calls to a [`Store`](crate::Store) take and return.

use std::sync::Arc;

use crate::entry::StoreEntry;

/// Which state a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRevision {
    /// The newest: every write acknowledged before the call, by whichever replica. May cost a round
    /// trip.
    Newest,
    /// What this process has seen, at `Store::cached_revision`. Costs nothing and works while the
    /// store cannot be reached.
    Cached,
    /// The state right after this revision, no older than `Store::floor`.
    Exactly(u64),
}

/// What a write takes for granted of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// That there is nothing.
    Absent,
    /// That its entry is of this revision.
    At(u64),
}

impl Precondition {
    /// Whether `current` is as expected.
    pub fn holds(self, current: Option<&Arc<StoreEntry>>) -> bool {
        match (self, current) {
            (Self::Absent, None) => true,
            (Self::At(revision), Some(entry)) => entry.revision == revision,
            _ => false,
        }
    }
}

/// How a write ended.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// As asked, and durable.
    Done {
        /// The revision of the change; of a write that changed nothing, the one there was.
        revision: u64,
        /// What was there before.
        before: Option<Arc<StoreEntry>>,
        /// What is there after; `None` is a deletion.
        after: Option<Arc<StoreEntry>>,
    },
    /// Not at all: the key was not as expected, but so.
    Lost(Option<Arc<StoreEntry>>),
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// In order of their keys.
    pub entries: Vec<Arc<StoreEntry>>,
    /// Of the state that all pages of this list show.
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

/// What a store has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// How many entries there are now.
    pub entries: usize,
    /// How many changes the history has.
    pub events: usize,
    /// About how many bytes the history takes beyond the entries.
    pub history_bytes: usize,
    /// How many watches there are.
    pub watches: usize,
}

/// Whether a store works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreHealth {
    /// Nothing was read yet, and nothing failed yet.
    Unread,
    /// Reads and writes get through.
    Ready,
    /// Something does not; what was read before is still served [`ReadRevision::Cached`]. Says what, and what
    /// to do.
    Degraded(Arc<str>),
}
