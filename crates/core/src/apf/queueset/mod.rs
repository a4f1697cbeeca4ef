//! Fair queuing of one priority level.
//!
//! A [`QueueSet`] holds the requests of one level and decides which waiting one takes the next free
//! seats. It is pure: time comes in as an argument, decisions go out, nothing here waits.
//!
//! In [`Semantics::Compatible`] queues take turns, as in kube-apiserver (`by_queue`); in [`Semantics::Improved`] flows
//! do (`fair`).
//!
//! Not here: many threads ([`super::level`]), lending seats between levels ([`super::borrowing`]).
//!
#![doc = include_str!("algorithm.md")]

mod by_queue;
mod charges;
mod dispatch;
mod drains;
mod due;
mod elsewhere;
mod fair;
mod fifo;
mod flows;
mod idle;
mod lingering;
mod parts;
mod places;
mod reconfigure;
mod reports;
mod savings;
mod service_times;
mod tenants;
#[cfg(test)]
mod tests;
mod turns;
mod virtual_time;

use std::{ops::ControlFlow, time::Duration};

use smallvec::SmallVec;

use charges::Charges;
use drains::Blocked;
pub use elsewhere::{FlowUse, LevelElsewhere};
use fifo::{Entries, NONE, Queue};
pub use fifo::{EntryId, Phase, RequestEntry};
use flows::FlowTable;
use lingering::Lingering;
use reports::Ratios;
pub use reports::{
    Counters, QueueReport, QueueSetSummary, RatioReport, RequestReport, TenantReport,
};
pub use tenants::DEFAULT_TENANT_WEIGHT;
use turns::Turns;
use virtual_time::VirtualTime;

use super::{
    demand::Integrator,
    order::HeadOrder,
    shard::Dealer,
    units::{SeatSeconds, Seats},
    work::Work,
};
use crate::{
    apf::spec::{Queuing, Semantics},
    rejection::RejectReason,
    time::{Nanos, Time},
};

/// How a queue set treats its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Dispatches everything at once.
    Exempt,
    /// Dispatches what fits, refuses the rest.
    Reject,
    /// Queues fairly.
    Queue {
        /// The shape of the queues.
        queuing: Queuing,
        /// Deals hands out of them.
        dealer: Dealer,
    },
}

/// An arriving request.
#[derive(Clone, Copy, Debug)]
pub struct ArrivingRequest<W> {
    /// The caller's identifier of the waiting request; never inspected.
    pub waiter: W,
    /// The caller's number for the schema; never inspected.
    pub schema: u32,
    /// Hash of the flow.
    pub hash: u64,
    /// Hash of the tenant whose request it is.
    pub tenant: u64,
    /// The cost of the request.
    pub work: Work,
}

/// What happens to an arriving request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It executes.
    Execute(EntryId),
    /// It waits; a later decision names its waiter.
    Wait(EntryId),
    /// It is refused.
    Reject(RejectReason),
}

/// Decisions about requests that were waiting, for the caller to deliver.
#[derive(Debug)]
pub struct QueueSetEvents<W> {
    /// They execute from now on.
    pub dispatched: SmallVec<[(W, EntryId); 4]>,
    /// Schemas of heads that were next but did not fit.
    pub blocked: SmallVec<[u32; 4]>,
    /// A waiting request that is refused as [`RejectReason::QueueFull`], because the arriving one takes its place. Only an
    /// arrival in Improved causes this.
    pub replaced: Option<W>,
    /// Waiting requests in the queue of the arrival, itself included, before dispatch.
    pub queue_length: Option<u32>,
}

impl<W> Default for QueueSetEvents<W> {
    fn default() -> Self {
        Self {
            dispatched: SmallVec::new(),
            blocked: SmallVec::new(),
            replaced: None,
            queue_length: None,
        }
    }
}

