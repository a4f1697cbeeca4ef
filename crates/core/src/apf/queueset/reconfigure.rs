//! A queue set under a changed policy: another discipline, limit, number of queues, or weight of tenants.
//!
//! Waiting requests stay in their queues.

use super::{Discipline, NONE, Phase, Queue, QueueSet, QueueSetEvents, Sums, drains::Blocked};
use crate::{
    apf::{spec::Semantics, units::Seats, work::Work},
    time::Time,
};

impl<W: Copy> QueueSet<W> {
    /// Changes the discipline and the semantics; then dispatches what fits now.
    pub fn configure(
        &mut self,
        now: Time,
        semantics: Semantics,
        discipline: Discipline,
        events: &mut QueueSetEvents<W>,
    ) {
        self.advance(now, events);
        self.discipline = discipline;
        self.grow_deck();
        if self.semantics != semantics {
            self.semantics = semantics;
            self.queue_anew();
        }
        if semantics == Semantics::Improved {
            self.truncate_deck();
        }
        self.reconfigured(events);
    }

    /// Changes the current limit; `denominator` is that of the ratio metrics.
    pub fn set_limit(
        &mut self,
        now: Time,
        limit: Seats,
        denominator: Seats,
        events: &mut QueueSetEvents<W>,
    ) {
        self.advance(now, events);
        self.limit = limit;
        self.ratios.set_denominator(now, denominator);
        self.reconfigured(events);
    }

    /// Lowers the current limit to `limit`, if it is greater, and dispatches nothing; for the moment before an event.
    pub(crate) fn cut_limit(&mut self, now: Time, limit: Seats) {
        if limit < self.limit {
            // Virtual time up to now passed under the limit before.
            self.clock_to(now);
            self.limit = limit;
        }
    }

    /// Changes what the flows of one tenant weigh together at most; then dispatches what fits now. What flows have been charged
    /// stays. O(flows), if it differs.
    pub fn set_tenant_weight(
        &mut self,
        now: Time,
        tenant_weight: u32,
        events: &mut QueueSetEvents<W>,
    ) {
        if self.flows.tenants().allowance() == tenant_weight.max(1) {
            return;
        }
        self.advance(now, events);
        self.flows.set_tenant_weight(tenant_weight);
        self.reweighed(events);
    }

    /// Flows weigh something else. O(flows).
    pub(super) fn reweighed(&mut self, events: &mut QueueSetEvents<W>) {
        for flow in (0..).take(self.flows.len()) {
            self.settle_flow(flow);
        }
        self.reconfigured(events);
    }

    fn reconfigured(&mut self, events: &mut QueueSetEvents<W>) {
        self.ratios.reshape(self.now, &self.discipline);
        self.dispatch(None, events);
        self.account();
    }

    /// Moves waiting requests to where the present semantics keep them, in the order of arrival. Executing
    /// requests are no longer charged to a flow or queue, and the sums are recomputed. O(requests · log
    /// requests + queues).
    fn queue_anew(&mut self) {
        self.assumed = Work::ASSUMED_SERVICE_TIME.into();
        self.learnt = 0;
        self.order.clear();
        self.turns.clear();
        self.flows.clear();
        // Its head may be no request of a flow any more.
        self.blocked = Blocked::default();
        let r = self.virtual_time.r();
        for queue in &mut self.slots {
            *queue = Queue {
                next_dispatch_r: r,
                ..Queue::new(queue.position)
            };
        }
        for entry in self.entries.iter_mut() {
            entry.flow = NONE;
            entry.overtook = 0;
            entry.catches_up = false;
            if entry.phase != Phase::Waiting {
                entry.slot = NONE;
            }
        }
        self.sums = Sums {
            seats_in_use: self.sums.seats_in_use,
            executing: self.sums.executing,
            ..Sums::default()
        };
        let mut waiting: Vec<_> = self.entries.waiting().collect();
        waiting.sort_by_key(|index| self.entries.at(*index).number);
        for index in waiting {
            let width = self.width(&self.entries.at(index).work);
            let entry = self.entries.at_mut(index);
            entry.seats = width;
            entry.assumed = self.assumed;
            entry.total_work = entry.work.total_work(self.assumed);
            entry.arrival_r = r;
            self.line_up(index);
        }
        for slot in (0..).take(self.slots.len()) {
            self.recycle(slot);
        }
    }

