//! Chaos tests by seed: whatever clients, policies and clocks do, no seat may be lost.
//!
//! A run makes a few policies with unusual settings. Then, in a random order, requests arrive, finish and are
//! cancelled, one by one or many at once; policies change; the time jumps ahead or goes back a little. After
//! every step the accounts of every level must be consistent, and each request has exactly one outcome. In the
//! end all waiting requests must be dispatched. A log records every step: the same seed writes the same bytes.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use fairgate_core::random::Random;
use fairgate_core::{
    apf::{
        Flow, SchemaIndex, Work,
        dispatcher::{Dispatcher, PolicyView},
        level::{Arrival, Decisions, Level, QueuePlace, Ticket},
        policy::{Policy, Semantics},
        queueset::QueueSet,
    },
    time::Time,
};

/// A request's number.
type Number = u64;

/// One run.
struct ChaosWorld {
    random: Random,
    now: u64,
    policies: Vec<Arc<Policy>>,
    dispatcher: Dispatcher<Number>,
    view: Arc<PolicyView<Number>>,
    waiting: BTreeMap<Number, QueuePlace<Number>>,
    executing: BTreeMap<Number, Ticket<Number>>,
    /// The seats that each level may have in use after the next step: those of the last, and its limit then.
    bounds: BTreeMap<Arc<str>, u32>,
    releases: Vec<(u64, Level<Number>)>,
    next: Number,
    log: String,
}

/// Runs `steps` steps of the run of `seed` over `policies`; returns what happened.
///
/// # Panics
///
/// If a seat is lost or given twice, a limit is exceeded, or a request starves.
pub(crate) fn run(seed: u64, steps: u32, policies: Vec<Arc<Policy>>) -> String {
    let mut random = Random::seeded(seed);
    let first = Arc::clone(random.pick(&policies));
    let dispatcher = Dispatcher::new(first, Time::ZERO);
    let view = dispatcher.view();
    let mut world = ChaosWorld {
        random,
        now: 1_000_000_000,
        policies,
        dispatcher,
        view,
        waiting: BTreeMap::new(),
        executing: BTreeMap::new(),
        bounds: BTreeMap::new(),
        releases: Vec::new(),
        next: 0,
        log: String::new(),
    };
    for _ in 0..steps {
        world.step();
        world.check();
    }
    world.drain();
    world.log
}

impl ChaosWorld {
    fn step(&mut self) {
        self.pass_time();
        self.check();
        match self.random.within(0..1000) {
            0..450 => self.arrive(),
            450..850 => self.finish_one(),
            850..940 => self.cancel_one(),
            940..945 => self.cancel_most(),
            945..965 => self.change_policy(),
            965..1000 => self.rebalance(),
            _ => {}
        }
    }

    /// Mostly some microseconds; sometimes hours, or a little back.
    fn pass_time(&mut self) {
        self.now += match self.random.within(0..1000) {
            0 => 7_200_000_000_000,
            1..20 => self.random.within(0..15_000_000_000),
            _ => self.random.within(0..3_000_000),
        };
        let now = self.time();
        let due: Vec<_> = self
            .releases
            .extract_if(.., |(at, _)| *at <= now.as_nanos())
            .collect();
        for (_, level) in due {
            let mut out = Decisions::default();
            if let Some(at) = level.tick(now, &mut out) {
                self.releases.push((at.as_nanos(), level));
            }
            self.deliver(out);
        }
    }

    /// The time on some core, which may lag behind.
    fn time(&mut self) -> Time {
        let behind = if self.random.percent(5) {
            self.random.within(0..1_000_000)
        } else {
            0
        };
        Time::from_nanos(self.now - behind)
    }

