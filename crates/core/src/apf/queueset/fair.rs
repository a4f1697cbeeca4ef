//! The order in which flows are served ([`Semantics::Improved`](super::Semantics)).
//!
//! Each flow has a *start*: the virtual time at which its next request is due, which is the work it
//! has received so far, divided by its weight (see [`super::tenants`]). A request that starts moves it by the work that
//! such requests of this flow take, and when the request ends, the difference from the actual work is added. The flow with
//! the least start is next (start-time fair queuing), with additions that hold whatever flows come and go:
//!
//! - *Virtual time follows.* It is what a flow of weight 1 that always has work has received: it advances by the seats in use
//!   over the sum of the weights, and is at least the start of what is dispatched in turn. What flows far behind it receive does
//!   not advance it, for an eighth of all work at most, so that it stays near the flows that are served. While nothing waits, all flows get their shares and more,
//!   and it advances by that share at once when something has to wait again.
//! - *Savings.* A flow that becomes active starts at virtual time, or earlier if it has received less, but no earlier than by what
//!   its tenant has received, and with at most a [bounded](QueueSet::raise_start) saving. So a new name is behind known flows
//!   that were polite, and a polite flow may send a few requests at once.
//! - *Holding less goes first.* If the next flow already [holds its part](super::parts) of the seats by weight, and another flow
//!   would hold no more than it even with its next request, that one goes first. So a flow that was charged too little, because
//!   its requests are of several kinds, does not take the seats of others before its charges are corrected. Nobody gives way
//!   to one who has received more than he will have when what he executes has ended, unless he holds twice his part and that one
//!   is within his share. If that one's request is wide and does not fit, seats are drained for it.
//! - *Who is due has turns.* Flows that are [due](super::due) are served one request each, whoever is furthest behind; one that is
//!   within its share until it holds twice its part.
//! - *Final work gives way.* Seats that linger are [displaced](QueueSet::displacing) by a request that the ideal would have
//!   finished by now, and linger for longer in return; or begun, if its flow holds little.
//!
//! While the head of the next flow does not fit, free seats are kept for it. Six rules reduce the cost of
//! these idle seats, and none reduces the share of another flow:
//!
//! - A narrower request of the same flow that fits goes before the head, a few times at most.
//! - A wide flow keeps the seats that its own requests give back as long as it is at most some requests, its *lead*, ahead
//!   of the next flow, so that seats are drained for many requests and not for each. The more seats drains have kept idle, the
//!   longer is the lead, from [`LEAST_LEAD`] to [`MOST_LEAD`] requests. If a flow within that lead has a wider request that fits,
//!   it is started instead, since narrow ones find seats anyway.
//! - For a flow that has had its share and has more than one request waiting, no seats are drained until it is behind by the lead;
//!   until then the widest request that fits is started, a head or one behind it. But none starts before that of a flow without
//!   debt: if that does not fit, seats are drained for it.
//! - If a head gives up for which seats are drained, they are drained for the request behind it.
//! - Nothing is drained for a flow that has not yet paid for what was, and it is charged for it ([`super::drains`]).
//! - A request may overtake the head if it is expected to take at most a tenth of the time for which the
//!   head has been waiting to fit, or if the ideal would have finished it by now and the head is not yet the lag behind virtual
//!   time, once for each flow if the head's is within its share; and as long as not only requests that overtook the head keep it waiting.
//!   So the head waits at most a tenth longer than if no request overtook it, and for what others have saved.

use std::time::Duration;

use super::{
    NONE, QueueSet, QueueSetEvents, flows::FlowState, service_times::moved, tenants::Weight,
    turns::FlowTurn, virtual_time::VirtualTime,
};
use crate::{
    apf::units::{SeatSeconds, Seats},
    time::Time,
};

/// The number of its requests by which a wide flow may be ahead: as many as make drains [cheap](QueueSet::cheap_lead), within these
/// bounds.
const LEAST_LEAD: u64 = 3;
const MOST_LEAD: u64 = 8;

