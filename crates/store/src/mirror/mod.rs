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
};
use fairgate_core::time::Time;

/// How many changes a watch scans while it holds the lock.
const SCAN: usize = 4096;
/// How many changes a watch gets at once. A single revision may have more.
const BATCH: usize = 256;

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
        events: Vec<Arc<StoreEvent>>,
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
            std::mem::replace(
                &mut *state,
                State {
                    entries,
                    history,
                    revision,
                },
            )
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
                match &event.after {
                    Some(entry) => state.entries.insert(entry.key.clone(), entry.clone()),
                    None => state.entries.remove(&event.key),
                };
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
    /// scanned. Stops after some hundred changes, but never within a revision.
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
        let mut read_to = after;
        for (scanned, event) in state.history.after(after).enumerate() {
            let enough = out.len() >= BATCH || scanned >= SCAN;
            if enough && event.revision != read_to {
                return Ok(read_to);
            }
            if event.key.starts_with(prefix) {
                out.push(event.clone());
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
        StoreHealth::Unread | StoreHealth::Ready => "it was not read yet; try again".to_owned(),
        // Usually the text of another `Unavailable`: do not repeat its prefix.
        StoreHealth::Degraded(why) => why.strip_prefix(UNAVAILABLE).unwrap_or(why).to_owned(),
    })
}

