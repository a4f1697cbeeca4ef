//! Seats: whether a request fits, and what happens when it starts, ends and lingers.
//!
//! Not here: whose turn it is: see [`super::by_queue`] for [`Semantics::Compatible`] and [`super::fair`] for
//! [`Semantics::Improved`].

use std::time::Duration;

use super::{Discipline, NONE, Phase, QueueSet, QueueSetEvents};
use crate::{
    apf::{
        spec::Semantics,
        units::{SeatSeconds, Seats},
    },
    time::Time,
};

impl<W: Copy> QueueSet<W> {
    /// Dispatches as much as possible. `arriving` is not reported in `events`.
    pub(super) fn dispatch(&mut self, arriving: Option<u32>, events: &mut QueueSetEvents<W>) {
        match self.semantics {
            Semantics::Compatible => self.dispatch_by_queue(arriving, events),
            Semantics::Improved => self.dispatch_by_flow(arriving, events),
        }
    }

    /// Whether a request of `width` seats can start now.
    pub(super) fn fits(&self, width: Seats) -> bool {
        if matches!(self.discipline, Discipline::Exempt) {
            return true;
        }
        if width <= self.limit {
            return self.sums.seats_in_use.saturating_add(width) <= self.limit;
        }
        // Wider than the level: so many seats will never be free. It runs alone. In Compatible seats that
        // linger do not count, as in kube-apiserver, so that it can exceed the limit.
        match self.semantics {
            Semantics::Compatible => self.sums.executing == 0,
            Semantics::Improved => self.limit > 0 && self.sums.seats_in_use == 0,
        }
    }

    /// A request starts, whether it waited or not.
    pub(super) fn start(&mut self, index: u32) {
        let (now, limit, semantics) = (self.now, self.limit, self.semantics);
        let exempt = matches!(self.discipline, Discipline::Exempt);
        let entry = self.entries.at_mut(index);
        entry.phase = Phase::Executing;
        entry.started = Some(now);
        entry.seats = match semantics {
            Semantics::Compatible => entry.work.max_seats(),
            Semantics::Improved if exempt => entry.work.initial_seats,
            Semantics::Improved => entry.work.initial_seats.min(limit),
        };
        debug_assert!(entry.seats > 0, "what executes holds a seat");
        self.sums.seats_in_use += entry.seats;
        self.sums.executing += 1;
        self.counters.dispatched += 1;
    }

    /// Counts a request that has started in the figures of its queue.
    pub(super) fn count_start(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let queue = &mut self.slots[entry.slot as usize];
        queue.executing += 1;
        queue.holding += 1;
        queue.seats_in_use += entry.seats;
    }

    /// A request has ended: its charge is corrected, and its queue has one less that executes. `LEARNS` is whether its
    /// duration counts as a service time.
    pub(super) fn end<const LEARNS: bool>(&mut self, index: u32) {
        self.sums.executing -= 1;
        match self.semantics {
            Semantics::Compatible => self.correct_charge(index),
            Semantics::Improved => {
                let slot = self.entries.at(index).slot;
                if slot != NONE {
                    self.slots[slot as usize].executing -= 1;
                }
                self.settle_charge::<LEARNS>(index);
            }
        }
    }

    /// Moves a finished request to its final phase; returns when that ends, if it has one.
    pub(super) fn linger_or_release(&mut self, index: u32) -> Option<Time> {
        if self.semantics == Semantics::Improved {
            self.take_final_seats(index);
        }
        let entry = self.entries.at_mut(index);
        entry.phase = Phase::Lingering;
        let (seats, latency) = (entry.seats, entry.work.additional_latency);
        if latency.is_zero() {
            self.release(index);
            return None;
        }
        let until = self.now.plus(latency);
        if entry.flow != NONE {
            let flow = entry.flow;
            self.settle_flow(flow);
        }
        self.lingering.push(index, seats, latency);
        Some(until)
    }

    /// Holds the final seats instead of the initial ones, spread so that the limit is kept: the
    /// request's own seats and the free ones, for as long as the same work then takes.
    fn take_final_seats(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let (held, slot, overtook, flow) = (entry.seats, entry.slot, entry.overtook, entry.flow);
        let own = held.max(1);
        let seats = match self.discipline {
            Discipline::Exempt => entry.work.final_seats,
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
        let catches_up = target.catches_up;
        self.sums.seats_in_use = self.sums.seats_in_use - held + seats;
        if catches_up {
            self.sums.catching_up = self.sums.catching_up - held + seats;
        }
        self.recount_overtaking(overtook, held, seats);
        if flow != NONE {
            self.flows.hold_other(flow, held, seats);
        }
        if slot != NONE {
            let queue = &mut self.slots[slot as usize];
            queue.seats_in_use = queue.seats_in_use - held + seats;
        }
    }

    /// Returns the seats of a request and removes it.
    pub(super) fn release(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let (seats, slot, flow) = (entry.seats, entry.slot, entry.flow);
        let tenant = entry.tenant;
        if entry.catches_up {
            self.sums.catching_up -= seats;
        }
        self.recount_overtaking(entry.overtook, seats, 0);
        self.entries.remove(index);
        self.sums.seats_in_use -= seats;
        if flow != NONE {
            let now = self.virtual_time.r();
            self.flows.release(flow, seats);
            self.flows.part(flow, tenant, now);
            self.settle_flow(flow);
        }
        if slot == NONE {
            return;
        }
        let in_deck = self.in_deck(slot);
        let queue = &mut self.slots[slot as usize];
        queue.seats_in_use -= seats;
        queue.holding -= 1;
        if in_deck && self.semantics == Semantics::Compatible {
            self.sums.deck_seats_in_use -= u64::from(seats);
        }
        self.remove_surplus_queue(slot);
    }
}
