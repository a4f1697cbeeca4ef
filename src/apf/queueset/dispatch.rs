//! Who runs next, and what it is charged.

use std::{cmp::Reverse, time::Duration};

use super::{Events, NONE, Phase, QueueSet};
use crate::apf::{
    policy::Semantics,
    units::{SeatSeconds, Seats, Time},
};

/// How long narrower requests may pass a head that does not fit, at most; a quarter of the time it
/// is willing to wait if that is less. After that, seats are kept free for it.
pub(super) const PASSING_MAX: Duration = Duration::from_secs(1);

/// Longer than this no request is assumed to take.
const LONGEST_ASSUMED: Duration = Duration::from_secs(60);

impl<W: Copy> QueueSet<W> {
    /// Dispatches as much as possible. `arriving` is not reported in `events`.
    pub(super) fn dispatch(&mut self, arriving: Option<u32>, events: &mut Events<W>) {
        while self.sums.waiting > 0 && self.sums.seats_in_use < self.limit {
            let Some(slot) = self.choose_head(events) else {
                if self.semantics == Semantics::Compatible && self.after_robin == 0 {
                    // The original's index goes round and ends where it began, or at the last queue if it
                    // began before the first.
                    self.after_robin = u32::try_from(self.deck.len()).unwrap_or(NONE);
                }
                return;
            };
            let index = self.slots[slot as usize].head;
            self.unlink(index, slot);
            self.start_from_queue(index, slot);
            self.settle(slot);
            if arriving != Some(index) {
                events
                    .dispatched
                    .push((self.entries.at(index).waiter, self.entries.id(index)));
            }
        }
    }

    /// The slot of the queue to dispatch from; `None` when nothing can start.
    fn choose_head(&self, events: &mut Events<W>) -> Option<u32> {
        let best = self.order.first(self.after_robin)?;
        let head = self.entries.at(self.slots[best as usize].head);
        if self.fits(self.width(&head.work)) {
            return Some(best);
        }
        events.blocked.push(head.schema);
        match self.semantics {
            Semantics::Compatible => None,
            Semantics::Improved if self.now >= head.passable_until => None,
            Semantics::Improved => self
                .order
                .first_fitting(self.after_robin, self.limit - self.sums.seats_in_use),
        }
    }

    /// Whether a request of `width` seats can start now.
    pub(super) fn fits(&self, width: Seats) -> bool {
        let exempt = matches!(self.discipline, super::Discipline::Exempt);
        if exempt && self.semantics == Semantics::Compatible {
            return true;
        }
        if width <= self.limit {
            return self.sums.seats_in_use.saturating_add(width) <= self.limit;
        }
        // Wider than the level: it runs alone.
        match self.semantics {
            Semantics::Compatible => self.sums.executing == 0,
            Semantics::Improved => self.limit > 0 && self.sums.seats_in_use == 0,
        }
    }

    /// Keeps the final phase within the limit: fewer seats for longer, the same work.
    fn narrow_final_phase(&mut self, index: u32) {
        let limit = self.limit;
        let work = &mut self.entries.at_mut(index).work;
        if work.final_seats > limit {
            work.additional_latency = work.final_work().per_seat(limit);
            work.final_seats = limit;
        }
    }

    /// A request that finds seats and nobody waiting starts without standing in its queue.
    pub(super) fn start_at_once(&mut self, index: u32, slot: u32) {
        self.enter(slot);
        self.catch_up(slot, self.virtual_time.r());
        self.sums.waiting_seats += u64::from(self.entries.at(index).seats);
        self.start_from_queue(index, slot);
    }

    /// A request taken from the queue of `slot` starts.
    fn start_from_queue(&mut self, index: u32, slot: u32) {
        let queue = &self.slots[slot as usize];
        self.after_robin = queue.position.saturating_add(1);
        self.counters.dispatch_r = self.virtual_time.r();
        self.counters.latest_s = queue.next_dispatch_r;
        if self.semantics == Semantics::Improved {
            self.virtual_time.catch_up(queue.certain_r());
        }
        let waited_for = self.entries.at(index).seats;
        let counted = match self.semantics {
            Semantics::Compatible => {
                // What was added with the full width is taken off with the narrowed one.
                self.narrow_final_phase(index);
                self.entries.at(index).work.max_seats()
            }
            Semantics::Improved => waited_for,
        };
        self.sums.waiting_seats = self.sums.waiting_seats.wrapping_sub(counted.into());
        self.start(index);
        let entry = self.entries.at(index);
        let (seats, work, guess) = (entry.seats, entry.total_work, entry.guess());
        let queue = &mut self.slots[slot as usize];
        let was_active = queue.is_active();
        queue.executing += 1;
        queue.holding += 1;
        queue.seats_in_use += seats;
        queue.next_dispatch_r = queue.next_dispatch_r.plus(work);
        queue.guessed = queue.guessed.plus(guess);
        self.sums.deck_seats_in_use += u64::from(seats);
        self.sums.active_queues += u32::from(!was_active);
    }

