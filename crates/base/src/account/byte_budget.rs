//! A budget of bytes, and what one task holds of it.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};
use tokio::sync::Notify;

use super::used_bytes::UsedBytes;

/// So many bytes may be held at a time. No payer gets all of them: one may have at most as much as is still free.
#[derive(Debug)]
pub struct ByteBudget {
    used: Mutex<UsedBytes>,
    total: AtomicUsize,
}

/// Bytes of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesHeld {
    /// Those that are held.
    pub now: usize,
    /// The most that were held at a time.
    pub most: usize,
}

/// Who holds bytes: a user by its name, or any other text. To make one of a shared user or text copies nothing.
#[derive(Clone, Debug)]
pub enum BytePayer {
    /// A user.
    User(Arc<User>),
    /// A text.
    Text(Arc<str>),
}

/// What one task holds of a budget. It is returned when this is dropped.
#[derive(Debug)]
pub struct ByteShare {
    budget: Arc<ByteBudget>,
    payer: BytePayer,
    /// Without those that can be given up.
    bytes: usize,
    /// The number of those that can be given up, while there are any.
    unfinished: Option<u64>,
}

impl BytePayer {
    /// The name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::User(user) => &user.name,
            Self::Text(text) => text,
        }
    }
}

impl From<&Arc<User>> for BytePayer {
    fn from(user: &Arc<User>) -> Self {
        Self::User(Arc::clone(user))
    }
}

impl From<&str> for BytePayer {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for BytePayer {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl ByteBudget {
    /// A budget of so many bytes.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            used: Mutex::default(),
            total: AtomicUsize::new(total),
        })
    }

    /// From now on so many bytes may be held. What is held already stays.
    pub fn set_total(&self, total: usize) {
        self.total.store(total, Ordering::Relaxed);
    }

    fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// The bytes that a payer holds.
    pub fn held_by(&self, payer: &str) -> usize {
        lock(&self.used).held_by(payer)
    }

    /// Whether a payer may take so many bytes more, without any that are given up for them.
    pub fn has_room(&self, payer: &str, bytes: usize) -> bool {
        lock(&self.used).has_room(payer, bytes, self.total())
    }

    /// How many bytes are held, and the most that ever were.
    pub fn held(&self) -> BytesHeld {
        let used = lock(&self.used);
        BytesHeld {
            now: used.all(),
            most: used.most(),
        }
    }

    /// An empty share for a task of this payer.
    pub fn share(self: &Arc<Self>, payer: impl Into<BytePayer>) -> ByteShare {
        ByteShare {
            budget: Arc::clone(self),
            payer: payer.into(),
            bytes: 0,
            unfinished: None,
        }
    }
}

impl ByteShare {
    /// Takes bytes. Returns `false`, and takes nothing, if there is no room for them, or if what was taken has been given up.
    pub fn take(&mut self, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let total = self.budget.total();
        let has_room =
            lock(&self.budget.used).take(self.payer.as_str(), bytes, total, self.unfinished);
        if has_room && self.unfinished.is_none() {
            self.bytes += bytes;
        }
        has_room
    }

    /// Takes bytes for which the same payer gives up others that [can be](Self::begin_unfinished). Returns `false`, and takes and
    /// gives up nothing, if there is no room then either. What was taken must not be one that can be given up.
    pub fn take_instead_of_own(&mut self, bytes: usize) -> bool {
        debug_assert!(self.unfinished.is_none());
        let total = self.budget.total();
        let mut used = lock(&self.budget.used);
        let has_room = used.make_room_of_own(self.payer.as_str(), bytes, total)
            && used.take(self.payer.as_str(), bytes, total, None);
        drop(used);
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }

    /// Takes bytes for which there may be no room, because they are in memory in any case. What was taken must not be one that
    /// can be given up.
    pub fn take_beyond(&mut self, bytes: usize) {
        debug_assert!(self.unfinished.is_none());
        self.bytes += bytes;
        lock(&self.budget.used).take_beyond(self.payer.as_str(), bytes);
    }

