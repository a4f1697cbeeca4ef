//! The places of requests that wait until a server has room: who is woken, and in which order.

use std::{collections::VecDeque, task::Waker};

use super::fleet_part::FleetPart;
use crate::{
    apf::Seats,
    sync::{Mutex, lock},
};

/// How many of those that wait look again at a time.
const WOKEN: usize = 16;

/// Where requests wait for room at the servers of a group, and which part of the room is this gateway's. Shared by all cores.
#[derive(Debug, Default)]
pub struct Places {
    queue: Mutex<Queue>,
    pub(super) part: FleetPart,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    waker: Option<Waker>,
}

impl Places {
    /// The seats of all servers together that this gateway may use from now on; `None`: all of them, because there is no fleet.
    pub fn set_granted(&self, granted: Option<Seats>) {
        self.part.set_granted(granted);
        self.wake();
    }

    /// Lets the first of those that wait look again.
    pub fn wake(&self) {
        let mut wakers = smallvec::SmallVec::<[Waker; WOKEN]>::new();
        let mut queue = lock(&self.queue);
        let first = queue.waiting.iter_mut().take(WOKEN);
        wakers.extend(first.filter_map(|entry| entry.waker.take()));
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        lock(&self.queue).waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a place at the end, or keeps the one that it has, to be woken by `waker`. Returns the place, and whether it is the first.
    pub(super) fn enter(&self, place: Option<u64>, waker: &Waker) -> (u64, bool) {
        let mut queue = lock(&self.queue);
        let id = place.unwrap_or_else(|| {
            let id = queue.next;
            queue.next += 1;
            queue.waiting.push_back(Entry { id, waker: None });
            id
        });
        if let Ok(index) = queue.waiting.binary_search_by_key(&id, |entry| entry.id) {
            queue.waiting[index].waker = Some(waker.clone());
        }
        (
            id,
            queue.waiting.front().is_some_and(|first| first.id == id),
        )
    }

    /// Gives up a place. If nobody waits any longer, calls `is_last`, before anybody else can begin to wait.
    pub(super) fn leave(&self, place: u64, is_last: impl FnOnce()) {
        let mut queue = lock(&self.queue);
        queue.waiting.retain(|entry| entry.id != place);
        if queue.waiting.is_empty() {
            is_last();
        }
    }
}
