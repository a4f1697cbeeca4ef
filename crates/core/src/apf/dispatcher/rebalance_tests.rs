//! What a rebalancing looks at, counted in levels, and that nothing depends on it: beside a dispatcher that looks at the levels
//! that changed, another looks at all of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::{
    apf::{
        ObjectSet, PolicySettings,
        level::{QueuePlace, Ticket},
        objects::Bootstrap,
    },
    random::Random,
};

const MILLI: u64 = 1_000_000;

/// `count` levels of ten seats, of which they lend five, beside the mandatory ones.
fn tenants(count: u32, semantics: Semantics) -> Arc<Policy> {
    let levels = (0..count).map(|number| {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": format!("tenant-{number:05}")},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 10, "lendablePercent": 50,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 1, "handSize": 1, "queueLengthLimit": 50}},
            }},
        })
    });
    policy_of(levels, 10 * count, semantics)
}

/// How many times the `rebalance` of `dispatcher` at `millis` looks at a level.
fn visits(dispatcher: &Dispatcher<u32>, millis: u64) -> usize {
    let before = lock(&dispatcher.control).visits;
    let mut out = Decisions::default();
    dispatcher.rebalance(Time::from_nanos(millis * MILLI), &mut out);
    assert!(out.dispatched.is_empty(), "nothing waits");
    lock(&dispatcher.control).visits - before
}

fn policy_of(
    objects: impl Iterator<Item = Value>,
    total_seats: Seats,
    semantics: Semantics,
) -> Arc<Policy> {
    let settings = PolicySettings {
        total_seats,
        semantics,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    policy_for(objects, &settings)
}

fn policy_for(objects: impl Iterator<Item = Value>, settings: &PolicySettings) -> Arc<Policy> {
    let objects = objects.map(|object| ("test", object));
    let objects = ObjectSet::read(objects).with_bootstrap(Bootstrap::Mandatory);
    let compiled = Policy::compile(&objects, settings).expect("usable objects");
    Arc::new(compiled.policy)
}

fn flow(view: &PolicyView<u32>, level: &str, hash: u64) -> Option<Flow> {
    Some(Flow {
        schema: SchemaIndex(0),
        level: view.policy().level_by_name(level)?,
        hash,
        tenant: hash,
    })
}

fn arrive(dispatcher: &Dispatcher<u32>, millis: u64, level: &str) -> Ticket<u32> {
    let view = dispatcher.view();
    let flow = flow(&view, level, 0).expect("it is there");
    let now = Time::from_nanos(millis * MILLI);
    match view.arrive(now, &flow, Work::ONE, 0, &mut Decisions::default()) {
        Arrival::Execute(ticket) => ticket,
        other => panic!("a seat is free: {other:?}"),
    }
}

fn finish(ticket: Ticket<u32>, millis: u64) {
    let mut out = Decisions::default();
    ticket.finish(Time::from_nanos(millis * MILLI), &mut out);
}

#[test]
fn improved_looks_only_at_levels_that_changed_and_at_those_whose_demand_is_remembered() {
    let dispatcher = Dispatcher::new(tenants(1_000, Semantics::Improved), Time::ZERO);
    assert_eq!(visits(&dispatcher, 100), 0);
    let tickets =
        [3, 500, 501].map(|number| arrive(&dispatcher, 150, &format!("tenant-{number:05}")));
    assert_eq!(visits(&dispatcher, 200), 3);
    assert_eq!(visits(&dispatcher, 300), 0, "their demand is what it was");
    for ticket in tickets {
        finish(ticket, 350);
    }
    assert_eq!(visits(&dispatcher, 400), 3);
    for millis in [500, 600, 700, 800, 900] {
        assert_eq!(
            visits(&dispatcher, millis),
            3,
            "{millis} ms: they had demand in the last half second"
        );
    }
    assert_eq!(visits(&dispatcher, 1_000), 3);
    assert_eq!(visits(&dispatcher, 1_100), 0);
    // Reading for metrics is not an event.
    dispatcher.report(Time::from_nanos(1_150 * MILLI));
    assert_eq!(visits(&dispatcher, 1_200), 0);
}

#[test]
fn improved_forgets_who_changed_with_each_policy() {
    let dispatcher = Dispatcher::new(tenants(1_000, Semantics::Improved), Time::ZERO);
    let ticket = arrive(&dispatcher, 50, "tenant-00700");
    let mut out = Decisions::default();
    let smaller = tenants(600, Semantics::Improved);
    dispatcher.apply(Time::from_nanos(60 * MILLI), smaller, &mut out);
    assert_eq!(
        visits(&dispatcher, 100),
        0,
        "the new policy has looked at all"
    );
    finish(ticket, 150);
    assert_eq!(visits(&dispatcher, 200), 602, "all share the seats of one");
    assert_eq!(dispatcher.levels().len(), 602);
    assert_eq!(visits(&dispatcher, 300), 0, "once");
}

#[test]
fn the_seats_of_a_level_that_has_drained_are_for_the_others() {
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        let dispatcher = Dispatcher::new(tenants(3, semantics), Time::ZERO);
        let ticket = arrive(&dispatcher, 50, "tenant-00002");
        let mut out = Decisions::default();
        let at = |millis: u64| Time::from_nanos(millis * MILLI);
        dispatcher.apply(at(60), tenants(2, semantics), &mut out);
        dispatcher.rebalance(at(100), &mut out);
        assert_eq!(dispatcher.levels().len(), 5, "one request executes");
        finish(ticket, 150);
        dispatcher.rebalance(at(200), &mut out);
        let fresh = Dispatcher::<u32>::new(tenants(2, semantics), Time::ZERO);
        let facts = |dispatcher: &Dispatcher<u32>| {
            let view = dispatcher.view();
            let levels = dispatcher.report(at(200)).into_iter();
            let facts = levels.map(|report| {
                let level = view.policy().level_by_name(&report.spec.name);
                let cap = level.map(|level| view.width_cap(level));
                format!(
                    "{} {:?} {} {cap:?}",
                    report.spec.name, report.limits, report.current
                )
            });
            facts.collect::<Vec<_>>()
        };
        assert_eq!(facts(&dispatcher), facts(&fresh), "{semantics:?}");
    }
}

