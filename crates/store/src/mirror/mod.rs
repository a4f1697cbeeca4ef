//! The in-memory state from which a store serves reads and watches.
//!
//! The present state is an ordered map; earlier states are computed by undoing changes of the history. A
//! change is added only once it is durable, so readers see nothing that a crash could undo.
//!
//! One lock protects the state, held only while pointers are copied. Watches take it shared, so they do
//! not block each other.
//!
//! Not here: where changes come from, and how they become durable.

mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroUsize,
    ops::Bound,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use self::state::{State, paged};
use crate::{
    entry::{StoreEntry, StoreEvent, check_prefix},
    error::StoreError,
    history::{History, HistoryLimits},
    stored_value::Dictionaries,
    types::{ListPage, StoreHealth, StoreSize},
    usage::StoreUsage,
};
use fairgate_core::time::Time;

/// How many changes a watch scans while it holds the lock.
const SCAN: usize = 4096;
/// How many changes a watch gets at once. A single revision may have more.
const BATCH: usize = 256;
/// How many bytes of values a watch gets at once, before and after the changes. A single revision may have more. Whoever reads them
/// holds the values, also those that the history drops meanwhile.
const BATCH_BYTES: usize = 1 << 20;

/// The in-memory state of a store.
pub(crate) struct Mirror {
    state: RwLock<State>,
    /// Notifies watches and waiting reads of the newest revision.
    news: watch::Sender<u64>,
    health: ArcSwap<StoreHealth>,
    dictionaries: Dictionaries,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("revision", &self.revision())
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

impl Default for Mirror {
    fn default() -> Self {
        Self::new()
    }
}

impl Mirror {
    /// An empty mirror: reads fail until [`load`](Self::load).
    pub(crate) fn new() -> Self {
        Self {
            state: RwLock::default(),
            news: watch::Sender::new(0),
            health: ArcSwap::from_pointee(StoreHealth::Unread),
            dictionaries: Dictionaries::default(),
        }
    }

    /// Replaces the whole state: `entries` are those at `revision`, `events` the changes from `floor` to
    /// `revision` in ascending order.
    ///
    /// Unchanged entries keep their memos. Watches below `floor` end.
    pub(crate) fn load(
        &self,
        now: Time,
        mut entries: BTreeMap<Arc<str>, Arc<StoreEntry>>,
        events: impl IntoIterator<Item = Arc<StoreEvent>>,
        floor: u64,
        revision: u64,
    ) {
        let mut history = History::beginning_at(floor);
        for event in events {
            history.push(now, event);
        }
        let old = {
            let mut state = self.change();
            for (key, entry) in &mut entries {
                if let Some(known) = state.entries.get(key)
                    && known.revision == entry.revision
                {
                    entry.clone_from(known);
                }
            }
            std::mem::replace(&mut *state, State::new(entries, history, revision))
        };
        drop(old);
        self.news.send_replace(revision);
    }

    /// Applies `events` in ascending order, all newer than the present revision. All events of one
    /// revision must be in one call.
    pub(crate) fn apply(&self, now: Time, events: &[Arc<StoreEvent>]) {
        let Some(last) = events.last() else { return };
        {
            let mut state = self.change();
            debug_assert!(events.iter().all(|event| event.revision > state.revision));
            for event in events {
                state.change(event);
                state.history.push(now, event.clone());
            }
            state.revision = last.revision;
        }
        self.news.send_replace(last.revision);
    }

    /// Advances the revision without a change, after writes to keys outside the store.
    #[cfg(feature = "etcd")]
    pub(crate) fn advance(&self, revision: u64) {
        {
            let mut state = self.change();
            if revision <= state.revision {
                return;
            }
            state.revision = revision;
        }
        self.news.send_replace(revision);
    }

    /// The present entry at `key`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] before the first load.
    pub(crate) fn get(&self, key: &str) -> Result<Option<Arc<StoreEntry>>, StoreError> {
        Ok(self.loaded()?.entries.get(key).cloned())
    }

    /// The entry at `key` right after `revision`. Costs `O(changes since then)`.
    ///
    /// # Errors
    ///
    /// As [`list_at`](Self::list_at).
    pub(crate) fn get_at(
        &self,
        key: &str,
        revision: u64,
    ) -> Result<Option<Arc<StoreEntry>>, StoreError> {
        let state = self.loaded()?;
        state.reaches(revision)?;
        let mut since = state.history.after(revision);
        let undone = since.find(|event| &*event.key == key);
        Ok(match undone {
            Some(event) => event.before.clone(),
            None => state.entries.get(key).cloned(),
        })
    }

