//! Limits on long-running requests, which flow control does not queue: exec, attach, port-forward, proxy, logs.
//!
//! A client can make almost any request look like one by its path, so their number is limited, per user and in total.
//! A request counts until the upstream is known to be done with it; see [`super::abandoned`]. This is off the hot
//! path: such requests last for minutes. Watches have limits of the same kind. The digest of each running
//! request is kept, too, for the metrics.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use dashmap::DashMap;

use fairgate_core::{
    digest::RequestDigest,
    sync::{Mutex, lock},
};

/// Limits on long-running requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The maximum number of requests of one user in progress.
    pub per_user: u32,
    /// The maximum number of requests of all users in progress.
    pub total: u32,
}

impl Caps {
    /// No limits.
    pub const NONE: Self = Self {
        per_user: u32::MAX,
        total: u32::MAX,
    };
}

/// The running long-running requests.
#[derive(Debug)]
pub struct LongRunning {
    caps: Mutex<Caps>,
    /// Those that count against the limits.
    total: AtomicU32,
    running: AtomicU32,
    by_user: DashMap<String, u32>,
    /// The running requests, by the numbers of their entries.
    requests: DashMap<u64, Arc<RequestDigest>>,
    entries: AtomicU64,
}

/// One running request, as metrics see it, and its place within the limits.
#[derive(Debug)]
pub(super) struct LongRunningEntry {
    of: Arc<LongRunning>,
    number: u64,
    /// `None` if it does not count against the limits.
    place: Option<LongRunningPlace>,
}

/// Counts one request against the limits; dropping it makes room for another.
#[derive(Debug)]
pub(super) struct LongRunningPlace {
    of: Arc<LongRunning>,
    digest: Arc<RequestDigest>,
}

impl LongRunning {
    /// Starts without running requests, with these limits.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps: Mutex::new(caps),
            total: AtomicU32::new(0),
            running: AtomicU32::new(0),
            by_user: DashMap::new(),
            requests: DashMap::new(),
            entries: AtomicU64::new(0),
        }
    }

    /// Sets the limits for new requests.
    pub(super) fn set_caps(&self, caps: Caps) {
        *lock(&self.caps) = caps;
    }

    /// The limit on requests of all users together.
    pub fn limit(&self) -> u32 {
        lock(&self.caps).total
    }

    /// How many are running.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// The running requests, in no particular order. O(requests). Data cores wait only while pointers are copied.
    pub fn requests(&self) -> Vec<Arc<RequestDigest>> {
        let requests = self.requests.iter();
        requests.map(|request| Arc::clone(&request)).collect()
    }

    /// Counts a request; `None` if there are too many.
    pub(super) fn enter(self: &Arc<Self>, digest: &Arc<RequestDigest>) -> Option<LongRunningEntry> {
        let caps = *lock(&self.caps);
        if !self.try_increment_total(caps.total) {
            return None;
        }
        // Made before the user's limit is checked: dropping it takes back everything.
        let place = LongRunningPlace {
            of: Arc::clone(self),
            digest: Arc::clone(digest),
        };
        let user = digest.user.name.clone();
        let mut count = self.by_user.entry(user).or_insert(0);
        *count += 1;
        let too_many = *count > caps.per_user;
        drop(count);
        (!too_many).then(|| self.entry(digest, Some(place)))
    }

    /// Adds a request beyond the limits, which does not count against them.
    pub(super) fn enter_beyond(self: &Arc<Self>, digest: &Arc<RequestDigest>) -> LongRunningEntry {
        self.entry(digest, None)
    }

    fn entry(
        self: &Arc<Self>,
        digest: &Arc<RequestDigest>,
        place: Option<LongRunningPlace>,
    ) -> LongRunningEntry {
        let entry = LongRunningEntry {
            of: Arc::clone(self),
            number: self.entries.fetch_add(1, Ordering::Relaxed),
            place,
        };
        self.running.fetch_add(1, Ordering::Relaxed);
        self.requests.insert(entry.number, Arc::clone(digest));
        entry
    }

    /// Counts against the total in one atomic step, so that concurrent requests cannot exceed it together.
    fn try_increment_total(&self, max: u32) -> bool {
        let one_more = |running| (running < max).then_some(running + 1);
        self.total
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }
}

impl LongRunningEntry {
    /// Takes its place within the limits, which ends otherwise than the request.
    pub(super) fn take_place(&mut self) -> Option<LongRunningPlace> {
        self.place.take()
    }
}

impl Drop for LongRunningEntry {
    fn drop(&mut self) {
        self.of.requests.remove(&self.number);
        self.of.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for LongRunningPlace {
    fn drop(&mut self) {
        let this = &self.of;
        this.total.fetch_sub(1, Ordering::Relaxed);
        let user = &self.digest.user.name;
        if let Some(mut count) = this.by_user.get_mut(user) {
            *count = count.saturating_sub(1);
        }
        this.by_user.remove_if(user, |_, count| *count == 0);
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::digest::{RequestInfo, User};

    use super::*;

    fn user(name: &str) -> Arc<RequestDigest> {
        Arc::new(RequestDigest {
            info: RequestInfo::from_target("GET", "/api/v1/pods?watch=1").unwrap(),
            user: Arc::new(User::new(name, ["g"])),
        })
    }

    #[test]
    fn limits_apply_per_user_and_in_total() {
        let all = Arc::new(LongRunning::new(Caps {
            per_user: 2,
            total: 3,
        }));
        let mine: Vec<_> = (0..2).map(|_| all.enter(&user("a")).unwrap()).collect();
        assert!(all.enter(&user("a")).is_none());
        let beyond = all.enter_beyond(&user("a"));
        assert_eq!(all.running(), 3);
        drop(beyond);
        let other = all.enter(&user("b")).unwrap();
        assert!(all.enter(&user("c")).is_none());
        let requests = all.requests();
        let mut seen: Vec<_> = requests.iter().map(|of| &*of.user.name).collect();
        seen.sort_unstable();
        assert_eq!(seen, ["a", "a", "b"]);
        drop(mine);
        assert!(all.enter(&user("c")).is_some());
        drop(other);
        assert_eq!(
            (all.running(), all.by_user.len(), all.requests.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn concurrent_threads_do_not_exceed_the_total_limit() {
        let caps = Caps {
            per_user: 1000,
            total: 7,
        };
        let all = Arc::new(LongRunning::new(caps));
        let most = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let (all, most) = (&all, &most);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let held: Vec<_> = (0..3).filter_map(|_| all.enter(&user(name))).collect();
                        most.fetch_max(all.running(), Ordering::Relaxed);
                        drop(held);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 7);
        assert_eq!(
            (all.running(), all.by_user.len(), all.requests.len()),
            (0, 0, 0)
        );
    }
}