/// The requests of one level. See the module's documentation.
#[derive(Debug)]
pub struct QueueSet<W> {
    semantics: Semantics,
    discipline: Discipline,
    /// The current concurrency limit.
    limit: Seats,
    now: Time,
    virtual_time: VirtualTime,
    entries: Entries<W>,
    /// Every queue that is in the deck or still holds requests.
    slots: Vec<Queue>,
    free_slots: Vec<u32>,
    /// Position → slot.
    deck: Vec<u32>,
    /// What each flow has used; empty in Compatible.
    flows: FlowTable,
    /// The flows with waiting requests; empty in Compatible.
    turns: Turns,
    /// For how long nothing has waited; only Improved.
    uncontended: Nanos,
    /// How many lines of flows have begun.
    lines_begun: u32,
    /// The flow with the longest line found so far, or [`NONE`]. It may have become shorter, or be another flow by now.
    longest: u32,
    /// The queues with waiting requests; empty in Improved.
    order: HeadOrder,
    blocked: Blocked,
    /// What one head that did not fit kept idle, as a moving mean, in units of seat-seconds.
    drain_cost: u64,
    /// The work of requests; only Improved.
    charges: Charges,
    /// The position after the queue dispatched last: where ties are broken from.
    after_robin: u32,
    enqueued: u64,
    /// Requests that arrived.
    arrived: u64,
    sums: Sums,
    /// The service time assumed of requests of which nothing is known.
    assumed: Nanos,
    /// Requests it is the mean of, up to the number that is remembered; 0 in Compatible.
    learnt: u32,
    lingering: Lingering,
    counters: Counters,
    demand: Integrator,
    ratios: Ratios,
}

/// Running sums over all requests, and over the queues of the deck.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Seats of requests that execute or linger, displaced ones too.
    seats_in_use: Seats,
    /// Those of them whose flows were far behind virtual time when they started; only Improved.
    catching_up: Seats,
    executing: u32,
    waiting: u32,
    /// Seats that waiting requests ask for, as the gauges and the demand count them.
    waiting_seats: u64,
    /// Sums over the queues in the deck: seats in use, seats asked for, queues with work.
    deck_seats_in_use: u64,
    deck_waiting_seats: u64,
    active_queues: u32,
    /// Queues in which requests wait; only Improved.
    queues_waiting: u32,
}

impl<W: Copy> QueueSet<W> {
    /// An empty queue set with a concurrency limit of `limit` seats.
    pub fn new(semantics: Semantics, discipline: Discipline, limit: Seats, now: Time) -> Self {
        let mut set = Self {
            semantics,
            discipline,
            limit,
            now,
            virtual_time: VirtualTime::default(),
            entries: Entries::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            deck: Vec::new(),
            flows: FlowTable::new(DEFAULT_TENANT_WEIGHT),
            turns: Turns::new(),
            uncontended: Nanos::ZERO,
            lines_begun: 0,
            longest: NONE,
            order: HeadOrder::default(),
            blocked: Blocked::default(),
            drain_cost: 0,
            charges: Charges::new(),
            // The original begins as if the first queue had been dispatched.
            after_robin: 1,
            enqueued: 0,
            arrived: 0,
            sums: Sums::default(),
            assumed: Work::ASSUMED_SERVICE_TIME.into(),
            learnt: 0,
            lingering: Lingering::default(),
            counters: Counters::default(),
            demand: Integrator::new(now),
            ratios: Ratios::new(now, &discipline, limit),
        };
        set.grow_deck();
        set
    }

    /// A request arrives.
    ///
    /// `events` receives decisions about *other* requests; the decision about the arriving request is returned.
    pub fn arrive(
        &mut self,
        now: Time,
        arriving: ArrivingRequest<W>,
        events: &mut QueueSetEvents<W>,
    ) -> Admission {
        self.arrive_with_check(now, arriving, || true, events)
    }

    /// The same, for a request that may not wait unless `may_wait` returns true. That is only called, once, before another request is
    /// refused for this one.
    pub fn arrive_with_check(
        &mut self,
        now: Time,
        arriving: ArrivingRequest<W>,
        may_wait: impl FnOnce() -> bool,
        events: &mut QueueSetEvents<W>,
    ) -> Admission {
        self.advance(now, events);
        let admission = match self.discipline {
            Discipline::Exempt => Admission::Execute(self.start_queueless(arriving)),
            Discipline::Reject if self.fits(self.width(&arriving.work)) => {
                Admission::Execute(self.start_queueless(arriving))
            }
            Discipline::Reject => {
                if self.semantics == Semantics::Improved {
                    // A rejected request is demand: the level may borrow spare seats for such requests.
                    let seats = self.width(&arriving.work).into();
                    // Until a request has ended, requests are assumed to last for the whole period.
                    let service_time = match self.learnt {
                        0 => Duration::MAX,
                        _ => self.assumed.into(),
                    };
                    self.demand.refuse(seats, service_time);
                }
                self.refuse(RejectReason::ConcurrencyLimit)
            }
            Discipline::Queue { queuing, dealer } => {
                self.arrive_in_queue(&queuing, dealer, arriving, may_wait, events)
            }
        };
        self.account();
        admission
    }

