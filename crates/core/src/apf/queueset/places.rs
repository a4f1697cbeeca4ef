//! Who gives up a place when a queue is full ([`Semantics::Improved`](super::Semantics)).
//!
//! Queues bound how many requests wait, and a few large flows can fill all that a small one was dealt. So a request whose
//! flow has none waiting takes the place of the newest request of the longest line. That one is refused instead of it.
//!
//! *Length* is a line's number of requests, divided by the weight of its flow. A line gives up a place only if
//!
//! - it is at least twice as long as the line that the arriving request begins, and
//! - it has at least its part, by weight, of all that waits in the level.
//!
//! If none is found, one that is only as long as the line that begins gives up a place, if its flow holds its part of the seats, and
//! the arriving request's flow, of weight 1, does not, nor would it hold more. Otherwise a few flows that send their next request
//! whenever one ends would keep all places of a short queue, and so all seats. Nobody loses a place so again and again for requests that
//! never start.
//!
//! Nor does it for a request that may not wait, because there is no room for what its client sends: both would be refused.
//! So the only waiting request of a flow of weight 1 that holds less than its part is never refused for another, and the names of one
//! tenant, which get lighter as they become more, take no more places than one tenant may.
//!
//! The longest line is not searched for, because that would need an order of all lines, which each request that waits would
//! have to pay for. Some waiting requests are drawn at random, which finds a flow the more likely the more it has waiting, and
//! the longest line found is remembered for the next time. What is drawn changes nothing about what each line has to be.
//!
//! Nobody needs a place who does not wait: a request of a flow that has none waiting starts if it is next among those that fit into free
//! seats, however full its queue is.
//!
//! Not here: the bound itself (`queueLengthLimit`), which is [`QueueSet::is_full`].

use std::ops::ControlFlow;

use super::{
    Admission, ArrivingRequest, Phase, QueueSet, QueueSetEvents, RejectReason, tenants::Weight,
};
use crate::{apf::spec::Semantics, random::Random};

/// So many of the level's requests are drawn each time, and so many if none of them is of a line that is long enough.
const LEAST_DRAWS: u32 = 4;
const MOST_DRAWS: u32 = 16;

/// A line gives up a place if it is so many times as long as the one that begins.
const TIMES_AS_LONG: u64 = 2;

/// The length of a line of one request of a flow of weight 1: lengths are fractions.
const UNIT: u64 = 1 << 16;

impl<W: Copy> QueueSet<W> {
    /// A request arrives and finds its queue, that of the slot `full`, at its limit. Goes on with the slot of a queue in which there is a place
    /// for it now, or breaks off with what happens to it. O(1) beside what is dispatched: at most [`MOST_DRAWS`] requests are looked at.
    #[cold]
    pub(super) fn arrive_at_full_queue(
        &mut self,
        full: u32,
        arriving: &ArrivingRequest<W>,
        may_wait: impl FnOnce() -> bool,
        events: &mut QueueSetEvents<W>,
    ) -> ControlFlow<Admission, u32> {
        let refused = |set: &mut Self| ControlFlow::Break(set.refuse(RejectReason::QueueFull));
        if self.semantics == Semantics::Compatible {
            self.settle(full);
            return refused(self);
        }
        let own = self.flows.find(arriving.hash);
        let own = own.filter(|flow| self.flows.at(*flow).waiting > 0);
        if let Some(flow) = own {
            // Flows that fill queues are those that find them full.
            self.remember_line(flow);
            return refused(self);
        }
        if self.sums.seats_in_use < self.limit && self.fits(self.width(&arriving.work)) {
            let index = self.insert(*arriving, full);
            self.line_up(index);
            self.dispatch(Some(index), events);
            if self.entries.at(index).phase != Phase::Waiting {
                events.queue_length = Some(1);
                return ControlFlow::Break(Admission::Execute(self.entries.id(index)));
            }
            // As one that gives up: what was decided with it among those that wait is decided anew.
            self.quit_line(index);
            self.entries.remove(index);
            self.dispatch(None, events);
        }
        match self.take_place(arriving, may_wait, events) {
            Some(slot) => ControlFlow::Continue(slot),
            None => refused(self),
        }
    }