    /// A request starts, whether it waited or not.
    pub(super) fn start(&mut self, index: u32) {
        let (now, limit, semantics) = (self.now, self.limit, self.semantics);
        let exempt = matches!(self.discipline, super::Discipline::Exempt);
        let entry = self.entries.at_mut(index);
        entry.phase = Phase::Executing;
        entry.started = Some(now);
        entry.seats = match semantics {
            Semantics::Compatible => entry.work.max_seats(),
            Semantics::Improved if exempt => entry.work.initial_seats,
            Semantics::Improved => entry.work.initial_seats.min(limit),
        };
        self.sums.seats_in_use += entry.seats;
        self.sums.executing += 1;
        self.counters.dispatched += 1;
    }

    /// Replaces the assumed service time by the actual one in the charge of the initial phase.
    pub(super) fn correct_charge(&mut self, index: u32) {
        let entry = *self.entries.at(index);
        if entry.slot == NONE {
            return;
        }
        let took = self.now.since(entry.started.unwrap_or(self.now));
        let assumed = entry.guess();
        let in_deck = self.in_deck(entry.slot);
        let queue = &mut self.slots[entry.slot as usize];
        queue.next_dispatch_r =
            (queue.next_dispatch_r).corrected(entry.work.initial_seats, entry.assumed, took);
        queue.guessed = queue.guessed.minus(assumed);
        queue.executing -= 1;
        self.sums.active_queues -= u32::from(in_deck && !queue.is_active());
        self.settle(entry.slot);
    }

    /// Follows the mean service time, so that requests to come are charged about what they will cost.
    ///
    /// The original charges 3 ms at dispatch whatever is known, and the rest at the end: until then a
    /// flow that is dealt several queues gets ahead by all that it was not charged for.
    pub(super) fn learn_service_time(&mut self, index: u32) {
        const MEMORY: u32 = 32;
        self.learnt = (self.learnt + 1).min(MEMORY);
        let started = self.entries.at(index).started;
        let took = self
            .now
            .since(started.unwrap_or(self.now))
            .min(LONGEST_ASSUMED);
        self.assumed = (self.assumed * (self.learnt - 1) + took) / self.learnt;
    }

    /// Has the heads of all queues, one after the other, reckoned by what is known now. A queue of
    /// which nothing starts or ends would otherwise be held to what was assumed when its head came,
    /// and lose its turn to those that are reckoned anew.
    pub(super) fn reassess_next(&mut self) {
        /// Empty queues that are passed over.
        const LOOKED_AT: usize = 8;
        if self.sums.waiting == 0 {
            return;
        }
        for _ in 0..LOOKED_AT.min(self.deck.len()) {
            let position = self.reassessed as usize % self.deck.len();
            self.reassessed = u32::try_from(position + 1).unwrap_or(0);
            let slot = self.deck[position];
            if self.slots[slot as usize].waiting > 0 {
                return self.settle(slot);
            }
        }
    }

    /// Turns an answered request to its final phase; returns when that ends, if it has one.
    pub(super) fn linger_or_release(&mut self, index: u32) -> Option<Time> {
        if self.semantics == Semantics::Improved {
            self.charge_final_phase(index);
        }
        let entry = self.entries.at_mut(index);
        entry.phase = Phase::Lingering;
        if entry.work.additional_latency.is_zero() {
            self.release(index);
            return None;
        }
        let until = self.now.plus(entry.work.additional_latency);
        self.lingering.push(Reverse((until, index)));
        Some(until)
    }

