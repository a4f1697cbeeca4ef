//! Versioned objects with watch: what a hosted API keeps its objects in.
//!
//! A [`Store`] maps keys such as `/flowschemas/catch-all` to opaque bytes under one revision counter.
//! Every change gets the next revision; writes compare and swap; reads see the newest state, what is
//! in memory, or any revision still in the history; a [`Watch`] tells of every change in order.
//!
//! Two stores keep the same promises, and one set of tests holds both to them: [`local`], a file, and
//! `etcd` (feature `etcd`), which several replicas share. Both serve reads and watches from a
//! `mirror`, the same state in memory.
//!
//! Promises: a revision is visible, and a write acknowledged, only once it is durable; after a crash
//! every acknowledged write is there, and one not acknowledged is there whole or not at all;
//! revisions are never reused and never go back; whoever resumes below the floor of the history is
//! told so.
//!
//! Not here: HTTP, kinds, encodings, admission. A reader may leave what it made of an entry's bytes
//! in the entry's [`Memo`], so that it is made once.

mod entry;
mod error;
mod history;
pub mod local;
mod mirror;
mod watch;

#[cfg(feature = "etcd")]
pub mod etcd;

#[cfg(test)]
mod conformance;

use std::{num::NonZeroUsize, pin::Pin, sync::Arc};

use bytes::Bytes;

pub use self::{
    entry::{Entry, Event, Memo, check_key, check_prefix},
    error::StoreError,
    history::Limits,
    watch::Watch,
};
use fairgate_core::time::Time;

/// The longest value, in bytes: what etcd takes in one request by default.
pub const MAX_VALUE_BYTES: usize = 1_572_864;

/// The longest key, in bytes. Resource, namespace and name fit three times over.
pub const MAX_KEY_BYTES: usize = 2048;

/// What a store answers, later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Versioned objects with watch. Used as `Arc<dyn Store>`.
///
/// Keys begin with `/`, prefixes begin and end with it; see [`check_key`]. Dropping an answer before
/// it is ready stops the waiting, not a write that is under way.
pub trait Store: Send + Sync {
    /// The entry at `key`, if there is one.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    fn get<'a>(&'a self, key: &'a str, at: At) -> Answer<'a, Option<Arc<Entry>>>;

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
        at: At,
    ) -> Answer<'a, Page>;

    /// Puts `value` at `key`, or deletes it (`None`), if the key is as `expected` at that moment.
    ///
    /// Bytes equal to those stored are no change: the answer is [`Written::Done`] with the revision
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
        expected: Expected,
        value: Option<Bytes>,
    ) -> Answer<'a, Written>;

    /// The newest revision, linearizable: at least that of every write acknowledged before the call.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached.
    fn revision(&self) -> Answer<'_, u64>;

    /// The revision up to which this process has seen everything; 0 before it has seen anything.
    fn cached_revision(&self) -> u64;

    /// Waits until [`cached_revision`](Self::cached_revision) is at least `revision`. For ever, should
    /// that never come: the caller bounds it.
    ///
    /// # Errors
    ///
    /// None at present; a store that is down is waited for.
    fn wait_for(&self, revision: u64) -> Answer<'_, ()>;

    /// Every change below `prefix` with a revision greater than `after`, in order, without gaps.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] when `after` is below the floor; [`StoreError::Unavailable`] before
    /// the store was read for the first time; [`StoreError::BadKey`].
    fn watch(&self, prefix: &str, after: u64) -> Result<Watch, StoreError>;

    /// The oldest revision that can still be read, and after which a watch can still start.
    fn floor(&self) -> u64;

    /// Drops history beyond the [`Limits`]. To be called now and then, say every 10 seconds.
    ///
    /// # Errors
    ///
    /// When that could not be written. Nothing is lost; the next call tries again.
    fn maintain(&self, now: Time) -> Answer<'_, ()>;

    /// Whether reads and writes get through.
    fn health(&self) -> Health;

    /// How much is in memory, for metrics.
    fn size(&self) -> Size;
}

/// Which state a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest: every write acknowledged before the call, by whichever replica. May cost a round
    /// trip.
    Newest,
    /// What this process has seen, at [`Store::cached_revision`]. Costs nothing and works while the
    /// store cannot be reached.
    Cached,
    /// The state right after this revision, no older than [`Store::floor`].
    Exactly(u64),
}

/// What a write takes for granted of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// That there is nothing.
    Absent,
    /// That its entry is of this revision.
    At(u64),
}

impl Expected {
    /// Whether `current` is as expected.
    pub fn holds(self, current: Option<&Arc<Entry>>) -> bool {
        match (self, current) {
            (Self::Absent, None) => true,
            (Self::At(revision), Some(entry)) => entry.revision == revision,
            _ => false,
        }
    }
}

/// How a write ended.
#[derive(Clone, Debug)]
pub enum Written {
    /// As asked, and durable.
    Done {
        /// The revision of the change; of a write that changed nothing, the one there was.
        revision: u64,
        /// What was there before.
        before: Option<Arc<Entry>>,
        /// What is there after; `None` is a deletion.
        after: Option<Arc<Entry>>,
    },
    /// Not at all: the key was not as expected, but so.
    Lost(Option<Arc<Entry>>),
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// In order of their keys.
    pub entries: Vec<Arc<Entry>>,
    /// Of the state that all pages of this list show.
    pub revision: u64,
    /// How many entries follow the last one; 0 on the last page.
    pub remaining: u64,
}

impl Page {
    /// Whether another page follows.
    pub fn more(&self) -> bool {
        self.remaining > 0
    }
}

/// What a store has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
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
pub enum Health {
    /// Nothing was read yet, and nothing failed yet.
    Unread,
    /// Reads and writes get through.
    Ready,
    /// Something does not; what was read before is still served [`At::Cached`]. Says what, and what
    /// to do.
    Degraded(Arc<str>),
}