/// A flow whose head starts although another one is next.
struct Overtaking {
    flow: u32,
    /// The request, if it is not the head.
    index: Option<u32>,
    /// Whether the one that is next may have to wait longer.
    lengthens_wait: bool,
}

/// From here on virtual time is set back, long before it could overflow.
const SET_BACK_ABOVE: u64 = u64::MAX / 4;

impl<W: Copy> QueueSet<W> {
    /// Dispatches as much as possible. `arriving` is not reported in `events`.
    pub(super) fn dispatch_by_flow(
        &mut self,
        arriving: Option<u32>,
        events: &mut QueueSetEvents<W>,
    ) {
        if self.flows.is_time_to_place() {
            self.place_anew();
        }
        // At a limit of 0 no seats can be displaced either, and whatever started would hold none.
        while self.sums.waiting > 0 && self.limit > 0 {
            if self.sums.seats_in_use >= self.limit && self.lingering.seats() == 0 {
                return;
            }
            let Some(flow) = self.next_flow() else {
                return;
            };
            if let Some(displacing) = self.displacing(flow) {
                self.start_head(displacing, arriving, events);
                continue;
            }
            if self.sums.seats_in_use >= self.limit {
                return;
            }
            if let Some(other) = self.holding_less(flow) {
                self.follow_next(flow);
                self.start_head(other, arriving, events);
                continue;
            }
            let wide = self.wide_holding_less(flow);
            let flow = wide.unwrap_or(flow);
            let head = self.entries.at(self.flows.at(flow).head());
            let schema = head.schema;
            if self.fits(head.seats) {
                // Only a flow that starts in turn moves virtual time. Flows out of turn are ahead; if they
                // moved it, new flows would begin behind all waiting ones.
                self.follow_next(flow);
                self.start_head(flow, arriving, events);
                continue;
            }
            if self.postpone(flow) {
                continue;
            }
            events.blocked.push(schema);
            if self.drains_nothing_for(flow) {
                let Some((other, index)) = self.fitting() else {
                    return;
                };
                self.start_waiting(index, other, arriving, events);
                continue;
            }
            if let Some(narrower) = self.narrower_of_flow(flow) {
                self.start_waiting(narrower, flow, arriving, events);
                continue;
            }
            let Some(overtaking) = self.overtaking(flow) else {
                return;
            };
            let index = overtaking
                .index
                .unwrap_or(self.flows.at(overtaking.flow).head());
            self.start_waiting(index, overtaking.flow, arriving, events);
            if overtaking.lengthens_wait {
                self.count_overtaking(index);
            }
        }
    }

    /// The virtual time at which the first waiting request of `flow` would be finished in the ideal.
    pub(super) fn finish_of_head(&self, flow: u32) -> SeatSeconds {
        let known = self.flows.at(flow);
        let work = self.work_of_head(known).units();
        let start = self.start_of_head(flow).units();
        SeatSeconds::from_units(start.saturating_add(self.flows.weight_of(flow).divide(work)))
    }

    /// The virtual time at which the first waiting request of `flow` would begin in the ideal.
    pub(super) fn start_of_head(&self, flow: u32) -> SeatSeconds {
        // What executes may take longer than it was charged for.
        let start = self.flows.at(flow).start.units().max(self.progress(flow));
        SeatSeconds::from_units(start)
    }

    /// The work that is expected of the first waiting request of a flow, final seats included.
    pub(super) fn work_of_head(&self, known: &FlowState) -> SeatSeconds {
        let last = self.entries.at(known.head()).work.final_work();
        SeatSeconds::product(self.counted_width(known), known.service_time.mean).plus(last)
    }

