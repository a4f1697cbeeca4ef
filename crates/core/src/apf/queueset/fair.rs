//! The order in which flows are served ([`Semantics::Improved`](super::Semantics)).
//!
//! Each flow has a *start*: the virtual time at which its next request is due, which is the work it
//! has received so far. A request that starts moves it by the work that such requests of this flow take,
//! and when the request ends, the difference from the actual work is added. The flow with the least start
//! is next (start-time fair queuing). A flow that becomes active starts at the current virtual time, unless
//! its own start is later.
//!
//! While the head of the next flow does not fit, free seats are kept for it. Three rules reduce the cost of
//! these idle seats, and none reduces the share of another flow:
//!
//! - A wide flow keeps the seats that its own requests give back as long as it is at most [`LEAD`]
//!   requests ahead of the next flow, so that seats are drained for many requests and not for each.
//!   If a flow within that lead has a wider request that fits, it is started instead, since narrow
//!   ones find seats anyway.
//! - For a flow that is served and has more waiting no seats are drained until it is as many requests
//!   behind; until then the widest request that fits is started.
//! - A request may overtake the head if it is expected to take at most a tenth of the time for which the
//!   head has been waiting to fit, and as long as not only requests that overtook the head keep it waiting.
//!   So the head waits at most a tenth longer than if no request overtook it.

use std::time::Duration;

use super::{EntryId, NONE, QueueSet, QueueSetEvents, flows::FlowState, virtual_time::VirtualTime};
use crate::{
    apf::units::{SeatSeconds, Seats},
    time::Time,
};

/// The maximum number of its requests by which a wide flow may be ahead.
const LEAD: u32 = 8;

/// A request may overtake a blocked head if it takes at most this fraction (1 / n) of the head's wait.
const OVERTAKING_PART: u32 = 10;

/// The longest service time that is assumed for a request.
const LONGEST_ASSUMED: Duration = Duration::from_secs(60);

/// The number of requests over which a mean service time is taken.
const MEAN_WINDOW: u32 = 32;

/// From here on virtual time is set back, long before it could overflow.
const SET_BACK_ABOVE: u64 = u64::MAX / 4;

/// The head that was next when last something did not fit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blocked {
    head: Option<EntryId>,
    since: Time,
    /// Distinguishes requests that overtook this head from those that overtook an earlier one; never 0.
    number: u32,
    /// Seats held by the requests that overtook it.
    overtaking_seats: Seats,
}

impl<W: Copy> QueueSet<W> {
    /// Dispatches as much as possible. `arriving` is not reported in `events`.
    pub(super) fn dispatch_by_flow(
        &mut self,
        arriving: Option<u32>,
        events: &mut QueueSetEvents<W>,
    ) {
        while self.sums.waiting > 0 && self.sums.seats_in_use < self.limit {
            let Some(flow) = self.turns.first() else {
                return;
            };
            let index = self.flows.at(flow).head();
            let head = self.entries.at(index);
            if self.fits(head.seats) {
                // Only a flow that starts in turn moves virtual time. Flows out of turn are ahead; if they
                // moved it, new flows would begin behind all waiting ones.
                self.virtual_time
                    .catch_up(self.flows.at(flow).certain_start());
                self.start_head(flow, arriving, events);
                continue;
            }
            events.blocked.push(head.schema);
            let width = head.seats;
            // The lead comes first: it is paid back within the flow's own turns, whereas a request that
            // overtakes because the head has waited long lengthens that wait.
            if let Some(other) = self.overtaking_by_lead(flow) {
                self.start_head(other, arriving, events);
                continue;
            }
            let Some(other) = self.overtaking_by_wait(index, width) else {
                return;
            };
            let index = self.flows.at(other).head();
            self.start_head(other, arriving, events);
            self.blocked.overtaking_seats += self.entries.at(index).seats;
            self.entries.at_mut(index).overtook = self.blocked.number;
        }
    }

