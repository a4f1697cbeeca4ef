//! Who holds its part of the seats, and who then goes first: a flow that holds less starts before it, and in the place of seats that
//! linger.
//!
//! The *part* of a flow is its weight, divided by the weights of all active flows, of the limit. What it holds is what its requests
//! execute with and what lingers of them. A flow that weighs less than 1 has its part, and holds, together with the others of its
//! tenant: otherwise requests that take long would get all seats under many names.
//!
//! Not here: the order of flows ([`super::fair`]).

use super::{QueueSet, tenants::Weight};
use crate::apf::units::Seats;

/// So many times its part is so much that others wait long for the seats of a flow: one that had the level to itself, and a newcomer,
/// may both be within their share.
pub(super) const MUCH: u64 = 2;

impl<W: Copy> QueueSet<W> {
    /// Whether the seats of a flow that linger are its part.
    fn lingers_its_part(&self, flow: u32) -> bool {
        self.are_parts(self.flows.lingering_for_weight(flow), 1)
    }

    /// Whether so many sixteenths of a seat for the weight of a flow are so many times its part of the seats.
    pub(super) fn are_parts(&self, seats: u64, times: u64) -> bool {
        let parts = 16 * u64::from(self.limit) * times;
        seats > 0 && seats.saturating_mul(self.flows.weight()) >= parts
    }

    /// The first flow that would hold no more than `hold` sixteenths of a seat for its weight with the request that it has waiting, which
    /// fits into `free` seats.
    fn first_holding_less(&self, hold: u64, free: Seats) -> Option<u32> {
        let most = u32::try_from(hold).unwrap_or(u32::MAX);
        self.turns.first_holding(free, most, |flow| {
            let width = self.counted_width(self.flows.at(flow));
            self.flows.held_for_weight(flow, width) <= hold
        })
    }

    /// If `next` holds its part of the seats by weight: the flow that goes before it, because it would hold no more, and has not
    /// received more than `next` will have; or, if `next` weighs less than 1, not more by a usual request. If `next` holds [`MUCH`], one
    /// that is within its share may have received more by the lag. Otherwise one that has turns and is behind virtual time.
    #[inline]
    pub(super) fn holding_less(&self, next: u32) -> Option<u32> {
        let held = self.flows.held_for_weight(next, 0);
        if !self.are_parts(held, 1) {
            return None;
        }
        let other = self.first_holding_less(held, self.limit - self.sums.seats_in_use)?;
        if self.gives_way(next, held, other) {
            return Some(other);
        }
        self.behind_virtual_time(next)
    }

    /// If `next` holds [`MUCH`]: the flow for which seats are drained in its place, because its request does not fit, though it would go
    /// before `next` if it did.
    pub(super) fn wide_holding_less(&self, next: u32) -> Option<u32> {
        if !self.holds_much(next) {
            return None;
        }
        let held = self.flows.held_for_weight(next, 0);
        let other = self.first_holding_less(held, self.limit)?;
        let is_wide = self.flows.at(other).fresh
            && !self.fits(self.counted_width(self.flows.at(other)))
            && !self.drains_nothing_for(other);
        (is_wide && self.gives_way(next, held, other)).then_some(other)
    }

    /// Whether a flow holds [`MUCH`].
    pub(super) fn holds_much(&self, flow: u32) -> bool {
        self.are_parts(self.flows.held_for_weight(flow, 0), MUCH)
    }

    /// Whether `next`, which holds so many sixteenths of a seat for its weight, gives way to `other`, which holds less.
    fn gives_way(&self, next: u32, held: u64, other: u32) -> bool {
        // Seats that are equal at each dispatch need not be equal on average, so a flow that has received less does not give way. But
        // what it executes counts to its end, and little of what either did not ask for counts.
        let received = self.expected_progress(next) + self.flows.at(next).unclaimed();
        let received_by_other = self.progress(other) + self.flows.at(other).unclaimed();
        let owed = received_by_other.saturating_sub(received);
        let most = match self.flows.weight_of(next) {
            _ if self.flows.at(other).fresh && self.are_parts(held, MUCH) => self.lag().units(),
            Weight::ONE => 0,
            // What its tenant has received for other names does not show in its own account.
            _ => self.charges.usual(),
        };
        owed <= most
    }

    /// The work that a flow has received by now for its weight, in units of seat-seconds.
    pub(super) fn progress(&self, flow: u32) -> u64 {
        let known = self.flows.at(flow);
        let executing = self.flows.weight_of(flow).divide(known.received(self.now));
        known.certain_start().units().saturating_add(executing)
    }

    /// The work that a flow will have received for its weight when what it executes has ended, in units of seat-seconds.
    pub(super) fn expected_progress(&self, flow: u32) -> u64 {
        let known = self.flows.at(flow);
        let executing = self.flows.weight_of(flow).divide(known.expected(self.now));
        known.certain_start().units().saturating_add(executing)
    }

    /// The flow whose head starts in the place of seats that linger, which it then displaces: `next`, unless most of them may be its
    /// own, or the first flow that would hold less.
    pub(super) fn displacing(&mut self, next: u32) -> Option<u32> {
        if self.lingering.seats() == 0 {
            return None;
        }
        let room = self.limit.saturating_sub(self.executing_seats());
        let may = |flow: &u32| self.displaces(*flow);
        let next_may = Some(next).filter(|_| !self.lingers_its_part(next));
        let flow = next_may.filter(may);
        let held = self.flows.held_for_weight(next, 0);
        let flow = flow.or_else(|| self.first_holding_less(held, room).filter(may))?;
        let seats = self.counted_width(self.flows.at(flow));
        let in_use = self.seats_in_use();
        let more = (in_use + seats).saturating_sub(self.limit.max(in_use));
        self.lingering.displace(more);
        Some(flow)
    }

    /// Whether the head of `flow` displaces seats that linger: it does not fit, but the ideal would have finished it by now, and what
    /// is displaced is no more than the level has.
    fn displaces(&self, flow: u32) -> bool {
        let seats = self.counted_width(self.flows.at(flow));
        let total = self.sums.seats_in_use.saturating_add(seats);
        let executing = self.executing_seats().saturating_add(seats);
        executing <= self.limit
            && total <= self.limit.saturating_mul(2)
            && !self.fits(seats)
            && self.finish_of_head(flow) <= self.virtual_time.r()
    }

    /// Seats that are free again are given back to requests that linger.
    pub(super) fn restore_displaced(&mut self) {
        if self.lingering.displaced() == 0 {
            return;
        }
        let over = self.sums.seats_in_use.saturating_sub(self.limit);
        self.lingering.restore(over);
    }
}