#[test]
fn all_levels_follow_the_tenant_weight_of_the_policy() {
    let policy = |tenant_weight| {
        let settings = PolicySettings {
            total_seats: 100,
            semantics: Semantics::Improved,
            hash_key: [0; 16],
            tenant_weight,
        };
        policy_for(std::iter::empty(), &settings)
    };
    let dispatcher = Dispatcher::<u32>::new(policy(2), Time::ZERO);
    let weights = || {
        let levels = dispatcher.levels().into_iter();
        let weights = levels.map(|(_, level)| level.inspect(QueueSet::tenant_weight));
        weights.collect::<Vec<_>>()
    };
    assert_eq!(weights(), [2, 2], "of new levels");
    dispatcher.apply(Time::ZERO, policy(7), &mut Decisions::default());
    assert_eq!(weights(), [7, 7], "of levels that exist");
}

#[test]
fn compatible_looks_at_every_level() {
    let dispatcher = Dispatcher::new(tenants(1_000, Semantics::Compatible), Time::ZERO);
    for round in 1..3 {
        assert_eq!(visits(&dispatcher, 10_000 * round), 1_002);
    }
}

/// A dispatcher, and the requests of which it holds something.
struct Side {
    dispatcher: Dispatcher<u32>,
    /// Whether every rebalancing looks at every level.
    looks_at_all: bool,
    executing: BTreeMap<u32, Ticket<u32>>,
    waiting: BTreeMap<u32, QueuePlace<u32>>,
    /// When seats that linger are to be released.
    releases: BTreeMap<(Time, u32), Level<u32>>,
}

/// What one step led to.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    executing: Vec<u32>,
    dispatched: Vec<u32>,
    blocked: Vec<u32>,
    changes: Vec<LimitChange>,
    releases: Vec<Time>,
}

impl Side {
    fn new(policy: &Arc<Policy>, looks_at_all: bool) -> Self {
        let side = Self {
            dispatcher: Dispatcher::new(Arc::clone(policy), Time::ZERO),
            looks_at_all,
            executing: BTreeMap::new(),
            waiting: BTreeMap::new(),
            releases: BTreeMap::new(),
        };
        side.forget_changes();
        side
    }