    /// Refuses a waiting request for one that arrives, whose flow has none waiting. Returns the slot of the queue in which there is a place now;
    /// `None` if the arriving request is to be refused. Nobody is refused for one that then may not wait itself, which `may_wait` says.
    fn take_place(
        &mut self,
        arriving: &ArrivingRequest<W>,
        may_wait: impl FnOnce() -> bool,
        events: &mut QueueSetEvents<W>,
    ) -> Option<u32> {
        let own = self.flows.find(arriving.hash);
        let own = own.filter(|flow| !self.flows.at(*flow).is_idle());
        let weight = match own {
            Some(flow) => self.flows.weight_of(flow),
            None => self.flows.weight_of_another(arriving.tenant),
        };
        let begins = weight.divide(UNIT);
        if self.find_long_line(begins.saturating_mul(TIMES_AS_LONG)) {
            return may_wait().then(|| self.refuse_newest(self.longest, events));
        }
        if weight != Weight::ONE {
            return None;
        }
        let line = self.line_of_part_holder(arriving, begins)?;
        may_wait().then(|| {
            let flow = self.flows.number(arriving.hash, self.assumed);
            self.flows.at_mut(flow).took_place = true;
            self.refuse_newest(line, events)
        })
    }

    /// The longest line found that is at least so long, has its part of what waits, and whose flow holds its part of the seats: more
    /// than the flow of the arriving request, and no less than that would hold with it. `None` also if that flow has taken such a place
    /// and nothing of it has started since, or its tenant has many names: it would cost nothing to have others refused again and again.
    fn line_of_part_holder(&self, arriving: &ArrivingRequest<W>, least: u64) -> Option<u32> {
        let own = self.flows.find(arriving.hash);
        let own = own.map(|flow| self.flows.at(flow));
        let holds = own.map_or(0, |flow| flow.seats);
        if own.is_some_and(|flow| flow.took_place)
            || self.are_parts(16 * u64::from(holds), 1)
            || self.flows.tenants().hash_has_many(arriving.tenant)
        {
            return None;
        }
        let would_hold = holds.saturating_add(self.width(&arriving.work).min(self.limit));
        let would_hold = 16 * u64::from(would_hold);
        let mut random = Random::seeded(self.enqueued);
        let drawn = (0..MOST_DRAWS).filter_map(|_| Some(self.entries.draw(&mut random)?.flow));
        let may = drawn.chain([self.longest]).filter(|flow| {
            self.gives_up(*flow, least) && {
                let held = self.flows.held_for_weight(*flow, 0);
                self.are_parts(held, 1) && held >= would_hold
            }
        });
        may.max_by_key(|flow| self.line_length(*flow))
    }

    /// Looks for a line that is at least so long and has its part of what waits; `longest` is its flow then.
    fn find_long_line(&mut self, least: u64) -> bool {
        // Each arrival draws others, and the same run always the same ones.
        let mut random = Random::seeded(self.enqueued);
        for draw in 0..MOST_DRAWS {
            if draw >= LEAST_DRAWS && self.gives_up(self.longest, least) {
                return true;
            }
            if let Some(flow) = self.entries.draw(&mut random).map(|entry| entry.flow) {
                self.remember_line(flow);
            }
        }
        self.gives_up(self.longest, least)
    }

    /// Remembers the line of a flow if it is longer than the one that is remembered.
    fn remember_line(&mut self, flow: u32) {
        if self.line_length(flow) > self.line_length(self.longest) {
            self.longest = flow;
        }
    }

    /// The number of waiting requests of a flow, divided by its weight; 0 if there is no such flow.
    fn line_length(&self, flow: u32) -> u64 {
        match self.flows.get(flow).map_or(0, |known| known.waiting) {
            0 => 0,
            waiting => {
                let weight: Weight = self.flows.weight_of(flow);
                weight.divide(u64::from(waiting) * UNIT)
            }
        }
    }

    /// Whether the line of a flow is at least so long and has its part of all that waits.
    fn gives_up(&self, flow: u32, least: u64) -> bool {
        let length = self.line_length(flow);
        let all = u64::from(self.sums.waiting) * UNIT;
        length >= least && self.flows.has_part(length, all)
    }

    /// Refuses the newest waiting request of a flow. Returns the slot of its queue.
    fn refuse_newest(&mut self, flow: u32, events: &mut QueueSetEvents<W>) -> u32 {
        let index = self.flows.at(flow).newest_waiting();
        let entry = self.entries.at(index);
        let (slot, waiter) = (entry.slot, entry.waiter);
        self.quit_line(index);
        self.entries.remove(index);
        self.counters.rejected += 1;
        debug_assert!(
            events.replaced.is_none(),
            "events are delivered before the next request arrives"
        );
        events.replaced = Some(waiter);
        slot
    }
}
