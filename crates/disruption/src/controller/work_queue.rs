//! The controller's work queue: deduplicated keys, and retries with exponential back-off.
//!
//! It behaves like the rate-limited work queue of Kubernetes controllers: a key that is added several times
//! is processed once, and a key that is added while it is processed is processed again afterwards. Time is an
//! argument.
//!
//! Unlike there, namespaces take turns, by what processing their keys costs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fairgate_core::{time::Time, turn_queue::TurnQueue};

use super::object_key::ObjectKey;

/// The delay after the first failure. Each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(5);
/// The longest delay.
const LONGEST_DELAY: Duration = Duration::from_secs(1000);
/// The limits on the retries of all keys together: their rate, and the size of a burst.
const RETRIES_PER_SECOND: u32 = 10;
const RETRY_BURST: u32 = 100;

/// What is processed for a namespace.
pub(super) trait NamespacedKey: Clone + Ord {
    /// The namespace.
    fn namespace(&self) -> &str;
}

impl NamespacedKey for ObjectKey {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// A queue for one worker.
#[derive(Debug)]
pub(super) struct WorkQueue<K> {
    /// Keys that can be taken now, the oldest of each namespace first.
    ready: TurnQueue<K>,
    /// Keys in `ready`, and keys that were added while they were processed.
    wanted: BTreeSet<K>,
    /// Keys that are being processed.
    taken: BTreeSet<K>,
    /// Keys that become ready later, with the time.
    later: BTreeMap<K, Time>,
    by_time: BTreeSet<(Time, K)>,
    /// The number of consecutive failures of each key.
    failures: BTreeMap<K, u32>,
    bucket: TokenBucket,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: TurnQueue::default(),
            wanted: BTreeSet::new(),
            taken: BTreeSet::new(),
            later: BTreeMap::new(),
            by_time: BTreeSet::new(),
            failures: BTreeMap::new(),
            bucket: TokenBucket::default(),
        }
    }
}

impl<K: NamespacedKey> WorkQueue<K> {
    /// Adds a key to be processed as soon as possible.
    pub(super) fn add(&mut self, key: K) {
        if self.wanted.insert(key.clone()) && !self.taken.contains(&key) {
            self.push(key);
        }
    }

    fn push(&mut self, key: K) {
        self.ready.push(key.clone().namespace(), 1, key);
    }

    /// Charges a namespace for what was done for it, besides one for each key.
    pub(super) fn charge(&mut self, namespace: &str, cost: u64) {
        self.ready.charge(namespace, cost);
    }

    /// Adds a key to be processed at `time`, unless it is already scheduled for an earlier time.
    pub(super) fn add_at(&mut self, key: K, time: Time) {
        if let Some(earlier) = self.later.get(&key) {
            if *earlier <= time {
                return;
            }
            self.by_time.remove(&(*earlier, key.clone()));
        }
        self.by_time.insert((time, key.clone()));
        self.later.insert(key, time);
    }

    /// Adds a key whose processing failed, with a delay that depends on its failures and on the rate of all retries.
    /// Returns the time at which it becomes ready.
    pub(super) fn retry(&mut self, key: K, now: Time) -> Time {
        let failures = self.failures.entry(key.clone()).or_default();
        let own = FIRST_DELAY
            .saturating_mul(2_u32.saturating_pow(*failures))
            .min(LONGEST_DELAY);
        *failures = failures.saturating_add(1);
        let time = now.plus(own.max(self.bucket.take(now)));
        self.add_at(key, time);
        time
    }

    /// Resets the failures of a key.
    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Takes the oldest key of the namespace whose turn it is. The caller must call [`WorkQueue::done`] afterwards.
    pub(super) fn take(&mut self, now: Time) -> Option<K> {
        while let Some((time, key)) = self.by_time.first().cloned() {
            if time > now {
                break;
            }
            self.by_time.pop_first();
            self.later.remove(&key);
            self.add(key);
        }
        let key = self.ready.pop()?;
        self.wanted.remove(&key);
        self.taken.insert(key.clone());
        Some(key)
    }

