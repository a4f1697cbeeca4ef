//! One priority level, for many threads.
//!
//! A [`Level`] is a [`QueueSet`] with its own lock; levels share none. The lock is held for a few hundred
//! nanoseconds and never while something is woken, logged, allocated or looked up by name: decisions about
//! others are collected and handed out after it is released. The exception is a request that could take the place of another in a full
//! queue: whether it may wait is asked under the lock ([`Level::arrive_with_check`]).
//!
//! A [`Ticket`] is the right to execute. It is given back exactly once, by [`Ticket::finish`]; the
//! owner ensures this however the request ends, by a panic or a disconnected client, too.
//!
//! Times may come from several cores and in any order: the queue set keeps the latest it has seen and takes earlier ones
//! for that one.
//!
//! A level whose demand only an event can change is *at rest*: rebalancing leaves a notice with it (`changes`), which the
//! first event sends.

#[cfg(all(test, loom))]
mod loom_tests;

use smallvec::SmallVec;

use super::{
    changes::ChangeNotice,
    queueset::{
        Admission, ArrivingRequest, Discipline, EntryId, LevelElsewhere, QueueSet, QueueSetEvents,
    },
    retry_after::RetryAfter,
    seat_lease::LevelLease,
    units::Seats,
};
use crate::{
    apf::spec::Semantics,
    rejection::RejectReason,
    sync::{Arc, Mutex, lock},
    time::Time,
};

/// One priority level; clones are the same level. `W` is the caller's identifier of a waiting
/// request, which is never inspected.
#[derive(Debug)]
pub struct Level<W> {
    /// Two counts of references: each request changes the outer one, which a core has for itself ([`Level::for_core`]).
    #[expect(clippy::redundant_allocation, reason = "the outer count is the reason")]
    shared: Arc<Arc<LevelInner<W>>>,
}

#[derive(Debug)]
struct LevelInner<W> {
    guarded: Mutex<Guarded<W>>,
    retry_after: Mutex<RetryAfter>,
}

/// What the lock of a level guards.
#[derive(Debug)]
struct Guarded<W> {
    set: QueueSet<W>,
    /// While the level is at rest, or has a lease to look at: to be handled before the next event. One field for both, so that a level
    /// without a lease pays nothing for what others do.
    notice: Option<ChangeNotice>,
    lease: Option<Box<LevelLease>>,
}

impl<W> Clone for Level<W> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// The right to execute one request.
#[must_use = "seats are held until the ticket is finished"]
#[derive(Debug)]
pub struct Ticket<W> {
    level: Level<W>,
    id: EntryId,
}

/// A place in a queue.
#[derive(Debug)]
pub struct QueuePlace<W> {
    level: Level<W>,
    id: EntryId,
}

/// What happens to an arriving request.
#[derive(Debug)]
pub enum Arrival<W> {
    /// It executes.
    Execute(Ticket<W>),
    /// It waits; a decision will name its waiter.
    Wait(QueuePlace<W>),
    /// It is refused.
    Reject(RejectReason),
}

/// Decisions about requests that were waiting. The caller delivers them once the call returned.
#[derive(Debug)]
pub struct Decisions<W> {
    /// Each may execute from now on. Whoever delivers it finishes the ticket if the waiter is gone.
    pub dispatched: SmallVec<[(W, Ticket<W>); 4]>,
    /// Schemas of heads that were next in turn but did not fit.
    pub blocked: SmallVec<[u32; 4]>,
    /// A waiting request that is refused as [`RejectReason::QueueFull`], because the arriving one has taken its place. Its
    /// [`QueuePlace`] is void.
    pub replaced: Option<W>,
    /// Waiting requests in the queue of the arrival, itself included, before dispatch.
    pub queue_length: Option<u32>,
}

impl<W> Default for Decisions<W> {
    fn default() -> Self {
        Self {
            dispatched: SmallVec::new(),
            blocked: SmallVec::new(),
            replaced: None,
            queue_length: None,
        }
    }
}

impl<W> Decisions<W> {
    /// Whether there is nothing to deliver to others.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.dispatched.is_empty() && self.blocked.is_empty() && self.replaced.is_none()
    }
}

impl<W> Level<W> {
    /// The same level, for one core: its clones and tickets are counted in memory that the clones of `self` do not touch.
    #[must_use]
    pub fn for_core(&self) -> Self {
        Self {
            shared: Arc::new(Arc::clone(&self.shared)),
        }
    }
}

