//! One priority level, for many threads.
//!
//! A [`Level`] is a [`QueueSet`] behind a lock of its own; levels share none. The lock is held for a
//! few hundred nanoseconds and never while something is woken, logged, allocated or looked up by
//! name: decisions about others are collected and handed out after it is released.
//!
//! A [`Ticket`] is the right to execute. It is given back exactly once, by [`Ticket::finish`]; the
//! owner sees to that on every way out, a panic or a lost client included.

use smallvec::SmallVec;

use super::{
    policy::Semantics,
    queueset::{Admission, Arriving, Discipline, EntryId, Events, QueueSet, Rejection},
    retry_after::RetryAfter,
    units::{Seats, Time},
};
use crate::sync::{Arc, Mutex, lock};

/// One priority level. `W` names whoever waits and is never looked at.
#[derive(Debug)]
pub struct Level<W> {
    set: Mutex<QueueSet<W>>,
    retry_after: Mutex<RetryAfter>,
}

/// The right to execute one request.
#[must_use = "seats are held until the ticket is finished"]
#[derive(Debug)]
pub struct Ticket<W> {
    level: Arc<Level<W>>,
    id: EntryId,
}

/// A place in a queue.
#[derive(Debug)]
pub struct Place<W> {
    level: Arc<Level<W>>,
    id: EntryId,
}

/// What becomes of an arrival.
#[derive(Debug)]
pub enum Arrival<W> {
    /// It executes.
    Execute(Ticket<W>),
    /// It waits; a decision will name its waiter.
    Wait(Place<W>),
    /// It is refused.
    Reject(Rejection),
}

/// Decisions about requests that were waiting. The caller delivers them once the call returned.
#[derive(Debug)]
pub struct Decisions<W> {
    /// Each may execute from now on. Who finds the waiter gone finishes the ticket.
    pub dispatched: SmallVec<[(W, Ticket<W>); 4]>,
    /// Schemas of heads that were next in turn but did not fit.
    pub blocked: SmallVec<[u32; 4]>,
    /// Waiting requests in the queue of the arrival, itself included, before dispatch.
    pub queue_length: Option<u32>,
}

impl<W> Default for Decisions<W> {
    fn default() -> Self {
        Self {
            dispatched: SmallVec::new(),
            blocked: SmallVec::new(),
            queue_length: None,
        }
    }
}

impl<W: Copy> Level<W> {
    /// A level without requests.
    pub fn new(semantics: Semantics, discipline: Discipline, limit: Seats, now: Time) -> Arc<Self> {
        Arc::new(Self {
            set: Mutex::new(QueueSet::new(semantics, discipline, limit, now)),
            retry_after: Mutex::default(),
        })
    }

    /// A request arrives. O(hand + log queues), one short lock.
    pub fn arrive(
        self: &Arc<Self>,
        now: Time,
        arriving: Arriving<W>,
        out: &mut Decisions<W>,
    ) -> Arrival<W> {
        let (admission, queue_length) = self.with(out, |set, events| {
            let admission = set.arrive(now, arriving, events);
            (admission, events.queue_length)
        });
        out.queue_length = queue_length;
        match admission {
            Admission::Execute(id) => Arrival::Execute(Ticket {
                level: Arc::clone(self),
                id,
            }),
            Admission::Wait(id) => Arrival::Wait(Place {
                level: Arc::clone(self),
                id,
            }),
            Admission::Reject(rejection) => Arrival::Reject(rejection),
        }
    }

    /// Time passes; needed when a [`Ticket::finish`] told of a later release.
    pub fn tick(self: &Arc<Self>, now: Time, out: &mut Decisions<W>) {
        self.with(out, |set, events| set.tick(now, events));
    }

    /// Takes on another discipline and semantics; what waits keeps its place.
    pub fn configure(
        self: &Arc<Self>,
        now: Time,
        semantics: Semantics,
        discipline: Discipline,
        out: &mut Decisions<W>,
    ) {
        self.with(out, |set, events| {
            set.configure(now, semantics, discipline, events);
        });
    }

    /// Takes on another current limit; `denominator` is what the ratio metrics divide by.
    pub fn set_limit(
        self: &Arc<Self>,
        now: Time,
        limit: Seats,
        denominator: Seats,
        out: &mut Decisions<W>,
    ) {
        self.with(out, |set, events| {
            set.set_limit(now, limit, denominator, events);
        });
    }

    /// Counts a rejection at `unix_seconds`; returns after how many seconds the client should come
    /// again. `random` spreads clients out where the semantics allow it.
    pub fn retry_after(&self, semantics: Semantics, unix_seconds: u64, random: u64) -> u32 {
        let mut tracker = lock(&self.retry_after);
        tracker.record(semantics, unix_seconds);
        tracker.answer(semantics, random)
    }

    /// Looks at the queue set; for metrics, dumps and borrowing, off the hot path.
    pub fn inspect<T>(&self, look: impl FnOnce(&mut QueueSet<W>) -> T) -> T {
        look(&mut lock(&self.set))
    }

    fn with<T>(
        self: &Arc<Self>,
        out: &mut Decisions<W>,
        act: impl FnOnce(&mut QueueSet<W>, &mut Events<W>) -> T,
    ) -> T {
        let mut events = Events::default();
        let result = act(&mut lock(&self.set), &mut events);
        let ticket = |(waiter, id)| {
            (
                waiter,
                Ticket {
                    level: Arc::clone(self),
                    id,
                },
            )
        };
        out.dispatched
            .extend(events.dispatched.into_iter().map(ticket));
        out.blocked.extend(events.blocked);
        result
    }
}

impl<W: Copy> Ticket<W> {
    /// The request has been answered. Returns when its final seats are released, if it holds any:
    /// the caller then calls [`Level::tick`] at that time.
    pub fn finish(self, now: Time, out: &mut Decisions<W>) -> Option<Time> {
        self.level
            .with(out, |set, events| set.finish(now, self.id, events))
    }

    /// The level that gave it.
    pub fn level(&self) -> &Arc<Level<W>> {
        &self.level
    }
}

impl<W> Place<W> {
    /// The level whose queue it is in.
    pub fn level(&self) -> &Arc<Level<W>> {
        &self.level
    }
}

impl<W: Copy> Place<W> {
    /// Gives the place up. False if the request was dispatched meanwhile: then its ticket is on the
    /// way to the waiter.
    pub fn cancel(&self, now: Time, out: &mut Decisions<W>) -> bool {
        self.level
            .with(out, |set, events| set.cancel(now, self.id, events))
    }
}
