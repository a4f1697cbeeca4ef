//! What a queue set reports: counters, ratios over time, and its requests for the dumps.

use super::{Discipline, NONE, Phase, QueueSet, RequestEntry, Sums};
use crate::{
    apf::{
        demand::DemandSample,
        ratio::{Buckets, PassedTime, RatioSnapshot, TimedRatio},
        spec::{Queuing, Semantics},
        units::{SeatSeconds, Seats},
        work::Work,
    },
    time::Time,
};

/// Counts since the queue set was made, and the last readings of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests whose execution began.
    pub dispatched: u64,
    /// Requests refused, also after waiting.
    pub rejected: u64,
    /// Requests that were cancelled while they waited.
    pub cancelled: u64,
    /// Epochs begun.
    pub epochs: u64,
    /// Epochs begun in which some time was too early to be set back.
    pub epochs_failed: u64,
    /// Virtual time at the last dispatch.
    pub dispatch_r: SeatSeconds,
    /// The dispatched queue's own virtual time then, before the charge.
    pub latest_s: SeatSeconds,
}

/// One queue of the deck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// The queue's place in the deck, from 0.
    pub index: u32,
    /// Waiting requests.
    pub waiting: u32,
    /// Executing requests.
    pub executing: u32,
    /// Seats held, lingering included.
    pub seats_in_use: Seats,
    /// The virtual time of the queue's next dispatch.
    pub next_dispatch_r: SeatSeconds,
    /// The initial seats of the waiting requests, summed.
    pub initial_seats: u64,
    /// The seats of the wider phase of each waiting request, summed.
    pub max_seats: u64,
    /// The work of the waiting requests, summed.
    pub total_work: SeatSeconds,
}

/// A tenant that owns active flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantReport {
    /// Its hash, [`RequestEntry::tenant_hash`] of its requests.
    pub hash: u64,
    /// Flows that have requests and that it owns.
    pub flows: u32,
    /// What these weigh together, where a flow weighs 1 at most. A whole number, unless the tenant has flows at other gateways, too.
    pub weight: f64,
}

/// One request of the queue set and its state.
#[derive(Clone, Copy, Debug)]
pub struct RequestReport<W> {
    /// The request as the queue set keeps it.
    pub entry: RequestEntry<W>,
    /// The place of the request's queue in the deck, from 0; `None` if it never waited in one.
    pub queue: Option<u32>,
    /// The place of the request in its queue, from 0; `None` unless it waits.
    pub place: Option<u32>,
}

/// The present state of a queue set in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueSetSummary {
    /// The current concurrency limit.
    pub limit: Seats,
    /// Waiting requests.
    pub waiting: u32,
    /// The seats that the waiting requests ask for.
    pub waiting_seats: u64,
    /// Executing requests.
    pub executing: u32,
    /// Seats held, lingering included.
    pub seats_in_use: Seats,
    /// Queues with waiting requests.
    pub queues_waiting: usize,
    /// The present virtual time R.
    pub r: SeatSeconds,
    /// Counts.
    pub counters: Counters,
    /// Requests that hold seats after they have finished.
    pub lingering: u32,
}

/// The time-weighted ratios of a level.
#[derive(Clone, Debug)]
pub(super) struct Ratios {
    /// Up to when they are credited.
    last: Time,
    seats: TimedRatio,
    executing: TimedRatio,
    waiting: TimedRatio,
    demand: TimedRatio,
}

/// Snapshots of the time-weighted ratios of a level.
#[derive(Clone, Debug)]
pub struct RatioReport {
    /// Seats in use over the current limit.
    pub seats: RatioSnapshot,
    /// Executing requests over the current limit.
    pub executing: RatioSnapshot,
    /// Waiting requests over the places in all queues.
    pub waiting: RatioSnapshot,
    /// Seat demand over the current limit.
    pub demand: RatioSnapshot,
}

