//! Who holds its part of the seats, and who then goes first: a flow that holds less starts before it, and in the place of seats that
//! linger.
//!
//! The *part* of a flow is its weight, divided by the weights of all active flows, of the limit. What it holds is what its requests
//! execute with and what lingers of them. A flow that weighs less than 1 has its part, and holds, together with the others of its
//! tenant: otherwise requests that take long would get all seats under many names.
//!
//! Not here: the order of flows ([`super::fair`]).

use super::{QueueSet, tenants::Weight};
use crate::{
    apf::units::{SeatSeconds, Seats},
    time::Time,
};

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
        seats > 0 && self.flows.times_weight(seats) >= parts
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

    /// The work that a flow has received by now for its weight, in units of seat-seconds. What executes counts by the present weight:
    /// it is compared with what others would hold now, and paid for by the weight at its start when it ends.
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

    /// The flow whose head starts in the place of seats that linger, which it then displaces.
    pub(super) fn displacing(&mut self, next: u32) -> Option<u32> {
        if self.lingering.seats() == 0 {
            return None;
        }
        let flow = self.first_displacing(next)?;
        let seats = self.counted_width(self.flows.at(flow));
        let in_use = self.seats_in_use();
        let more = (in_use + seats).saturating_sub(self.limit.max(in_use));
        self.lingering.displace(more);
        Some(flow)
    }

    /// The first flow of which the head [displaces](Self::displaces) seats: `next`, unless most of them may be its own, or one that
    /// would hold less. While the ideal would not have finished the request of `next`, nothing has to be kept free for it, so
    /// it may be any flow that [claims](Self::claims_seats) a seat. So may one that asks for [the least](Self::asks_least), if it is
    /// [due](Self::is_least_due), and also while `next` waits for what its own tenant has left.
    fn first_displacing(&self, next: u32) -> Option<u32> {
        let may = |flow: &u32| self.displaces(*flow);
        let next_may =
            Some(next).filter(|next| self.asks_least(*next) || !self.lingers_its_part(*next));
        if let Some(flow) = next_may.filter(may) {
            return Some(flow);
        }
        let room = self.limit.saturating_sub(self.executing_seats());
        let held = self.flows.held_for_weight(next, 0);
        if let Some(flow) = self.first_holding_less(held, room).filter(may) {
            return Some(flow);
        }
        let next_is_late = self.finish_of_head(next) <= self.virtual_time.r();
        let waits_for_own = next_may.is_none();
        let may = |flow| {
            let may = (waits_for_own || !next_is_late) && self.is_least_due(flow)
                || !next_is_late && self.claims_seats(flow);
            may && self.displaces(flow)
        };
        self.turns.first_holding(room.min(1), u32::MAX, may)
    }

    /// Whether a flow asks for the least, and the ideal would have finished that by now. While nothing executes, that is so for one
    /// flow: all seats are kept for work that was left, and there may be no event before that is done.
    fn is_least_due(&self, flow: u32) -> bool {
        let is_due = || self.finish_of_head(flow) <= self.virtual_time.r();
        self.asks_least(flow) && (self.executing_seats() == 0 || is_due())
    }

    /// Whether a flow that is known, and not the only one of its tenant, holds nothing and asks for the least: a seat for a request that
    /// leaves no final work. Whatever others of its tenant have left, this does not add to it. New names are no reason to displace
    /// what was left.
    fn asks_least(&self, flow: u32) -> bool {
        let known = self.flows.at(flow);
        let head = self.entries.at(known.head());
        known.holding == 0
            && head.seats <= 1
            && head.work.final_work() == SeatSeconds::ZERO
            && known.service_time.learnt > 0
            && self.flows.tenants().flows(known.owner) > 1
    }

    /// Whether the head of `flow` displaces seats that linger: it does not fit, but fits beside what executes, and the ideal would
    /// have finished it by now; and no more linger than twice the limit, unless it is [the least](Self::asks_least). If the flow claims seats, and the request takes at most half of the level, the ideal need only have begun
    /// it, or for one seat, the flow may be ahead by the lag: others leave a part of theirs, as so many seats linger. And
    /// the bound is only for what will linger itself. Otherwise final work that others left would keep it waiting until that is done.
    fn displaces(&self, flow: u32) -> bool {
        let known = self.flows.at(flow);
        let seats = self.counted_width(known);
        let executing = self.executing_seats().saturating_add(seats);
        if executing > self.limit || self.fits(seats) {
            return false;
        }
        let total = self.sums.seats_in_use.saturating_add(seats);
        let now = self.virtual_time.r();
        let takes_most = seats > 1 && seats > self.limit / 2;
        if takes_most || !self.claims_seats(flow) {
            let is_bounded = total <= self.limit.saturating_mul(2) || self.asks_least(flow);
            return is_bounded && (self.finish_of_head(flow) <= now || self.is_least_due(flow));
        }
        let final_work = self.entries.at(known.head()).work.final_work();
        if final_work > SeatSeconds::ZERO && total > self.limit.saturating_mul(3) {
            return false;
        }
        let latest = if seats > 1 { now } else { now.plus(self.lag()) };
        self.start_of_head(flow) <= latest
    }

    /// Whether a flow holds so little that seats which linger need not be kept for others: it would have turns, and the flows of its
    /// tenant do not hold [`MUCH`], under whatever names. A flow that weighs less than 1 does not claim any.
    fn claims_seats(&self, flow: u32) -> bool {
        self.flows.weight_of(flow) == Weight::ONE
            && !self.holds_enough(flow)
            && !self.are_parts(self.flows.held_by_tenant(flow), MUCH)
    }

    /// As many seats that linger are displaced as are held above the limit, because somebody else uses them, for whom the limit was
    /// lowered: a simulation lets one client go before all others so. Then what lingers is not done for nothing meanwhile.
    pub fn displace_above_limit(&mut self, now: Time) {
        self.clock_to(now);
        let above = self.sums.seats_in_use.saturating_sub(self.limit);
        let most = above.min(self.lingering.seats());
        let more = most.saturating_sub(self.lingering.displaced());
        if more > 0 {
            self.lingering.displace(more);
            self.account();
        }
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