    fn arrive(&mut self) {
        let number = self.next;
        self.next += 1;
        let schemas = self.view.policy().schemas();
        let index = self.random.within(0..schemas.len() as u64);
        let level = schemas[usize::try_from(index).unwrap_or(0)].level;
        let schema = SchemaIndex(u32::try_from(index).unwrap_or(0));
        let hash = self.random.within(0..12) * 0x1234_5678_9abc_def1;
        let flow = Flow {
            schema,
            level,
            hash,
            // Some tenants have more flows than weigh 1 each, and some flows more tenants than one.
            tenant: self.random.within(0..3),
        };
        let work = self.work();
        let now = self.time();
        let mut out = Decisions::default();
        let view = Arc::clone(&self.view);
        let fate = match view.arrive(now, &flow, work, number, &mut out) {
            Arrival::Execute(ticket) => {
                self.executing.insert(number, ticket);
                "executes"
            }
            Arrival::Wait(place) => {
                self.waiting.insert(number, place);
                "waits"
            }
            Arrival::Reject(_) => "refused",
        };
        self.note(format_args!(
            "{number} {} {work:?} {fate}",
            view.policy().level(level).name
        ));
        self.deliver(out);
    }

    fn work(&mut self) -> Work {
        let initial = if self.random.percent(80) {
            1
        } else {
            self.random.within(1..30)
        };
        let lingers = self.random.percent(20);
        Work {
            initial_seats: u32::try_from(initial).unwrap_or(1),
            final_seats: if lingers {
                u32::try_from(self.random.within(0..25)).unwrap_or(0)
            } else {
                0
            },
            additional_latency: Duration::from_micros(if lingers {
                self.random.within(0..50_000)
            } else {
                0
            }),
        }
    }

    fn finish_one(&mut self) {
        let Some(number) = nth(&self.executing, &mut self.random) else {
            return;
        };
        self.finish(number);
    }

    fn finish(&mut self, number: Number) {
        let ticket = self
            .executing
            .remove(&number)
            .expect("it was found executing");
        let level = ticket.level().clone();
        let now = self.time();
        let mut out = Decisions::default();
        if let Some(at) = ticket.finish(now, &mut out) {
            self.releases.push((at.as_nanos(), level));
        }
        self.note(format_args!("{number} done"));
        self.deliver(out);
    }

    fn cancel_one(&mut self) {
        if let Some(number) = nth(&self.waiting, &mut self.random) {
            self.cancel(number);
        }
    }

    fn cancel_most(&mut self) {
        let numbers: Vec<Number> = self.waiting.keys().copied().collect();
        for number in numbers {
            if self.waiting.contains_key(&number) && self.random.percent(90) {
                self.cancel(number);
            }
        }
    }

    fn cancel(&mut self, number: Number) {
        let place = self.waiting.remove(&number).expect("it was found waiting");
        let now = self.time();
        let mut out = Decisions::default();
        if place.cancel(now, &mut out) {
            self.note(format_args!("{number} gives up"));
        } else {
            // Final seats became free just before, and the first decision is about this request.
            let dispatched = out.dispatched.iter().any(|(waiter, _)| *waiter == number);
            assert!(dispatched, "{number} waits, or a decision is on its way");
            self.waiting.insert(number, place);
        }
        self.deliver(out);
    }

    fn change_policy(&mut self) {
        let policy = Arc::clone(self.random.pick(&self.policies));
        let now = self.time();
        let mut out = Decisions::default();
        let view = self.dispatcher.apply(now, policy, &mut out);
        // Some cores get the policy later than others.
        if self.random.percent(70) {
            self.view = view;
        }
        self.note(format_args!("policy"));
        self.check_levels();
        self.deliver(out);
    }

    /// The levels are those of the policy, and those that are not drained yet.
    fn check_levels(&self) {
        let view = self.dispatcher.view();
        let wanted = |name: &str| view.policy().level_by_name(name).is_some();
        for report in self.dispatcher.report(Time::from_nanos(self.now)) {
            let name = &report.spec.name;
            assert_eq!(report.quiescing, !wanted(name), "{name}");
            assert!(
                !report.quiescing || !report.idle,
                "{name} has drained and is still there"
            );
        }
        let levels = self.dispatcher.levels().len();
        assert!(
            levels >= view.policy().levels().len(),
            "every level of the policy exists"
        );
    }