impl Ratios {
    pub(super) fn new(now: Time, discipline: &Discipline, limit: Seats) -> Self {
        let over = |buckets, denominator| TimedRatio::new(buckets, 0, denominator);
        let limit = u64::from(limit);
        Self {
            last: now,
            seats: over(Buckets::SEAT_UTILIZATION, limit),
            executing: over(Buckets::REQUEST_UTILIZATION, limit),
            waiting: over(Buckets::REQUEST_UTILIZATION, places(discipline)),
            demand: over(Buckets::DEMAND_SEATS, limit),
        }
    }

    pub(super) fn set_denominator(&mut self, now: Time, denominator: Seats) {
        self.credit(now);
        let denominator = u64::from(denominator);
        self.seats.set_denominator(denominator);
        self.executing.set_denominator(denominator);
        self.demand.set_denominator(denominator);
    }

    pub(super) fn reshape(&mut self, now: Time, discipline: &Discipline) {
        self.credit(now);
        self.waiting.set_denominator(places(discipline));
    }

    fn account(&mut self, now: Time, seats_in_use: Seats, sums: &Sums, demand: u64) {
        self.credit(now);
        self.seats.set_numerator(u64::from(seats_in_use));
        self.executing.set_numerator(u64::from(sums.executing));
        self.waiting.set_numerator(u64::from(sums.waiting));
        self.demand.set_numerator(demand);
    }

    fn credit(&mut self, now: Time) {
        let Some(passed) = PassedTime::until(now, &mut self.last) else {
            return;
        };
        self.seats.credit(passed);
        self.executing.credit(passed);
        self.waiting.credit(passed);
        self.demand.credit(passed);
    }

    fn report(&self, now: Time) -> RatioReport {
        let mut until_now = self.clone();
        until_now.credit(now);
        RatioReport {
            seats: until_now.seats.snapshot(),
            executing: until_now.executing.snapshot(),
            waiting: until_now.waiting.snapshot(),
            demand: until_now.demand.snapshot(),
        }
    }
}

/// How many requests can wait in all queues together.
fn places(discipline: &Discipline) -> u64 {
    match discipline {
        Discipline::Queue {
            queuing:
                Queuing {
                    queues,
                    queue_length_limit,
                    ..
                },
            ..
        } => u64::from(*queues) * u64::from(*queue_length_limit),
        Discipline::Exempt | Discipline::Reject => 1,
    }
}

impl<W: Copy> QueueSet<W> {
    /// Seats in use and asked for.
    fn seat_demand(&self) -> u64 {
        self.sums
            .waiting_seats
            .wrapping_add(self.seats_in_use().into())
    }

    /// Enters the present state into everything that is measured over time.
    pub(super) fn account(&mut self) {
        self.restore_displaced();
        let demand = self.seat_demand();
        self.demand.set(self.now, demand);
        let in_use = self.seats_in_use();
        self.ratios.account(self.now, in_use, &self.sums, demand);
    }

    /// The seat demand since the last call.
    pub(crate) fn take_demand(&mut self, now: Time) -> DemandSample {
        self.demand.read_and_reset(now.max(self.now))
    }

    /// When a request that is still present arrived.
    pub fn arrived(&self, id: super::EntryId) -> Option<Time> {
        self.entries.get(id).map(|entry| entry.arrived)
    }

    /// The seats of a request that is still present: those it waits for, or those it holds.
    pub fn seats(&self, id: super::EntryId) -> Option<Seats> {
        self.entries.get(id).map(|entry| entry.seats)
    }

    /// The present state in numbers. Costs O(1).
    pub fn summary(&self) -> QueueSetSummary {
        QueueSetSummary {
            limit: self.limit,
            waiting: self.sums.waiting,
            waiting_seats: self.sums.waiting_seats,
            executing: self.sums.executing,
            seats_in_use: self.seats_in_use(),
            queues_waiting: match self.semantics {
                Semantics::Compatible => self.order.len(),
                Semantics::Improved => self.sums.queues_waiting as usize,
            },
            r: self.virtual_time.r(),
            counters: self.counters,
            lingering: u32::try_from(self.lingering.len()).unwrap_or(u32::MAX),
        }
    }

    /// What the flows of one tenant weigh together at most.
    pub fn tenant_weight(&self) -> u32 {
        self.flows.tenants().allowance()
    }