    /// Ends the processing of a key. If the key was added in the meantime, it is ready again.
    pub(super) fn done(&mut self, key: &K) {
        self.taken.remove(key);
        if self.wanted.contains(key) {
            self.push(key.clone());
        }
    }

    /// The time at which the next key can be taken if none is added: `now` if one is ready, `None` if there are none.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        self.by_time.first().map(|(time, _)| *time)
    }
}

/// A token bucket that starts full.
#[derive(Clone, Copy, Debug, Default)]
struct TokenBucket {
    /// The time at which the bucket will be full again.
    full_at: Time,
}

impl TokenBucket {
    /// Takes a token, and returns the time until it is available.
    fn take(&mut self, now: Time) -> Duration {
        let each = Duration::from_secs(1) / RETRIES_PER_SECOND;
        let burst = each * RETRY_BURST;
        self.full_at = self.full_at.max(now).plus(each);
        self.full_at.since(now.plus(burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl NamespacedKey for &str {
        fn namespace(&self) -> &'static str {
            "ns"
        }
    }

    impl NamespacedKey for i32 {
        fn namespace(&self) -> &'static str {
            "ns"
        }
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_key_that_is_added_twice_is_processed_once() {
        let mut queue = WorkQueue::default();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!(queue.take(at(0)), Some("a"));
        assert_eq!(queue.take(at(0)), Some("b"));
        assert_eq!(queue.take(at(0)), None);
        assert_eq!(queue.next(at(0)), None);
    }

    #[test]
    fn a_key_that_is_added_while_it_is_processed_is_processed_again() {
        let mut queue = WorkQueue::default();
        queue.add("a");
        assert_eq!(queue.take(at(0)), Some("a"));
        queue.add("a");
        assert_eq!(queue.take(at(0)), None);
        queue.done(&"a");
        assert_eq!(queue.take(at(0)), Some("a"));
        queue.done(&"a");
        assert_eq!(queue.take(at(0)), None);
    }

    #[test]
    fn a_delayed_key_is_ready_at_the_earliest_requested_time() {
        let mut queue = WorkQueue::default();
        queue.add_at("a", at(20));
        queue.add_at("a", at(10));
        queue.add_at("a", at(30));
        assert_eq!(queue.next(at(0)), Some(at(10)));
        assert_eq!(queue.take(at(9)), None);
        assert_eq!(queue.take(at(10)), Some("a"));
        queue.done(&"a");
        assert_eq!(queue.next(at(10)), None);
    }

    #[test]
    fn failures_double_the_delay_up_to_a_limit() {
        let mut queue = WorkQueue::default();
        let mut now = at(0);
        let mut delays = Vec::new();
        for _ in 0..25 {
            let time = queue.retry("a", now);
            delays.push(time.since(now));
            now = time;
            assert_eq!(queue.take(now), Some("a"));
            queue.done(&"a");
        }
        assert_eq!(delays[0], Duration::from_millis(5));
        assert_eq!(delays[7], Duration::from_millis(640));
        assert_eq!(delays[24], LONGEST_DELAY);
        queue.forget(&"a");
        assert_eq!(queue.retry("a", now).since(now), FIRST_DELAY);
    }

    #[test]
    fn all_failures_together_are_retried_at_a_limited_rate() {
        let mut queue = WorkQueue::default();
        let start = at(5);
        let times: Vec<_> = (0..150)
            .map(|key| queue.retry(key, start).since(start))
            .collect();
        assert!(times[..100].iter().all(|delay| *delay == FIRST_DELAY));
        assert_eq!(times[100], Duration::from_millis(100));
        assert_eq!(times[149], Duration::from_secs(5));
        // After five seconds the bucket is empty, after two more it has twenty tokens.
        let later = start.plus(Duration::from_secs(7));
        for key in 150..170 {
            assert_eq!(queue.retry(key, later).since(later), FIRST_DELAY);
        }
        assert_eq!(
            queue.retry(170, later).since(later),
            Duration::from_millis(100)
        );
    }
}