    /// The flow whose head may start although that of `next` does not fit. Requires that `next` executes
    /// requests and has others waiting: it will get the seats of its own requests, so no seats are drained
    /// for it until it is more than [`LEAD`] requests behind.
    fn overtaking_by_lead(&mut self, next: u32) -> Option<u32> {
        let known = self.flows.at(next);
        if known.fresh || known.behind || known.holding == 0 || known.waiting < 2 {
            return None;
        }
        let free = self.limit - self.sums.seats_in_use;
        let latest = self.latest(known.start, known);
        if let Some(flow) = self.turns.widest_fitting(free, latest) {
            return Some(flow);
        }
        self.turns.first_fitting(free)?;
        // Seats are drained until it has caught up: otherwise it would only ever get those of its own requests.
        self.flows.at_mut(next).behind = true;
        None
    }

    /// The latest start of a flow that may have seats before one that starts at `start`: [`LEAD`] requests
    /// like the next of `flow` later.
    fn latest(&self, start: SeatSeconds, flow: &FlowState) -> SeatSeconds {
        let charge = SeatSeconds::product(self.counted_width(flow), flow.service_time);
        let lead = charge.units().saturating_mul(LEAD.into());
        SeatSeconds::from_units(start.units().saturating_add(lead))
    }

    /// The seats that the next request of `flow` would hold.
    fn counted_width(&self, flow: &FlowState) -> Seats {
        self.entries.at(flow.head()).seats.min(self.limit)
    }

    /// The flow whose head may start although the one that is next, of `width` seats, does not fit: the
    /// next that fits, if its requests take less than [`OVERTAKING_PART`] of the time for which the head
    /// has been blocked. If only requests that overtook the head keep it waiting, no other overtakes it.
    fn overtaking_by_wait(&mut self, head: u32, width: Seats) -> Option<u32> {
        let head = self.entries.id(head);
        if self.blocked.head != Some(head) {
            self.blocked = Blocked {
                head: Some(head),
                since: self.now,
                number: self.blocked.number.wrapping_add(1).max(1),
                overtaking_seats: 0,
            };
        }
        let allowed_time = self.now.since(self.blocked.since) / OVERTAKING_PART;
        let others = self
            .sums
            .seats_in_use
            .saturating_sub(self.blocked.overtaking_seats);
        if allowed_time.is_zero() || others.saturating_add(width.min(self.limit)) <= self.limit {
            return None;
        }
        let free = self.limit - self.sums.seats_in_use;
        let flow = self.turns.first_fitting(free)?;
        (self.flows.at(flow).service_time <= allowed_time).then_some(flow)
    }