/// The beginning of the message of [`StoreError::Unavailable`].
const UNAVAILABLE: &str = "the store is not available: ";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::watch::Watch;

    /// A mirror at revision 1 with nothing in it.
    fn empty() -> Arc<Mirror> {
        let mirror = Mirror::new();
        mirror.load(Time::ZERO, BTreeMap::new(), Vec::new(), 1, 1);
        Arc::new(mirror)
    }

    /// Puts or deletes `key`.
    fn change(mirror: &Mirror, revision: u64, key: &str, put: bool) -> Arc<StoreEvent> {
        let key: Arc<str> = key.into();
        let before = mirror.get(&key).unwrap();
        let value = Bytes::from(revision.to_string());
        let after = put.then(|| Arc::new(StoreEntry::new(key.clone(), value, revision)));
        Arc::new(StoreEvent::new(revision, key, before, after))
    }

    fn shown(page: &ListPage) -> Vec<(Arc<str>, u64)> {
        let entries = page.entries.iter();
        entries.map(|e| (e.key.clone(), e.revision)).collect()
    }

    #[test]
    fn unused_memos_are_dropped() {
        let mirror = empty();
        let keys: Vec<String> = (0..SCAN + 10).map(|i| format!("/a/{i}")).collect();
        for (revision, key) in (2..).zip(&keys) {
            mirror.apply(Time::ZERO, &[change(&mirror, revision, key, true)]);
            let entry = mirror.get(key).unwrap().unwrap();
            entry.memo.get_or_make(|| 7_u32);
        }
        let memo = |key: &str| {
            let entry = mirror.get(key).unwrap().unwrap();
            entry.memo.get::<u32>().as_deref().copied()
        };
        mirror.forget_stale(Time::ZERO);
        let used = &keys[keys.len() / 2];
        assert_eq!(memo(used), Some(7));
        mirror.forget_stale(Time::ZERO);
        let left = keys.iter().filter(|key| memo(key).is_some());
        assert_eq!(left.collect::<Vec<_>>(), [used]);
    }

    /// Counted twin of `tests/memory.rs`, which measures a whole gateway.
    #[test]
    fn after_maintenance_an_entry_takes_less_memory_than_its_text() {
        const ENTRIES: u64 = 2000;
        let mirror = empty();
        let text = |n: u64| format!("{{\"name\":\"tenant-{n}\",{}}}", "described. ".repeat(85));
        let counted = allocation_counter::measure(|| {
            for revision in 2..ENTRIES + 2 {
                let key: Arc<str> = format!("/g/schemas/tenant-{revision:05}").into();
                let value = Bytes::from(text(revision));
                let after = Arc::new(StoreEntry::new(key.clone(), value, revision));
                // What a reader decodes of an entry takes many times its text.
                after.memo.get_or_make(|| vec![0_u8; 16 << 10]);
                let event = StoreEvent::new(revision, key, None, Some(after));
                mirror.apply(Time::ZERO, &[Arc::new(event)]);
            }
            for round in 1..=2 {
                mirror.forget_stale(Time::ZERO.plus(Duration::from_secs(11 * round)));
            }
        });
        let each = counted.bytes_current / i64::try_from(ENTRIES).unwrap();
        let least = i64::try_from(text(0).len()).unwrap();
        assert!(each < least, "{each} bytes for an entry of {least}");
    }

    #[test]
    fn maintenance_compresses_present_and_replaced_values_which_then_read_the_same() {
        let mirror = empty();
        let text = |revision: u64| format!("{revision}: {}", "the same text. ".repeat(60));
        for (revision, key) in (2..).zip(["/g/a/x", "/g/a/y", "/g/a/x"]) {
            let before = mirror.get(key).unwrap();
            let after = StoreEntry::new(key.into(), text(revision).into(), revision);
            let event = StoreEvent::new(revision, key.into(), before, Some(Arc::new(after)));
            mirror.apply(Time::ZERO, &[Arc::new(event)]);
        }
        let all = || {
            let now = mirror.list("/g/", None, None).unwrap();
            let then = mirror.list_at("/g/", None, None, 3).unwrap();
            [now.entries, then.entries].concat()
        };
        assert!(all().iter().all(|entry| entry.value.is_plain()));
        mirror.forget_stale(Time::ZERO.plus(Duration::from_secs(60)));
        assert!(!all().iter().any(|entry| entry.value.is_plain()));
        let texts: Vec<_> = all().iter().map(|entry| entry.bytes()).collect();
        assert_eq!(texts, [4, 3, 2, 3].map(text));
    }

    #[test]
    fn every_page_of_every_revision_is_as_it_was_then() {
        let mirror = empty();
        let mut past = vec![];
        let mut draw = 12_345_u32;
        for revision in 2..120 {
            draw = draw.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let key = format!("/a/{}", (draw >> 16) % 12);
            let put = mirror.get(&key).unwrap().is_none() || (draw >> 8).is_multiple_of(3);
            mirror.apply(Time::ZERO, &[change(&mirror, revision, &key, put)]);
            past.push(mirror.list("/a/", None, None).unwrap());
        }
        for then in &past {
            let limit = NonZeroUsize::new(5);
            let mut after: Option<Arc<str>> = None;
            let mut read = Vec::new();
            loop {
                let page = mirror
                    .list_at("/a/", after.as_deref(), limit, then.revision)
                    .unwrap();
                read.extend(shown(&page));
                assert_eq!(
                    read.len() as u64 + page.remaining,
                    then.entries.len() as u64
                );
                if !page.more() {
                    break;
                }
                after = page.entries.last().map(|entry| entry.key.clone());
            }
            assert_eq!(read, shown(then));
            for n in 0..12 {
                let key = format!("/a/{n}");
                let got = mirror.get_at(&key, then.revision).unwrap();
                let listed = then.entries.iter().find(|entry| *entry.key == *key);
                assert_eq!(got.map(|e| e.revision), listed.map(|e| e.revision));
            }
        }
    }

    #[test]
    fn a_watch_gets_the_changes_of_one_revision_together() {
        let mirror = empty();
        let mut watch = Watch::new(&mirror, "/a/", 1).unwrap();
        let many = BATCH + 10;
        let events: Vec<_> = (0..many)
            .map(|n| change(&mirror, 2, &format!("/a/{n:04}"), true))
            .collect();
        mirror.apply(Time::ZERO, &events);
        mirror.apply(Time::ZERO, &[change(&mirror, 3, "/a/x", true)]);
        assert_eq!(watch.ready().unwrap().len(), many);
        assert_eq!(watch.progress(), 2);
        assert_eq!(watch.ready().unwrap().len(), 1);
    }

    #[test]
    fn a_watch_skips_more_foreign_changes_than_one_scan_covers() {
        let mirror = empty();
        let mut watch = Watch::new(&mirror, "/a/", 1).unwrap();
        let foreign = SCAN as u64 * 2;
        for revision in 2..2 + foreign {
            mirror.apply(Time::ZERO, &[change(&mirror, revision, "/b/x", true)]);
        }
        let last = 2 + foreign;
        mirror.apply(Time::ZERO, &[change(&mirror, last, "/a/x", true)]);
        let events = watch.ready().unwrap();
        assert_eq!((events.len(), events[0].revision), (1, last));
        assert_eq!(watch.progress(), last);
    }

    #[test]
    fn loading_again_keeps_unchanged_entries() {
        let mirror = empty();
        mirror.apply(Time::ZERO, &[change(&mirror, 2, "/a", true)]);
        let known = mirror.get("/a").unwrap().unwrap();
        let again = Arc::new(StoreEntry::new("/a".into(), known.bytes(), 2));
        let new = Arc::new(StoreEntry::new("/b".into(), Bytes::new(), 9));
        let entries = [again, new].map(|entry| (entry.key.clone(), entry));
        let mut watch = Watch::new(&mirror, "/", 2).unwrap();
        mirror.load(Time::ZERO, entries.into(), Vec::new(), 9, 9);
        assert!(Arc::ptr_eq(&mirror.get("/a").unwrap().unwrap(), &known));
        assert!(matches!(
            watch.ready(),
            Err(StoreError::Compacted {
                requested: 2,
                floor: 9
            })
        ));
        assert_eq!(mirror.size().entries, 2);
        assert_eq!(mirror.size().watches, 1);
    }

    #[test]
    fn reads_before_the_first_load_report_why_they_fail() {
        let mirror = Arc::new(Mirror::new());
        mirror.set_health(StoreHealth::Degraded("the disk is gone".into()));
        let reported = mirror.list("/", None, None).unwrap_err().to_string();
        assert!(reported.contains("the disk is gone"), "{reported}");
        assert!(Watch::new(&mirror, "/", 0).is_err());
        assert_eq!(mirror.revision(), 0);
    }

    #[test]
    fn an_error_that_was_the_health_of_the_store_is_not_prefixed_twice() {
        let error = StoreError::Unavailable("etcd does not answer".to_owned());
        let health = StoreHealth::Degraded(error.to_string().into());
        let again = unread(&health);
        assert_eq!(again.to_string(), error.to_string());
        let other = unread(&StoreHealth::Degraded("damaged".into()));
        assert_eq!(other.to_string(), format!("{UNAVAILABLE}damaged"));
    }
}
