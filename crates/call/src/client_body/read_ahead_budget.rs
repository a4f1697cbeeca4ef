//! How many bytes of bodies one core holds that were read ahead.
//!
//! A request may take up to `small` bytes while the core's total is not used up, and up to `large` bytes while less than half of
//! it is used: so a few large bodies cannot use up the budget of all others. And a user whose requests are queued has at most as
//! much as is still free ([`fairgate_base::account`]): so many bodies of one user cannot either. Where there is no room, the body is not
//! read ahead, and its client sends it when the request has its seat.
//!
//! A body whose request does not have to wait is charged to nobody. That costs neither an allocation nor a lock.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fairgate_base::account::{ByteBudget, ByteShare, BytesHeld};
use fairgate_core::digest::User;

/// How many bytes of waiting requests one core may hold.
#[derive(Debug)]
pub struct ReadAheadBudget {
    used: Arc<ReadAheadMeter>,
    total: usize,
    small: usize,
    large: usize,
    /// What the queued requests of each user have of it.
    waiting: Arc<ByteBudget>,
}

/// The bytes of bodies that one core has read ahead. Written by that core alone, so plain loads and stores do; read by metrics.
#[derive(Debug, Default)]
pub struct ReadAheadMeter {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl ReadAheadMeter {
    /// The bytes that are held, and the most that ever were.
    pub fn held(&self) -> BytesHeld {
        BytesHeld {
            now: self.now.load(Ordering::Relaxed),
            most: self.most.load(Ordering::Relaxed),
        }
    }

    fn set(&self, bytes: usize) {
        self.now.store(bytes, Ordering::Relaxed);
        if bytes > self.most.load(Ordering::Relaxed) {
            self.most.store(bytes, Ordering::Relaxed);
        }
    }
}

impl ReadAheadBudget {
    /// A budget of `total` bytes, of which one request takes up to `small`, or up to `large` while at most
    /// half of the total is used.
    pub fn new(total: usize, small: usize, large: usize) -> Rc<Self> {
        Self::metered(total, small, large, Arc::default())
    }

    /// The same, which `used` shows.
    pub fn metered(
        total: usize,
        small: usize,
        large: usize,
        used: Arc<ReadAheadMeter>,
    ) -> Rc<Self> {
        Rc::new(Self {
            used,
            total,
            small,
            large,
            waiting: ByteBudget::new(total),
        })
    }

    /// The number of bytes held now.
    pub fn used(&self) -> usize {
        self.used.held().now
    }

    /// Whether a request that has `held` bytes may have more.
    pub(super) fn has_room(&self, held: usize) -> bool {
        let used = self.used();
        (held < self.small && used < self.total) || (held < self.large && used < self.total / 2)
    }

    /// The same for a request of this user that is not queued yet.
    pub(super) fn has_room_for(&self, user: &User, held: usize) -> bool {
        // While half is left, nobody can have more than that.
        let is_quiet = self.used() < self.total / 2;
        self.has_room(held) && (is_quiet || self.waiting.has_room(&user.name, 1))
    }

    /// A request of this user is queued, of which `held` bytes were read.
    pub(super) fn waits(&self, user: &Arc<User>, held: usize) -> ByteShare {
        let mut share = self.waiting.share(user);
        share.take_beyond(held);
        share
    }

    pub(super) fn take(&self, bytes: usize) {
        self.used.set(self.used() + bytes);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.used.set(self.used().saturating_sub(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_takes_the_large_share_only_while_the_core_is_quiet() {
        let budget = ReadAheadBudget::new(100, 10, 40);
        assert!(budget.has_room(39), "quiet: up to the large share");
        assert!(!budget.has_room(40));
        budget.take(50);
        assert!(budget.has_room(9), "busy: up to the small share");
        assert!(!budget.has_room(10));
        budget.take(50);
        assert!(!budget.has_room(0), "nothing left");
        budget.give_back(100);
        assert_eq!(budget.used.held(), BytesHeld { now: 0, most: 100 });
    }

    #[test]
    fn the_queued_requests_of_one_user_leave_room_for_those_of_others() {
        let budget = ReadAheadBudget::new(100, 10, 10);
        let [many, other] = ["many", "other"].map(|name| Arc::new(User::new(name, [""; 0])));
        let mut queued = Vec::new();
        while budget.has_room_for(&many, 0) {
            budget.take(10);
            queued.push(budget.waits(&many, 10));
        }
        assert_eq!(budget.used(), 50);
        assert!(budget.has_room_for(&other, 0));
        assert!(
            !queued.first().unwrap().has_room(1),
            "nor may these read on"
        );
        budget.take(10);
        let one = budget.waits(&other, 10);
        assert!(one.has_room(10));
        drop(queued);
        assert!(budget.has_room_for(&many, 0));
    }
}
