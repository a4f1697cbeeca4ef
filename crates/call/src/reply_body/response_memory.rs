//! The memory for responses that the gateway makes itself: lists and objects of the hosted API, documents, metrics, dumps.
//!
//! Such a response is in memory as a whole until its client has read it, and clients read as slowly as they like. So its bytes
//! are charged to its user before it is encoded. A user may have at most as much as is still free ([`ByteBudget`]). A response for which
//! there is no room waits for some: of those for which there is room then, users take turns. After that it is refused, unless responses
//! of the same user that are read slowly can be given up for it.
//!
//! A response may be longer than any user's part. It is charged half of the total and one byte, which a user only gets while
//! others have little: one of them is in memory at a time, beside what others have. The metrics show its real length.
//!
//! A response that its client reads slowly, or for long, [may be given up](ResponseShare::may_be_given_up) for a user who has
//! less. What takes its place waits until it has left the memory: otherwise two long ones would be there for a moment, and more on a
//! machine that is busy.
//!
//! Not here: bytes that many responses share, which are charged to nobody; how a response is sent (`made_body`).

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate_base::account::{ByteBudget, BytePayer, ByteShare, BytesHeld, TurnQueue};
use fairgate_core::sync::{Mutex, lock};
use tokio::sync::{Notify, oneshot};

/// How long a response waits for room.
const WAIT: Duration = Duration::from_secs(5);

/// The memory for responses of the gateway.
#[derive(Debug)]
pub struct ResponseMemory {
    budget: Arc<ByteBudget>,
    total: usize,
    /// What all responses in memory are charged, those included that were given up and have not left it yet.
    charged: AtomicUsize,
    /// Told when a response has left the memory.
    left: Notify,
    /// The most that one response is charged.
    most_charged: usize,
    now: AtomicUsize,
    most: AtomicUsize,
    refused: AtomicU64,
    given_up: AtomicU64,
    waiting: Mutex<TurnQueue<WaitingResponse>>,
}

/// A response that waits for room.
#[derive(Debug)]
struct WaitingResponse {
    share: RefCell<ResponseShare>,
    bytes: usize,
    room: oneshot::Sender<ResponseShare>,
}

/// The room of one response. It is returned when this is dropped.
#[derive(Debug)]
pub struct ResponseShare {
    of: Arc<ResponseMemory>,
    share: ByteShare,
    /// The length of the response, and what it is charged.
    bytes: usize,
    charged: usize,
}

impl ResponseMemory {
    /// Memory for so many bytes.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: ByteBudget::new(total),
            total,
            charged: AtomicUsize::new(0),
            left: Notify::new(),
            most_charged: total / 2 + 1,
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }

    /// Room of no bytes yet, for a response to `user`.
    pub fn share(self: &Arc<Self>, user: impl Into<BytePayer>) -> ResponseShare {
        ResponseShare {
            of: Arc::clone(self),
            share: self.budget.share(user),
            bytes: 0,
            charged: 0,
        }
    }

    /// Waits for room for a response of so many bytes to `user`, but not for longer than some seconds: then it is to be refused.
    pub async fn room(
        self: &Arc<Self>,
        user: impl Into<BytePayer>,
        bytes: usize,
    ) -> Option<ResponseShare> {
        self.room_within(WAIT, user.into(), bytes).await
    }

    async fn room_within(
        self: &Arc<Self>,
        limit: Duration,
        user: impl Into<BytePayer>,
        bytes: usize,
    ) -> Option<ResponseShare> {
        let user = user.into();
        let (sender, receiver) = oneshot::channel();
        let waiting = WaitingResponse {
            share: RefCell::new(self.share(user.clone())),
            bytes,
            room: sender,
        };
        lock(&self.waiting).push(user.as_str(), 1, waiting);
        self.give_room();
        if let Ok(Ok(share)) = tokio::time::timeout(limit, receiver).await {
            return Some(share);
        }
        // What this user does not read keeps it from other responses for no longer.
        let mut share = self.share(user);
        if share.resize_instead_of_own(bytes, limit).await {
            return Some(share);
        }
        self.count_refused();
        None
    }

    /// Has so many charged bytes more be in memory. Returns `false`, and changes nothing, while there is no room for them although
    /// they are paid for: what was given up for them has not left yet.
    fn enter(&self, charged: usize) -> bool {
        let before = self.charged.fetch_add(charged, Ordering::Relaxed);
        let fits = before + charged <= self.total;
        if !fits {
            self.charged.fetch_sub(charged, Ordering::Relaxed);
        }
        fits
    }

    /// The same as soon as there is room, if that is soon enough.
    async fn enter_within(&self, limit: Duration, charged: usize) -> bool {
        let entering = async {
            loop {
                let mut left = std::pin::pin!(self.left.notified());
                left.as_mut().enable();
                if self.enter(charged) {
                    return;
                }
                left.await;
            }
        };
        tokio::time::timeout(limit, entering).await.is_ok()
    }

    /// So many charged bytes have left the memory.
    fn leave(&self, charged: usize) {
        self.charged.fetch_sub(charged, Ordering::Relaxed);
        self.left.notify_waiters();
        self.give_room();
    }

    /// Gives the room that there is to those who wait.
    fn give_room(&self) {
        loop {
            let next = lock(&self.waiting).pop_if(|waiting| {
                waiting.room.is_closed() || waiting.share.borrow_mut().resize(waiting.bytes)
            });
            let Some(next) = next else {
                return;
            };
            // If nobody waits for it any more, it is given back, which gives it to others.
            let _ = next.room.send(next.share.into_inner());
        }
    }

    /// Counts a response that was refused without [waiting](Self::room) for room, or although there was some.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The bytes of responses in memory, and the most there ever were.
    pub fn held(&self) -> BytesHeld {
        BytesHeld {
            now: self.now.load(Ordering::Relaxed),
            most: self.most.load(Ordering::Relaxed),
        }
    }

    /// How many responses were refused since the start because there was no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many responses were given up since the start.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }
}

