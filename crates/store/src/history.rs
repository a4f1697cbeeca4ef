//! The latest changes, in order, for watches and for reads at an earlier revision.
//!
//! A revision may have several changes, because an etcd transaction may write several keys. They are
//! added and dropped together. The *floor* is the revision after which the history is complete.
//!
//! The history is bounded by age, number and bytes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::entry::{Made, StoreEntry, StoreEvent};
use fairgate_core::time::Time;

/// How much history is kept.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// Older changes are dropped. Clients expect 75 seconds at least.
    pub age: Duration,
    /// No more changes than this.
    pub events: usize,
    /// No more than about this many bytes of earlier values.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    /// Five minutes, 100 000 changes, 128 MiB.
    fn default() -> Self {
        Self {
            age: Duration::from_secs(300),
            events: 100_000,
            bytes: 128 << 20,
        }
    }
}

/// How long the memos of a replaced value are kept: watches that keep up have read the change by then.
const FRESH: Duration = Duration::from_secs(10);

/// The window of changes after the floor.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The time of arrival and the change, by ascending revision; all revisions are above `floor`.
    events: VecDeque<(Time, Arc<StoreEvent>)>,
    bytes: usize,
    floor: u64,
}

impl History {
    /// An empty history at `floor`.
    pub(super) fn beginning_at(floor: u64) -> Self {
        Self {
            floor,
            ..Self::default()
        }
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// The number of changes, and their approximate memory in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.events.len(), self.bytes)
    }

    /// Appends a change. Its revision is at least that of the last one.
    pub(super) fn push(&mut self, now: Time, event: Arc<StoreEvent>) {
        debug_assert!(event.revision > self.floor);
        debug_assert!(
            self.events
                .back()
                .is_none_or(|(_, last)| last.revision <= event.revision)
        );
        self.bytes += event.cost();
        self.events.push_back((now, event));
    }

    /// The changes after `revision`, oldest first. Finding the first costs `O(log n)`.
    pub(super) fn after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<StoreEvent>> {
        let first = self
            .events
            .partition_point(|(_, event)| event.revision <= revision);
        self.events.range(first..).map(|(_, event)| event)
    }

    /// The lowest floor within `limits`, but never below the present one.
    ///
    /// Costs `O(changes to drop)`; a shared lock is enough.
    pub(super) fn due(&self, now: Time, limits: &HistoryLimits) -> u64 {
        let mut left = (self.events.len(), self.bytes);
        let mut floor = self.floor;
        for (at, event) in &self.events {
            let within = left.0 <= limits.events && left.1 <= limits.bytes;
            if within && now.since(*at) <= limits.age {
                break;
            }
            left = (left.0 - 1, left.1.saturating_sub(event.cost()));
            floor = event.revision;
        }
        floor
    }

    /// Takes the memos of values that were replaced some time ago, to be dropped without a lock. A later
    /// reader derives them again. Also returns those of these entries that are not compressed yet.
    pub(super) fn stale(&self, now: Time) -> (Vec<Made>, Vec<Arc<StoreEntry>>) {
        let (mut memos, mut plain) = (Vec::new(), Vec::new());
        let past = self.events.iter();
        for (_, event) in past.take_while(|(at, _)| now.since(*at) > FRESH) {
            memos.extend(event.memo.forget());
            if let Some(before) = &event.before {
                memos.extend(before.memo.forget());
                plain.extend(before.value.is_plain().then(|| Arc::clone(before)));
            }
        }
        (memos, plain)
    }

    /// Whether the number or the bytes exceed `limits` by an eighth. The tolerance makes drops rare and
    /// large.
    pub(super) fn overflows(&self, limits: &HistoryLimits) -> bool {
        self.events.len() > limits.events.saturating_add(limits.events / 8)
            || self.bytes > limits.bytes.saturating_add(limits.bytes / 8)
    }

