//! How often each object was written lately.
//!
//! If two writers disagree about a condition, each overwrites the other's at once. A limit keeps that slow.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fairgate_core::time::Time;

/// The maximum number of writes of one object within [`WINDOW`].
const MAX_WRITES: u32 = 6;
const WINDOW: Duration = Duration::from_secs(60);

/// The writes of the last minute.
#[derive(Debug, Default)]
pub(super) struct RecentWrites {
    /// The number for each object that was written.
    counts: BTreeMap<Arc<str>, u32>,
    /// All writes by age, with the key in `counts`. It is another one if the object was forgotten since.
    by_age: VecDeque<(Time, Arc<str>)>,
}

impl RecentWrites {
    /// Counts a write; false if there were too many.
    pub(super) fn allow(&mut self, now: Time, name: &str) -> bool {
        self.expire(now);
        let key = match self.counts.get_key_value(name) {
            Some((_, count)) if *count >= MAX_WRITES => return false,
            Some((key, _)) => Arc::clone(key),
            None => name.into(),
        };
        *self.counts.entry(Arc::clone(&key)).or_default() += 1;
        self.by_age.push_back((now, key));
        true
    }

    /// Forgets the writes of an object that does not exist any more.
    pub(super) fn forget(&mut self, name: &str) {
        self.counts.remove(name);
    }

    /// Forgets the writes that are older than [`WINDOW`], and gives back their memory.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((at, _)) = self.by_age.front()
            && now.since(*at) >= WINDOW
            && let Some((_, key)) = self.by_age.pop_front()
        {
            let Some((known, &count)) = self.counts.get_key_value(&key) else {
                continue;
            };
            if !Arc::ptr_eq(known, &key) {
                continue;
            }
            if count > 1 {
                self.counts.insert(key, count - 1);
            } else {
                self.counts.remove(&key);
            }
        }
        if self.by_age.is_empty() {
            self.by_age.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn six_writes_of_an_object_are_allowed_in_any_minute() {
        let mut writes = RecentWrites::default();
        for second in 0..6 {
            assert!(writes.allow(seconds(second), "a"));
        }
        assert!(!writes.allow(seconds(59), "a"));
        assert!(writes.allow(seconds(59), "b"), "another object");
        assert!(
            writes.allow(seconds(60), "a"),
            "the first one is a minute ago"
        );
        assert!(!writes.allow(seconds(60), "a"));
    }

    #[test]
    fn nothing_is_kept_of_objects_that_were_written_a_minute_ago() {
        let mut writes = RecentWrites::default();
        for number in 0..1000 {
            assert!(writes.allow(seconds(number / 100), &number.to_string()));
        }
        writes.expire(seconds(69));
        assert_eq!((writes.counts.len(), writes.by_age.len()), (0, 0));
        assert_eq!(writes.by_age.capacity(), 0);
    }

    #[test]
    fn an_object_that_is_created_again_begins_anew() {
        let mut writes = RecentWrites::default();
        for _ in 0..6 {
            assert!(writes.allow(seconds(0), "a"));
        }
        writes.forget("a");
        for _ in 0..6 {
            assert!(writes.allow(seconds(30), "a"));
        }
        assert!(!writes.allow(seconds(60), "a"), "those before do not count");
        assert!(writes.allow(seconds(90), "a"));
    }
}