    /// The flow whose head may start although that of `next` does not fit.
    ///
    /// The lead comes first: it is paid back within the flow's own turns, whereas a request that
    /// overtakes because the head has waited long lengthens that wait.
    fn overtaking(&mut self, next: u32) -> Option<Overtaking> {
        let in_turn = |flow| Overtaking {
            flow,
            index: None,
            lengthens_wait: false,
        };
        let mut drained = next;
        if let Some(latest) = self.latest_lead(next) {
            let free = self.limit - self.sums.seats_in_use;
            if let Some(other) = self.turns.widest_fitting(free, latest) {
                match self.fresh_between(next, other) {
                    None => return Some(in_turn(other)),
                    Some(fresh) if self.fits(self.counted_width(self.flows.at(fresh))) => {
                        return Some(in_turn(fresh));
                    }
                    Some(fresh) if self.drains_nothing_for(fresh) => return Some(in_turn(other)),
                    Some(fresh) => drained = fresh,
                }
            } else if let Some((flow, index)) = self.narrower_within(latest) {
                return Some(Overtaking {
                    flow,
                    index: Some(index),
                    lengthens_wait: false,
                });
            } else if self.turns.first_fitting(free).is_some() {
                // Seats are drained until it has caught up: otherwise it would only ever get those of its own requests.
                self.flows.at_mut(next).behind = true;
            }
        }
        let flow = self.overtaking_by_wait(drained)?;
        Some(Overtaking {
            flow,
            index: None,
            lengthens_wait: true,
        })
    }

    /// The latest start of a flow that may have seats before `next`, which has had its share and has more than one request waiting: no
    /// seats are drained for it until it is behind by more than the lead.
    fn latest_lead(&self, next: u32) -> Option<SeatSeconds> {
        let known = self.flows.at(next);
        if known.fresh || known.behind || known.waiting < 2 {
            return None;
        }
        Some(self.latest(known.start, known))
    }

    /// The first of some flows after `next` and before `other` that has used no more than its share. A lead is taken from
    /// `next`, not from such a flow.
    fn fresh_between(&self, next: u32, other: u32) -> Option<u32> {
        let latest = self.turns.start_of(other);
        let after = self.turns.next_ones().into_iter();
        let after = after.map(|flow| (self.turns.start_of(flow), flow));
        let fresh = after
            .filter(|(start, flow)| *flow != next && *start < latest && self.flows.at(*flow).fresh);
        fresh.min().map(|(_, flow)| flow)
    }

    /// The latest start of a flow that may have seats before one that starts at `start`: the lead later, in requests like the next
    /// of `flow`.
    fn latest(&self, start: SeatSeconds, flow: &FlowState) -> SeatSeconds {
        let charge = SeatSeconds::product(self.counted_width(flow), flow.service_time.mean);
        let charge = charge.units();
        let least = charge.saturating_mul(LEAST_LEAD);
        let most = charge.saturating_mul(MOST_LEAD);
        let lead = self.cheap_lead().clamp(least, most);
        SeatSeconds::from_units(start.units().saturating_add(lead))
    }

    /// The seats that the next request of `flow` would hold.
    pub(super) fn counted_width(&self, flow: &FlowState) -> Seats {
        self.entries.at(flow.head()).seats.min(self.limit)
    }

    /// The seats that a request of `flow` gave back go to the next request of that flow, if it is wide
    /// and not too far ahead, or to a wider one that fits and is not too far ahead either.
    pub(super) fn keep_wide_seats(&mut self, flow: u32, events: &mut QueueSetEvents<W>) {
        let known = self.flows.at(flow);
        if known.waiting == 0 {
            return;
        }
        let head = self.entries.at(known.head());
        if head.seats <= 1 || !self.fits(head.seats) {
            return;
        }
        let Some(first) = self.next_flow() else {
            return;
        };
        let next = self.flows.at(first);
        let latest = self.latest(next.start, known);
        if known.start > latest || self.comes_first(next) || self.holding_less(first).is_some() {
            return;
        }
        let free = self.limit - self.sums.seats_in_use;
        let widest = self.turns.widest_fitting(free, latest).filter(|widest| {
            self.counted_width(self.flows.at(*widest)) >= self.counted_width(known)
        });
        self.start_head(widest.unwrap_or(flow), None, events);
    }