    /// The tenants that own active flows, in arbitrary order. O(tenants).
    pub fn tenants(&self) -> impl Iterator<Item = TenantReport> {
        self.flows.tenants().active()
    }

    /// The time-weighted ratios up to `now`.
    pub fn ratios(&self, now: Time) -> RatioReport {
        self.ratios.report(now.max(self.now))
    }

    /// The queues of the deck, in order. O(queues).
    pub fn queues(&self) -> impl Iterator<Item = QueueReport> {
        self.deck.iter().zip(0..).map(|(slot, index)| {
            let queue = &self.slots[*slot as usize];
            QueueReport {
                index,
                waiting: queue.waiting,
                executing: queue.executing,
                seats_in_use: queue.seats_in_use,
                next_dispatch_r: queue.next_dispatch_r,
                initial_seats: queue.initial_seats,
                max_seats: queue.max_seats,
                total_work: queue.total_work,
            }
        })
    }

    /// Over the queues (in Improved: the flows) with waiting requests, in seat-seconds: least and
    /// greatest virtual start, and the same less the assumed work of the seats in use. `None` without
    /// such queues. O(queues + flows).
    pub fn next_s_bounds(&self) -> Option<[f64; 4]> {
        let queues = self.deck.iter().map(|slot| &self.slots[*slot as usize]);
        let queues = queues.filter(|queue| self.is_compatible() && queue.waiting > 0);
        let queues = queues.map(|queue| (queue.next_dispatch_r, queue.seats_in_use));
        let flows = self.flows.iter().filter(|flow| flow.waiting > 0);
        let flows = flows.map(|flow| (flow.start, flow.holding));
        let mut bounds: Option<[f64; 4]> = None;
        for (start, seats) in queues.chain(flows) {
            let start = start.as_f64();
            let less = start - SeatSeconds::product(seats, Work::ASSUMED_SERVICE_TIME).as_f64();
            let [least, most, least_less, most_less] = bounds.unwrap_or([start, start, less, less]);
            bounds = Some([
                least.min(start),
                most.max(start),
                least_less.min(less),
                most_less.max(less),
            ]);
        }
        bounds
    }

    /// Calls `see` with every request, lingering ones too, in arbitrary order. O(requests);
    /// allocates nothing, so it may be done under a lock.
    pub fn visit(&self, mut see: impl FnMut(&RequestEntry<W>)) {
        for entry in self.entries.iter() {
            see(entry);
        }
    }

    /// All waiting requests, queue by queue, each queue's in order of arrival, with their places.
    fn waiting_by_queue(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut waiting: Vec<_> = self.entries.waiting().collect();
        waiting.sort_by_key(|index| {
            let entry = self.entries.at(*index);
            (entry.slot, entry.number)
        });
        let mut before = (NONE, 0);
        waiting.into_iter().map(move |index| {
            let slot = self.entries.at(index).slot;
            let place = if before.0 == slot { before.1 + 1 } else { 0 };
            before = (slot, place);
            (place, index)
        })
    }

    /// All requests, lingering ones too: queue by queue those that wait, first to last, then the
    /// others in arbitrary order. O(requests + queues).
    pub fn requests(&self) -> Vec<RequestReport<W>> {
        let mut requests = Vec::with_capacity(self.entries.len());
        for (place, index) in self.waiting_by_queue() {
            let entry = *self.entries.at(index);
            let queue = &self.slots[entry.slot as usize];
            requests.push(RequestReport {
                entry,
                queue: Some(queue.position),
                place: Some(place),
            });
        }
        let others = self
            .entries
            .iter()
            .filter(|entry| entry.phase != Phase::Waiting);
        requests.extend(others.map(|entry| RequestReport {
            entry: *entry,
            queue: (entry.slot != NONE).then(|| self.slots[entry.slot as usize].position),
            place: None,
        }));
        requests
    }
}

