//! Results of lookups, for a limited time and in bounded number and size.
//!
//! Entries leave in the order in which they came, by age or because the cache is full. Both cost a constant amount per
//! insertion, and reading takes one short shared lock. Least recently used would be better for hits, but would
//! make every reader a writer.

use std::{
    collections::VecDeque,
    hash::Hash,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dashmap::DashMap;

use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// A map whose entries expire, and that holds no more than a given number of entries and bytes.
pub(crate) struct ExpiringCache<K, V> {
    entries: DashMap<K, CacheEntry<V>>,
    insertions: Mutex<Insertions<K>>,
    stamps: AtomicU64,
    bounds: CacheBounds,
}

/// How much a cache may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheBounds {
    /// At least 1.
    pub(crate) entries: usize,
    /// The sum of the entries' [`EntryLife::bytes`].
    pub(crate) bytes: usize,
}

struct CacheEntry<V> {
    value: V,
    /// From this moment on the value is no longer valid.
    expires: Time,
    stamp: u64,
}

/// All insertions in order, also those of entries that were removed or replaced since.
struct Insertions<K> {
    queue: VecDeque<Insertion<K>>,
    bytes: usize,
}

struct Insertion<K> {
    key: K,
    stamp: u64,
    bytes: usize,
    /// From this moment on the entry is removed.
    evict_at: Time,
}

/// How long an entry is kept, and what it weighs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryLife {
    /// How long the value may be used.
    pub(crate) ttl: Duration,
    /// How long [`ExpiringCache::contains`] is true; at least `ttl`.
    pub(crate) remembered: Duration,
    /// The approximate size of the value in memory.
    pub(crate) bytes: usize,
}

impl<K: Copy + Eq + Hash, V: Clone> ExpiringCache<K, V> {
    pub(crate) fn new(bounds: CacheBounds) -> Self {
        Self {
            entries: DashMap::new(),
            insertions: Mutex::new(Insertions {
                queue: VecDeque::new(),
                bytes: 0,
            }),
            stamps: AtomicU64::new(0),
            bounds: CacheBounds {
                entries: bounds.entries.max(1),
                ..bounds
            },
        }
    }

    /// The value of `key` that may be used at `now`.
    pub(crate) fn get(&self, key: &K, now: Time) -> Option<V> {
        let entry = self.entries.get(key)?;
        (now < entry.expires).then(|| entry.value.clone())
    }

    /// Whether `key` is remembered, its value expired or not.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Inserts `value`. A value larger than the whole cache is not kept, and evicts nothing but the former value of
    /// `key`.
    pub(crate) fn put(&self, key: K, value: V, now: Time, life: EntryLife) {
        if life.bytes > self.bounds.bytes {
            return self.remove(&key);
        }
        let stamp = self.stamps.fetch_add(1, Ordering::Relaxed);
        let mut insertions = lock(&self.insertions);
        let entry = CacheEntry {
            value,
            expires: now.plus(life.ttl),
            stamp,
        };
        // Under the lock of the insertions, so that every entry has an insertion by which it leaves.
        self.entries.insert(key, entry);
        insertions.bytes = insertions.bytes.saturating_add(life.bytes);
        insertions.queue.push_back(Insertion {
            key,
            stamp,
            bytes: life.bytes,
            evict_at: now.plus(life.remembered.max(life.ttl)),
        });
        while let Some(oldest) = insertions.queue.front() {
            let is_over = insertions.queue.len() > self.bounds.entries
                || insertions.bytes > self.bounds.bytes;
            if !is_over && now < oldest.evict_at {
                return;
            }
            let (key, stamp, bytes) = (oldest.key, oldest.stamp, oldest.bytes);
            insertions.queue.pop_front();
            insertions.bytes -= bytes;
            // A newer entry of the same key has a separate insertion, and stays.
            self.entries
                .remove_if(&key, |_, entry| entry.stamp == stamp);
        }
    }

    pub(crate) fn remove(&self, key: &K) {
        self.entries.remove(key);
    }

    /// The number of entries, expired ones included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MANY: usize = 1 << 20;

