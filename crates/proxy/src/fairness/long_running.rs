//! Long-running requests that flow control lets pass: exec, attach, port-forward, proxy, logs.
//!
//! A client can make almost any request look like one by its path, so there are caps, per user and
//! in total. A place under them is held until the upstream is known to be done with the request; see
//! [`super::abandoned`]. Off the hot path: such requests live for minutes.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use dashmap::DashMap;

use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};

/// How many long-running requests may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Of one user.
    pub per_user: u32,
    /// Of all together.
    pub total: u32,
}

impl Caps {
    /// As many as come.
    pub const NONE: Self = Self {
        per_user: u32::MAX,
        total: u32::MAX,
    };
}

/// The long-running requests that run.
#[derive(Debug)]
pub struct LongRunning {
    caps: Mutex<Caps>,
    total: AtomicU32,
    by_user: DashMap<String, u32>,
}

/// One long-running request; dropping it makes room for another.
#[derive(Debug)]
pub struct LongRunningEntry {
    of: Arc<LongRunning>,
    user: Arc<User>,
}

impl LongRunning {
    /// None run yet.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps: Mutex::new(caps),
            total: AtomicU32::new(0),
            by_user: DashMap::new(),
        }
    }

    /// Sets the caps for those to come.
    pub fn set_caps(&self, caps: Caps) {
        *lock(&self.caps) = caps;
    }

    /// How many may run in total.
    pub fn most(&self) -> u32 {
        lock(&self.caps).total
    }

    /// How many run.
    pub fn running(&self) -> u32 {
        self.total.load(Ordering::Relaxed)
    }

    /// `user` runs one more; `None` if that is too many, and the caps are enforced.
    pub fn enter(self: &Arc<Self>, user: &Arc<User>, enforced: bool) -> Option<LongRunningEntry> {
        let caps = if enforced {
            *lock(&self.caps)
        } else {
            Caps::NONE
        };
        if !self.take_of_total(caps.total) {
            return None;
        }
        // Gives back what it holds of both, whatever it holds.
        let place = LongRunningEntry {
            of: Arc::clone(self),
            user: Arc::clone(user),
        };
        let mut mine = self.by_user.entry(user.name.clone()).or_insert(0);
        *mine += 1;
        let too_many = *mine > caps.per_user;
        drop(mine);
        (!too_many).then_some(place)
    }

    /// Takes one of `most` in one step: cores that ask at the same time cannot pass it together.
    fn take_of_total(&self, most: u32) -> bool {
        let one_more = |running| (running < most).then_some(running + 1);
        self.total
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }
}

impl Drop for LongRunningEntry {
    fn drop(&mut self) {
        let this = &self.of;
        this.total.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut mine) = this.by_user.get_mut(&self.user.name) {
            *mine = mine.saturating_sub(1);
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