impl<W: Copy> Level<W> {
    /// A level without requests.
    pub fn new(semantics: Semantics, discipline: Discipline, limit: Seats, now: Time) -> Self {
        let guarded = Guarded {
            set: QueueSet::new(semantics, discipline, limit, now),
            notice: None,
            lease: None,
        };
        let shared = LevelInner {
            guarded: Mutex::new(guarded),
            retry_after: Mutex::new(RetryAfter::default()),
        };
        Self {
            shared: Arc::new(Arc::new(shared)),
        }
    }

    /// Whether `other` is the same level.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&*self.shared, &*other.shared)
    }

    /// A request arrives. O(hand + log queues), one short lock.
    pub fn arrive(
        &self,
        now: Time,
        arriving: ArrivingRequest<W>,
        out: &mut Decisions<W>,
    ) -> Arrival<W> {
        self.arrive_with_check(now, arriving, || true, out)
    }

    /// The same, for a request that may not wait unless `may_wait` returns true. That is called at most once, under the lock, and only
    /// where the request would take the [place](Decisions::replaced) of another one; so it must be quick, and must not use a level.
    pub fn arrive_with_check(
        &self,
        now: Time,
        arriving: ArrivingRequest<W>,
        may_wait: impl FnOnce() -> bool,
        out: &mut Decisions<W>,
    ) -> Arrival<W> {
        let (admission, replaced, queue_length) = self.with(now, out, |now, set, events| {
            let admission = set.arrive_with_check(now, arriving, may_wait, events);
            (admission, events.replaced, events.queue_length)
        });
        debug_assert!(
            out.replaced.is_none(),
            "decisions are delivered before the next request arrives"
        );
        out.replaced = replaced;
        out.queue_length = queue_length;
        match admission {
            Admission::Execute(id) => Arrival::Execute(Ticket {
                level: self.clone(),
                id,
            }),
            Admission::Wait(id) => Arrival::Wait(QueuePlace {
                level: self.clone(),
                id,
            }),
            Admission::Reject(rejection) => Arrival::Reject(rejection),
        }
    }

    /// Time passes; needed when [`Ticket::finish`] returned a later release. Returns when to call this again, if that happens
    /// later than it said.
    pub fn tick(&self, now: Time, out: &mut Decisions<W>) -> Option<Time> {
        self.with(now, out, |now, set, events| set.tick(now, events))
    }

    /// Changes the discipline and the semantics, and what the flows of one tenant weigh together at most; waiting requests
    /// keep their places. A level at rest stays at rest: nothing waits in it that could be dispatched.
    pub fn configure(
        &self,
        now: Time,
        semantics: Semantics,
        discipline: Discipline,
        tenant_weight: u32,
        out: &mut Decisions<W>,
    ) {
        self.adjust(now, out, |set, events| {
            set.set_tenant_weight(now, tenant_weight, events);
            set.configure(now, semantics, discipline, events);
        });
    }

    /// Changes the current limit; `denominator` is what the ratio metrics divide by. A level at rest stays at rest.
    pub fn set_limit(&self, now: Time, limit: Seats, denominator: Seats, out: &mut Decisions<W>) {
        self.adjust(now, out, |set, events| {
            set.set_limit(now, limit, denominator, events);
        });
    }

    /// What happens at the other gateways of the fleet in this level, from `now` on.
    pub fn note_elsewhere(&self, now: Time, elsewhere: &LevelElsewhere, out: &mut Decisions<W>) {
        self.adjust(now, out, |set, events| {
            set.note_elsewhere(now, elsewhere, events);
        });
    }

    /// Counts a rejection at `unix_seconds`; returns after how many seconds the client should
    /// retry. `random` spreads clients out where the semantics allow it.
    pub fn retry_after(&self, semantics: Semantics, unix_seconds: u64, random: u64) -> u32 {
        let mut tracker = lock(&self.shared.retry_after);
        tracker.record(semantics, unix_seconds);
        tracker.delay(semantics, random)
    }

    /// Reads the queue set; for metrics and dumps, not on the hot path.
    pub fn inspect<T>(&self, look: impl FnOnce(&QueueSet<W>) -> T) -> T {
        look(&lock(&self.shared.guarded).set)
    }

    /// Acts on the queue set itself, for simulations that carry decisions out in their own way. One short lock.
    #[inline]
    pub fn act<T>(&self, act: impl FnOnce(&mut QueueSet<W>) -> T) -> T {
        self.act_at(Time::ZERO, |_, set| act(set))
    }

    /// Acts on the queue set at `now`, or at the latest time that it has seen if that is later.
    #[inline]
    fn act_at<T>(&self, now: Time, act: impl FnOnce(Time, &mut QueueSet<W>) -> T) -> T {
        let mut guarded = lock(&self.shared.guarded);
        let notice = guarded.begin_change(now);
        let result = act(now, &mut guarded.set);
        drop(guarded);
        if let Some(notice) = notice {
            // After the lock is released: the list of changes has a lock that all levels share.
            notice.send();
        }
        result
    }

    /// Lets rebalancing read the demand. If `look` returns a notice, the level is at rest from then on: only an event may
    /// change its demand, nothing waits in it, and no seats linger.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(&mut QueueSet<W>) -> (T, Option<ChangeNotice>),
    ) -> T {
        let mut guarded = lock(&self.shared.guarded);
        let (result, notice) = look(&mut guarded.set);
        guarded.notice = notice.or_else(|| guarded.lease.as_ref().map(|lease| lease.notice()));
        result
    }

    /// From now on the level looks at this lease with each event and adjustment, and its limit is at most what the lease leaves to it once that
    /// has ended.
    pub(super) fn set_lease(&self, lease: LevelLease) {
        let mut guarded = lock(&self.shared.guarded);
        guarded.notice.get_or_insert_with(|| lease.notice());
        guarded.lease = Some(Box::new(lease));
    }

    /// An event about requests.
    fn with<T>(
        &self,
        now: Time,
        out: &mut Decisions<W>,
        act: impl FnOnce(Time, &mut QueueSet<W>, &mut QueueSetEvents<W>) -> T,
    ) -> T {
        let mut events = QueueSetEvents::default();
        let result = self.act_at(now, |now, set| act(now, set, &mut events));
        self.collect(&mut events, out);
        result
    }

    /// An adjustment at `now`, which changes nothing about the demand of a level in which nothing waits.
    fn adjust(
        &self,
        now: Time,
        out: &mut Decisions<W>,
        act: impl FnOnce(&mut QueueSet<W>, &mut QueueSetEvents<W>),
    ) {
        let mut events = QueueSetEvents::default();
        let mut guarded = lock(&self.shared.guarded);
        // It may dispatch, for example to seats that have lingered.
        guarded.keep_to_lease(now);
        act(&mut guarded.set, &mut events);
        drop(guarded);
        self.collect(&mut events, out);
    }

    #[inline]
    fn collect(&self, events: &mut QueueSetEvents<W>, out: &mut Decisions<W>) {
        let ticket = |(waiter, id)| {
            (
                waiter,
                Ticket {
                    level: self.clone(),
                    id,
                },
            )
        };
        // Most calls are about the caller's request alone, and `extend` takes some 130 instructions even for nothing.
        if !events.dispatched.is_empty() {
            let dispatched = events.dispatched.drain(..);
            out.dispatched.extend(dispatched.map(ticket));
        }
        if !events.blocked.is_empty() {
            out.blocked.extend(events.blocked.drain(..));
        }
    }
}