    fn arrive_in_queue(
        &mut self,
        queuing: &Queuing,
        dealer: Dealer,
        arriving: ArrivingRequest<W>,
        may_wait: impl FnOnce() -> bool,
        events: &mut QueueSetEvents<W>,
    ) -> Admission {
        let starts = self.sums.waiting == 0
            && self.fits(self.width(&arriving.work))
            && self.sums.seats_in_use < self.limit;
        let mut slot = self.choose_queue(dealer, arriving.hash);
        if starts && self.semantics == Semantics::Improved {
            events.queue_length = Some(1);
            let index = self.insert(arriving, slot);
            self.start_unqueued(index);
            return Admission::Execute(self.entries.id(index));
        }
        if self.is_full(slot, queuing) {
            match self.arrive_at_full_queue(slot, &arriving, may_wait, events) {
                ControlFlow::Continue(free) => slot = free,
                ControlFlow::Break(admission) => return admission,
            }
        }
        let index = self.insert(arriving, slot);
        events.queue_length = Some(self.slots[slot as usize].waiting + 1);
        if starts {
            self.start_at_once(index, slot);
            return Admission::Execute(self.entries.id(index));
        }
        self.line_up(index);
        self.dispatch(Some(index), events);
        let id = self.entries.id(index);
        match self.entries.at(index).phase {
            Phase::Waiting => Admission::Wait(id),
            Phase::Executing | Phase::Lingering => Admission::Execute(id),
        }
    }

    /// Cancels a waiting request. False if it is no longer waiting: then a decision is on its way.
    pub fn cancel(&mut self, now: Time, id: EntryId, events: &mut QueueSetEvents<W>) -> bool {
        self.advance(now, events);
        let Some(RequestEntry {
            phase: Phase::Waiting,
            slot,
            ..
        }) = self.entries.get(id).copied()
        else {
            self.account();
            return false;
        };
        match self.semantics {
            Semantics::Compatible => self.dequeue(id.index),
            Semantics::Improved => self.quit_line(id.index),
        }
        self.entries.remove(id.index);
        self.recycle(slot);
        self.counters.rejected += 1;
        self.counters.cancelled += 1;
        if self.semantics == Semantics::Improved {
            self.truncate_deck();
            self.dispatch(None, events);
        }
        self.account();
        true
    }

    /// An executing request has finished. Returns when its final seats are released, if it
    /// holds any; until then the caller calls [`QueueSet::tick`] at that time.
    pub fn finish(
        &mut self,
        now: Time,
        id: EntryId,
        events: &mut QueueSetEvents<W>,
    ) -> Option<Time> {
        self.finish_as::<false>(now, id, events)
    }

    /// An executing request was refused before it was carried out. In Improved its duration says nothing about the
    /// service time of others, and it has no final seats, because it causes no watch events. In Compatible this is
    /// [`QueueSet::finish`], as in kube-apiserver.
    pub fn finish_refused(
        &mut self,
        now: Time,
        id: EntryId,
        events: &mut QueueSetEvents<W>,
    ) -> Option<Time> {
        match self.semantics {
            Semantics::Improved => self.finish_as::<true>(now, id, events),
            Semantics::Compatible => self.finish_as::<false>(now, id, events),
        }
    }

    fn finish_as<const REFUSED: bool>(
        &mut self,
        now: Time,
        id: EntryId,
        events: &mut QueueSetEvents<W>,
    ) -> Option<Time> {
        self.advance(now, events);
        let Some(RequestEntry {
            phase: Phase::Executing,
            ..
        }) = self.entries.get(id)
        else {
            debug_assert!(false, "a request finishes once");
            return None;
        };
        if REFUSED {
            self.waive_final_seats(id.index);
            self.end::<false>(id.index);
        } else {
            self.end::<true>(id.index);
        }
        let flow = self.entries.at(id.index).flow;
        let until = self.linger_or_release(id.index);
        if flow != NONE && until.is_none() {
            self.keep_wide_seats(flow, events);
        }
        self.dispatch(None, events);
        self.account();
        until
    }

    /// Time passes: releases seats that have lingered long enough, and dispatches. Returns when to call this again, if releases
    /// that were announced happen later.
    pub fn tick(&mut self, now: Time, events: &mut QueueSetEvents<W>) -> Option<Time> {
        self.advance(now, events);
        self.dispatch(None, events);
        self.account();
        self.lingering.tick_again(self.now)
    }

    /// The latest time that it has seen.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The seats that are held, without those that are displaced.
    pub(super) fn seats_in_use(&self) -> Seats {
        self.sums.seats_in_use - self.lingering.displaced()
    }

    /// The seats with which requests execute.
    pub(super) fn executing_seats(&self) -> Seats {
        self.sums.seats_in_use - self.lingering.seats()
    }

