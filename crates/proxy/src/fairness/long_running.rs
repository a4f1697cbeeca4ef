//! Limits of long-running requests, which flow control does not queue: exec, attach, port-forward, proxy, logs.
//!
//! A client can make almost any request look like one by its path, so their number is limited, per user and in total.
//! A request counts until the upstream is known to be done with it; see [`super::abandoned`]. This is off the hot
//! path: such requests last for minutes. Watches have limits of the same kind.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use dashmap::DashMap;

use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};

/// Limits of long-running requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Requests of one user.
    pub per_user: u32,
    /// Requests of all users together.
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
    total: AtomicU32,
    by_user: DashMap<String, u32>,
}

/// Counts one long-running request; dropping it makes room for another.
#[derive(Debug)]
pub(super) struct LongRunningEntry {
    of: Arc<LongRunning>,
    user: Arc<User>,
}

impl LongRunning {
    /// A count of none, with these limits.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps: Mutex::new(caps),
            total: AtomicU32::new(0),
            by_user: DashMap::new(),
        }
    }

    /// Sets the limits for new requests.
    pub(super) fn set_caps(&self, caps: Caps) {
        *lock(&self.caps) = caps;
    }

    /// The limit in total.
    pub fn limit(&self) -> u32 {
        lock(&self.caps).total
    }

    /// How many are running.
    pub fn running(&self) -> u32 {
        self.total.load(Ordering::Relaxed)
    }

    /// Counts a request of `user`; `None` if there are too many, and the limits are enforced.
    pub(super) fn enter(
        self: &Arc<Self>,
        user: &Arc<User>,
        enforced: bool,
    ) -> Option<LongRunningEntry> {
        let caps = if enforced {
            *lock(&self.caps)
        } else {
            Caps::NONE
        };
        if !self.try_increment_total(caps.total) {
            return None;
        }
        // Made before the user's limit is checked: dropping it takes back both counts.
        let entry = LongRunningEntry {
            of: Arc::clone(self),
            user: Arc::clone(user),
        };
        let mut count = self.by_user.entry(user.name.clone()).or_insert(0);
        *count += 1;
        let too_many = *count > caps.per_user;
        drop(count);
        (!too_many).then_some(entry)
    }

    /// Counts against the total in one atomic step, so that concurrent requests cannot exceed it together.
    fn try_increment_total(&self, max: u32) -> bool {
        let one_more = |running| (running < max).then_some(running + 1);
        self.total
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }
}

impl Drop for LongRunningEntry {
    fn drop(&mut self) {
        let this = &self.of;
        this.total.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut count) = this.by_user.get_mut(&self.user.name) {
            *count = count.saturating_sub(1);
        }
        this.by_user
            .remove_if(&self.user.name, |_, count| *count == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::new(name, ["g"]))
    }

    #[test]
    fn caps_hold_per_user_and_in_total() {
        let all = Arc::new(LongRunning::new(Caps {
            per_user: 2,
            total: 3,
        }));
        let mine: Vec<_> = (0..2)
            .map(|_| all.enter(&user("a"), true).unwrap())
            .collect();
        assert!(all.enter(&user("a"), true).is_none());
        assert!(all.enter(&user("a"), false).is_some());
        let other = all.enter(&user("b"), true).unwrap();
        assert!(all.enter(&user("c"), true).is_none());
        drop(mine);
        assert!(all.enter(&user("c"), true).is_some());
        drop(other);
        assert_eq!((all.running(), all.by_user.len()), (0, 0));
    }

    #[test]
    fn threads_that_ask_at_the_same_time_do_not_pass_the_total_together() {
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
                        let held: Vec<_> = (0..3)
                            .filter_map(|_| all.enter(&user(name), true))
                            .collect();
                        most.fetch_max(all.running(), Ordering::Relaxed);
                        drop(held);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 7);
        assert_eq!((all.running(), all.by_user.len()), (0, 0));
    }
}