    /// The change of `key` at `revision`, if it is in the history.
    #[cfg(feature = "etcd")]
    pub(crate) fn event(&self, key: &str, revision: u64) -> Option<Arc<StoreEvent>> {
        let state = self.read();
        let mut from = state.history.after(revision.checked_sub(1)?);
        let found = from
            .by_ref()
            .take_while(|event| event.revision == revision)
            .find(|event| &*event.key == key);
        found.cloned()
    }

    /// The changes of `key` after `after`, in ascending order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] below the floor.
    #[cfg(feature = "etcd")]
    pub(crate) fn changes(
        &self,
        key: &str,
        after: u64,
    ) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        let state = self.loaded()?;
        let floor = state.history.floor();
        if after < floor {
            return Err(StoreError::Compacted {
                requested: after,
                floor,
            });
        }
        let changes = state.history.after(after);
        Ok(changes
            .filter(|event| &*event.key == key)
            .cloned()
            .collect())
    }

    /// A page of the present state. Costs `O(entries below the prefix)`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] before the first load; [`StoreError::BadKey`].
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<NonZeroUsize>,
    ) -> Result<ListPage, StoreError> {
        check_prefix(prefix)?;
        let state = self.loaded()?;
        Ok(paged(state.below(prefix, after), limit, state.revision))
    }

    /// A page of the state right after `revision`. Costs `O(entries below the prefix + changes since)`.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list); [`StoreError::Compacted`] below the floor, [`StoreError::Future`]
    /// beyond what is known.
    pub(crate) fn list_at(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<NonZeroUsize>,
        revision: u64,
    ) -> Result<ListPage, StoreError> {
        check_prefix(prefix)?;
        let state = self.loaded()?;
        state.reaches(revision)?;
        let undone = state.undone(prefix, after, revision);
        let unchanged = state
            .below(prefix, after)
            .filter(|entry| !undone.contains_key(&*entry.key));
        // Two ascending sequences without a key in common. Merged by key, they ascend too.
        let mut unchanged = unchanged.peekable();
        let mut earlier = undone.values().copied().flatten().peekable();
        let merged = std::iter::from_fn(|| match (unchanged.peek(), earlier.peek()) {
            (Some(one), Some(other)) if one.key < other.key => unchanged.next(),
            (Some(_), None) => unchanged.next(),
            _ => earlier.next(),
        });
        Ok(paged(merged, limit, revision))
    }

    /// Checks that a watch can start after the revision `after`, and returns its notifications.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] below the floor, [`StoreError::Unavailable`] before the first load,
    /// [`StoreError::BadKey`].
    pub(crate) fn subscribe(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<watch::Receiver<u64>, StoreError> {
        check_prefix(prefix)?;
        let floor = self.loaded()?.history.floor();
        if after < floor {
            return Err(StoreError::Compacted {
                requested: after,
                floor,
            });
        }
        Ok(self.news.subscribe())
    }

    /// The error of a read before the first load, with the cause if it is known.
    pub(crate) fn not_loaded(&self) -> StoreError {
        unread(&self.health())
    }

    /// Appends the changes below `prefix` after `after` to `out`. Returns the revision up to which it has
    /// scanned. Stops after some hundred changes, or some with long values, but never within a revision.
    pub(super) fn events(
        &self,
        prefix: &str,
        after: u64,
        out: &mut Vec<Arc<StoreEvent>>,
    ) -> Result<u64, StoreError> {
        let state = self.read();
        let floor = state.history.floor();
        if after < floor {
            return Err(StoreError::Compacted {
                requested: after,
                floor,
            });
        }
        let (mut read_to, mut bytes) = (after, 0);
        for (scanned, event) in state.history.after(after).enumerate() {
            let enough = out.len() >= BATCH || bytes >= BATCH_BYTES || scanned >= SCAN;
            if enough && event.revision != read_to {
                return Ok(read_to);
            }
            if event.key.starts_with(prefix) {
                out.push(event.clone());
                bytes += event.bytes();
            }
            read_to = event.revision;
        }
        // A watch may start at a future revision; its position must not go back.
        Ok(state.revision.max(after))
    }

    /// The present revision; 0 before the first load.
    pub(crate) fn revision(&self) -> u64 {
        *self.news.borrow()
    }

    /// Returns once [`revision`](Self::revision) is at least `revision`.
    pub(crate) async fn wait_for(&self, revision: u64) {
        let mut news = self.news.subscribe();
        // This cannot fail: `self` owns the sender.
        let _ = news.wait_for(|&reached| reached >= revision).await;
    }

    /// The oldest revision that can be read.
    pub(crate) fn floor(&self) -> u64 {
        self.read().history.floor()
    }

    /// The lowest floor within `limits`.
    pub(crate) fn due_floor(&self, now: Time, limits: &HistoryLimits) -> u64 {
        self.read().history.due(now, limits)
    }

    /// Whether the history exceeds `limits` in number or bytes by an eighth.
    pub(crate) fn overflows(&self, limits: &HistoryLimits) -> bool {
        self.read().history.overflows(limits)
    }

    /// Drops the changes up to `floor`. Watches that have not read them end.
    pub(crate) fn raise_floor(&self, floor: u64) {
        let dropped = self.change().history.raise(floor);
        drop(dropped);
    }

    /// Drops the memos of values that were replaced some time ago, and those of present values that
    /// nobody has used since the last call, and compresses the bytes of both.
    ///
    /// Costs `O(entries)`, with a shared lock that is released now and then, and a few microseconds for
    /// each value that was not compressed yet.
    pub(crate) fn forget_stale(&self, now: Time) {
        let (stale, plain) = self.read().history.stale(now);
        drop(stale);
        self.compress(&plain);
        let mut last: Option<Arc<str>> = None;
        loop {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (mut unused, mut plain) = (Vec::new(), Vec::new());
            let mut reached = None;
            {
                let state = self.read();
                let entries = state.entries.range::<str, _>((from, Bound::Unbounded));
                for (key, entry) in entries.take(SCAN) {
                    unused.extend(entry.memo.sweep());
                    plain.extend(entry.value.is_plain().then(|| Arc::clone(entry)));
                    reached = Some(key.clone());
                }
            }
            self.compress(&plain);
            if reached.is_none() {
                return;
            }
            last = reached;
        }
    }

    fn compress(&self, entries: &[Arc<StoreEntry>]) {
        for entry in entries {
            entry.value.compress(&entry.key, &self.dictionaries);
        }
    }

    /// The memory use, for metrics.
    pub(crate) fn size(&self) -> StoreSize {
        let state = self.read();
        let (events, history_bytes) = state.history.size();
        StoreSize {
            entries: state.entries.len(),
            events,
            history_bytes,
            watches: self.news.receiver_count(),
        }
    }

    /// What the entries below `prefix` take.
    pub(crate) fn usage(&self, prefix: &str) -> StoreUsage {
        self.read().usage.below(prefix)
    }

    /// The same for every prefix that has entries, in no order.
    pub(crate) fn usages(&self) -> Vec<(Arc<str>, StoreUsage)> {
        self.read().usage.all()
    }

    /// Whether the entry at `key`, or those below it together if it ends with `/`, have more than so many bytes.
    pub(crate) fn has_more_than(&self, bytes: usize, key: &str) -> bool {
        let state = self.read();
        if !key.ends_with('/') {
            return state
                .entries
                .get(key)
                .is_some_and(|entry| entry.length() > bytes);
        }
        let mut left = bytes;
        let mut lengths = state.below(key, None).map(|entry| entry.length());
        !lengths.all(|length| {
            let fits = length <= left;
            left = left.saturating_sub(length);
            fits
        })
    }

    /// The health last [set](Self::set_health).
    pub(crate) fn health(&self) -> StoreHealth {
        (**self.health.load()).clone()
    }

    /// Sets the health that the store reports.
    pub(crate) fn set_health(&self, health: StoreHealth) {
        self.health.store(Arc::new(health));
    }

    fn loaded(&self) -> Result<RwLockReadGuard<'_, State>, StoreError> {
        let state = self.read();
        if state.revision == 0 {
            return Err(self.not_loaded());
        }
        Ok(state)
    }

    // No code panics in the middle of a change, so a poisoned lock is still consistent.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a read before the first load.
fn unread(health: &StoreHealth) -> StoreError {
    StoreError::Unavailable(match health {
        StoreHealth::Unread
        | StoreHealth::Ready
        | StoreHealth::Impaired(_)
        | StoreHealth::ReadOnly(_) => "it was not read yet; try again".to_owned(),
        // Usually the text of another `Unavailable`: do not repeat its prefix.
        StoreHealth::Degraded(why) => why.strip_prefix(UNAVAILABLE).unwrap_or(why).to_owned(),
    })
}

/// The beginning of the message of [`StoreError::Unavailable`].
const UNAVAILABLE: &str = "the store is not available: ";