    /// Returns some of the bytes; at most all of them. What can be given up is returned only as a whole.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if bytes > 0 {
            lock(&self.budget.used).give_back(self.payer.as_str(), bytes);
        }
    }

    /// From now on what was taken, and what will be, may be given up for a payer who has less: then the result is told, and the
    /// bytes are no longer counted.
    pub fn begin_unfinished(&mut self) -> Arc<Notify> {
        let bytes = mem::take(&mut self.bytes);
        let (number, given_up) =
            lock(&self.budget.used).begin_unfinished(self.payer.as_str(), bytes);
        self.unfinished = Some(number);
        given_up
    }

    /// From now on nothing can be given up. Returns `false` if it was.
    pub fn end_unfinished(&mut self) -> bool {
        let Some(number) = self.unfinished.take() else {
            return true;
        };
        let bytes = lock(&self.budget.used).end_unfinished(self.payer.as_str(), number);
        self.bytes += bytes.unwrap_or_default();
        bytes.is_some()
    }

    /// Who has these bytes.
    pub fn payer(&self) -> &str {
        self.payer.as_str()
    }

    /// Whether the payer may take so many bytes more, without any that are given up for them.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.budget.has_room(self.payer.as_str(), bytes)
    }

    /// Another share for the same payer, of no bytes yet.
    #[must_use]
    pub fn another(&self) -> Self {
        self.budget.share(self.payer.clone())
    }

    /// Takes over the bytes of another share of the same budget and payer.
    pub fn join(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget));
        debug_assert_eq!(self.payer(), other.payer());
        self.bytes += mem::take(&mut other.bytes);
    }
}

impl Drop for ByteShare {
    fn drop(&mut self) {
        // First: bytes that were given up are no longer counted, and must not be returned once more.
        self.end_unfinished();
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(share: &mut ByteShare) -> usize {
        (0..1_000).take_while(|_| share.take(1)).count()
    }

    #[test]
    fn a_payer_has_at_most_as_much_as_is_left() {
        let budget = ByteBudget::new(1000);
        let mut first = budget.share("a");
        assert_eq!(most(&mut first), 500);
        assert!(!first.another().take(1), "shares of a payer count together");
        let mut other = budget.share("b");
        assert_eq!(most(&mut other), 250);
        first.give_back(400);
        assert!(other.take(100));
        assert_eq!(budget.held().now, 450);
        drop((first, other));
        assert_eq!(budget.held(), BytesHeld { now: 0, most: 750 });
    }

    #[test]
    fn what_is_in_memory_in_any_case_is_counted_beyond_the_total() {
        let budget = ByteBudget::new(1000);
        let mut share = budget.share("a");
        share.take_beyond(1200);
        assert!(!share.take(1) && !budget.share("b").take(1));
        assert_eq!(budget.held().now, 1200);
        share.give_back(1199);
        assert!(budget.share("b").take(1));
        drop(share);
        assert_eq!(budget.held().now, 0);
    }

    #[test]
    fn what_is_unfinished_makes_room_for_a_payer_who_has_less() {
        let budget = ByteBudget::new(1000);
        let mut slow = budget.share("slow");
        assert!(slow.take(300));
        let _given_up = slow.begin_unfinished();
        assert!(slow.take(200));
        let mut others: Vec<_> = ["a", "b", "c"].map(|name| budget.share(name)).into();
        assert!(others.iter_mut().all(|other| other.take(200)));
        assert!(!slow.take(1) && !slow.end_unfinished());
        assert!(slow.take(1), "it may begin anew");
        drop((slow, others));
        assert_eq!(budget.held().now, 0);
    }

    #[test]
    fn whether_there_is_room_is_known_before_bytes_are_taken() {
        let budget = ByteBudget::new(1000);
        let mut share = budget.share("a");
        assert!(share.has_room(1000) && !share.has_room(1001));
        share.take_beyond(400);
        assert!(share.has_room(200) && !share.has_room(201));
        assert!(budget.has_room("b", 600) && !budget.has_room("b", usize::MAX));
        budget.set_total(700);
        assert!(!share.has_room(1) && budget.has_room("b", 300) && !budget.has_room("b", 301));
        assert_eq!((budget.held_by("a"), budget.held_by("b")), (400, 0));
        drop(share);
        assert_eq!(budget.held_by("a"), 0);
    }

    #[test]
    fn joined_shares_are_returned_once() {
        let budget = ByteBudget::new(1000);
        let mut first = budget.share("a");
        let mut second = first.another();
        assert!(first.take(10) && second.take(20));
        first.join(second);
        assert_eq!(budget.held().now, 30);
        drop(first);
        assert_eq!(budget.held().now, 0);
    }
}
