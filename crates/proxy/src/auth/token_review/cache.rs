//! What reviews have found, for a short while and in a bounded number.
//!
//! Accepted and refused tokens are kept apart, so that a flood of bad ones drives out no good one. An
//! accepted token is remembered for some time after its result has expired: not to be believed, but to
//! know that its next review is a renewal and goes before strangers.
//!
//! Entries leave in the order in which they came, by age or for want of room; both cost a constant
//! amount per insertion, and reading takes one short shared lock.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use dashmap::DashMap;

use super::{Reviewed, TokenRefused};
use crate::auth::{Identity, TokenDigest};
use fairgate_core::{sync, time::Time};

/// The results of reviews.
pub(super) struct ReviewCache {
    accepted: Bounded<Arc<Identity>>,
    refused: Bounded<TokenRefused>,
}

/// A map that holds no more than a given number of entries.
struct Bounded<V> {
    map: DashMap<TokenDigest, Entry<V>>,
    /// In order of insertion; also of entries that are gone or were replaced since.
    order: Mutex<VecDeque<Record>>,
    stamps: AtomicU64,
    max_entries: usize,
}

struct Entry<V> {
    value: V,
    /// The first moment at which the value is not to be used any more.
    expires: Time,
    stamp: u64,
}

struct Record {
    digest: TokenDigest,
    stamp: u64,
    /// The first moment at which the entry is of no use any more.
    leaves: Time,
}

impl ReviewCache {
    /// An empty cache of at most `max_entries` results of each kind.
    pub(super) fn new(max_entries: usize) -> Self {
        Self {
            accepted: Bounded::new(max_entries),
            refused: Bounded::new(max_entries),
        }
    }

    /// What is known of a token now.
    pub(super) fn get(&self, digest: &TokenDigest, now: Time) -> Option<Reviewed> {
        if let Some(identity) = self.accepted.get(digest, now) {
            return Some(Ok(identity));
        }
        self.refused.get(digest, now).map(Err)
    }

    /// Whether a token was accepted not long ago.
    pub(super) fn was_accepted(&self, digest: &TokenDigest) -> bool {
        self.accepted.map.contains_key(digest)
    }

    /// Keeps a result until `expires`, and the memory of an accepted one until `leaves`.
    pub(super) fn put(
        &self,
        digest: TokenDigest,
        result: Reviewed,
        now: Time,
        expires: Time,
        leaves: Time,
    ) {
        match result {
            Ok(identity) => {
                self.refused.map.remove(&digest);
                self.accepted.put(digest, identity, now, expires, leaves);
            }
            Err(refused) => {
                self.accepted.map.remove(&digest);
                self.refused.put(digest, refused, now, expires, expires);
            }
        }
    }

    /// The number of accepted and of refused tokens held, expired ones included.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.accepted.map.len(), self.refused.map.len())
    }
}

impl<V: Clone> Bounded<V> {
    fn new(max_entries: usize) -> Self {
        Self {
            map: DashMap::new(),
            order: Mutex::default(),
            stamps: AtomicU64::new(0),
            max_entries: max_entries.max(1),
        }
    }

    fn get(&self, digest: &TokenDigest, now: Time) -> Option<V> {
        let entry = self.map.get(digest)?;
        (now < entry.expires).then(|| entry.value.clone())
    }

    fn put(&self, digest: TokenDigest, value: V, now: Time, expires: Time, leaves: Time) {
        let stamp = self.stamps.fetch_add(1, Ordering::Relaxed);
        let mut order = sync::lock(&self.order);
        self.map.insert(
            digest,
            Entry {
                value,
                expires,
                stamp,
            },
        );
        order.push_back(Record {
            digest,
            stamp,
            leaves,
        });
        while order
            .front()
            .is_some_and(|oldest| oldest.leaves <= now || order.len() > self.max_entries)
        {
            if let Some(oldest) = order.pop_front() {
                self.map
                    .remove_if(&oldest.digest, |_, entry| entry.stamp == oldest.stamp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::TokenKey;
    use fairgate_core::digest::User;

    fn at(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    fn alice() -> Arc<Identity> {
        Arc::new(Identity::new(User::new("alice", ["dev"])))
    }

    fn refused() -> TokenRefused {
        TokenRefused::default()
    }

    #[test]
    fn a_result_holds_until_it_expires() {
        let (cache, key) = (ReviewCache::new(10), TokenKey::random().unwrap());
        let (good, bad) = (key.digest(b"good"), key.digest(b"bad"));
        cache.put(good, Ok(alice()), at(0), at(10), at(100));
        cache.put(bad, Err(refused()), at(0), at(5), at(5));

        assert!(matches!(cache.get(&good, at(9)), Some(Ok(_))));
        assert!(matches!(cache.get(&bad, at(4)), Some(Err(_))));
        assert!(cache.get(&good, at(10)).is_none());
        assert!(cache.get(&bad, at(5)).is_none());
        assert!(cache.was_accepted(&good) && !cache.was_accepted(&bad));
    }

    #[test]
    fn the_newer_result_replaces_the_older_also_of_the_other_kind() {
        let (cache, digest) = (
            ReviewCache::new(10),
            TokenKey::random().unwrap().digest(b"t"),
        );
        cache.put(digest, Ok(alice()), at(0), at(10), at(100));
        cache.put(digest, Err(refused()), at(1), at(11), at(11));
        assert!(matches!(cache.get(&digest, at(2)), Some(Err(_))));
        assert!(!cache.was_accepted(&digest));
        cache.put(digest, Ok(alice()), at(3), at(13), at(100));
        assert!(matches!(cache.get(&digest, at(4)), Some(Ok(_))));
        assert_eq!(cache.len(), (1, 0));
    }

    #[test]
    fn the_oldest_leave_for_want_of_room_and_bad_tokens_drive_out_no_good_one() {
        let (cache, key) = (ReviewCache::new(10), TokenKey::random().unwrap());
        let digest = |i: u32| key.digest(&i.to_le_bytes());
        for i in 0..10 {
            cache.put(digest(i), Ok(alice()), at(0), at(10), at(100));
        }
        for i in 100..1100 {
            cache.put(digest(i), Err(refused()), at(1), at(11), at(11));
        }
        assert_eq!(cache.len(), (10, 10));
        assert!((0..10).all(|i| cache.get(&digest(i), at(2)).is_some()));
        assert!((1090..1100).all(|i| cache.get(&digest(i), at(2)).is_some()));
    }

    #[test]
    fn a_renewed_entry_does_not_leave_with_its_old_record() {
        let (cache, key) = (ReviewCache::new(10), TokenKey::random().unwrap());
        let digest = key.digest(b"t");
        cache.put(digest, Ok(alice()), at(0), at(10), at(20));
        cache.put(digest, Ok(alice()), at(15), at(25), at(35));
        cache.put(key.digest(b"u"), Ok(alice()), at(21), at(31), at(41));
        assert!(cache.get(&digest, at(22)).is_some());
        cache.put(key.digest(b"v"), Ok(alice()), at(36), at(46), at(56));
        assert_eq!(cache.len(), (2, 0));
        assert!(!cache.was_accepted(&digest));
    }

    #[test]
    fn records_of_replaced_entries_do_not_pile_up() {
        let (cache, key) = (ReviewCache::new(10), TokenKey::random().unwrap());
        for now in 0..10_000 {
            cache.put(key.digest(b"t"), Ok(alice()), at(0), at(now), Time::NEVER);
        }
        assert_eq!(cache.len(), (1, 0));
        assert_eq!(sync::lock(&cache.accepted.order).len(), 10);
    }
}