impl ResponseShare {
    /// From now on the response has so many bytes. Returns `false`, and changes nothing, if there is no room for them.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let charged = bytes.min(self.of.most_charged);
        let (more, less) = (
            charged.saturating_sub(self.charged),
            self.charged.saturating_sub(charged),
        );
        if more > 0 {
            if !self.share.take(more) {
                return false;
            }
            if !self.of.enter(more) {
                self.share.give_back(more);
                return false;
            }
        }
        self.share.give_back(less);
        self.settle(bytes, charged);
        if less > 0 {
            self.of.leave(less);
        }
        true
    }

    /// The same for a response of no bytes yet, for which others of its user are given up that may be, and that waits until these have
    /// left the memory.
    async fn resize_instead_of_own(&mut self, bytes: usize, limit: Duration) -> bool {
        let charged = bytes.min(self.of.most_charged);
        let has_room =
            self.share.take_instead_of_own(charged) && self.of.enter_within(limit, charged).await;
        if has_room {
            self.settle(bytes, charged);
        }
        has_room
    }

    /// Has so many bytes, and is charged for them.
    fn settle(&mut self, bytes: usize, charged: usize) {
        self.charged = charged;
        if bytes >= self.bytes {
            let more = bytes - self.bytes;
            let now = self.of.now.fetch_add(more, Ordering::Relaxed) + more;
            self.of.most.fetch_max(now, Ordering::Relaxed);
        } else {
            self.of.now.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// From now on the response may be given up for a user who has less. The result is told then: the response has to be
    /// dropped.
    pub(super) fn may_be_given_up(&mut self) -> Arc<Notify> {
        if self.charged == self.of.most_charged {
            // With one byte more it makes room for another one of its kind.
            self.share.take_beyond(1);
        }
        let given_up = self.share.begin_unfinished();
        self.of.give_room();
        given_up
    }

    /// Counts this response as refused because there was no room.
    pub fn count_refused(&self) {
        self.of.count_refused();
    }

    /// Counts a response that was given up.
    pub(super) fn count_given_up(&self) {
        self.of.given_up.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for ResponseShare {
    fn drop(&mut self) {
        self.of.now.fetch_sub(self.bytes, Ordering::Relaxed);
        self.share.end_unfinished();
        self.share.give_back(usize::MAX);
        if self.charged > 0 {
            self.of.leave(self.charged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: usize = 1000;

    fn share(memory: &Arc<ResponseMemory>, user: &str, bytes: usize) -> Option<ResponseShare> {
        let mut share = memory.share(user);
        share.resize(bytes).then_some(share)
    }

    #[test]
    fn responses_of_one_user_leave_room_for_those_of_others() {
        let memory = ResponseMemory::new(TOTAL);
        let slow: Vec<_> = (0..40).map_while(|_| share(&memory, "slow", 60)).collect();
        assert_eq!((slow.len(), memory.held().now), (8, 480));
        assert!(share(&memory, "other", 200).is_some());
        drop(slow);
        assert_eq!(memory.held(), BytesHeld { now: 0, most: 680 });
    }

    #[test]
    fn one_response_may_be_longer_than_all_of_the_memory() {
        let memory = ResponseMemory::new(TOTAL);
        let mut long = share(&memory, "a", 5 * TOTAL).unwrap();
        assert!(share(&memory, "a", 1).is_none() && share(&memory, "b", 5 * TOTAL).is_none());
        assert!(share(&memory, "b", 400).is_some(), "others still have room");
        assert_eq!(memory.held().now, 5 * TOTAL);
        assert!(long.resize(100));
        assert!(share(&memory, "b", 5 * TOTAL).is_some());
        assert_eq!(memory.held().now, 100);
    }

    #[tokio::test]
    async fn what_is_read_slowly_is_given_up_for_who_has_less_also_for_another_long_one() {
        let memory = ResponseMemory::new(TOTAL);
        for bytes in [10, 450, 3 * TOTAL] {
            let mut slow = share(&memory, "slow", 3 * TOTAL).unwrap();
            let given_up = slow.may_be_given_up();
            let room = share(&memory, "other", bytes);
            let is_told = tokio::time::timeout(Duration::ZERO, given_up.notified()).await;
            assert_eq!(is_told.is_ok(), bytes > 450, "{bytes}");
            assert_eq!(room.is_some(), bytes <= 450, "it is in memory yet");
            drop((slow, room));
            assert!(share(&memory, "other", bytes).is_some());
        }
        assert_eq!(memory.held().now, 0);
        let most = memory.held().most;
        assert_eq!(most, 3 * TOTAL + 450, "never two long ones");
        assert_eq!(memory.budget.held().now, 0);
    }

    #[tokio::test]
    async fn a_response_waits_for_room_and_is_refused_if_there_is_none_for_long() {
        let memory = ResponseMemory::new(TOTAL);
        let held = share(&memory, "a", 600).unwrap();
        let mut waiting = Box::pin(memory.room("a", 300));
        tokio::select! {
            _ = &mut waiting => panic!("there is no room"),
            () = tokio::task::yield_now() => {}
        }
        drop(held);
        let room = waiting.await.unwrap();
        assert_eq!((memory.held().now, memory.refused()), (300, 0));
        let refused = memory.room_within(Duration::ZERO, "a", 600).await;
        assert!(refused.is_none());
        assert_eq!(memory.refused(), 1);
        drop(room);
    }

    #[tokio::test]
    async fn those_who_wait_get_room_in_turn_however_many_responses_one_user_waits_for() {
        let memory = ResponseMemory::new(TOTAL);
        let mut held: Vec<_> = (0..5).map_while(|_| share(&memory, "a", 100)).collect();
        held.push(share(&memory, "b", 250).unwrap());
        held.push(share(&memory, "c", 200).unwrap());
        let mut waiting: Vec<_> = ["greedy", "greedy", "greedy", "other"]
            .into_iter()
            .map(|user| (user, Box::pin(memory.room(user, 100))))
            .collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut served = Vec::new();
        let mut rooms = Vec::new();
        while !held.is_empty() && served.len() < 3 {
            waiting.retain_mut(|(user, waiting)| {
                let polled = waiting.as_mut().poll(&mut context);
                let std::task::Poll::Ready(room) = polled else {
                    return true;
                };
                served.push(*user);
                rooms.push(room.unwrap());
                false
            });
            held.remove(0);
        }
        assert_eq!(served, ["greedy", "other", "greedy"]);
    }

    #[tokio::test]
    async fn what_a_user_reads_slowly_is_given_up_for_its_own_after_the_wait() {
        let memory = ResponseMemory::new(TOTAL);
        let mut stuck = share(&memory, "a", 450).unwrap();
        let read = share(&memory, "a", 90).unwrap();
        let others = share(&memory, "b", 400).unwrap();
        let within = Duration::ZERO;
        assert!(memory.room_within(within, "a", 300).await.is_none());
        let given_up = stuck.may_be_given_up();
        assert!(memory.room_within(within, "a", 2 * TOTAL).await.is_none());
        // It gets room once the other one has left.
        let soon = Duration::from_millis(1);
        let (room, ()) = tokio::join!(memory.room_within(soon, "a", 300), async {
            given_up.notified().await;
            assert_eq!(memory.held().now, 940);
            drop(stuck);
        });
        let room = room.unwrap();
        assert_eq!((memory.held().now, memory.refused()), (790, 2));
        drop((room, read, others));
        assert_eq!(memory.budget.held().now, 0);
    }
}