impl<W: Copy> Guarded<W> {
    /// To be called before an event at `now`. If the level is at rest, its demand was constant up to the last rebalancing, and
    /// the period in which it changes began then.
    #[inline]
    fn begin_change(&mut self, now: Time) -> Option<ChangeNotice> {
        match self.notice {
            None => None,
            Some(_) => self.prepare(now),
        }
    }

    /// Apart, because without leases it happens once per rebalancing at most.
    #[cold]
    fn prepare(&mut self, now: Time) -> Option<ChangeNotice> {
        self.keep_to_lease(now);
        let following = self.lease.as_deref().map(LevelLease::notice);
        let notice = std::mem::replace(&mut self.notice, following)?;
        if !notice.ends_rest() {
            return None;
        }
        self.set.take_demand(notice.last_read());
        Some(notice)
    }

    /// If the level has a lease that has ended at `now`, its limit is at most what is left to it after that.
    fn keep_to_lease(&mut self, now: Time) {
        if let Some(lease) = self.lease.as_deref()
            && !lease.lease.holds(now.max(self.set.now()))
        {
            self.set.cut_limit(now, lease.after);
        }
    }
}

impl<W: Copy> Ticket<W> {
    /// The request has finished. Returns when its final seats are released, if it holds any:
    /// the caller then calls [`Level::tick`] at that time.
    pub fn finish(self, now: Time, out: &mut Decisions<W>) -> Option<Time> {
        self.level.with(now, out, |now, set, events| {
            set.finish(now, self.id, events)
        })
    }

