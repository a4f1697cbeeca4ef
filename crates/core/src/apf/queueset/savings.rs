//! Virtual time in [`Semantics::Improved`](super::Semantics), and what flows save and owe when they come back.
//!
//! Virtual time is what a flow of weight 1 that always has work has received. A flow that becomes active starts there; before
//! it by what it has saved, which is bounded, or after it by what it owes, which is bounded, too.
//!
//! Not here: who is served ([`super::fair`]).

use super::{QueueSet, tenants::Weight};
use crate::{apf::units::SeatSeconds, time::Nanos};

/// For a flow that is more than so many usual requests behind it virtual time may stand still: if it had saved as much when
/// its line began, and otherwise. The former is [due](super::due).
pub(super) const SAVED_BEHIND: u64 = 2;
const FAR_BEHIND: u64 = 4;

/// What a flow can save by asking for less than its share: so many usual requests or so many of its own, whichever is more,
/// but no more than it can receive in [`LONGEST_BURST`], or one mean request. The same time bounds what it owes when it comes back
/// with a request of one seat.
const SAVED_USUAL: u64 = 5;
const SAVED_OWN: u64 = 4;
const LONGEST_BURST: Nanos = Nanos::from_millis(100);

/// The longest time without waiting requests by which virtual time advances at once.
const LONGEST_UNCONTENDED: Nanos = Nanos::from_millis(60_000);

/// By so many usual requests wide flows are ahead and behind in turn. The [lag](QueueSet::lag) is no more than what each flow can receive in this time.
const LAG: u64 = 9;
const LONGEST_LAG: Nanos = Nanos::from_millis(2_000);

impl<W: Copy> QueueSet<W> {
    /// Time passes: virtual time advances by the work of all active flows, divided by what they weigh.
    pub(super) fn follow_flows(&mut self, elapsed: Nanos) {
        // Where a request waits, a flow is active.
        let all = self.sums.seats_in_use;
        let mut work = SeatSeconds::product(all, elapsed).units();
        let behind = all.min(self.sums.catching_up);
        let behind = SeatSeconds::product(behind, elapsed).units();
        let most = SeatSeconds::product(self.limit, LONGEST_BURST).units();
        work -= self.virtual_time.stands_still_for(behind, work, most);
        if self.lingering.displaced() > 0 {
            // More seats are counted than there are: each for the part that it has of those.
            let part = u128::from(work) * u128::from(self.seats_in_use()) / u128::from(all.max(1));
            work = u64::try_from(part).unwrap_or(u64::MAX);
        }
        if self.sums.seats_in_use < self.limit {
            let free = SeatSeconds::product(self.limit - self.sums.seats_in_use, elapsed);
            self.blocked.pass(free);
        }
        // With many flows and events each receives little at a time: what does not divide is kept for the next time.
        let work = work.saturating_add(self.virtual_time.undivided());
        let each = self.flows.divide_by_weight(work);
        let undivided = work.saturating_sub(self.flows.times_weight(each));
        self.virtual_time.keep_undivided(undivided);
        self.virtual_time.follow(SeatSeconds::from_units(each));
    }

    /// Virtual time is at least the start of `next`, which is dispatched in turn.
    pub(super) fn follow_next(&mut self, next: u32) {
        let certain = self.flows.at(next).certain_start();
        self.virtual_time.catch_up(certain);
    }

    /// A request that waited is about to be charged. What a flow receives does not advance virtual time if it is far behind: it
    /// has asked for less than its share, or others have received what they had saved. Otherwise virtual time would run away
    /// from flows that are not served meanwhile, and who comes at virtual time would wait for them. What it or its tenant of
    /// many names has saved is bounded, too, and so is [for how much](super::virtual_time::VirtualTime::stands_still_for) virtual time stands still.
    pub(super) fn use_savings(&mut self, index: u32, flow: u32) {
        let known = self.flows.at(flow);
        let seats = self.entries.at(index).seats;
        let due = match self.flows.weight_of(flow) {
            Weight::ONE => known.start,
            // Its place in the order. By the weight that it has now it may seem far behind: it gains when others of its tenant
            // leave, but what they were due is not due to it.
            _ => self.turns.start_of(flow),
        };
        let requests = if known.saved {
            SAVED_BEHIND
        } else {
            FAR_BEHIND
        };
        if self.is_behind(due, requests) {
            self.entries.at_mut(index).catches_up = true;
            self.sums.catching_up += seats;
        }
        let saved = self.longest_savings();
        let least = self.virtual_time.r().units().saturating_sub(saved);
        self.flows.owner_had(flow, SeatSeconds::from_units(least));
    }

    /// Whether `start` is more than so many usual requests before virtual time.
    fn is_behind(&self, start: SeatSeconds, requests: u64) -> bool {
        let least = self.charges.usual().saturating_mul(requests);
        start.units().saturating_add(least) < self.virtual_time.r().units()
    }

