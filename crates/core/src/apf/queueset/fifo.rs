//! The requests of a queue set and the queues they wait in.
//!
//! All requests of a level live in one slab; a queue is a list threaded through it. Entering,
//! leaving from the middle, and leaving at the head cost O(1) and, once the slab has grown to the
//! most requests ever present, no allocation.

use crate::{
    apf::{
        units::{SeatSeconds, Seats},
        work::Work,
    },
    random::Random,
    time::{Nanos, Time},
};

/// No entry, no queue.
pub(super) const NONE: u32 = u32::MAX;

/// Names one request of one queue set; never reused while anyone could still hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryId {
    pub(super) index: u32,
    generation: u32,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In its queue.
    Waiting,
    /// Executing.
    Executing,
    /// Finished; its final seats are still held.
    Lingering,
}

/// One request of the queue set.
#[derive(Clone, Copy, Debug)]
pub struct RequestEntry<W> {
    /// The caller's identifier of the waiting request.
    pub waiter: W,
    /// The caller's number for the schema.
    pub schema: u32,
    /// The estimated work of the request; the final phase may have been narrowed at dispatch.
    pub work: Work,
    /// The service time that is assumed for the request.
    pub(crate) assumed: Nanos,
    /// The virtual work that the request is charged at dispatch.
    pub total_work: SeatSeconds,
    /// When the request arrived.
    pub arrived: Time,
    /// When the request was dispatched; `None` while it waits.
    pub started: Option<Time>,
    /// Whether the request waits, executes or lingers.
    pub phase: Phase,
    /// The seats with which the request is counted: those it waits for, or those it holds.
    pub seats: Seats,
    /// The virtual time R at the arrival.
    pub(super) arrival_r: SeatSeconds,
    /// How many requests arrived before this one.
    pub(super) number: u64,
    /// The hash of the request's flow.
    pub(super) hash: u64,
    /// The hash of the request's tenant.
    pub(super) tenant: u64,
    /// The part of its flow's start that is assumed for the request while it executes.
    pub(super) charged: SeatSeconds,
    /// The number of the ownership of its flow when it started, or 0.
    pub(super) ownership: u32,
    /// Number of its flow, or [`NONE`] where flows are not distinguished.
    pub(super) flow: u32,
    /// The number of the blocked head that it overtook, or 0.
    pub(super) overtook: u32,
    /// How many later requests of its flow started before it because it did not fit.
    pub(super) overtaken: u8,
    /// Whether its flow was far behind virtual time when it started.
    pub(super) catches_up: bool,
    /// Slot of its queue, or [`NONE`] when it never was in one.
    pub(super) slot: u32,
    previous: u32,
    next: u32,
}

impl<W> RequestEntry<W> {
    /// Hash of its flow: equal for requests of one FlowSchema with the same flow distinguisher.
    pub const fn flow_hash(&self) -> u64 {
        self.hash
    }

    /// Hash of its tenant.
    pub const fn tenant_hash(&self) -> u64 {
        self.tenant
    }
}

#[derive(Debug)]
struct Cell<W> {
    generation: u32,
    /// The next free cell when empty.
    next_free: u32,
    entry: Option<RequestEntry<W>>,
}

/// All requests of a queue set.
#[derive(Debug)]
pub(super) struct Entries<W> {
    cells: Vec<Cell<W>>,
    free: u32,
    len: usize,
}

