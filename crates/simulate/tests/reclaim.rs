//! How many requests execute when a level takes back the seats that it lent, in virtual time: requests are not
//! preempted, so for a while more seats are in use than the server's limit. docs/policies.md states the bound.

use std::{cmp::Reverse, collections::BTreeMap, collections::BinaryHeap, ops::Range, sync::Arc};

use fairgate_core::{
    apf::{
        Flow, ObjectSet, Policy, PolicySettings, SchemaIndex, Semantics, Work,
        dispatcher::{Dispatcher, PolicyView},
        level::{Arrival, Decisions, QueuePlace, Ticket},
        objects::Bootstrap,
    },
    random::Random,
    time::Time,
};
use serde_json::{Value, json};

const BOTH_SEMANTICS: [Semantics; 2] = [Semantics::Improved, Semantics::Compatible];
const SECOND: u64 = 1_000_000_000;
/// The server concurrency limit, in seats. The shares sum to it, with the five of `catch-all`.
const SEATS: u64 = 80;

/// A level: name, shares, `lendablePercent`, `borrowingLimitPercent`.
type LevelSettings = (&'static str, u32, u32, Option<u32>);

/// Clients of one level, each with one request after the other.
struct Clients {
    level: &'static str,
    threads: u32,
    /// How long requests take, in seconds.
    service: Range<u64>,
    /// When they send requests, in seconds. Requests that wait at the end are cancelled.
    active: Range<u64>,
}

impl Clients {
    const fn new(
        level: &'static str,
        threads: u32,
        service: Range<u64>,
        active: Range<u64>,
    ) -> Self {
        Self {
            level,
            threads,
            service,
            active,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Rebalance,
    Leave(usize),
    End(u32),
    Call(usize),
}

/// Seats in use after an event.
#[derive(Clone, Debug)]
struct Moment {
    nanos: u64,
    in_use: BTreeMap<String, u64>,
}

impl Moment {
    fn total(&self) -> u64 {
        self.in_use.values().sum()
    }
}

struct Stage<'a> {
    dispatcher: Dispatcher<u32>,
    view: Arc<PolicyView<u32>>,
    clients: &'a [Clients],
    period: u64,
    heap: BinaryHeap<Reverse<(u64, Event)>>,
    /// The clients of each request, by its number.
    requests: Vec<usize>,
    executing: BTreeMap<u32, Ticket<u32>>,
    waiting: BTreeMap<u32, QueuePlace<u32>>,
    random: Random,
}

fn policy(levels: &[LevelSettings], semantics: Semantics) -> Arc<Policy> {
    let level = |&(name, shares, lendable, borrowing): &LevelSettings| -> (&str, Value) {
        let level = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": name},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": shares, "lendablePercent": lendable,
                "borrowingLimitPercent": borrowing,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 1, "handSize": 1, "queueLengthLimit": 1000}},
            }},
        });
        ("test", level)
    };
    let objects = ObjectSet::read(levels.iter().map(level)).with_bootstrap(Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: u32::try_from(SEATS).expect("a few"),
        semantics,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let compiled = Policy::compile(&objects, &settings).expect("usable objects");
    Arc::new(compiled.policy)
}

impl<'a> Stage<'a> {
    fn new(levels: &[LevelSettings], clients: &'a [Clients], semantics: Semantics) -> Self {
        let dispatcher = Dispatcher::new(policy(levels, semantics), Time::ZERO);
        let period = match semantics {
            Semantics::Improved => SECOND / 10,
            Semantics::Compatible => 10 * SECOND,
        };
        let mut heap = BinaryHeap::from([Reverse((period, Event::Rebalance))]);
        for (index, clients) in clients.iter().enumerate() {
            for _ in 0..clients.threads {
                heap.push(Reverse((clients.active.start * SECOND, Event::Call(index))));
            }
            heap.push(Reverse((clients.active.end * SECOND, Event::Leave(index))));
        }
        Self {
            view: dispatcher.view(),
            dispatcher,
            clients,
            period,
            heap,
            requests: Vec::new(),
            executing: BTreeMap::new(),
            waiting: BTreeMap::new(),
            random: Random::seeded(1),
        }
    }

    /// The greatest number of seats that may be in use: the nominal limits, and for each of the levels that borrow what it
    /// may, as far as others lend.
    fn bound(&self, borrowers: &[&str]) -> u64 {
        let reports = self.dispatcher.report(Time::ZERO).into_iter();
        let levels = reports.filter(|report| &*report.spec.name != "exempt");
        let levels: Vec<_> = levels
            .map(|report| (report.spec.name, report.limits))
            .collect();
        let lendable: u32 = levels
            .iter()
            .map(|(_, limits)| limits.nominal - limits.min)
            .sum();
        let most = levels.iter().map(|(name, limits)| {
            let of_others = lendable - (limits.nominal - limits.min);
            let borrows = u32::from(borrowers.contains(&&**name));
            u64::from(limits.nominal + borrows * of_others.min(limits.max - limits.nominal))
        });
        most.sum()
    }

    /// Plays up to `seconds`.
    fn play(mut self, seconds: u64) -> Vec<Moment> {
        let mut moments = Vec::new();
        while let Some(Reverse((nanos, event))) = self.heap.pop() {
            if nanos > seconds * SECOND {
                break;
            }
            self.step(nanos, event);
            let levels = self.dispatcher.levels().into_iter();
            let in_use = levels.map(|(name, level)| {
                let seats = level.inspect(|set| set.summary().seats_in_use);
                (name.to_string(), u64::from(seats))
            });
            moments.push(Moment {
                nanos,
                in_use: in_use.collect(),
            });
        }
        moments
    }