    /// A flow is about to have the request `index` and none before it that waits: it starts no earlier than by what it has
    /// received, or what its tenant has under many names, and with at most what can be saved. A new tenant starts at virtual time. Who
    /// was polite has saved something, under whatever names.
    pub(super) fn raise_start(&mut self, flow: u32, index: u32) {
        let entry = self.entries.at(index);
        let width = entry.seats.min(self.limit);
        let now = self.virtual_time.r();
        let own = SeatSeconds::product(width, self.flows.at(flow).service_time.mean).units();
        let usual = self.charges.usual().saturating_mul(SAVED_USUAL);
        let saved = own.saturating_mul(SAVED_OWN).max(usual);
        let saved = saved.min(self.burst()).max(self.least_savings());
        let least = SeatSeconds::from_units(now.units().saturating_sub(saved));
        let earliest = self.flows.received_for(flow).max(least).min(now);
        let start = self.flows.at(flow).start.max(earliest);
        let is_behind = self.is_behind(start, SAVED_BEHIND);
        self.flows.at_mut(flow).start = start;
        let behind = now.units().saturating_sub(self.expected_progress(flow));
        let unclaimed = behind.saturating_sub(own.saturating_mul(SAVED_OWN));
        let known = self.flows.at_mut(flow);
        known.saved = is_behind;
        known.set_unclaimed(unclaimed);
    }

    /// The most that any flow can save, in units of seat-seconds.
    fn longest_savings(&self) -> u64 {
        self.burst().max(self.least_savings())
    }

    /// What any flow can save, in units of seat-seconds: the rest of a mean request, so that a flow whose requests take less
    /// and more by turns does not only pay for those that take more; and what it is behind among wide requests.
    fn least_savings(&self) -> u64 {
        self.charges.mean().max(self.wide_lag())
    }

    /// What each flow can receive in [`LONGEST_BURST`], in units of seat-seconds.
    pub(super) fn burst(&self) -> u64 {
        self.received_in(LONGEST_BURST)
    }

    /// What each flow of weight 1 can receive in so much time, in units of seat-seconds.
    pub(super) fn received_in(&self, time: Nanos) -> u64 {
        let all = SeatSeconds::product(self.limit, time).units();
        self.flows.divide_by_weight(all)
    }

    /// The part of the [lag](Self::lag) that is due to wide requests: among them even flows that always ask for their share
    /// are so far behind at times.
    pub(super) fn wide_lag(&self) -> u64 {
        match self.charges.usual_wide() {
            0 => 0,
            usual => {
                let lag = usual.saturating_mul(LAG);
                lag.min(self.received_in(LONGEST_LAG))
            }
        }
    }

    /// Virtual time advances by a time in which nothing waited, as if each flow had received its share: then nobody owes
    /// anything for that time.
    pub(super) fn follow_uncontended(&mut self) {
        let free = std::mem::take(&mut self.uncontended).min(LONGEST_UNCONTENDED);
        let work = SeatSeconds::from_units(self.received_in(free));
        self.virtual_time.follow(work);
    }

    /// A flow comes back with the request `index`. Of what it received beyond its share it owes no more than each flow receives in
    /// [`LONGEST_BURST`]: while it was away it had no share, in which it could have paid, and a new name would owe nothing. Among
    /// hundreds of flows one mean request is received in many seconds, for which it would wait longer than those that come now.
    /// If its request is wide, it owes the [lag](Self::lag) at most, or that request.
    pub(super) fn forgive(&mut self, flow: u32, index: u32) {
        let entry = self.entries.at(index);
        let seats = entry.seats.min(self.limit);
        let known = self.flows.at(flow);
        let lag = self.lag().units();
        let most = if seats <= 1 {
            lag.min(self.burst())
        } else {
            let own = SeatSeconds::product(seats, known.service_time.mean).units();
            lag.max(self.flows.weight_of(flow).divide(own))
        };
        let latest = self.virtual_time.r().plus(SeatSeconds::from_units(most));
        let known = self.flows.at_mut(flow);
        known.start = known.start.min(latest);
    }

    /// How far a flow that holds its part of the seats, or a head that others overtake with what they have saved, may be
    /// behind: the work of [`LAG`] usual requests, by which wide flows are ahead and behind in turn, but no more than
    /// each flow can receive in [`LONGEST_LAG`].
    pub(super) fn lag(&self) -> SeatSeconds {
        let usual = self.charges.usual().saturating_mul(LAG);
        SeatSeconds::from_units(usual.min(self.received_in(LONGEST_LAG)))
    }

    /// Whether the head of `other` may start although that of `next` does not fit, because the ideal would have finished it by
    /// now: its flow uses what it has saved. `next` waits for such flows until it is the lag behind virtual time; if it is within its share,
    /// for one request of each, and for none of a flow that holds much.
    pub(super) fn overtakes_by_savings(&self, other: u32, next: u32) -> bool {
        let now = self.virtual_time.r();
        if self.flows.at(next).fresh
            && (self.holds_much(other) || self.started_since_blocked(other))
        {
            return false;
        }
        self.flows.at(next).start.plus(self.lag()) >= now && self.finish_of_head(other) <= now
    }
}