    /// Raises the floor. Returns the dropped changes, to be freed without a lock. A lower floor is ignored.
    pub(super) fn raise(&mut self, floor: u64) -> VecDeque<(Time, Arc<StoreEvent>)> {
        if floor <= self.floor {
            return VecDeque::new();
        }
        self.floor = floor;
        let kept = self
            .events
            .partition_point(|(_, event)| event.revision <= floor);
        let kept = self.events.split_off(kept);
        let dropped = std::mem::replace(&mut self.events, kept);
        for (_, event) in &dropped {
            self.bytes -= event.cost();
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn seconds(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    /// Revisions 2, 3, … at seconds 2, 3, ….
    fn history(last: u64) -> History {
        let mut history = History::beginning_at(1);
        for revision in 2..=last {
            let event = StoreEvent::new(revision, "/k".into(), None, None);
            history.push(seconds(revision), Arc::new(event));
        }
        history
    }

    fn revisions(history: &History, after: u64) -> Vec<u64> {
        history.after(after).map(|event| event.revision).collect()
    }

    #[test]
    fn age_number_and_bytes_each_raise_the_floor() {
        let history = history(10);
        let wide = HistoryLimits::default();
        assert_eq!(history.due(seconds(10), &wide), 1);
        let age = Duration::from_secs(4);
        assert_eq!(history.due(seconds(10), &HistoryLimits { age, ..wide }), 5);
        assert_eq!(
            history.due(seconds(10), &HistoryLimits { events: 2, ..wide }),
            8
        );
        let bytes = history.bytes / 9 * 3;
        assert_eq!(
            history.due(seconds(10), &HistoryLimits { bytes, ..wide }),
            7
        );
        assert_eq!(
            history.due(seconds(10), &HistoryLimits { events: 0, ..wide }),
            10
        );
    }

    #[test]
    fn the_floor_only_moves_up_and_takes_whole_revisions_with_it() {
        let mut history = history(5);
        let twin = StoreEvent::new(5, "/twin".into(), None, None);
        history.push(seconds(5), Arc::new(twin));
        assert_eq!(history.raise(3).len(), 2);
        assert_eq!(history.raise(2).len(), 0);
        assert_eq!(history.floor(), 3);
        assert_eq!(revisions(&history, 0), [4, 5, 5]);
        assert_eq!(revisions(&history, 4), [5, 5]);
        assert_eq!(history.raise(5).len(), 3);
        assert_eq!(history.bytes, 0);
        assert_eq!(revisions(&history, 0), [0; 0]);
    }

    #[test]
    fn memos_of_replaced_values_are_dropped_after_a_while() {
        let mut history = History::beginning_at(1);
        let mut before = None;
        for revision in 2..=4 {
            let after = Arc::new(StoreEntry::new("/k".into(), Bytes::new(), revision));
            after.memo.get_or_make(|| revision);
            let event = StoreEvent::new(revision, "/k".into(), before, Some(Arc::clone(&after)));
            history.push(seconds(revision), Arc::new(event));
            before = Some(after);
        }
        let made = |history: &History| {
            let entries = history.after(0).map(|event| event.after.clone().unwrap());
            let made = entries.map(|entry| entry.memo.get::<u64>().as_deref().copied());
            made.collect::<Vec<_>>()
        };
        let stale = |history: &History, now| {
            let (memos, plain) = history.stale(now);
            (memos.len(), plain.len())
        };
        assert_eq!(stale(&history, seconds(4)), (0, 0));
        // The change at 3 s was that of the value of 2 s.
        assert_eq!(stale(&history, seconds(3).plus(FRESH * 101 / 100)), (1, 1));
        assert_eq!(made(&history), [None, Some(3), Some(4)]);
        assert_eq!(stale(&history, seconds(100)), (1, 2));
        assert_eq!(
            made(&history),
            [None, None, Some(4)],
            "the last one is in use"
        );
    }

    #[test]
    fn history_overflows_once_it_exceeds_its_limit_by_an_eighth() {
        let limits = HistoryLimits {
            events: 8,
            ..HistoryLimits::default()
        };
        assert!(!history(10).overflows(&limits));
        assert!(history(11).overflows(&limits));
    }
}