    /// Charges the final seats instead of the initial ones, spread so that the limit is kept: the
    /// request's own seats and the free ones, for as long as the same work then takes.
    fn charge_final_phase(&mut self, index: u32) {
        let entry = *self.entries.at(index);
        let own = entry.seats.max(1);
        let seats = match self.discipline {
            super::Discipline::Exempt => entry.work.final_seats,
            _ => entry
                .work
                .final_seats
                .min(own.saturating_add(self.limit.saturating_sub(self.sums.seats_in_use))),
        };
        let work = entry.work.final_work();
        let target = self.entries.at_mut(index);
        if work == SeatSeconds::ZERO {
            target.work.additional_latency = Duration::ZERO;
            return;
        }
        target.work.additional_latency = work.per_seat(seats);
        target.work.final_seats = seats;
        target.seats = seats;
        self.sums.seats_in_use = self.sums.seats_in_use - entry.seats + seats;
        if entry.slot != NONE {
            let in_deck = self.in_deck(entry.slot);
            let queue = &mut self.slots[entry.slot as usize];
            queue.seats_in_use = queue.seats_in_use - entry.seats + seats;
            if in_deck {
                self.sums.deck_seats_in_use =
                    self.sums.deck_seats_in_use - u64::from(entry.seats) + u64::from(seats);
            }
        }
    }

    /// Gives the seats of a request back; it is gone then.
    pub(super) fn release(&mut self, index: u32) {
        let entry = *self.entries.at(index);
        self.entries.remove(index);
        self.sums.seats_in_use -= entry.seats;
        if entry.slot == NONE {
            return;
        }
        let in_deck = self.in_deck(entry.slot);
        let queue = &mut self.slots[entry.slot as usize];
        queue.seats_in_use -= entry.seats;
        queue.holding -= 1;
        if in_deck {
            self.sums.deck_seats_in_use -= u64::from(entry.seats);
        }
        self.remove_surplus_queue(entry.slot);
    }

    /// Appends a request to its queue.
    pub(super) fn enqueue(&mut self, index: u32, slot: u32) {
        self.enter(slot);
        let queue = &mut self.slots[slot as usize];
        let was_active = queue.is_active();
        queue.push(&mut self.entries, index);
        let first = queue.waiting == 1;
        let entry = self.entries.at(index);
        self.sums.waiting += 1;
        self.sums.waiting_seats += u64::from(entry.seats);
        self.sums.deck_waiting_seats += u64::from(entry.seats);
        self.sums.active_queues += u32::from(!was_active);
        if first {
            self.settle(slot);
        }
    }

    /// A queue without work starts at the present virtual time.
    pub(super) fn enter(&mut self, slot: u32) {
        let queue = &mut self.slots[slot as usize];
        if !queue.is_active() {
            queue.next_dispatch_r = self.virtual_time.r();
        }
    }

    /// A waiting request leaves its queue without having been dispatched.
    pub(super) fn dequeue(&mut self, index: u32, slot: u32) {
        let seats = self.entries.at(index).seats;
        self.unlink(index, slot);
        self.sums.waiting_seats = self.sums.waiting_seats.wrapping_sub(seats.into());
        self.settle(slot);
    }

    fn unlink(&mut self, index: u32, slot: u32) {
        let seats = self.entries.at(index).seats;
        let in_deck = self.in_deck(slot);
        let queue = &mut self.slots[slot as usize];
        queue.unlink(&mut self.entries, index);
        self.sums.waiting -= 1;
        if in_deck {
            self.sums.deck_waiting_seats -= u64::from(seats);
            self.sums.active_queues -= u32::from(!queue.is_active());
        }
    }

    /// No request is dispatched, in virtual time, before it arrived: forgets unused credit.
    pub(super) fn catch_up(&mut self, slot: u32, arrival_r: SeatSeconds) {
        let queue = &mut self.slots[slot as usize];
        queue.next_dispatch_r = queue.next_dispatch_r.max(arrival_r);
    }

    /// Reckons what a head will cost by what is known now: it may have waited since little was.
    fn reassess(&mut self, head: u32, slot: u32) {
        let assumed = self.assumed;
        let entry = self.entries.at_mut(head);
        if entry.assumed == assumed {
            return;
        }
        let (before, after) = (entry.total_work, entry.work.total_work(assumed));
        entry.assumed = assumed;
        entry.total_work = after;
        let queue = &mut self.slots[slot as usize];
        queue.total_work = queue.total_work.minus(before).plus(after);
    }

    /// Puts the head of a queue where it belongs, after the head or the queue's charge changed.
    pub(super) fn settle(&mut self, slot: u32) {
        let head = self.slots[slot as usize].head;
        if head == NONE || !self.in_deck(slot) {
            self.order.remove(slot);
            return;
        }
        if self.semantics == Semantics::Improved {
            self.reassess(head, slot);
        }
        let entry = *self.entries.at(head);
        self.catch_up(slot, entry.arrival_r);
        let queue = &self.slots[slot as usize];
        self.order.set(
            slot,
            queue.next_dispatch_r.plus(entry.total_work),
            queue.position,
            entry.seats,
        );
    }
}