    /// Whether `next`, the flow that is next, goes before flows that keep their seats: it is within its
    /// share, or has a single request, nothing executing, and that request fits.
    fn comes_first(&self, next: &FlowState) -> bool {
        next.fresh
            || next.holding == 0
                && next.waiting == 1
                && self.fits(self.entries.at(next.head()).seats)
    }

    /// The first waiting request of `flow` starts.
    fn start_head(&mut self, flow: u32, arriving: Option<u32>, events: &mut QueueSetEvents<W>) {
        let index = self.flows.at(flow).head();
        self.start_waiting(index, flow, arriving, events);
    }

    /// The waiting request `index` of `flow` starts.
    fn start_waiting(
        &mut self,
        index: u32,
        flow: u32,
        arriving: Option<u32>,
        events: &mut QueueSetEvents<W>,
    ) {
        self.leaves_drain(index);
        self.leave_queue(index);
        let waited_for = self.entries.at(index).seats;
        self.sums.waiting_seats -= u64::from(waited_for);
        self.start(index);
        self.count_start(index);
        self.use_savings(index, flow);
        self.charge(index, flow);
        self.flows.unlink(&mut self.entries, index, flow);
        self.settle_flow(flow);
        if self.turns.first() != Some(flow) {
            self.flows.at_mut(flow).behind = false;
        }
        if arriving != Some(index) {
            let waiter = self.entries.at(index).waiter;
            events.dispatched.push((waiter, self.entries.id(index)));
        }
    }

    /// A request that finds free seats and no waiting request starts without entering its queue.
    pub(super) fn start_unqueued(&mut self, index: u32) {
        let (flow, _) = self.find_flow(index);
        self.virtual_time
            .catch_up(self.flows.at(flow).certain_start());
        self.start(index);
        self.count_start(index);
        // What it has saved is bounded when one of its requests has to wait.
        self.charge(index, flow);
    }

    /// The flow of a request that arrives, and whether it has another owner from now on.
    fn find_flow(&mut self, index: u32) -> (u32, bool) {
        let entry = self.entries.at_mut(index);
        let flow = self.flows.number(entry.hash, self.assumed);
        entry.flow = flow;
        let now = self.virtual_time.r();
        let before = self.flows.ownership(flow);
        self.flows.join(flow, entry.tenant, now);
        self.flows.assume_as_of_owner(flow);
        (flow, self.flows.ownership(flow) != before)
    }

    /// A flow pays for a request that starts: what such requests take.
    fn charge(&mut self, index: u32, flow: u32) {
        let entry = self.entries.at(index);
        let (seats, last) = (entry.seats, entry.work.final_work());
        self.flows.hold(flow, seats);
        let known = self.flows.at(flow);
        let assumed = known.service_time.mean;
        let work = SeatSeconds::product(seats, assumed).plus(last);
        let charged = SeatSeconds::from_units(self.flows.weight_of(flow).divide(work.units()));
        let entry = self.entries.at_mut(index);
        entry.assumed = assumed;
        entry.charged = charged;
        entry.ownership = self.flows.ownership(flow);
        let now = self.virtual_time.r();
        let known = self.flows.at_mut(flow);
        known.start = known.start.plus(charged);
        known.guessed = known.guessed.plus(charged);
        known.begin(seats, self.now);
        known.served = self.now;
        known.took_place = false;
        known.fresh &= seats <= 1 && known.start <= now;
        let is_late = known.start.units() > SET_BACK_ABOVE;
        self.flows.owner_receives(flow, work, self.now);
        if is_late {
            self.set_back();
        }
    }