    fn rebalance(&mut self) {
        let now = self.time();
        let mut out = Decisions::default();
        let changes = self.dispatcher.rebalance(now, &mut out);
        for change in changes {
            self.note(format_args!(
                "{} {} -> {}",
                change.level, change.from, change.to
            ));
        }
        self.deliver(out);
        self.view = self.dispatcher.view();
    }

    fn deliver(&mut self, out: Decisions<Number>) {
        if let Some(number) = out.replaced {
            self.note(format_args!("{number} is replaced"));
            assert!(
                self.waiting.remove(&number).is_some(),
                "{number} is refused while it waits"
            );
        }
        for (number, ticket) in out.dispatched {
            self.note(format_args!("{number} executes at last"));
            assert!(
                self.waiting.remove(&number).is_some(),
                "{number} is dispatched while it waits"
            );
            let twice = self.executing.insert(number, ticket);
            assert!(twice.is_none(), "{number} is dispatched once");
        }
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.log, "{} {what}", self.now).expect("writing to a string cannot fail");
    }

    fn check(&mut self) {
        let (mut executing, mut waiting) = (0, 0);
        let mut bounds = BTreeMap::new();
        for (name, level) in self.dispatcher.levels() {
            let summary = level.inspect(|set| {
                set.check_invariants();
                set.summary()
            });
            executing += summary.executing as usize;
            waiting += summary.waiting as usize;
            // What began before the limit was lowered stays; and until then, something may have begun in the same step.
            let bound = self.bounds.get(&name).copied().unwrap_or(0);
            assert!(
                &*name == "exempt"
                    || summary.seats_in_use <= summary.limit.max(bound)
                    || self.is_compatible(),
                "{name} goes over its limit: {summary:?}"
            );
            bounds.insert(name, summary.seats_in_use.max(summary.limit));
        }
        self.bounds = bounds;
        // A level that a late core still uses may have been dropped; its requests are not seen here.
        assert!(
            executing <= self.executing.len(),
            "more requests execute than were admitted"
        );
        assert!(
            waiting <= self.waiting.len(),
            "more requests wait than arrived"
        );
    }

    /// Whether `Compatible` is in force now or may have been before.
    fn is_compatible(&self) -> bool {
        self.policies
            .iter()
            .any(|policy| policy.settings().semantics == Semantics::Compatible)
    }

    /// No more arrivals: all waiting requests must be dispatched, and all seats must be returned.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            if self.executing.is_empty() && self.waiting.is_empty() && self.releases.is_empty() {
                break;
            }
            self.now += 1_000_000_000;
            self.pass_time();
            self.check();
            self.finish_one();
            self.check();
            if self.executing.is_empty() {
                self.rebalance();
                self.cancel_what_can_never_execute();
            }
            self.check();
        }
        assert!(
            self.waiting.is_empty(),
            "starved: {:?}",
            self.waiting.keys()
        );
        for (name, level) in self.dispatcher.levels() {
            let summary = level.inspect(QueueSet::summary);
            assert_eq!(
                (summary.seats_in_use, summary.executing, summary.waiting),
                (0, 0, 0),
                "{name}"
            );
        }
    }

    /// Levels without seats never execute a request, so waiting requests can only be cancelled. The
    /// same is true of requests that kube-apiserver loses when it removes the wrong queue.
    fn cancel_what_can_never_execute(&mut self) {
        let numbers: Vec<Number> = self.waiting.keys().copied().collect();
        for number in numbers {
            let limit = self.waiting[&number]
                .level()
                .inspect(|set| set.summary().limit);
            if limit == 0 || self.is_compatible() {
                self.cancel(number);
            }
        }
    }
}

