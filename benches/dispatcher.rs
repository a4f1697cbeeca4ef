//! What does a request cost in the pure core, and what do other threads add?
//!
//! Classify, arrive, finish, with the built-in schemas and with 1 000 and 10 000 more, with seats free
//! and with 1 000 requests waiting. The baseline is one uncontended lock and unlock of a mutex around a
//! counter. Then two threads, on one level and on two: what contention costs, beside the same for the
//! bare mutex.

mod support;

use std::{
    collections::VecDeque,
    hint::black_box,
    sync::{Arc, Mutex},
    thread,
};

use fairgate_core::{
    apf::{
        Work,
        dispatcher::{Dispatcher, PolicyView},
        level::{Arrival, Decisions, Ticket},
    },
    digest::RequestDigest,
    time::Time,
};
use support::{Case, digests, is_quick, measure, policy, time};

const SEATS: u32 = 600;

/// A dispatcher with requests in progress.
struct Core {
    view: Arc<PolicyView<u32>>,
    digests: Vec<Arc<RequestDigest>>,
    executing: VecDeque<Ticket<u32>>,
    now: u64,
    next: u32,
}

impl Core {
    fn new(schemas: usize, waiting: u32) -> Self {
        // All users of the bench share one level, which is full when requests are to wait.
        let dispatcher = Dispatcher::new(policy(schemas, SEATS), Time::ZERO);
        let mut core = Self {
            view: dispatcher.view(),
            digests: digests(500),
            executing: VecDeque::new(),
            now: 0,
            next: 0,
        };
        if waiting > 0 {
            let before =
                |core: &Self| core.next - u32::try_from(core.executing.len()).expect("few");
            while before(&core) < waiting {
                core.arrive();
            }
        }
        core
    }

    fn arrive(&mut self) {
        self.now += 10_000;
        self.next += 1;
        let digest = &self.digests[self.next as usize % self.digests.len()];
        let flow = self.view.policy().classify(digest);
        let mut out = Decisions::default();
        let now = Time::from_nanos(self.now);
        match self.view.arrive(now, &flow, Work::ONE, self.next, &mut out) {
            Arrival::Execute(ticket) => self.executing.push_back(ticket),
            Arrival::Wait(place) => drop(black_box(place)),
            Arrival::Reject(rejection) => panic!("{rejection:?}"),
        }
    }

    fn finish(&mut self) {
        self.now += 10_000;
        let Some(ticket) = self.executing.pop_front() else {
            return;
        };
        let mut out = Decisions::default();
        ticket.finish(Time::from_nanos(self.now), &mut out);
        self.executing
            .extend(out.dispatched.into_iter().map(|(_, ticket)| ticket));
    }
}

fn main() {
    let mut cases = vec![Case::new("a mutex, locked and unlocked twice", || {
        let counter = Mutex::new(0_u64);
        move || {
            for _ in 0..2 {
                *black_box(&counter).lock().expect("nobody panics") += 1;
            }
        }
    })];
    for (waiting, what) in [(0, "seats free"), (1_000, "1000 waiting")] {
        for schemas in [0, 1_000, 10_000] {
            cases.push(Case::new(
                format!("+{schemas} schemas, {what}"),
                move || {
                    let mut core = Core::new(schemas, waiting);
                    move || {
                        core.arrive();
                        core.finish();
                    }
                },
            ));
        }
    }
    measure(
        "One request through the pure core: classify, arrive, finish.",
        cases,
    );
    if !std::env::args().any(|argument| argument == "--rounds") {
        contended();
    }
}

/// Two threads with separate requests.
fn contended() {
    let rounds: u32 = if is_quick() { 100 } else { 200_000 };
    let one = Dispatcher::new(policy(0, SEATS), Time::ZERO).view();
    let two = Dispatcher::new(policy(0, SEATS), Time::ZERO).view();
    let request = |view: &PolicyView<u32>, digest: &RequestDigest, i: u32| {
        let flow = view.policy().classify(digest);
        let mut out = Decisions::default();
        let now = Time::from_nanos(u64::from(i) * 1_000);
        if let Arrival::Execute(ticket) = view.arrive(now, &flow, Work::ONE, i, &mut out) {
            ticket.finish(now, &mut out);
        }
    };
    let threads = |views: [&Arc<PolicyView<u32>>; 2]| {
        let digests = digests(500);
        let took = time(|| {
            thread::scope(|scope| {
                for view in views {
                    let digests = &digests;
                    scope.spawn(move || {
                        for i in 0..rounds {
                            request(view, &digests[i as usize % digests.len()], i);
                        }
                    });
                }
            });
        });
        took.as_secs_f64() * 1e9 / f64::from(rounds)
    };
    let bare = Mutex::new(0_u64);
    let mutex = time(|| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2 * rounds {
                        *bare.lock().expect("nobody panics") += 1;
                    }
                });
            }
        });
    });
    println!("\nTwo threads at once, ns per request of each:");
    println!(
        "{:<44} {:>9.0}",
        "a mutex, locked and unlocked twice",
        mutex.as_secs_f64() * 1e9 / f64::from(rounds)
    );
    println!("{:<44} {:>9.0}", "one level", threads([&one, &one]));
    println!("{:<44} {:>9.0}", "a level each", threads([&one, &two]));
}
