//! Seats that are kept free until the request that is next fits: for how long others may use them, and who pays for them.
//!
//! The head of the next flow is *blocked* if it does not fit. The level is *drained* for it: what others give back stays idle, but
//! for requests that [overtake](QueueSet::overtaking_by_wait) it. The flow of the head pays for seats that were idle while
//! another request would have fitted, as if one flow of weight 1 had used them. Until virtual time has passed what it has paid,
//! nothing is drained for its requests; they start when they happen to fit. So what a flow keeps idle is at most what one of weight 1
//! receives, whether its requests start or give up. The flows of a tenant that has more than may weigh 1 each pay for all of them, so
//! they keep idle together what one flow receives. The flow is charged for these seats, too, as for those that it uses, so that others
//! have their shares; but not for a request of more than half of the level.
//!
//! Not here: the order of flows ([`super::fair`]).

use super::{EntryId, NONE, QueueSet, tenants::Weight};
use crate::{
    apf::units::{SeatSeconds, Seats},
    time::{Nanos, Time},
};

/// A request may overtake a blocked head if it takes at most this fraction (1 / n) of the head's wait.
const OVERTAKING_PART: u64 = 10;

/// How many requests behind a head are looked at, and how many of them may start before it.
const LOOKED_AT: u32 = 32;
const MOST_BEFORE: u32 = 8;

/// Wide flows are ahead by so many times what a drain costs, over all flows: then drains keep a tenth of the level idle at most.
const CHEAP: u64 = 10;

/// What drains cost is a moving mean over so many.
const DRAINS: u64 = 8;

/// What is paid for one drain is at most what each flow can receive in this time, so that a drain that lasts, because others
/// execute for long, does not keep wide requests waiting for hours.
const LONGEST_DEBT: Nanos = Nanos::from_millis(10_000);

/// A flow that comes back with savings pays for a drain from its own start on, but no earlier than what each flow can receive in this
/// time before virtual time.
const SAVED_FOR_DRAINS: Nanos = Nanos::from_millis(10);

/// The head that was next when last something did not fit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blocked {
    head: Option<EntryId>,
    since: Time,
    /// Distinguishes requests that overtook this head from those that overtook an earlier one; never 0.
    number: u32,
    /// Seats held by the requests that overtook it.
    overtaking_seats: Seats,
    /// What was kept idle while it was next, and another request would have fitted.
    idle: SeatSeconds,
    /// Whether another waiting request fits.
    keeps_idle: bool,
}

impl Blocked {
    /// Whether another waiting request could have used the seats that are free.
    #[cfg(test)]
    pub(super) fn keeps_idle(&self) -> bool {
        self.keeps_idle
    }

    /// So many `seats` are free for so long while requests wait.
    pub(super) fn pass(&mut self, seats: SeatSeconds) {
        if self.keeps_idle {
            self.idle = self.idle.plus(seats);
        }
    }
}

impl<W: Copy> QueueSet<W> {
    /// The head of `next`, which does not fit, is due later than it stands in the order, because its flow or tenant has to pay for
    /// drained seats. Moves the flow there.
    pub(super) fn postpone(&mut self, next: u32) -> bool {
        let head = self.flows.at(next).head();
        let is_drained_for = self.blocked.head == Some(self.entries.id(head));
        if is_drained_for || self.turns.start_of(next) >= self.earliest_drain(next) {
            return false;
        }
        self.settle_flow(next);
        true
    }

    /// Whether no seats are drained for the head of `next`, because it has [not yet paid](super::flows::FlowTable::drained_for) for others.
    pub(super) fn drains_nothing_for(&self, next: u32) -> bool {
        let head = self.flows.at(next).head();
        self.blocked.head != Some(self.entries.id(head))
            && self.earliest_drain(next) > self.virtual_time.r()
    }

    /// The virtual time before which no seats are drained for the first waiting request of `flow`; it is due no earlier. Zero, if what
    /// was drained is paid for: then it is due when it would be if nothing had been.
    pub(super) fn earliest_drain(&self, flow: u32) -> SeatSeconds {
        match self.entries.at(self.flows.at(flow).head()).seats {
            0 | 1 => SeatSeconds::ZERO,
            _ => {
                let paid = self.flows.drained_for(flow);
                if paid > self.virtual_time.r() {
                    paid
                } else {
                    SeatSeconds::ZERO
                }
            }
        }
    }