    /// Appends a request to its queue, or to the line of its flow.
    pub(super) fn line_up(&mut self, index: u32) {
        match self.semantics {
            Semantics::Compatible => self.enqueue(index),
            Semantics::Improved => self.enter_line(index),
        }
    }

    fn desired_queues(&self) -> usize {
        match self.discipline {
            Discipline::Exempt | Discipline::Reject => 0,
            Discipline::Queue { queuing, .. } => queuing.queues as usize,
        }
    }

    /// Appends queues up to the configured number.
    pub(super) fn grow_deck(&mut self) {
        while self.deck.len() < self.desired_queues() {
            let position = u32::try_from(self.deck.len()).expect("at most ten million queues");
            let slot = self.free_slots.pop().unwrap_or_else(|| {
                self.slots.push(Queue::new(position));
                u32::try_from(self.slots.len() - 1).expect("as many slots as queues")
            });
            self.slots[slot as usize] = Queue::new(position);
            self.deck.push(slot);
        }
        self.order.reserve(self.slots.len());
    }

    /// Whether the queue of `slot` is part of the deck.
    pub(super) fn in_deck(&self, slot: u32) -> bool {
        let position = self.slots[slot as usize].position as usize;
        self.deck.get(position) == Some(&slot)
    }

    /// After seats of the queue of `slot` were released: shrinks the deck if it is too large.
    pub(super) fn remove_surplus_queue(&mut self, slot: u32) {
        match self.semantics {
            Semantics::Improved => self.truncate_deck(),
            Semantics::Compatible if self.deck.len() > self.desired_queues() => {
                if !self.slots[slot as usize].is_active() {
                    self.remove_at(self.slots[slot as usize].position);
                }
            }
            Semantics::Compatible => {}
        }
        self.recycle(slot);
    }

    /// Drops queues that nothing uses from the end of a deck that is too large. New requests are
    /// dealt below its end, so those beyond drain.
    pub(super) fn truncate_deck(&mut self) {
        while self.deck.len() > self.desired_queues() {
            let slot = *self
                .deck
                .last()
                .expect("a deck that is too large is not empty");
            let queue = &self.slots[slot as usize];
            if queue.is_active() || queue.holding > 0 {
                return;
            }
            self.deck.pop();
            self.slots[slot as usize].position = NONE;
            self.free_slots.push(slot);
        }
        self.after_robin = self
            .after_robin
            .min(u32::try_from(self.deck.len()).unwrap_or(NONE));
    }

    /// Removes the queue at `position`, as kube-apiserver does: by number, although another queue
    /// may have the number by now.
    fn remove_at(&mut self, position: u32) {
        if position as usize >= self.deck.len() {
            return;
        }
        let removed = self.deck.remove(position as usize);
        let queue = &self.slots[removed as usize];
        self.sums.deck_seats_in_use -= u64::from(queue.seats_in_use);
        self.sums.deck_waiting_seats -= queue.waiting_seats;
        self.sums.active_queues -= u32::from(queue.is_active());
        self.order.remove(removed);
        for (position, slot) in (position..).zip(&self.deck[position as usize..]) {
            self.slots[*slot as usize].position = position;
            self.order.renumber(*slot, position);
        }
        if self.after_robin > position {
            self.after_robin -= 1;
        }
        self.recycle(removed);
    }

    /// Frees the slot of a queue that left the deck and holds no request.
    pub(super) fn recycle(&mut self, slot: u32) {
        let queue = &self.slots[slot as usize];
        if queue.position != NONE && !self.in_deck(slot) && !queue.is_active() && queue.holding == 0
        {
            self.slots[slot as usize].position = NONE;
            self.free_slots.push(slot);
        }
    }
}