    /// Replaces the estimated work by the actual work, and updates the mean service time if it `LEARNS`.
    pub(super) fn settle_charge<const LEARNS: bool>(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let started = entry.started.unwrap_or(self.now);
        let took = self.now.nanos_since(started);
        if LEARNS {
            self.assumed = moved(self.assumed, &mut self.learnt, took);
        }
        if entry.flow == NONE {
            return;
        }
        let (seats, charged, flow) = (entry.seats, entry.charged, entry.flow);
        let (assumed, ownership) = (entry.assumed, entry.ownership);
        let last = entry.work.final_work();
        if LEARNS {
            self.flows.at_mut(flow).service_time.learn(took);
            self.flows.owner_learns(flow, took);
        }
        let actual = SeatSeconds::product(seats, took).plus(last).units();
        let guess = SeatSeconds::product(seats, assumed).plus(last);
        let paid = self.actual_charge(flow, actual, charged.units(), guess.units());
        let known = self.flows.at_mut(flow);
        known.guessed = known.guessed.minus(charged);
        known.end(seats, started);
        self.charges.count(actual, seats > 1);
        let start = known.start.units() + paid;
        known.start = SeatSeconds::from_units(start.saturating_sub(charged.units()));
        self.flows.correct_owner(flow, ownership, guess, actual);
    }

    /// What a flow pays for a request that took `actual`, and for which `charged` was paid when it was guessed to take `guess`.
    ///
    /// What was guessed costs what the flow weighed at the start: it has waited by that weight. By the weight at the end, names of
    /// the tenant that come for a moment would make the flow owe many times what it received, and nothing gives that back when
    /// they are gone. What the request took longer costs the lesser of both, since such names may also have been there at the
    /// start alone.
    fn actual_charge(&self, flow: u32, actual: u64, charged: u64, guess: u64) -> u64 {
        if charged == guess && guess > 0 {
            return actual;
        }
        let longer = actual.saturating_sub(guess);
        let by_present = self.flows.weight_of(flow).divide(longer);
        if guess == 0 {
            return by_present;
        }
        let by_start = |work| scaled_charge(work, charged, guess);
        by_start(actual - longer).saturating_add(by_start(longer).min(by_present))
    }

    /// An executing request will have no final seats, so nobody pays for them.
    pub(super) fn waive_final_seats(&mut self, index: u32) {
        let entry = self.entries.at_mut(index);
        let (flow, ownership, charged) = (entry.flow, entry.ownership, entry.charged);
        let waived = entry.work.final_work();
        let guess = SeatSeconds::product(entry.seats, entry.assumed).plus(waived);
        entry.work.final_seats = 0;
        entry.work.additional_latency = Duration::ZERO;
        if flow == NONE || waived.units() == 0 {
            return;
        }
        let left = scaled_charge(guess.minus(waived).units(), charged.units(), guess.units());
        let left = SeatSeconds::from_units(left);
        entry.charged = left;
        let back = charged.minus(left);
        let known = self.flows.at_mut(flow);
        let start = known.start.units().saturating_sub(back.units());
        known.start = SeatSeconds::from_units(start);
        known.guessed = known.guessed.minus(back);
        self.flows.correct_owner(flow, ownership, waived, 0);
    }

    /// Appends a request to the line of its flow.
    pub(super) fn enter_line(&mut self, index: u32) {
        if self.sums.waiting == 0 {
            self.follow_uncontended();
        }
        let (flow, has_new_owner) = self.find_flow(index);
        let entry = self.entries.at(index);
        let (slot, seats) = (entry.slot, u64::from(entry.seats));
        let now = self.virtual_time.r();
        let line = self.lines_begun;
        if self.flows.at(flow).is_idle() {
            self.forgive(flow, index);
        }
        let first = self.flows.at(flow).waiting == 0;
        if first {
            self.raise_start(flow, index);
            let known = self.flows.at_mut(flow);
            known.fresh = known.start <= now;
            known.behind = false;
            // Ties go to the flow that owes nothing, so its top bit is clear; among such to the one that came first. The
            // counter may wrap, which only disturbs ties between flows two billion lines apart.
            known.turn = (line & (u32::MAX >> 1)) | (u32::from(!known.fresh) << 31);
            self.lines_begun = line.wrapping_add(1);
        }
        self.flows.push(&mut self.entries, index, flow);
        let queue = &mut self.slots[slot as usize];
        queue.count(self.entries.at(index), 1);
        self.sums.queues_waiting += u32::from(queue.waiting == 1);
        self.sums.waiting += 1;
        self.sums.waiting_seats += seats;
        // What waited in it already may have been a request of a tenant with many names, in a place behind all of these.
        if first || has_new_owner {
            self.settle_flow(flow);
        }
    }

