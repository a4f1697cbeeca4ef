//! Which flow is next: one that is *due*, or else the one with the least start.
//!
//! A flow of weight 1 that holds less than its [part](super::parts) of the seats, or less than twice its part if it is within its share
//! and its requests take one seat, is due when it is more than two usual requests behind virtual time: the ideal would have finished what
//! it has waiting. If it asks for little and is within its share, half of what it can save is enough: where few requests are long, the usual
//! one takes more than that. Flows that are due have turns, one request each, in the order of the times at which they began to wait or were last
//! served. By their starts, the one that is furthest behind would go on until
//! it has caught up, and who has just come back with little to do would wait for that.
//!
//! A flow that weighs less is not due: its tenant has many, and they would all be due at once. Nor is one whose next request is
//! wide, if it has had its share since its line began: it is ahead and behind in turn. They go by their starts, but are not left
//! behind for as long as others are due: the flow with the least start has turns like those that are due, a tenant of many flows as
//! one, unless it holds its part.
//!
//! Not here: who may go before the flow that is next ([`super::fair`]).

use super::{
    QueueSet, fifo::RequestEntry, flows::FlowState, parts::MUCH, savings::SAVED_BEHIND,
    tenants::Weight,
};
use crate::{apf::units::SeatSeconds, time::Time};

/// A flow within its share that asks for little, in requests of one seat, is due, too, when it is behind by this part (1 / n) of what it can
/// receive in the longest burst: it cannot save more than that, however much usual requests take.
const DUE_BURST: u64 = 2;

impl<W: Copy> QueueSet<W> {
    /// The flow that is next.
    pub(super) fn next_flow(&self) -> Option<u32> {
        let first = self.turns.first()?;
        let now = self.virtual_time.r();
        if self.turns.first_start() >= now {
            return Some(first);
        }
        let far = self.charges.usual().saturating_mul(SAVED_BEHIND);
        let least = far.min(self.burst() / DUE_BURST);
        let [far, latest] = [far, least].map(|behind| now.units().checked_sub(behind));
        let Some(latest) = latest.map(SeatSeconds::from_units) else {
            return Some(first);
        };
        if self.turns.first_start() > latest {
            return Some(first);
        }
        let is_far = |start: SeatSeconds| far.is_some_and(|far| start.units() <= far);
        let since = self.may_wait_since(first);
        let due = self.turns.longest_waiting(latest, since, |flow| {
            let known = self.flows.at(flow);
            let is_polite =
                known.fresh && self.counted_width(known) <= 1 && self.asks_for_little(flow);
            // What it weighs, and what its part is, may have changed since its place was set.
            (is_polite || is_far(self.turns.start_of(flow)))
                && self.flows.weight_of(flow) == Weight::ONE
                && !self.holds_enough(flow)
        });
        Some(due.unwrap_or(first))
    }

    /// The flow that goes before `next`, which holds so much that it has no turns, although it is not due: it is behind virtual
    /// time, has turns, and its request fits. Otherwise it would wait until `next` has received what it has saved.
    #[cold]
    pub(super) fn behind_virtual_time(&self, next: u32) -> Option<u32> {
        if !self.holds_enough(next) {
            return None;
        }
        let free = self.limit - self.sums.seats_in_use;
        let now = self.virtual_time.r();
        self.turns.longest_waiting(now, Time::NEVER, |flow| {
            self.flows.weight_of(flow) == Weight::ONE
                && !self.holds_enough(flow)
                && self.counted_width(self.flows.at(flow)) <= free
        })
    }

    /// Whether a flow asks for less than [`MUCH`], with all that it holds and has waiting, if its requests take one seat.
    fn asks_for_little(&self, flow: u32) -> bool {
        let known = self.flows.at(flow);
        let asked = u64::from(known.seats) + u64::from(known.waiting);
        !self.are_parts(16 * asked, MUCH)
    }

    /// Whether a flow holds so much that it has no turns.
    pub(super) fn holds_enough(&self, flow: u32) -> bool {
        let known = self.flows.at(flow);
        let parts = parts_with_turns(known, self.entries.at(known.head()));
        self.are_parts(self.flows.held_for_weight(flow, 0), parts)
    }

    /// Since when the flow with the least start has waited for a turn among those that are due; never, if it holds its part.
    fn may_wait_since(&self, first: u32) -> Time {
        if self.holds_enough(first) {
            return Time::NEVER;
        }
        let known = self.flows.at(first);
        let since = self.entries.at(known.head()).arrived.max(known.served);
        match self.flows.weight_of(first) {
            Weight::ONE => since,
            _ => since.max(self.flows.owner_served(first)),
        }
    }

    /// Since when a flow of weight 1 has waited for its turn: since its first waiting request, `head`, came, or since another one
    /// started. Never, if it cannot be due.
    pub(super) fn waits_since(&self, known: &FlowState, head: &RequestEntry<W>) -> Time {
        let may_be_due = known.fresh || head.seats <= 1;
        let parts = parts_with_turns(known, head);
        if !may_be_due || self.are_parts(16 * u64::from(known.seats), parts) {
            return Time::NEVER;
        }
        head.arrived.max(known.served)
    }
}

/// A flow whose first waiting request is `head` has turns until it holds so many times its part: once, or [`MUCH`] if it is within its
/// share and the request takes one seat. A client that sends some requests at once, after a pause, has saved what they take.
fn parts_with_turns<W>(known: &FlowState, head: &RequestEntry<W>) -> u64 {
    if known.fresh && head.seats <= 1 {
        MUCH
    } else {
        1
    }
}
