//! What does one request cost in a queue set, and does that depend on the numbers of queues and waiting requests?
//!
//! The baseline is a request that finds seats free. The others arrive at a full level with 1 000
//! requests waiting, over 16, 128 and 1 024 queues: one arrives and waits, one finishes and lets
//! another run.

mod support;

use std::collections::VecDeque;

use fairgate_core::{
    apf::{
        Semantics, Work,
        policy::Queuing,
        queueset::{Admission, ArrivingRequest, Discipline, EntryId, QueueSet, QueueSetEvents},
        shard::Dealer,
    },
    time::Time,
};
use support::{Case, measure};

const WAITING: u32 = 1_000;
const LIMIT: u32 = 100;

struct Bench {
    set: QueueSet<u32>,
    now: u64,
    next: u32,
    executing: VecDeque<EntryId>,
}

impl Bench {
    fn new(queues: u32, waiting: u32) -> Self {
        let queuing = Queuing {
            queues,
            hand_size: 6,
            queue_length_limit: 10_000,
        };
        let dealer = Dealer::new(queues, 6).expect("it can be dealt");
        let discipline = Discipline::Queue { queuing, dealer };
        let set = QueueSet::new(Semantics::Improved, discipline, LIMIT, Time::ZERO);
        let mut bench = Self {
            set,
            now: 0,
            next: 0,
            executing: VecDeque::new(),
        };
        if waiting > 0 {
            (0..LIMIT + waiting).for_each(|_| bench.arrive());
        }
        bench
    }

    fn arrive(&mut self) {
        self.now += 10_000;
        self.next = self.next.wrapping_add(1);
        let hash = u64::from(self.next % 500).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let arriving = ArrivingRequest {
            waiter: self.next,
            schema: 0,
            hash,
            tenant: hash,
            work: Work::ONE,
        };
        let mut events = QueueSetEvents::default();
        match self
            .set
            .arrive(Time::from_nanos(self.now), arriving, &mut events)
        {
            Admission::Execute(id) => self.executing.push_back(id),
            Admission::Wait(_) => {}
            Admission::Reject(rejection) => panic!("{rejection:?}"),
        }
    }

    fn finish(&mut self) {
        self.now += 10_000;
        let id = self.executing.pop_front().expect("something executes");
        let mut events = QueueSetEvents::default();
        self.set.finish(Time::from_nanos(self.now), id, &mut events);
        self.executing
            .extend(events.dispatched.iter().map(|(_, id)| *id));
    }
}

fn main() {
    let case = |name: &str, queues, waiting| {
        Case::new(name, move || {
            let mut bench = Bench::new(queues, waiting);
            move || {
                bench.arrive();
                bench.finish();
            }
        })
    };
    measure(
        "One request through a queue set: arrival, dispatch, finish.",
        vec![
            case("128 queues, seats free", 128, 0),
            case("16 queues, 1000 waiting", 16, WAITING),
            case("128 queues, 1000 waiting", 128, WAITING),
            case("1024 queues, 1000 waiting", 1024, WAITING),
        ],
    );
}