fn nth<T>(map: &BTreeMap<Number, T>, random: &mut Random) -> Option<Number> {
    if map.is_empty() {
        return None;
    }
    let n = random.within(0..map.len() as u64);
    map.keys().nth(usize::try_from(n).unwrap_or(0)).copied()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use fairgate_core::apf::{ObjectSet, PolicySettings};

    /// Levels with unusual settings; some names occur in all policies, some only in one.
    fn objects(random: &mut Random) -> Vec<(String, Value)> {
        let mut documents = Vec::new();
        for i in 0..random.within(1..6) {
            let queues = random.within(1..40);
            let hand = 1 + random.within(0..queues.min(8));
            let response = if random.percent(75) {
                json!({"type": "Queue", "queuing": {
                    "queues": queues, "handSize": hand, "queueLengthLimit": random.within(1..12)}})
            } else {
                json!({"type": "Reject"})
            };
            let mut limited = json!({
                "nominalConcurrencyShares": random.within(0..40),
                "lendablePercent": random.within(0..101),
                "limitResponse": response,
            });
            if random.percent(40) {
                limited["borrowingLimitPercent"] = json!(random.within(0..150));
            }
            documents.push(json!({
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
                "metadata": {"name": format!("level-{i}")}, "spec": {"type": "Limited", "limited": limited},
            }));
            documents.push(json!({
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
                "metadata": {"name": format!("schema-{i}")},
                "spec": {"priorityLevelConfiguration": {"name": format!("level-{i}")}, "matchingPrecedence": 50},
            }));
        }
        documents
            .into_iter()
            .map(|document| ("test".to_owned(), document))
            .collect()
    }

    fn policies(random: &mut Random, semantics: Semantics) -> Vec<Arc<Policy>> {
        let compile = |random: &mut Random| {
            let total_seats = u32::try_from(random.within(1..120)).expect("120 fits");
            let settings = PolicySettings {
                total_seats,
                semantics,
                hash_key: [0; 16],
                tenant_weight: u32::try_from(random.within(1..9)).expect("8 fits"),
            };
            let objects = ObjectSet::read(objects(random));
            Arc::new(
                Policy::compile(&objects, &settings)
                    .expect("made to be usable")
                    .policy,
            )
        };
        (0..5).map(|_| compile(random)).collect()
    }

    fn chaos(seed: u64, steps: u32, semantics: Semantics) -> String {
        let policies = policies(&mut Random::seeded(seed), semantics);
        run(seed, steps, policies)
    }

    /// `FAIRGATE_SEED` replays one run.
    fn seeds(few: u64) -> std::ops::Range<u64> {
        match std::env::var("FAIRGATE_SEED") {
            Ok(seed) => {
                let seed = seed.parse().expect("FAIRGATE_SEED is a number");
                seed..seed + 1
            }
            Err(_) => 0..few,
        }
    }

    #[test]
    fn no_seat_is_lost_and_no_flow_starves_in_random_runs() {
        for seed in seeds(60) {
            eprintln!("FAIRGATE_SEED={seed}");
            chaos(seed, 1500, Semantics::Improved);
        }
    }

    #[test]
    fn seats_are_conserved_with_compatible_semantics_too() {
        for seed in seeds(40) {
            eprintln!("FAIRGATE_SEED={seed}");
            chaos(seed, 1500, Semantics::Compatible);
        }
    }

    #[test]
    fn seats_are_conserved_when_the_semantics_change() {
        for seed in seeds(40) {
            eprintln!("FAIRGATE_SEED={seed}");
            let mut random = Random::seeded(seed);
            let mut all = policies(&mut random, Semantics::Improved);
            all.extend(policies(&mut random, Semantics::Compatible));
            run(seed, 1500, all);
        }
    }

    #[test]
    fn the_same_seed_writes_the_same_bytes() {
        assert_eq!(
            chaos(3, 2000, Semantics::Improved),
            chaos(3, 2000, Semantics::Improved)
        );
        assert_ne!(
            chaos(3, 2000, Semantics::Improved),
            chaos(4, 2000, Semantics::Improved)
        );
    }
}