    fn step(&mut self, nanos: u64, event: Event) {
        let now = Time::from_nanos(nanos);
        let mut out = Decisions::default();
        match event {
            Event::Rebalance => {
                self.dispatcher.rebalance(now, &mut out);
                self.heap
                    .push(Reverse((nanos + self.period, Event::Rebalance)));
            }
            Event::Leave(clients) => {
                let waiting = std::mem::take(&mut self.waiting).into_iter();
                let (leaving, staying): (Vec<_>, Vec<_>) =
                    waiting.partition(|(number, _)| self.requests[*number as usize] == clients);
                self.waiting = staying.into_iter().collect();
                for (_, place) in leaving {
                    place.cancel(now, &mut out);
                }
            }
            Event::Call(clients) => self.call(nanos, clients, &mut out),
            Event::End(number) => {
                let ticket = self.executing.remove(&number).expect("it executes");
                ticket.finish(now, &mut out);
                let clients = self.requests[number as usize];
                self.heap.push(Reverse((nanos, Event::Call(clients))));
            }
        }
        for (number, ticket) in out.dispatched {
            self.waiting.remove(&number);
            self.begin(nanos, number, ticket);
        }
    }

    fn call(&mut self, nanos: u64, index: usize, out: &mut Decisions<u32>) {
        let clients = &self.clients[index];
        if nanos >= clients.active.end * SECOND {
            return;
        }
        let level = self.view.policy().level_by_name(clients.level);
        let flow = Flow {
            schema: SchemaIndex(0),
            level: level.expect("it is there"),
            hash: 0,
            tenant: 0,
        };
        let number = u32::try_from(self.requests.len()).expect("a few");
        self.requests.push(index);
        let now = Time::from_nanos(nanos);
        match self.view.arrive(now, &flow, Work::ONE, number, out) {
            Arrival::Execute(ticket) => self.begin(nanos, number, ticket),
            Arrival::Wait(place) => drop(self.waiting.insert(number, place)),
            Arrival::Reject(reason) => panic!("there is room: {reason:?}"),
        }
    }

    fn begin(&mut self, nanos: u64, number: u32, ticket: Ticket<u32>) {
        let clients = &self.clients[self.requests[number as usize]];
        let Range { start, end } = clients.service;
        let service = self.random.within(start * SECOND..end * SECOND);
        self.executing.insert(number, ticket);
        self.heap
            .push(Reverse((nanos + service, Event::End(number))));
    }
}

const RETURNS: u64 = 60;

/// Best effort with requests of 2 to 20 s uses all seats, until after a minute a vital level wants its own back.
const RECLAIMED: [Clients; 3] = [
    Clients::new("best-effort", 200, 2..20, 0..200),
    Clients::new("catch-all", 5, 1..2, 0..200),
    Clients::new("vital", 60, 1..2, RETURNS..200),
];

#[test]
fn a_level_that_takes_its_seats_back_leaves_what_was_lent_in_use_and_no_more() {
    // lendablePercent of the vital level, borrowingLimitPercent of the other; seats in use at most.
    let cases = [
        (90, None, 134),
        (50, None, 110),
        (0, None, 80),
        (90, Some(100), 95),
        (90, Some(0), 80),
    ];
    for semantics in BOTH_SEMANTICS {
        for (lendable, borrowing, expected) in cases {
            let levels = [
                ("vital", 60, lendable, None),
                ("best-effort", 15, 0, borrowing),
            ];
            let stage = Stage::new(&levels, &RECLAIMED, semantics);
            let context = format!("{semantics:?}, {lendable} %, {borrowing:?} %");
            assert_eq!(stage.bound(&["best-effort"]), expected, "{context}");
            let period = stage.period;
            let moments = stage.play(150);
            let most = moments.iter().map(Moment::total).max();
            assert_eq!(most, Some(expected), "{context}");

            // The vital level has its seats after one period at most, and the server its limit when the requests that
            // had borrowed have ended.
            let served = moments.iter().find(|moment| moment.in_use["vital"] == 60);
            let served = served.expect("it gets its seats").nanos;
            assert!(served <= RETURNS * SECOND + period, "{context}: {served}");
            let over = moments.iter().rfind(|moment| moment.total() > SEATS);
            let until = over.map_or(0, |moment| moment.nanos);
            assert!(until < served + 20 * SECOND, "{context}: until {until}");
        }
    }
}

#[test]
fn each_level_that_borrows_while_requests_last_adds_what_it_borrowed() {
    // The vital level lends to one level, takes its seats back, lends to the other, and takes them back again, all
    // within the 50 s that a request takes.
    let clients = [
        Clients::new("one", 200, 50..51, 0..2),
        Clients::new("vital", 60, 1..2, 5..7),
        Clients::new("other", 500, 50..51, 7..22),
        Clients::new("vital", 60, 1..2, 30..45),
        Clients::new("catch-all", 5, 1..2, 0..45),
    ];
    let levels = [
        ("vital", 60, 90, None),
        ("one", 10, 0, None),
        ("other", 5, 0, None),
    ];
    let stage = Stage::new(&levels, &clients, Semantics::Improved);
    let bound = stage.bound(&["one", "other"]);
    let moments = stage.play(45);
    let most = moments.iter().map(Moment::total).max();
    assert_eq!((most, bound), (Some(80 + 54 + 54), 188));
}