impl<W: Copy> QueueSet<W> {
    /// Recomputes every running sum and compares; for tests and simulation. O(requests + queues).
    ///
    /// # Panics
    ///
    /// If a sum is wrong, a seat is lost or given twice, or a head that fits was left waiting.
    pub fn check_invariants(&self) {
        let sum = |phase: Phase| -> u64 {
            let of_phase = self.entries.iter().filter(|e| e.phase == phase);
            of_phase.map(|e| u64::from(e.seats)).sum()
        };
        let count = |phase: Phase| self.entries.iter().filter(|e| e.phase == phase).count();
        let sums = &self.sums;
        let held = sum(Phase::Executing) + sum(Phase::Lingering);
        assert_eq!(u64::from(sums.seats_in_use), held, "seats in use");
        assert_eq!(
            sums.executing as usize,
            count(Phase::Executing),
            "executing"
        );
        assert_eq!(sums.waiting as usize, count(Phase::Waiting), "waiting");
        assert_eq!(self.lingering.len(), count(Phase::Lingering), "lingering");
        let mut executing = self.entries.iter().filter(|e| e.phase == Phase::Executing);
        assert!(executing.all(|e| e.seats > 0), "executing without a seat");
        let lingering = self.lingering.seats();
        assert_eq!(u64::from(lingering), sum(Phase::Lingering), "lingering");
        assert!(self.lingering.displaced() <= lingering, "displaced");
        if self.semantics == Semantics::Improved {
            assert_eq!(sums.waiting_seats, sum(Phase::Waiting), "seats asked for");
        }
        assert_eq!(self.demand.demand(), self.seat_demand(), "seat demand");
        self.check_deck();
        self.check_work_conserved();
    }

    fn check_deck(&self) {
        let queues = || self.deck.iter().map(|slot| &self.slots[*slot as usize]);
        for (position, queue) in (0..).zip(queues()) {
            assert_eq!(queue.position, position, "position in the deck");
        }
        let mut waiting = vec![0; self.slots.len()];
        for index in self.entries.waiting() {
            waiting[self.entries.at(index).slot as usize] += 1;
        }
        let counted: Vec<u32> = self.slots.iter().map(|queue| queue.waiting).collect();
        assert_eq!(counted, waiting, "waiting in each queue");
        if self.is_compatible() {
            self.check_queues_in_turn();
        } else {
            let waiting = self.slots.iter().filter(|queue| queue.waiting > 0);
            let waiting = waiting.count();
            assert_eq!(self.sums.queues_waiting as usize, waiting, "queues");
            self.flows.check_invariants(&self.entries);
            let heads = self.flows.iter().filter(|flow| flow.waiting > 0).count();
            assert_eq!(self.turns.len(), heads, "flows in order");
        }
    }

    fn check_queues_in_turn(&self) {
        let queues = || self.deck.iter().map(|slot| &self.slots[*slot as usize]);
        let sums = &self.sums;
        let in_use: u64 = queues().map(|q| u64::from(q.seats_in_use)).sum();
        assert_eq!(sums.deck_seats_in_use, in_use, "seats in use by the deck");
        let asked: u64 = queues().map(|q| q.waiting_seats).sum();
        assert_eq!(
            sums.deck_waiting_seats, asked,
            "seats asked for in the deck"
        );
        let active = queues().filter(|q| q.is_active()).count();
        assert_eq!(sums.active_queues as usize, active, "active queues");
        let heads = queues().filter(|q| q.waiting > 0).count();
        assert_eq!(self.order.len(), heads, "heads in order");
        for queue in queues().filter(|queue| queue.line.head != NONE) {
            let head = self.entries.at(queue.line.head);
            assert!(
                queue.next_dispatch_r >= head.arrival_r,
                "credit before arrival"
            );
        }
    }

    fn check_work_conserved(&self) {
        // kube-apiserver dispatches nothing when a blocking head is cancelled.
        if self.is_compatible() || self.sums.seats_in_use >= self.limit {
            return;
        }
        // That a flow has become due is noticed by the next event.
        let next = self
            .next_flow()
            .filter(|next| self.turns.first() == Some(*next));
        let Some(next) = next else {
            return;
        };
        // Seats may be kept for a flow that goes before it.
        let next = self.wide_holding_less(next).unwrap_or(next);
        let head = self.entries.at(self.flows.at(next).head());
        assert!(!self.fits(head.seats), "a head that fits was left waiting");
    }

    fn is_compatible(&self) -> bool {
        self.semantics == Semantics::Compatible
    }
}