impl<W: Copy> Entries<W> {
    pub(super) fn new() -> Self {
        Self {
            cells: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, entry: RequestEntry<W>) -> EntryId {
        self.len += 1;
        if self.free == NONE {
            let index =
                u32::try_from(self.cells.len()).expect("fewer than 2^32 requests are present");
            self.cells.push(Cell {
                generation: 0,
                next_free: NONE,
                entry: Some(entry),
            });
            return EntryId {
                index,
                generation: 0,
            };
        }
        let index = self.free;
        let cell = &mut self.cells[index as usize];
        self.free = cell.next_free;
        cell.entry = Some(entry);
        EntryId {
            index,
            generation: cell.generation,
        }
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&RequestEntry<W>> {
        let cell = self.cells.get(id.index as usize)?;
        (cell.generation == id.generation)
            .then_some(cell.entry.as_ref())
            .flatten()
    }

    pub(super) fn remove(&mut self, index: u32) {
        let cell = &mut self.cells[index as usize];
        debug_assert!(cell.entry.is_some(), "a request is removed once");
        cell.entry = None;
        // An id that somebody still holds matches nothing from now on, also once the cell has a new request.
        cell.generation = cell.generation.wrapping_add(1);
        cell.next_free = self.free;
        self.free = index;
        self.len -= 1;
    }

    pub(super) fn id(&self, index: u32) -> EntryId {
        EntryId {
            index,
            generation: self.cells[index as usize].generation,
        }
    }

    pub(super) fn at(&self, index: u32) -> &RequestEntry<W> {
        self.cells[index as usize]
            .entry
            .as_ref()
            .expect("the queue set names only present requests")
    }

    pub(super) fn at_mut(&mut self, index: u32) -> &mut RequestEntry<W> {
        self.cells[index as usize]
            .entry
            .as_mut()
            .expect("the queue set names only present requests")
    }

    /// The indices of all waiting requests, in arbitrary order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.cells).filter_map(|(index, cell)| {
            let entry = cell.entry.as_ref()?;
            (entry.phase == Phase::Waiting).then_some(index)
        })
    }

    /// A waiting request drawn at random, or none: each is as likely as the other, and as any request that does not wait, or any
    /// that was present when there were most.
    pub(super) fn draw(&self, random: &mut Random) -> Option<&RequestEntry<W>> {
        if self.cells.is_empty() {
            return None;
        }
        // An empty cell is a miss and not drawn again: that could take long in a slab that was large once.
        let entry = random.pick(&self.cells).entry.as_ref()?;
        (entry.phase == Phase::Waiting).then_some(entry)
    }

    /// The request of this number.
    #[cfg(test)]
    pub(super) fn id_of(&self, number: u64) -> EntryId {
        let index = (0..)
            .zip(&self.cells)
            .find_map(|(index, cell)| (cell.entry.as_ref()?.number == number).then_some(index));
        self.id(index.expect("it is present"))
    }

    /// All present requests, in arbitrary order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RequestEntry<W>> {
        self.cells.iter_mut().filter_map(|cell| cell.entry.as_mut())
    }

    /// All present requests, in arbitrary order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RequestEntry<W>> + Clone {
        self.cells.iter().filter_map(|cell| cell.entry.as_ref())
    }
}

/// Waiting requests in order of arrival: a list threaded through the entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    /// The first, or [`NONE`].
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl Fifo {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    pub(super) fn push<W: Copy>(&mut self, entries: &mut Entries<W>, index: u32) {
        let tail = self.tail;
        let entry = entries.at_mut(index);
        entry.previous = tail;
        entry.next = NONE;
        if tail == NONE {
            self.head = index;
        } else {
            entries.at_mut(tail).next = index;
        }
        self.tail = index;
    }

    /// Removes a request, wherever it is.
    pub(super) fn unlink<W: Copy>(&mut self, entries: &mut Entries<W>, index: u32) {
        let entry = entries.at(index);
        let (previous, next) = (entry.previous, entry.next);
        match previous {
            NONE => self.head = next,
            previous => entries.at_mut(previous).next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => entries.at_mut(next).previous = previous,
        }
    }

    /// The requests, first to last.
    pub(super) fn iter<W: Copy>(self, entries: &Entries<W>) -> impl Iterator<Item = u32> {
        let mut next = self.head;
        std::iter::from_fn(move || {
            let index = (next != NONE).then_some(next)?;
            next = entries.at(index).next;
            Some(index)
        })
    }
}

/// One queue of the deck: its waiting requests, and the account of what it uses.
///
/// In [`Semantics::Improved`](super::Semantics) requests wait in the lines of their flows, and the
/// queue only counts them.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) line: Fifo,
    /// The queue's place in the deck, from 0; stale once the queue was taken out.
    pub(super) position: u32,
    pub(super) waiting: u32,
    pub(super) executing: u32,
    /// Executing and lingering requests that were dispatched from here.
    pub(super) holding: u32,
    pub(super) seats_in_use: Seats,
    /// Virtual time at which its next request is dispatched.
    pub(super) next_dispatch_r: SeatSeconds,
    /// Sums over the waiting requests.
    pub(super) initial_seats: u64,
    pub(super) max_seats: u64,
    /// The seats they are counted with.
    pub(super) waiting_seats: u64,
    pub(super) total_work: SeatSeconds,
}

impl Queue {
    pub(super) fn new(position: u32) -> Self {
        Self {
            line: Fifo::EMPTY,
            position,
            waiting: 0,
            executing: 0,
            holding: 0,
            seats_in_use: 0,
            next_dispatch_r: SeatSeconds::ZERO,
            initial_seats: 0,
            max_seats: 0,
            waiting_seats: 0,
            total_work: SeatSeconds::ZERO,
        }
    }

    /// Whether it has waiting or executing requests.
    pub(super) fn is_active(&self) -> bool {
        self.waiting > 0 || self.executing > 0
    }

    pub(super) fn push<W: Copy>(&mut self, entries: &mut Entries<W>, index: u32) {
        self.count(entries.at(index), 1);
        self.line.push(entries, index);
    }

    /// Removes a waiting request, wherever it is.
    pub(super) fn unlink<W: Copy>(&mut self, entries: &mut Entries<W>, index: u32) {
        self.count(entries.at(index), -1);
        self.line.unlink(entries, index);
    }