    fn forget_changes(&self) {
        if self.looks_at_all {
            lock(&self.dispatcher.control).lending = None;
        }
    }

    fn play(&mut self, now: Time, step: &Step) -> Outcome {
        let mut outcome = Outcome::default();
        let mut out = Decisions::default();
        match step {
            Step::Arrive {
                number,
                level,
                hash,
                work,
            } => {
                let view = self.dispatcher.view();
                let Some(flow) = flow(&view, level, *hash) else {
                    return outcome;
                };
                match view.arrive(now, &flow, *work, *number, &mut out) {
                    Arrival::Execute(ticket) => {
                        outcome.executing.push(*number);
                        self.executing.insert(*number, ticket);
                    }
                    Arrival::Wait(place) => drop(self.waiting.insert(*number, place)),
                    Arrival::Reject(_) => {}
                }
            }
            Step::Finish(place) => {
                let number = nth(&self.executing, *place);
                if let Some(ticket) = number.and_then(|number| self.executing.remove(&number)) {
                    let level = ticket.level().clone();
                    if let Some(at) = ticket.finish(now, &mut out) {
                        outcome.releases.push(at);
                        self.releases.insert((at, number.unwrap_or(0)), level);
                    }
                }
            }
            Step::Cancel(place) => {
                let number = nth(&self.waiting, *place);
                if let Some(place) = number.and_then(|number| self.waiting.remove(&number)) {
                    place.cancel(now, &mut out);
                }
            }
            Step::Apply(policy) => {
                self.dispatcher.apply(now, Arc::clone(policy), &mut out);
                self.forget_changes();
            }
            Step::Rebalance => outcome.changes = self.dispatcher.rebalance(now, &mut out),
        }
        self.take(out, &mut outcome);
        outcome
    }

    /// Releases the seats that have lingered up to `now`.
    fn release(&mut self, now: Time) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(((at, number), level)) = self.releases.pop_first() {
            if at > now {
                self.releases.insert((at, number), level);
                break;
            }
            let mut out = Decisions::default();
            level.tick(at, &mut out);
            self.take(out, &mut outcome);
        }
        outcome
    }

    fn take(&mut self, out: Decisions<u32>, outcome: &mut Outcome) {
        outcome.blocked.extend(out.blocked);
        if let Some(number) = out.replaced {
            self.waiting.remove(&number);
        }
        for (number, ticket) in out.dispatched {
            outcome.dispatched.push(number);
            self.waiting.remove(&number);
            self.executing.insert(number, ticket);
        }
    }
}

fn nth<T>(map: &BTreeMap<u32, T>, place: u64) -> Option<u32> {
    let place = place.checked_rem(map.len() as u64)?;
    map.keys().nth(usize::try_from(place).unwrap_or(0)).copied()
}

enum Step {
    Arrive {
        number: u32,
        level: String,
        hash: u64,
        work: Work,
    },
    /// Of the requests that execute, one.
    Finish(u64),
    /// Of those that wait, one.
    Cancel(u64),
    Apply(Arc<Policy>),
    Rebalance,
}

/// Some of twelve tenants, with random limits.
fn random_policy(random: &mut Random) -> Arc<Policy> {
    let levels = (0..12).filter_map(|number| {
        if random.percent(15) {
            return None;
        }
        let response = if random.percent(30) {
            json!({"type": "Reject"})
        } else {
            let queuing = json!({"queues": 4, "handSize": 2, "queueLengthLimit": 10});
            json!({"type": "Queue", "queuing": queuing})
        };
        let borrowing = [Value::Null, json!(0), json!(50), json!(300)];
        Some(json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": format!("tenant-{number}")},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": random.pick(&[0, 1, 5, 5, 10]),
                "lendablePercent": random.pick(&[0, 33, 50, 50, 100]),
                "borrowingLimitPercent": random.pick(&borrowing),
                "limitResponse": response,
            }},
        }))
    });
    let levels: Vec<_> = levels.collect();
    let total_seats = *random.pick(&[1, 12, 40, 100]);
    policy_of(levels.into_iter(), total_seats, Semantics::Improved)
}

