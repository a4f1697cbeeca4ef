//! Requests that a user's clients reset before they get a response.
//!
//! `serve` closes a connection with too many of them, but a client can open another. Therefore they are also counted
//! by user, over all connections and cores, and the requests of a user with too many ([`ResetLimits`]) are refused for
//! a while. Only requests count that were reset within a second of their arrival.
//!
//! Anonymous requests are counted but not refused, because their clients cannot be distinguished: one client could lock
//! out all others. They use separate upstream connections.
//!
//! As long as no user is refused, it costs a request one atomic load.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dashmap::DashMap;

use fairgate_call::ResetLimits;
use fairgate_core::{digest::User, time::Time};

/// The maximum number of users that are counted. Others are not counted until some of these are forgotten.
const MAX_USERS: usize = 10_000;

/// The premature resets of all users.
#[derive(Debug)]
pub struct UserResets {
    limits: ResetLimits,
    users: DashMap<Box<str>, RecentResets>,
    /// The time until which any user is refused, in nanoseconds.
    refusing_until: AtomicU64,
    /// When users were last forgotten, in nanoseconds.
    decayed_until: AtomicU64,
    total: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug)]
struct RecentResets {
    resets: u32,
    /// The time up to which resets were forgotten.
    decayed_until: Time,
    refused_until: Time,
}

impl RecentResets {
    fn decay(&mut self, now: Time, one: Duration) {
        let passed = now.since(self.decayed_until).as_nanos() / one.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed >= self.resets {
            (self.resets, self.decayed_until) = (0, now);
        } else {
            self.resets -= passed;
            self.decayed_until = self.decayed_until.plus(one * passed);
        }
    }
}

impl UserResets {
    /// Counters without any resets yet.
    pub fn new(limits: ResetLimits) -> Self {
        Self {
            limits,
            users: DashMap::new(),
            refusing_until: AtomicU64::new(0),
            decayed_until: AtomicU64::new(0),
            total: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// How many premature resets there were.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How many requests were refused because of them.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A request of `user` that arrived at `received` was abandoned at `now` without a reply.
    pub(super) fn note(&self, user: &User, received: Time, now: Time) {
        let limits = &self.limits;
        if now.since(received) >= limits.premature_within {
            return;
        }
        self.total.fetch_add(1, Ordering::Relaxed);
        if user.name == User::ANONYMOUS || !self.has_room(now, user) {
            return;
        }
        let mut recent = self
            .users
            .entry(user.name.as_str().into())
            .or_insert(RecentResets {
                resets: 0,
                decayed_until: now,
                refused_until: Time::ZERO,
            });
        recent.decay(now, limits.interval);
        recent.resets += 1;
        if recent.resets > limits.burst {
            // Until half of the resets are forgotten: otherwise the next one would begin another refusal.
            recent.refused_until = now.plus(limits.interval * (limits.burst / 2));
            let until = recent.refused_until.as_nanos();
            self.refusing_until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// Whether `user` can be remembered. If there are too many, forgets users whose resets are long ago, at most once a
    /// second, in O(users).
    fn has_room(&self, now: Time, user: &User) -> bool {
        if self.users.len() < MAX_USERS || self.users.contains_key(user.name.as_str()) {
            return true;
        }
        let last = self.decayed_until.load(Ordering::Relaxed);
        // At most once a second, because it looks at all users.
        if now.since(Time::from_nanos(last)) >= Duration::from_secs(1) {
            self.decayed_until.store(now.as_nanos(), Ordering::Relaxed);
            self.users.retain(|_, recent| {
                recent.decay(now, self.limits.interval);
                recent.resets > 0 || recent.refused_until > now
            });
        }
        self.users.len() < MAX_USERS
    }

    /// After how many seconds `user` may retry, if the user is refused now.
    pub(super) fn refuses(&self, user: &User, now: impl FnOnce() -> Time) -> Option<u32> {
        let until = self.refusing_until.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let now = now();
        if now >= Time::from_nanos(until) {
            return None;
        }
        let until = self.users.get(user.name.as_str())?.refused_until;
        let rest = (until > now).then(|| until.since(now))?;
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(
            u32::try_from(rest.as_secs())
                .unwrap_or(u32::MAX)
                .saturating_add(1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: u32 = 500;

    fn at(millis: u64) -> Time {
        Time::ZERO.plus(Duration::from_millis(millis))
    }

    fn user(name: &str) -> User {
        User::new(name, ["g"])
    }

    #[test]
    fn only_a_user_with_too_many_resets_is_refused_for_a_while() {
        let resets = UserResets::new(ResetLimits::PER_USER);
        let (greedy, other) = (user("greedy"), user("other"));
        (0..AT_ONCE).for_each(|_| resets.note(&greedy, at(1000), at(1004)));
        assert_eq!(resets.refuses(&greedy, || at(1004)), None);
        resets.note(&greedy, at(1000), at(1004));
        assert_eq!(resets.refuses(&greedy, || at(1004)), Some(6));
        assert_eq!(resets.refuses(&greedy, || at(6003)), Some(1));
        assert_eq!(resets.refuses(&other, || at(1004)), None);
        assert_eq!(resets.refuses(&greedy, || at(6004)), None);
        assert_eq!(
            (resets.total(), resets.refused()),
            (u64::from(AT_ONCE) + 1, 2)
        );
    }

    #[test]
    fn a_few_resets_each_second_and_late_ones_are_allowed() {
        let resets = UserResets::new(ResetLimits::PER_USER);
        let user = user("patient");
        for n in 0..5000 {
            resets.note(&user, at(20 * n), at(20 * n));
            resets.note(&user, at(20 * n), at(20 * n + 1000));
        }
        assert_eq!(resets.refuses(&user, || at(0)), None);
    }

    #[test]
    fn anonymous_requests_are_never_refused() {
        let resets = UserResets::new(ResetLimits::PER_USER);
        let anonymous = user(User::ANONYMOUS);
        (0..10 * AT_ONCE).for_each(|_| resets.note(&anonymous, at(0), at(1)));
        assert_eq!(resets.refuses(&anonymous, || at(1)), None);
    }

    #[test]
    fn the_number_of_remembered_users_is_limited() {
        let resets = UserResets::new(ResetLimits::PER_USER);
        for n in 0..2 * MAX_USERS {
            resets.note(&user(&n.to_string()), at(0), at(1));
        }
        assert_eq!(resets.users.len(), MAX_USERS);
        resets.note(&user("late"), at(2000), at(2001));
        assert_eq!(resets.users.len(), 1, "the others were forgotten");
    }
}
