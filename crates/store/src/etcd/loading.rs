//! A load in progress: an earlier state of etcd, which becomes the present one by the changes since.
//!
//! The changes become the history of the mirror. It is within its limits already here, because etcd may have gigabytes of changes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{
    entry::{StoreEntry, StoreEvent},
    history::HistoryLimits,
};

/// How many revisions back the first load starts. Writes to other keys of the cluster count too.
const INITIAL_HISTORY: u64 = 10_000;

pub(super) type StateEntries = BTreeMap<Arc<str>, Arc<StoreEntry>>;

/// What was tried in sequence since the mirror was synchronised last.
#[derive(Default)]
pub(super) struct FeedAttempts {
    /// How many failed.
    pub(super) failures: u32,
    /// How many of them resumed from the last revision.
    resumes: u32,
    /// How many of them began a load.
    loads: u32,
}

impl FeedAttempts {
    /// Whether to resume from the last revision. If that fails time and again, what etcd sends first may be too long, and is
    /// loaded now and then.
    pub(super) fn may_resume(&mut self) -> bool {
        const RESUMES: u32 = 3;
        if self.resumes == RESUMES {
            self.resumes = 0;
            return false;
        }
        self.resumes += 1;
        true
    }

    /// How many revisions back a load starts. If it fails, as when etcd takes too long to find the changes, the next one starts later.
    pub(super) fn history_to_load(&mut self) -> u64 {
        let bits = self.loads.saturating_mul(5);
        self.loads = self.loads.saturating_add(1);
        INITIAL_HISTORY.checked_shr(bits).unwrap_or(0)
    }
}

/// A state that has not reached etcd's revision at the start of the load.
pub(super) struct Loading {
    /// The revision after which the watch started.
    pub(super) start: u64,
    pub(super) entries: StateEntries,
    /// The changes after `floor`, in ascending order.
    pub(super) events: VecDeque<Arc<StoreEvent>>,
    /// The memory of the changes in bytes.
    bytes: usize,
    pub(super) floor: u64,
    pub(super) revision: u64,
    target: u64,
}

impl Loading {
    /// Begins with the state at the revision `start`.
    pub(super) fn new(entries: StateEntries, start: u64, target: u64) -> Self {
        Self {
            start,
            entries,
            events: VecDeque::new(),
            bytes: 0,
            floor: start,
            revision: start,
            target,
        }
    }

    /// Applies changes up to `revision`, the last of which may have more. Drops the oldest revisions beyond the limits.
    pub(super) fn take(
        &mut self,
        events: Vec<Arc<StoreEvent>>,
        revision: u64,
        limits: &HistoryLimits,
    ) {
        for event in events {
            match &event.after {
                Some(entry) => self.entries.insert(event.key.clone(), entry.clone()),
                None => self.entries.remove(&event.key),
            };
            // The part of this revision that came before may have been dropped.
            if event.revision > self.floor {
                self.bytes += event.cost();
                self.events.push_back(event);
            }
            self.drop_oldest(limits);
        }
        self.revision = self.revision.max(revision);
    }

    /// Whether etcd's revision at the start is reached.
    pub(super) fn is_complete(&self) -> bool {
        self.revision >= self.target
    }

    fn drop_oldest(&mut self, limits: &HistoryLimits) {
        while let Some(oldest) = self.events.front() {
            let within = self.events.len() <= limits.events && self.bytes <= limits.bytes;
            if within && oldest.revision > self.floor {
                return;
            }
            self.floor = oldest.revision;
            self.bytes -= oldest.cost();
            self.events.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: HistoryLimits = HistoryLimits {
        age: std::time::Duration::from_secs(300),
        events: usize::MAX,
        bytes: usize::MAX,
    };

    /// A load from revision 1 with an object.
    fn loading() -> Loading {
        let entry = StoreEntry::new("/k".into(), vec![0; 1000].into(), 1);
        let entries = StateEntries::from([("/k".into(), Arc::new(entry))]);
        Loading::new(entries, 1, 100)
    }

    /// Writes the object at a revision.
    fn write(loading: &Loading, revision: u64) -> Arc<StoreEvent> {
        let before = loading.entries["/k"].clone();
        let after = StoreEntry::new("/k".into(), vec![0; 1000].into(), revision);
        let event = StoreEvent::new(revision, "/k".into(), Some(before), Some(Arc::new(after)));
        Arc::new(event)
    }

    fn revisions(loading: &Loading) -> Vec<u64> {
        loading.events.iter().map(|event| event.revision).collect()
    }

    #[test]
    fn after_failures_less_history_is_loaded_and_a_watch_that_cannot_resume_becomes_a_load() {
        let mut attempts = FeedAttempts::default();
        let starts = [(); 4].map(|()| attempts.history_to_load());
        assert_eq!(starts, [INITIAL_HISTORY, INITIAL_HISTORY / 32, 9, 0]);
        attempts.loads = u32::MAX;
        assert_eq!(attempts.history_to_load(), 0);
        let resumes = [(); 5].map(|()| attempts.may_resume());
        assert_eq!(resumes, [true, true, true, false, true]);
    }

    #[test]
    fn history_beyond_the_bytes_is_dropped_while_it_is_loaded() {
        let bytes = 5 * write(&loading(), 2).cost();
        let limits = HistoryLimits { bytes, ..WIDE };
        let mut loading = loading();
        for revision in 2..=100 {
            assert!(!loading.is_complete());
            let event = write(&loading, revision);
            loading.take(vec![event], revision, &limits);
            assert!(loading.bytes <= bytes, "{revision}: {}", loading.bytes);
        }
        assert!(loading.is_complete());
        assert_eq!(revisions(&loading), [96, 97, 98, 99, 100]);
        assert_eq!((loading.floor, loading.start), (95, 1));
        assert_eq!(loading.entries["/k"].revision, 100);
    }

    #[test]
    fn history_beyond_the_number_is_dropped_in_whole_revisions_also_if_they_come_in_parts() {
        let limits = HistoryLimits { events: 3, ..WIDE };
        let mut loading = loading();
        for part in [&[2][..], &[3, 4, 4], &[4, 4], &[4], &[5, 6]] {
            let events = part.iter().map(|&revision| write(&loading, revision));
            let events = events.collect();
            loading.take(events, *part.last().unwrap(), &limits);
        }
        assert_eq!((revisions(&loading), loading.floor), (vec![5, 6], 4));
        let limits = HistoryLimits { events: 0, ..WIDE };
        let event = write(&loading, 7);
        loading.take(vec![event], 7, &limits);
        assert_eq!((revisions(&loading), loading.floor), (vec![], 7));
        assert_eq!((loading.bytes, loading.revision), (0, 7));
    }
}