    /// The request was refused before it was carried out: see [`QueueSet::finish_refused`]. Returns the same as
    /// [`finish`](Self::finish).
    pub fn finish_refused(self, now: Time, out: &mut Decisions<W>) -> Option<Time> {
        self.level.with(now, out, |now, set, events| {
            set.finish_refused(now, self.id, events)
        })
    }

    /// The seats that it holds. Locks the level for a moment.
    pub fn seats(&self) -> Seats {
        let seats = self.level.inspect(|set| set.seats(self.id));
        seats.unwrap_or(0)
    }

    /// The level that gave it.
    pub fn level(&self) -> &Level<W> {
        &self.level
    }
}

impl<W> QueuePlace<W> {
    /// The level whose queue it is in.
    pub fn level(&self) -> &Level<W> {
        &self.level
    }
}

impl<W: Copy> QueuePlace<W> {
    /// Cancels the wait. False if the request was dispatched or [replaced](Decisions::replaced) meanwhile: then its ticket or
    /// its refusal is on the way to the waiter.
    pub fn cancel(&self, now: Time, out: &mut Decisions<W>) -> bool {
        self.level.with(now, out, |now, set, events| {
            set.cancel(now, self.id, events)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::apf::{shard::Dealer, spec::Queuing, work::Work};

    #[test]
    fn a_tick_releases_seats_that_have_lingered() {
        let level = Level::new(Semantics::Improved, Discipline::Reject, 1, Time::ZERO);
        let request = ArrivingRequest {
            waiter: (),
            schema: 0,
            hash: 0,
            tenant: 0,
            work: Work {
                initial_seats: 1,
                final_seats: 1,
                additional_latency: Duration::from_millis(5),
            },
        };
        let mut out = Decisions::default();
        let Arrival::Execute(ticket) = level.arrive(Time::ZERO, request, &mut out) else {
            panic!("a seat is free");
        };
        let until = ticket
            .finish(Time::ZERO, &mut out)
            .expect("its seat lingers");
        let in_use = || level.inspect(|set| set.summary().seats_in_use);
        assert_eq!(in_use(), 1);
        level.tick(until, &mut out);
        assert_eq!(in_use(), 0);
    }

    #[test]
    fn a_request_that_was_dispatched_cannot_be_cancelled() {
        let queuing = Queuing {
            queues: 2,
            hand_size: 1,
            queue_length_limit: 5,
        };
        let dealer = Dealer::new(2, 1).unwrap();
        let level = Level::new(
            Semantics::Improved,
            Discipline::Queue { queuing, dealer },
            1,
            Time::ZERO,
        );
        let mut out = Decisions::default();
        let arrive = |waiter| {
            let request = ArrivingRequest {
                waiter,
                schema: 0,
                hash: 0,
                tenant: 0,
                work: Work::ONE,
            };
            level.arrive(Time::ZERO, request, &mut Decisions::default())
        };
        let Arrival::Execute(executing) = arrive("executes") else {
            panic!("a seat is free");
        };
        let (Arrival::Wait(first), Arrival::Wait(second)) = (arrive("first"), arrive("second"))
        else {
            panic!("no seat is free");
        };
        executing.finish(Time::ZERO, &mut out);
        assert_eq!(out.dispatched.len(), 1, "the first");
        assert!(!first.cancel(Time::ZERO, &mut out));
        assert!(second.cancel(Time::ZERO, &mut out));
    }

    #[test]
    fn the_retry_delay_grows_with_the_number_of_rejections() {
        let level = Level::<()>::new(Semantics::Compatible, Discipline::Reject, 1, Time::ZERO);
        let answers: Vec<u32> = [10, 10, 10, 11, 12, 12]
            .map(|second| level.retry_after(Semantics::Compatible, second, 0))
            .into();
        assert_eq!(answers, [1, 1, 1, 2, 2, 2]);
        let spread = level.retry_after(Semantics::Improved, 12, u64::MAX);
        assert_eq!(
            spread, 2,
            "the highest random number gives the longest delay"
        );
    }
}
