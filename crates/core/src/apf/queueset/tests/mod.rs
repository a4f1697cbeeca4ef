//! Tests of a queue set, step by step, and the helpers that they share.

mod arrivals;
mod drains;
mod example;
mod limits;
mod memory;
mod places;
mod random;
mod rules;
mod savings;
mod semantics;
mod steps;

use std::{collections::VecDeque, time::Duration};

use super::*;
use crate::random::Random;

const SECOND: Duration = Duration::from_secs(1);
const FIRST: u64 = 1_001_001_001;
const SECOND_FLOW: u64 = 2_002_002_002;

fn queues(queues: u32, queue_length_limit: u32, hand_size: u32) -> Discipline {
    Discipline::Queue {
        queuing: Queuing {
            queues,
            hand_size,
            queue_length_limit,
        },
        dealer: Dealer::new(queues, hand_size).unwrap(),
    }
}

fn set<W: Copy>(discipline: Discipline, limit: Seats) -> QueueSet<W> {
    QueueSet::new(Semantics::Compatible, discipline, limit, Time::ZERO)
}

fn improved<W: Copy>(discipline: Discipline, limit: Seats) -> QueueSet<W> {
    QueueSet::new(Semantics::Improved, discipline, limit, Time::ZERO)
}

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1000)
}

fn arriving(waiter: &'static str, hash: u64, work: Work) -> ArrivingRequest<&'static str> {
    ArrivingRequest {
        waiter,
        schema: 0,
        hash,
        tenant: hash,
        work,
    }
}

/// A queue set and what is known of its requests by name.
struct Stage {
    set: QueueSet<&'static str>,
    ids: std::collections::BTreeMap<&'static str, EntryId>,
    /// The requests that have started, in this order; those that have finished stay in it.
    started: Vec<&'static str>,
    blocked: usize,
}

impl Stage {
    fn new(set: QueueSet<&'static str>) -> Self {
        Self {
            set,
            ids: std::collections::BTreeMap::default(),
            started: Vec::new(),
            blocked: 0,
        }
    }

    fn arrive(&mut self, now: Time, waiter: &'static str, hash: u64, work: Work) -> Admission {
        self.arrive_of(now, hash, waiter, hash, work)
    }

    fn arrive_of(
        &mut self,
        now: Time,
        tenant: u64,
        waiter: &'static str,
        hash: u64,
        work: Work,
    ) -> Admission {
        let mut events = QueueSetEvents::default();
        let arriving = ArrivingRequest {
            tenant,
            ..arriving(waiter, hash, work)
        };
        let admission = self.set.arrive(now, arriving, &mut events);
        if let Admission::Execute(id) | Admission::Wait(id) = admission {
            self.ids.insert(waiter, id);
        }
        if let Admission::Execute(_) = admission {
            self.started.push(waiter);
        }
        self.note(&events);
        admission
    }

    fn executes(&mut self, now: Time, waiter: &'static str, hash: u64, work: Work) -> bool {
        matches!(self.arrive(now, waiter, hash, work), Admission::Execute(_))
    }

    fn finish(&mut self, now: Time, waiter: &'static str) -> Option<Time> {
        let mut events = QueueSetEvents::default();
        let until = self.set.finish(now, self.ids[waiter], &mut events);
        self.note(&events);
        until
    }

    fn finish_refused(&mut self, now: Time, waiter: &'static str) -> Option<Time> {
        let mut events = QueueSetEvents::default();
        let id = self.ids[waiter];
        let until = self.set.finish_refused(now, id, &mut events);
        self.note(&events);
        until
    }

    fn cancel(&mut self, now: Time, waiter: &'static str) -> bool {
        let mut events = QueueSetEvents::default();
        let gone = self.set.cancel(now, self.ids[waiter], &mut events);
        self.note(&events);
        gone
    }

    fn tick(&mut self, now: Time) {
        let mut events = QueueSetEvents::default();
        self.set.tick(now, &mut events);
        self.note(&events);
    }

    fn reshape(&mut self, now: Time, discipline: Discipline) {
        let mut events = QueueSetEvents::default();
        let semantics = self.set.semantics;
        self.set.configure(now, semantics, discipline, &mut events);
        self.note(&events);
    }

    fn note(&mut self, events: &QueueSetEvents<&'static str>) {
        self.started
            .extend(events.dispatched.iter().map(|(waiter, _)| waiter));
        self.blocked += events.blocked.len();
        self.set.check_invariants();
    }

    fn s(&self, slot: usize) -> u64 {
        self.set.slots[slot].next_dispatch_r.units()
    }
}

/// Two queues and hands of one: even hashes go to queue 0, odd ones to queue 1.
fn two_queues() -> Discipline {
    queues(2, 50, 1)
}