    /// A waiting request is cancelled.
    pub(super) fn quit_line(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let (flow, seats, tenant) = (entry.flow, entry.seats, entry.tenant);
        let drain_goes_on = self.drain_goes_on_without(index);
        if !drain_goes_on {
            self.leaves_drain(index);
        }
        self.leave_queue(index);
        self.flows.unlink(&mut self.entries, index, flow);
        if drain_goes_on {
            self.drain_for_head(flow);
        }
        let now = self.virtual_time.r();
        self.flows.part(flow, tenant, now);
        self.sums.waiting_seats -= u64::from(seats);
        self.settle_flow(flow);
    }

    /// Places the flows anew whose tenants own far fewer flows, or far more, than when they were placed. Otherwise a flow that came
    /// when its tenant had many others would wait by that weight when they are gone, and a request in the flow of a tenant that has
    /// had many since would wait by the weight of those. O(flows), and O(1) for each of the events since the last time.
    fn place_anew(&mut self) {
        let now = self.virtual_time.r();
        for flow in (0..).take(self.flows.len()) {
            if self.flows.is_misplaced(flow) {
                self.flows.reconsider_owner(flow, now);
            }
        }
        // Tenants that have other flows now may be misplaced for that, too.
        for flow in (0..).take(self.flows.len()) {
            if self.flows.is_misplaced(flow) {
                self.settle_flow(flow);
            }
        }
        self.flows.are_placed();
    }

    /// The queue of a waiting request counts it no longer.
    fn leave_queue(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let queue = &mut self.slots[entry.slot as usize];
        queue.count(entry, -1);
        self.sums.queues_waiting -= u32::from(queue.waiting == 0);
        self.sums.waiting -= 1;
    }

    /// Reorders a flow after its head or its start changed.
    pub(super) fn settle_flow(&mut self, flow: u32) {
        let known = self.flows.at(flow);
        if known.waiting == 0 {
            self.turns.remove(flow);
            return;
        }
        let head = self.entries.at(known.head());
        let width = head.seats;
        let weight = self.flows.weight_of(flow);
        let mut start = known.start;
        let (hold, since);
        if weight == Weight::ONE {
            hold = 16 * (u64::from(known.seats) + u64::from(width.min(self.limit)));
            since = self.waits_since(known, head);
        } else {
            hold = self
                .flows
                .least_held_for_weight(flow, width.min(self.limit));
            since = Time::NEVER;
            // A light flow's first request waits for its weight, too.
            let charge = self.work_of_head(known).units();
            start = SeatSeconds::from_units(start.units() + weight.divide(charge) - charge);
        }
        let hold = u32::try_from(hold).unwrap_or(u32::MAX);
        if width > 1 {
            start = start.max(self.earliest_drain(flow));
        }
        let turn = FlowTurn {
            start,
            tie: known.turn,
            width,
            hold,
            since,
        };
        self.turns.set(flow, turn);
    }

    /// Sets virtual time back to zero, and all that is measured in it by as much. O(flows), and once
    /// in years.
    pub(super) fn set_back(&mut self) {
        let by = self.virtual_time.r().units();
        self.flows.set_back(by);
        self.virtual_time = VirtualTime::default();
        self.counters.epochs += 1;
        self.turns.clear();
        for flow in (0..).take(self.flows.len()) {
            self.settle_flow(flow);
        }
    }
}

/// What `amount` costs where `whole` cost `paid`; at most a sixteenth of what can be represented.
fn scaled_charge(amount: u64, paid: u64, whole: u64) -> u64 {
    if paid == whole {
        return amount;
    }
    let scaled = u128::from(amount) * u128::from(paid) / u128::from(whole.max(1));
    u64::try_from(scaled).map_or(u64::MAX / 16, |scaled| scaled.min(u64::MAX / 16))
}