    /// Of the seats of a request that overtook the blocked head, `before` become `after`.
    pub(super) fn recount_overtaking(&mut self, overtook: u32, before: Seats, after: Seats) {
        if overtook != 0 && overtook == self.blocked.number {
            self.blocked.overtaking_seats = self.blocked.overtaking_seats - before + after;
        }
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
        let Some(next) = self.turns.first() else {
            return;
        };
        let next = self.flows.at(next);
        let latest = self.latest(next.start, known);
        if known.start > latest || self.comes_first(next) {
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
        self.leave_line(index);
        let waited_for = self.entries.at(index).seats;
        self.sums.waiting_seats -= u64::from(waited_for);
        self.start(index);
        self.count_start(index);
        self.charge(index, flow);
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
        let flow = self.find_flow(index);
        let now = self.virtual_time.r();
        let known = self.flows.at_mut(flow);
        known.start = known.start.max(now);
        self.virtual_time.catch_up(known.certain_start());
        self.start(index);
        self.count_start(index);
        self.charge(index, flow);
    }

    fn find_flow(&mut self, index: u32) -> u32 {
        let entry = self.entries.at_mut(index);
        entry.flow = self.flows.number(entry.hash, self.assumed);
        entry.flow
    }

    /// A flow pays for a request that starts: what such requests take.
    fn charge(&mut self, index: u32, flow: u32) {
        self.flows.hold(flow);
        let known = self.flows.at_mut(flow);
        let entry = self.entries.at_mut(index);
        entry.assumed = known.service_time;
        let guess = SeatSeconds::product(entry.seats, entry.assumed);
        known.start = known.start.plus(guess).plus(entry.work.final_work());
        known.guessed = known.guessed.plus(guess);
        known.fresh = false;
        if known.start.units() > SET_BACK_ABOVE {
            self.set_back();
        }
    }

    /// Replaces the estimated work by the actual work, and updates the mean service time if it `LEARNS`.
    pub(super) fn settle_charge<const LEARNS: bool>(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let took = self.now.since(entry.started.unwrap_or(self.now));
        if LEARNS {
            self.assumed = moved(self.assumed, &mut self.learnt, took);
        }
        if entry.flow == NONE {
            return;
        }
        let (seats, assumed, flow) = (entry.seats, entry.assumed, entry.flow);
        let known = self.flows.at_mut(flow);
        if LEARNS {
            known.service_time = moved(known.service_time, &mut known.learnt, took);
        }
        let guess = SeatSeconds::product(seats, assumed);
        let actual = SeatSeconds::product(seats, took);
        known.guessed = known.guessed.minus(guess);
        let start = known.start.plus(actual).units();
        known.start = SeatSeconds::from_units(start.saturating_sub(guess.units()));
        self.settle_flow(flow);
    }

    /// An executing request will have no final seats: its flow gets back what it paid for them.
    pub(super) fn waive_final_seats(&mut self, index: u32) {
        let entry = self.entries.at_mut(index);
        let paid = entry.work.final_work();
        entry.work.final_seats = 0;
        entry.work.additional_latency = Duration::ZERO;
        let flow = entry.flow;
        if flow != NONE {
            let known = self.flows.at_mut(flow);
            let start = known.start.units().saturating_sub(paid.units());
            known.start = SeatSeconds::from_units(start);
        }
    }

    /// Appends a request to the line of its flow.
    pub(super) fn enter_line(&mut self, index: u32) {
        let flow = self.find_flow(index);
        let entry = self.entries.at(index);
        let (slot, seats) = (entry.slot, u64::from(entry.seats));
        let now = self.virtual_time.r();
        let line = self.lines_begun;
        let known = self.flows.at_mut(flow);
        let first = known.waiting == 0;
        if first {
            known.fresh = known.start <= now;
            known.start = known.start.max(now);
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
        if first {
            self.settle_flow(flow);
        }
    }

    /// A waiting request is cancelled.
    pub(super) fn quit_line(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let (flow, seats) = (entry.flow, entry.seats);
        self.leave_line(index);
        self.sums.waiting_seats -= u64::from(seats);
        self.settle_flow(flow);
    }

    fn leave_line(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let (flow, slot) = (entry.flow, entry.slot);
        let queue = &mut self.slots[slot as usize];
        queue.count(entry, -1);
        self.sums.queues_waiting -= u32::from(queue.waiting == 0);
        self.flows.unlink(&mut self.entries, index, flow);
        self.sums.waiting -= 1;
    }

    /// Reorders a flow after its head or its start changed.
    fn settle_flow(&mut self, flow: u32) {
        let known = self.flows.at(flow);
        if known.waiting == 0 {
            self.turns.remove(flow);
            return;
        }
        let width = self.entries.at(known.head()).seats;
        self.turns.set(flow, known.start, known.turn, width);
    }

    /// Sets virtual time back to zero, and all that is measured in it by as much. O(flows), and once
    /// in years.
    pub(super) fn set_back(&mut self) {
        let by = self.virtual_time.r().units();
        for flow in self.flows.iter_mut() {
            flow.start = SeatSeconds::from_units(flow.start.units().saturating_sub(by));
        }
        self.virtual_time = VirtualTime::default();
        self.counters.epochs += 1;
        self.turns.clear();
        for flow in (0..).take(self.flows.len()) {
            self.settle_flow(flow);
        }
    }
}

/// The mean service time after one more request, whose predecessors were `learnt`.
fn moved(mean: Duration, learnt: &mut u32, took: Duration) -> Duration {
    let took = took.min(LONGEST_ASSUMED);
    *learnt = (*learnt + 1).min(MEAN_WINDOW);
    // The service time assumed at first counts as one request.
    (mean * *learnt + took) / (*learnt + 1)
}