    /// The request that starts in place of a head for which nothing is drained, and its flow: the next head that fits, or else
    /// the widest of [those behind the next heads](Self::widest_behind).
    pub(super) fn fitting(&self) -> Option<(u32, u32)> {
        let free = self.limit - self.sums.seats_in_use;
        if let Some(flow) = self.turns.first_fitting(free) {
            return Some((flow, self.flows.at(flow).head()));
        }
        let behind = self.turns.next_ones();
        let behind = behind.into_iter().filter_map(|flow| {
            let index = self.widest_behind(flow)?;
            Some((flow, index))
        });
        behind.max_by_key(|(_, index)| self.entries.at(*index).seats)
    }

    /// The widest request that fits of the next [`LOOKED_AT`] behind the head of `flow`.
    fn widest_behind(&self, flow: u32) -> Option<u32> {
        let free = self.limit - self.sums.seats_in_use;
        let mut widest = None;
        let mut index = self.flows.at(flow).head();
        for _ in 0..LOOKED_AT {
            index = self.entries.at(index).next_in_queue();
            if index == NONE {
                break;
            }
            let seats = self.entries.at(index).seats;
            if seats <= free && widest.is_none_or(|(most, _)| most < seats) {
                widest = Some((seats, index));
            }
        }
        widest.map(|(_, index)| index)
    }

    /// The widest of the next requests of `flow` that fits, behind a head that does not; at most [`MOST_BEFORE`] of them go before the
    /// same head.
    pub(super) fn narrower_of_flow(&mut self, flow: u32) -> Option<u32> {
        let head = self.flows.at(flow).head();
        if u32::from(self.entries.at(head).overtaken) >= MOST_BEFORE {
            return None;
        }
        let narrower = self.widest_behind(flow)?;
        self.entries.at_mut(head).overtaken += 1;
        Some(narrower)
    }

    /// The widest request that fits behind one of the next heads that start at `latest` at the latest, and its flow; so many go before
    /// the same head as in [`Self::narrower_of_flow`].
    pub(super) fn narrower_within(&mut self, latest: SeatSeconds) -> Option<(u32, u32)> {
        let early = self.turns.next_ones().into_iter();
        let early = early.filter(|flow| {
            let head = self.entries.at(self.flows.at(*flow).head());
            self.turns.start_of(*flow) <= latest && u32::from(head.overtaken) < MOST_BEFORE
        });
        let behind = early.filter_map(|flow| Some((flow, self.widest_behind(flow)?)));
        let (flow, index) = behind.max_by_key(|(_, index)| self.entries.at(*index).seats)?;
        let head = self.flows.at(flow).head();
        self.entries.at_mut(head).overtaken += 1;
        Some((flow, index))
    }

    /// The flow whose head may start although that of `next`, for which seats are drained, does not fit: the
    /// next that fits, if its requests take less than [`OVERTAKING_PART`] of the time for which the head
    /// has been blocked. If only requests that overtook the head keep it waiting, no other overtakes it.
    pub(super) fn overtaking_by_wait(&mut self, next: u32) -> Option<u32> {
        let index = self.flows.at(next).head();
        let width = self.entries.at(index).seats;
        let head = self.entries.id(index);
        if self.blocked.head != Some(head) {
            self.end_drain();
            self.blocked = Blocked {
                head: Some(head),
                since: self.now,
                number: self.blocked.number.wrapping_add(1).max(1),
                overtaking_seats: 0,
                idle: SeatSeconds::ZERO,
                keeps_idle: false,
            };
        }
        self.blocked.keeps_idle = self.fitting().is_some();
        let waited = self.now.nanos_since(self.blocked.since).as_nanos();
        let allowed_time = Nanos::from_nanos(waited / OVERTAKING_PART);
        let others = self
            .sums
            .seats_in_use
            .saturating_sub(self.blocked.overtaking_seats);
        if others.saturating_add(width.min(self.limit)) <= self.limit {
            return None;
        }
        let free = self.limit - self.sums.seats_in_use;
        let flow = self.turns.first_fitting(free)?;
        let is_short =
            allowed_time > Nanos::ZERO && self.flows.at(flow).service_time.mean <= allowed_time;
        (is_short || self.overtakes_by_savings(flow, next)).then_some(flow)
    }