    fn at(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    fn cache(entries: usize, bytes: usize) -> ExpiringCache<u32, u32> {
        ExpiringCache::new(CacheBounds { entries, bytes })
    }

    fn life(ttl: u64, remembered: u64) -> EntryLife {
        EntryLife {
            ttl: Duration::from_secs(ttl),
            remembered: Duration::from_secs(remembered),
            bytes: 1,
        }
    }

    #[test]
    fn a_value_holds_until_it_expires_and_is_remembered_longer() {
        let cache = cache(10, MANY);
        cache.put(1, 7, at(0), life(10, 100));
        assert_eq!(cache.get(&1, at(9)), Some(7));
        assert_eq!(cache.get(&1, at(10)), None);
        assert_eq!(cache.get(&2, at(9)), None);
        assert!(cache.contains(&1) && !cache.contains(&2));
    }

    #[test]
    fn the_oldest_are_evicted_by_number_and_by_age() {
        let cache = cache(3, MANY);
        for key in 0..5 {
            cache.put(key, 0, at(0), life(10, 10));
        }
        let known = |now| {
            (0..6)
                .filter(|key| cache.get(key, at(now)).is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(known(1), [2, 3, 4]);
        cache.put(5, 0, at(20), life(10, 10));
        assert_eq!((known(20), cache.len()), (vec![5], 1));
    }

    #[test]
    fn the_oldest_are_evicted_when_there_are_too_many_bytes() {
        let cache = cache(100, 1_000);
        let of = |bytes| EntryLife {
            bytes,
            ..life(10, 10)
        };
        cache.put(1, 0, at(0), of(400));
        cache.put(2, 0, at(0), of(600));
        assert_eq!(cache.len(), 2);
        cache.put(3, 0, at(0), of(1));
        assert!(!cache.contains(&1) && cache.contains(&2));
        cache.put(3, 1, at(0), of(1_001));
        assert!(!cache.contains(&3), "larger than the whole cache");
        assert!(cache.contains(&2), "it evicts no other entry");
    }

    #[test]
    fn a_renewed_entry_outlives_its_old_insertion() {
        let cache = cache(10, MANY);
        cache.put(1, 0, at(0), life(10, 20));
        cache.put(1, 0, at(15), life(10, 20));
        cache.put(2, 0, at(21), life(10, 20));
        assert!(cache.get(&1, at(22)).is_some());
        cache.put(3, 0, at(36), life(10, 20));
        assert_eq!(cache.len(), 2);
        assert!(!cache.contains(&1));
    }

    #[test]
    fn insertions_of_replaced_entries_do_not_pile_up() {
        let cache = cache(10, MANY);
        for now in 0..10_000 {
            cache.put(1, 0, at(0), life(now, u64::from(u32::MAX)));
        }
        assert_eq!(cache.len(), 1);
        assert_eq!(lock(&cache.insertions).queue.len(), 10);
    }

    proptest! {
        #[test]
        fn whatever_is_put_the_bounds_hold_and_the_newest_value_is_found(
            puts in prop::collection::vec((0..20u32, 0..50u64, 0..30u64, 1..400usize), 1..200),
        ) {
            let cache = cache(8, 1_000);
            let mut now = 0;
            for (number, (key, passed, ttl, bytes)) in (0..).zip(puts) {
                now += passed;
                cache.put(key, number, at(now), EntryLife { bytes, ..life(ttl, ttl) });
                // It is the newest, so it was not evicted because the cache is full.
                prop_assert_eq!(cache.get(&key, at(now)), (ttl > 0).then_some(number));
                prop_assert_eq!(cache.get(&key, at(now + ttl)), None);
                let insertions = lock(&cache.insertions);
                prop_assert!(cache.len() <= insertions.queue.len());
                prop_assert!(insertions.queue.len() <= 8 && insertions.bytes <= 1_000);
                let sum: usize = insertions.queue.iter().map(|each| each.bytes).sum();
                prop_assert_eq!(sum, insertions.bytes);
            }
        }
    }
}