    /// Counts a waiting request in, with `sign` 1, or out, with -1.
    pub(super) fn count<W>(&mut self, entry: &RequestEntry<W>, sign: i64) {
        let add =
            |sum: &mut u64, seats: Seats| *sum = sum.wrapping_add_signed(sign * i64::from(seats));
        add(&mut self.initial_seats, entry.work.initial_seats);
        add(&mut self.max_seats, entry.work.max_seats());
        add(&mut self.waiting_seats, entry.seats);
        if sign > 0 {
            self.waiting += 1;
            self.total_work = self.total_work.plus(entry.total_work);
        } else {
            self.waiting -= 1;
            self.total_work = self.total_work.minus(entry.total_work);
        }
    }
}

impl<W> RequestEntry<W> {
    /// The entry behind it in its queue, or [`NONE`].
    pub(super) fn next_in_queue(&self) -> u32 {
        self.next
    }

    /// A request that has just arrived and waits in the queue of `slot`.
    pub(super) fn new(
        waiter: W,
        schema: u32,
        work: Work,
        arrived: Time,
        arrival_r: SeatSeconds,
        slot: u32,
        assumed: Nanos,
    ) -> Self {
        Self {
            waiter,
            schema,
            work,
            assumed,
            total_work: work.total_work(assumed),
            arrived,
            started: None,
            phase: Phase::Waiting,
            seats: 0,
            arrival_r,
            number: 0,
            hash: 0,
            tenant: 0,
            charged: SeatSeconds::ZERO,
            ownership: 0,
            flow: NONE,
            overtook: 0,
            overtaken: 0,
            catches_up: false,
            slot,
            previous: NONE,
            next: NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn work(initial: Seats, last: Seats, seconds: u64) -> Work {
        Work {
            initial_seats: initial,
            final_seats: last,
            additional_latency: Duration::from_secs(seconds),
        }
    }

    fn filled() -> (Queue, Entries<u32>, Vec<u32>) {
        let (mut queue, mut entries) = (Queue::new(0), Entries::new());
        let indices = [(1, 3, 1), (2, 2, 2), (3, 1, 3)]
            .into_iter()
            .enumerate()
            .map(|(waiter, (initial, last, seconds))| {
                let waiter = u32::try_from(waiter).unwrap();
                let entry = RequestEntry::new(
                    waiter,
                    0,
                    work(initial, last, seconds),
                    Time::ZERO,
                    SeatSeconds::ZERO,
                    0,
                    Work::ASSUMED_SERVICE_TIME.into(),
                );
                let index = entries.insert(entry).index;
                queue.push(&mut entries, index);
                index
            })
            .collect();
        (queue, entries, indices)
    }

    fn order(queue: &Queue, entries: &Entries<u32>) -> Vec<u32> {
        queue
            .line
            .iter(entries)
            .map(|index| entries.at(index).waiter)
            .collect()
    }

    #[test]
    fn requests_leave_in_order_of_arrival_or_from_any_position() {
        let (mut queue, mut entries, indices) = filled();
        assert_eq!(order(&queue, &entries), [0, 1, 2]);
        queue.unlink(&mut entries, indices[1]);
        assert_eq!(order(&queue, &entries), [0, 2]);
        queue.unlink(&mut entries, indices[0]);
        assert_eq!(order(&queue, &entries), [2]);
        queue.unlink(&mut entries, indices[2]);
        assert_eq!((order(&queue, &entries), queue.waiting), (vec![], 0));
    }

    #[test]
    fn the_sums_are_those_of_the_waiting_requests() {
        let (mut queue, mut entries, indices) = filled();
        assert_eq!((queue.initial_seats, queue.max_seats), (6, 8));
        queue.unlink(&mut entries, indices[0]);
        assert_eq!((queue.initial_seats, queue.max_seats), (5, 5));
        queue.unlink(&mut entries, indices[2]);
        assert_eq!((queue.initial_seats, queue.max_seats), (2, 2));
        assert_eq!(
            queue.total_work,
            work(2, 2, 2).total_work(Work::ASSUMED_SERVICE_TIME)
        );
        queue.unlink(&mut entries, indices[1]);
        assert_eq!(
            (queue.initial_seats, queue.max_seats, queue.total_work),
            (0, 0, SeatSeconds::ZERO)
        );
    }

    #[test]
    fn an_id_is_invalid_once_its_request_has_left() {
        let (mut queue, mut entries, indices) = filled();
        let id = entries.id(indices[0]);
        queue.unlink(&mut entries, indices[0]);
        entries.remove(indices[0]);
        assert!(entries.get(id).is_none());
        let entry = RequestEntry::new(
            9,
            0,
            Work::ONE,
            Time::ZERO,
            SeatSeconds::ZERO,
            0,
            Work::ASSUMED_SERVICE_TIME.into(),
        );
        let reused = entries.insert(entry);
        assert_eq!(reused.index, id.index);
        assert!(entries.get(id).is_none() && entries.get(reused).is_some());
    }
}