fn random_step(random: &mut Random, number: u32, busy: u64) -> Step {
    let milliseconds = [0, 0, 0, 20, 400];
    match random.within(0..200) {
        0 => Step::Apply(random_policy(random)),
        1..40 => Step::Rebalance,
        40..120 => Step::Arrive {
            number,
            level: if random.percent(5) {
                "exempt".to_owned()
            } else {
                format!("tenant-{}", random.within(0..busy))
            },
            hash: random.within(0..5),
            work: Work {
                initial_seats: *random.pick(&[1, 1, 1, 2, 7]),
                final_seats: *random.pick(&[0, 0, 1, 3]),
                additional_latency: Duration::from_millis(*random.pick(&milliseconds)),
            },
        },
        120..190 => Step::Finish(random.number()),
        _ => Step::Cancel(random.number()),
    }
}

/// What a report says that must be equal to the last bit, and statistics that must be equal but for rounding.
fn facts(report: &LevelReport) -> (impl PartialEq + std::fmt::Debug + use<>, [f64; 4]) {
    let ratio = &report.ratios.demand;
    let buckets: Vec<u64> = ratio.buckets().map(|(_, nanos)| nanos).collect();
    let exact = (
        report.spec.clone(),
        report.limits,
        (
            report.current,
            report.target.to_bits(),
            report.demand.high_watermark,
        ),
        (
            report.quiescing,
            report.idle,
            format!("{:?}", report.summary),
        ),
        (buckets, ratio.count),
    );
    let Demand {
        average,
        deviation,
        smoothed,
        ..
    } = report.demand;
    (exact, [average, deviation, smoothed, ratio.sum])
}

fn assert_equal_reports(sides: &[Side; 2], now: Time, context: &str) {
    let [left, right] = sides.each_ref().map(|side| side.dispatcher.report(now));
    assert_eq!(left.len(), right.len(), "{context}: levels");
    for (left, right) in left.iter().zip(&right) {
        let ((exact, rounded), (other_exact, other_rounded)) = (facts(left), facts(right));
        assert_eq!(exact, other_exact, "{context}");
        for (one, other) in rounded.iter().zip(other_rounded) {
            let close = (one - other).abs() <= 1e-6 * other.abs().max(1.0);
            assert!(close, "{context}: {one} and {other} of {}", left.spec.name);
        }
    }
    let [left, right] = sides
        .each_ref()
        .map(|side| side.dispatcher.fair_fraction().to_bits());
    assert_eq!(left, right, "{context}: fair fraction");
}

fn play(seed: u64) -> usize {
    let mut random = Random::seeded(seed);
    let policy = random_policy(&mut random);
    let mut sides = [Side::new(&policy, false), Side::new(&policy, true)];
    let busy = *random.pick(&[1, 3, 12]);
    let mut now = 0;
    let mut changes = 0;
    for number in 0..400 {
        // Requests come in bursts, with pauses in which all that is remembered is forgotten.
        now += *random.pick(&[0, 1, 5, 20, 50, 100, 300]) * MILLI;
        if random.percent(2) {
            now += random.within(0..30_000) * MILLI;
        }
        let at = Time::from_nanos(now);
        let context = format!("seed {seed}, step {number}, {} ms", now / MILLI);
        // Timers may be late.
        if random.percent(70) {
            let [one, other] = sides.each_mut().map(|side| side.release(at));
            assert_eq!(one, other, "{context}: releases");
        }
        let step = random_step(&mut random, number, busy);
        let [one, other] = sides.each_mut().map(|side| side.play(at, &step));
        assert_eq!(one, other, "{context}");
        changes += one.changes.len();
        if matches!(step, Step::Rebalance | Step::Apply(_)) {
            assert_equal_reports(&sides, at, &context);
        }
    }
    let visits = sides
        .each_ref()
        .map(|side| lock(&side.dispatcher.control).visits);
    assert!(visits[0] <= visits[1], "seed {seed}: {visits:?}");
    changes
}

#[test]
fn looking_at_the_levels_that_changed_has_the_outcome_of_looking_at_all() {
    let given = std::env::var("FAIRGATE_SEED").ok();
    let from: u64 = given.map_or(1, |text| text.parse().expect("a number"));
    let changes: usize = (from..from + 100).map(play).sum();
    assert!(changes > 1_000, "limits change: {changes}");
}
