//! Whose turn it is among queues ([`Semantics::Compatible`](super::Semantics)), as in the original.
//!
//! The queue whose head would finish first in virtual time is dispatched (KEP-1040, "Fair Queuing for
//! Server Requests"). A head that does not fit blocks the level. Known defects are kept.

use super::{NONE, QueueSet, QueueSetEvents, fifo::RequestEntry};
use crate::apf::units::SeatSeconds;

impl<W: Copy> QueueSet<W> {
    /// Dispatches as much as possible. `arriving` is not reported in `events`.
    pub(super) fn dispatch_by_queue(
        &mut self,
        arriving: Option<u32>,
        events: &mut QueueSetEvents<W>,
    ) {
        while self.sums.waiting > 0 && self.sums.seats_in_use < self.limit {
            let Some(slot) = self.choose_head(events) else {
                if self.after_robin == 0 {
                    // The original's index wraps around and ends where it began, or at the last queue if it
                    // began before the first.
                    self.after_robin = u32::try_from(self.deck.len()).unwrap_or(NONE);
                }
                return;
            };
            let index = self.slots[slot as usize].line.head;
            self.unlink(index, slot);
            self.start_from_queue(index, slot);
            self.settle(slot);
            if arriving != Some(index) {
                events
                    .dispatched
                    .push((self.entries.at(index).waiter, self.entries.id(index)));
            }
        }
    }

    /// The slot of the queue to dispatch from; `None` when nothing can start.
    fn choose_head(&self, events: &mut QueueSetEvents<W>) -> Option<u32> {
        let best = self.order.first(self.after_robin)?;
        let head = self.entries.at(self.slots[best as usize].line.head);
        if self.fits(self.width(&head.work)) {
            return Some(best);
        }
        events.blocked.push(head.schema);
        None
    }

    /// Keeps the final phase within the limit: fewer seats for longer, the same work.
    fn narrow_final_phase(&mut self, index: u32) {
        let limit = self.limit;
        let work = &mut self.entries.at_mut(index).work;
        if work.final_seats > limit {
            work.additional_latency = work.final_work().per_seat(limit);
            work.final_seats = limit;
        }
    }

    /// A request that finds free seats and no waiting request starts without entering its queue.
    pub(super) fn start_at_once(&mut self, index: u32, slot: u32) {
        self.enter(slot);
        self.catch_up(slot, self.virtual_time.r());
        self.sums.waiting_seats += u64::from(self.entries.at(index).seats);
        self.start_from_queue(index, slot);
    }

    /// A request taken from the queue of `slot` starts.
    fn start_from_queue(&mut self, index: u32, slot: u32) {
        let queue = &self.slots[slot as usize];
        self.after_robin = queue.position.saturating_add(1);
        self.counters.dispatch_r = self.virtual_time.r();
        self.counters.latest_s = queue.next_dispatch_r;
        // What was added with the full width is taken off with the narrowed one.
        self.narrow_final_phase(index);
        let counted = self.entries.at(index).work.max_seats();
        self.sums.waiting_seats = self.sums.waiting_seats.wrapping_sub(counted.into());
        self.start(index);
        let entry = self.entries.at(index);
        let (seats, work) = (entry.seats, entry.total_work);
        let queue = &mut self.slots[slot as usize];
        let was_active = queue.is_active();
        queue.next_dispatch_r = queue.next_dispatch_r.plus(work);
        self.count_start(index);
        self.sums.deck_seats_in_use += u64::from(seats);
        self.sums.active_queues += u32::from(!was_active);
    }

    /// Replaces the assumed service time by the actual one in the charge of the initial phase.
    pub(super) fn correct_charge(&mut self, index: u32) {
        let entry = *self.entries.at(index);
        if entry.slot == NONE {
            return;
        }
        let took = self.now.nanos_since(entry.started.unwrap_or(self.now));
        let in_deck = self.in_deck(entry.slot);
        let queue = &mut self.slots[entry.slot as usize];
        queue.next_dispatch_r =
            (queue.next_dispatch_r).corrected(entry.work.initial_seats, entry.assumed, took);
        queue.executing -= 1;
        self.sums.active_queues -= u32::from(in_deck && !queue.is_active());
        self.settle(entry.slot);
    }

    /// Appends a request to its queue.
    pub(super) fn enqueue(&mut self, index: u32) {
        let slot = self.entries.at(index).slot;
        self.enter(slot);
        let queue = &mut self.slots[slot as usize];
        let was_active = queue.is_active();
        queue.push(&mut self.entries, index);
        let first = queue.waiting == 1;
        let entry = self.entries.at(index);
        self.sums.waiting += 1;
        self.sums.waiting_seats += u64::from(entry.seats);
        self.sums.deck_waiting_seats += u64::from(entry.seats);
        self.sums.active_queues += u32::from(!was_active);
        if first {
            self.settle(slot);
        }
    }

    /// A queue without work starts at the present virtual time.
    fn enter(&mut self, slot: u32) {
        let queue = &mut self.slots[slot as usize];
        if !queue.is_active() {
            queue.next_dispatch_r = self.virtual_time.r();
        }
    }

    /// A waiting request leaves its queue without having been dispatched.
    pub(super) fn dequeue(&mut self, index: u32) {
        let RequestEntry { slot, seats, .. } = *self.entries.at(index);
        self.unlink(index, slot);
        self.sums.waiting_seats = self.sums.waiting_seats.wrapping_sub(seats.into());
        self.settle(slot);
    }

    fn unlink(&mut self, index: u32, slot: u32) {
        let seats = self.entries.at(index).seats;
        let in_deck = self.in_deck(slot);
        let queue = &mut self.slots[slot as usize];
        queue.unlink(&mut self.entries, index);
        self.sums.waiting -= 1;
        if in_deck {
            self.sums.deck_waiting_seats -= u64::from(seats);
            self.sums.active_queues -= u32::from(!queue.is_active());
        }
    }

    /// No request is dispatched, in virtual time, before it arrived: forgets unused credit.
    fn catch_up(&mut self, slot: u32, arrival_r: SeatSeconds) {
        let queue = &mut self.slots[slot as usize];
        queue.next_dispatch_r = queue.next_dispatch_r.max(arrival_r);
    }

    /// Puts the head of a queue where it belongs, after the head or the queue's charge changed.
    pub(super) fn settle(&mut self, slot: u32) {
        let head = self.slots[slot as usize].line.head;
        if head == NONE || !self.in_deck(slot) {
            self.order.remove(slot);
            return;
        }
        let entry = *self.entries.at(head);
        self.catch_up(slot, entry.arrival_r);
        let queue = &self.slots[slot as usize];
        self.order.set(
            slot,
            queue.next_dispatch_r.plus(entry.total_work),
            queue.position,
        );
    }
}
