//! Requests that an HTTP/2 client resets before the response begins.
//!
//! A few are normal: clients give up. Many in a row are an attack ("rapid reset", CVE-2023-44487): opening and
//! resetting a stream costs the client next to nothing, and the server a request. As in Envoy, only streams
//! count that were reset within a second of their start, so that clients that give up because a reply takes long
//! are not punished. A connection with too many of them is closed with `ENHANCE_YOUR_CALM`, unless it carries
//! requests of several users: the connection of a front proxy must not be closed for what one of its users does.
//! The limit for a user on all connections together is in `fairness`.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use tokio::sync::Notify;

use fairgate_call::ResetLimits;
use fairgate_core::{digest::User, time::Time};

/// The premature resets of one connection.
#[derive(Debug)]
pub(super) struct PrematureResets {
    limits: ResetLimits,
    recent: Cell<u32>,
    /// The time up to which resets were forgotten.
    decayed_until: Cell<Time>,
    users: RefCell<ConnectionUsers>,
    too_many: Notify,
}

/// Whose requests a connection carries.
#[derive(Debug, Default)]
enum ConnectionUsers {
    #[default]
    Nobody,
    One(Arc<User>),
    Several,
}

impl PrematureResets {
    pub(super) fn new(limits: ResetLimits) -> Self {
        Self {
            limits,
            recent: Cell::default(),
            decayed_until: Cell::default(),
            users: RefCell::default(),
            too_many: Notify::new(),
        }
    }

    /// A request of `user` arrived on the connection.
    pub(super) fn note_user(&self, user: Option<&Arc<User>>) {
        let Some(user) = user else {
            return;
        };
        let mut users = self.users.borrow_mut();
        match &*users {
            ConnectionUsers::Nobody => *users = ConnectionUsers::One(Arc::clone(user)),
            ConnectionUsers::One(one) if Arc::ptr_eq(one, user) || one.name == user.name => {}
            ConnectionUsers::One(_) => *users = ConnectionUsers::Several,
            ConnectionUsers::Several => {}
        }
    }

    /// A request that arrived at `received` was reset at `now` without a reply.
    pub(super) fn note(&self, received: Time, now: Time) {
        let limits = &self.limits;
        if now.since(received) >= limits.premature_within {
            return;
        }
        let each = limits.interval;
        let passed = now.since(self.decayed_until.get()).as_nanos() / each.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed > 0 {
            self.recent.set(self.recent.get().saturating_sub(passed));
            self.decayed_until
                .set(self.decayed_until.get().plus(each * passed).min(now));
        }
        self.recent.set(self.recent.get() + 1);
        if self.recent.get() > limits.burst
            && !matches!(*self.users.borrow(), ConnectionUsers::Several)
        {
            self.too_many.notify_one();
        }
    }

    /// Completes when the connection should be closed.
    pub(super) async fn too_many(&self) {
        self.too_many.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO.plus(Duration::from_millis(millis))
    }

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::new(name, ["g"]))
    }

    #[test]
    fn a_connection_ends_for_many_premature_resets_at_a_time() {
        let resets = PrematureResets::new(ResetLimits::PER_CONNECTION);
        resets.note_user(Some(&user("a")));
        resets.note_user(Some(&user("a")));
        (0..100).for_each(|_| resets.note(at(1000), at(1004)));
        assert!(resets.too_many().now_or_never().is_none());
        resets.note(at(1000), at(1004));
        assert!(resets.too_many().now_or_never().is_some());
    }

    #[test]
    fn late_or_occasional_resets_do_not_close_the_connection() {
        let resets = PrematureResets::new(ResetLimits::PER_CONNECTION);
        (0..1000).for_each(|_| resets.note(at(1000), at(2000)));
        (0..1000).for_each(|n| resets.note(at(3000 + 100 * n), at(3000 + 100 * n)));
        assert!(resets.too_many().now_or_never().is_none());
    }

    #[test]
    fn a_connection_of_several_users_is_not_closed() {
        let resets = PrematureResets::new(ResetLimits::PER_CONNECTION);
        resets.note_user(Some(&user("a")));
        resets.note_user(Some(&user("b")));
        (0..1000).for_each(|_| resets.note(at(0), at(1)));
        assert!(resets.too_many().now_or_never().is_none());
    }
}