    /// The waiting request `index` starts or is cancelled. If seats were drained for it, its flow pays for them.
    pub(super) fn leaves_drain(&mut self, index: u32) {
        if self.blocked.head == Some(self.entries.id(index)) {
            self.end_drain();
        }
    }

    /// Whether the request `index`, which gives up, is the blocked head, and what its flow has waiting behind it is no wider. Then
    /// the level goes on draining for that: otherwise requests that wait for less time than draining takes would never start. For
    /// requests that take most of the level it does not: all others would wait for as long as there are such.
    pub(super) fn drain_goes_on_without(&self, index: u32) -> bool {
        let entry = self.entries.at(index);
        let next = entry.next_in_queue();
        self.blocked.head == Some(self.entries.id(index))
            && next != NONE
            && entry.seats <= self.limit / 2
            && (2..=entry.seats).contains(&self.entries.at(next).seats)
    }

    /// The level goes on draining for the new head of `flow`.
    pub(super) fn drain_for_head(&mut self, flow: u32) {
        let head = self.flows.at(flow).head();
        self.blocked.head = Some(self.entries.id(head));
    }

    /// Seats are no longer drained for the blocked head.
    fn end_drain(&mut self) {
        let idle = std::mem::take(&mut self.blocked.idle).units();
        self.blocked.keeps_idle = false;
        let Some(head) = self.blocked.head.take() else {
            return;
        };
        let Some(entry) = self.entries.get(head) else {
            return;
        };
        let (flow, seats) = (entry.flow, entry.seats);
        self.drain_cost = self.drain_cost - self.drain_cost / DRAINS + idle / DRAINS;
        if idle == 0 {
            return;
        }
        let price = SeatSeconds::from_units(idle.min(self.received_in(LONGEST_DEBT)));
        let from = self.pays_from(flow, seats);
        self.flows.pay_for_drain(flow, price, from);
        // What takes most of the level cannot start but after seats were idle: it has its share of the rest.
        if seats <= self.limit / 2 {
            let charged = self.flows.weight_of(flow).divide(price.units());
            let known = self.flows.at_mut(flow);
            known.start = known.start.plus(SeatSeconds::from_units(charged));
            self.flows.owner_receives(flow, price, self.now);
            self.settle_flow(flow);
        }
    }

    /// The virtual time from which on `flow` pays for the drain for a request of so many `seats`, if it has paid for those before: its
    /// own start, if it had [saved](Self::raise_start) when its line began. So a client that sends one wide request after the other need
    /// not wait after each, as long as all that it uses and keeps idle is less than its share.
    fn pays_from(&self, flow: u32, seats: Seats) -> SeatSeconds {
        let now = self.virtual_time.r();
        let known = self.flows.at(flow);
        // The start shows neither what was idle for requests of most of the level, nor what other names of a tenant of many received.
        if !known.saved || seats > self.limit / 2 || self.flows.weight_of(flow) != Weight::ONE {
            return now;
        }
        let saved = self.received_in(SAVED_FOR_DRAINS);
        let earliest = SeatSeconds::from_units(now.units().saturating_sub(saved));
        known.start.max(earliest).min(now)
    }

    /// The work by which a flow has to be ahead so that drains are cheap, in units of seat-seconds: between two drains each flow
    /// receives as much.
    pub(super) fn cheap_lead(&self) -> u64 {
        self.flows
            .divide_by_weight(self.drain_cost.saturating_mul(CHEAP))
    }

    /// Whether a request of `flow` has started since the blocked head did not fit.
    pub(super) fn started_since_blocked(&self, flow: u32) -> bool {
        self.flows.at(flow).served > self.blocked.since
    }

    /// The request `index`, which has started, has overtaken the blocked head.
    pub(super) fn count_overtaking(&mut self, index: u32) {
        let entry = self.entries.at_mut(index);
        entry.overtook = self.blocked.number;
        self.blocked.overtaking_seats += entry.seats;
    }

    /// Of the seats of a request that overtook the blocked head, `before` become `after`.
    pub(super) fn recount_overtaking(&mut self, overtook: u32, before: Seats, after: Seats) {
        if overtook != 0 && overtook == self.blocked.number {
            self.blocked.overtaking_seats = self.blocked.overtaking_seats - before + after;
        }
    }
}