    /// Whether nothing waits and nothing executes; lingering seats do not count.
    pub fn is_idle(&self) -> bool {
        self.sums.waiting == 0 && self.sums.executing == 0
    }

    /// Brings all running figures to `now`, event by event: seats that lingered come free at their own time, not at
    /// `now`, so that the result does not depend on how often this is called.
    fn advance(&mut self, now: Time, events: &mut QueueSetEvents<W>) {
        // Several cores read their clocks before they take the lock, so a call may bring an earlier time than the
        // call before. Virtual time and the ratios would run backwards; the difference is microseconds.
        let now = now.max(self.now);
        while let Some(at) = self
            .lingering
            .next_release(self.now)
            .filter(|at| *at <= now)
        {
            self.clock_to(at);
            let Some(index) = self.lingering.pop_due() else {
                break;
            };
            self.lingering.release(self.entries.at(index).seats);
            self.release(index);
            self.dispatch(None, events);
            self.account();
        }
        self.clock_to(now);
    }

    pub(super) fn clock_to(&mut self, now: Time) {
        let now = now.max(self.now);
        let elapsed = now.nanos_since(self.now);
        self.now = now;
        if elapsed == Nanos::ZERO {
            return;
        }
        self.lingering.pass(elapsed);
        if self.semantics == Semantics::Improved {
            // While nothing waits, nobody's turn depends on virtual time.
            if self.sums.waiting > 0 {
                self.follow_flows(elapsed);
            } else {
                self.uncontended = self.uncontended.plus(elapsed);
            }
            return;
        }
        if self.sums.active_queues == 0 {
            return;
        }
        let asked = self.sums.deck_seats_in_use + self.sums.deck_waiting_seats;
        let granted = asked.min(self.limit.into());
        #[expect(clippy::cast_precision_loss, reason = "seats are far below 2^52")]
        let rate = granted as f64 / f64::from(self.sums.active_queues);
        if self
            .virtual_time
            .advance(SeatSeconds::fractional_product(rate, elapsed))
        {
            self.next_epoch();
        }
    }

    fn refuse(&mut self, reason: RejectReason) -> Admission {
        self.counters.rejected += 1;
        Admission::Reject(reason)
    }

    /// The seats `work` needs to start.
    fn width(&self, work: &Work) -> Seats {
        match self.semantics {
            Semantics::Compatible => work.max_seats(),
            Semantics::Improved => work.initial_seats,
        }
    }

    fn is_full(&self, slot: u32, queuing: &Queuing) -> bool {
        let full = self.slots[slot as usize].waiting >= queuing.queue_length_limit;
        match self.semantics {
            // kube-apiserver checks the length only while no seat is free.
            Semantics::Compatible => full && self.sums.seats_in_use >= self.limit,
            Semantics::Improved => full,
        }
    }

    /// The queue of the flow's hand with the least waiting work; ties rotate.
    fn choose_queue(&mut self, dealer: Dealer, hash: u64) -> u32 {
        let offset = self.enqueued % u64::from(dealer.hand_size());
        let offset = usize::try_from(offset).unwrap_or(0);
        self.enqueued = self.enqueued.wrapping_add(1);
        if self.sums.waiting == 0 {
            // All are equal.
            return self.deck[dealer.card(hash, offset) as usize];
        }
        let hand = dealer.deal(hash);
        let cards = hand.as_slice();
        let (before, from) = cards.split_at(offset);
        let mut best = NONE;
        let mut least = SeatSeconds::MAX;
        for card in from.iter().chain(before) {
            let slot = self.deck[*card as usize];
            let waiting = self.slots[slot as usize].total_work;
            if best == NONE || waiting < least {
                (best, least) = (slot, waiting);
            }
        }
        best
    }

    fn insert(&mut self, arriving: ArrivingRequest<W>, slot: u32) -> u32 {
        let ArrivingRequest {
            waiter,
            schema,
            hash,
            tenant,
            work,
        } = arriving;
        let mut entry = RequestEntry::new(
            waiter,
            schema,
            work,
            self.now,
            self.virtual_time.r(),
            slot,
            self.assumed,
        );
        entry.seats = self.width(&work);
        entry.hash = hash;
        entry.tenant = tenant;
        entry.number = self.arrived;
        self.arrived += 1;
        VirtualTime::check_plausible(entry.total_work);
        self.entries.insert(entry).index
    }

    fn start_queueless(&mut self, arriving: ArrivingRequest<W>) -> EntryId {
        let index = self.insert(arriving, NONE);
        self.start(index);
        self.entries.id(index)
    }
}
