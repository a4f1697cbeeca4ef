//! What executes stays within the part of this gateway, whatever changes.

mod lease;

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use super::*;
use crate::{
    apf::{
        Flow, ObjectSet, Policy, PolicySettings, SchemaIndex, Semantics, Work,
        dispatcher::Arrival,
        level::{QueuePlace, Ticket},
        objects::Bootstrap,
    },
    random::Random,
};

const MILLI: u64 = 1_000_000;

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * MILLI)
}

/// Levels `a`, `b` and `c` that lend half of their seats, of 60 and the mandatory level's.
fn policy() -> std::sync::Arc<Policy> {
    let level = |name: &str| {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": name},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 20, "lendablePercent": 50,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 1, "handSize": 1, "queueLengthLimit": 500}},
            }},
        })
    };
    let objects = ["a", "b", "c"].map(level);
    let objects = objects.into_iter().map(|object| ("test", object));
    let objects = ObjectSet::read(objects).with_bootstrap(Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: 60,
        semantics: Semantics::Improved,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let compiled = Policy::compile(&objects, &settings).expect("usable objects");
    std::sync::Arc::new(compiled.policy)
}

/// A dispatcher whose requests are numbered, with those that execute and those that wait.
struct World {
    dispatcher: Dispatcher<u64>,
    lease: Arc<SeatLease>,
    now: u64,
    last: u64,
    /// What each request costs that arrives.
    work: Work,
    executing: BTreeMap<u64, Ticket<u64>>,
    waiting: BTreeMap<u64, QueuePlace<u64>>,
}

impl World {
    fn new(seats: Seats, floor: Seats, until: u64) -> Self {
        let mut world = Self {
            dispatcher: Dispatcher::new(policy(), at(0)),
            lease: Arc::new(SeatLease::new(at(until))),
            now: 1,
            last: 0,
            work: Work::ONE,
            executing: BTreeMap::new(),
            waiting: BTreeMap::new(),
        };
        world.share(seats, floor);
        world
    }

    fn share(&mut self, seats: Seats, floor: Seats) {
        self.share_levels(seats, &[], floor);
    }

    fn share_levels(&mut self, seats: Seats, levels: &[(&str, Seats)], floor: Seats) {
        let mut out = Decisions::default();
        let lease = Arc::clone(&self.lease);
        let seats = SharedSeats {
            seats,
            levels: levels
                .iter()
                .map(|(name, seats)| (std::sync::Arc::from(*name), *seats))
                .collect(),
            floor,
            lease,
        };
        self.dispatcher.share_seats(at(self.now), seats, &mut out);
        self.take(out);
    }

    fn rebalance(&mut self) {
        let mut out = Decisions::default();
        self.dispatcher.rebalance(at(self.now), &mut out);
        self.take(out);
    }

    /// A flow of this level received so many seat-milliseconds at other gateways.
    fn note_received(&mut self, level: &str, flow: u64, seat_millis: u64) {
        self.note_elsewhere(|name| LevelElsewhere {
            received: (name == level)
                .then_some((flow, seat_millis))
                .into_iter()
                .collect(),
            tenants: Vec::new(),
        });
    }

    fn note_elsewhere(&mut self, of_level: impl Fn(&str) -> LevelElsewhere) {
        let mut out = Decisions::default();
        self.dispatcher
            .note_elsewhere(at(self.now), of_level, &mut out);
        self.take(out);
    }

    fn held(&self) -> Seats {
        let uses = self.dispatcher.level_uses();
        uses.iter().map(LevelUse::held).sum()
    }

    fn take(&mut self, out: Decisions<u64>) {
        for (number, ticket) in out.dispatched {
            self.waiting.remove(&number);
            self.executing.insert(number, ticket);
        }
    }

    fn arrive(&mut self, level: &str) {
        let flow = (self.last + 1) % 7;
        self.arrive_of(level, flow);
    }

    /// A request of a flow arrives. Returns its number.
    fn arrive_of(&mut self, level: &str, hash: u64) -> u64 {
        self.last += 1;
        let view = self.dispatcher.view();
        let flow = Flow {
            schema: SchemaIndex(0),
            level: view.policy().level_by_name(level).expect("it is there"),
            hash,
            tenant: hash,
        };
        let mut out = Decisions::default();
        match view.arrive(at(self.now), &flow, self.work, self.last, &mut out) {
            Arrival::Execute(ticket) => drop(self.executing.insert(self.last, ticket)),
            Arrival::Wait(place) => drop(self.waiting.insert(self.last, place)),
            Arrival::Reject(_) => {}
        }
        self.take(out);
        self.last
    }

    fn finish_first(&mut self) {
        let Some((_, ticket)) = self.executing.pop_first() else {
            return;
        };
        let mut out = Decisions::default();
        ticket.finish(at(self.now), &mut out);
        self.take(out);
    }
}

#[test]
fn one_level_that_asks_gets_the_whole_part_and_gives_it_back_when_it_shrinks() {
    let mut world = World::new(30, 3, 1_000_000);
    (0..100).for_each(|_| world.arrive("a"));
    for _ in 0..5 {
        world.now += 100;
        world.rebalance();
    }
    // Half of what the other two and the mandatory level have is not lent.
    assert!(
        (19..=30).contains(&world.executing.len()),
        "{}",
        world.executing.len()
    );
    world.share(6, 3);
    let before = world.executing.len();
    (0..before).for_each(|_| world.finish_first());
    assert!(world.executing.len() <= 6, "{}", world.executing.len());
}

#[test]
fn with_the_end_of_the_lease_the_next_dispatch_keeps_to_the_floor_without_any_timer() {
    let mut world = World::new(30, 3, 2_000);
    for _ in 0..50 {
        for level in ["a", "b", "c"] {
            world.arrive(level);
        }
    }
    let held = world.executing.len();
    assert!(held >= 27, "{held}");
    world.now = 1_999;
    world.finish_first();
    assert_eq!(world.executing.len(), held, "one ended, one began");
    world.now = 2_000;
    // Each level keeps to its part of the floor, so none starts more than one until all that executed has ended.
    let mut before = held;
    for _ in 0..held + 3 {
        world.finish_first();
        assert!(world.executing.len() <= before);
        before = world.executing.len();
    }
    assert!(before <= 3, "{before}");
    // What a rebalancing does with it is bounded in the same way.
    for _ in 0..20 {
        world.now += 100;
        world.rebalance();
        world.finish_first();
        assert!(world.executing.len() <= 3, "{}", world.executing.len());
    }
    assert!(!world.executing.is_empty(), "the floor is in use");
    // A new lease opens it again.
    world.lease.set_until(at(1_000_000));
    world.share(30, 3);
    for _ in 0..15 {
        world.now += 100;
        world.rebalance();
    }
    assert!(
        world.executing.len() >= 23,
        "{:?}",
        world.dispatcher.level_uses()
    );
}

#[test]
fn without_any_seat_requests_wait_until_there_is_one() {
    let mut world = World::new(0, 0, 1_000_000);
    world.arrive("a");
    world.rebalance();
    assert_eq!((world.executing.len(), world.waiting.len()), (0, 1));
    world.share(10, 1);
    assert_eq!((world.executing.len(), world.waiting.len()), (1, 0));
}

/// A request of one seat, which lingers for so long.
fn write(millis: u64) -> Work {
    Work {
        final_seats: 1,
        additional_latency: Duration::from_millis(millis),
        ..Work::ONE
    }
}

#[test]
fn nothing_starts_beyond_the_part_in_random_schedules() {
    // With a floor of one seat some levels have none once the lease has ended. None of the seven flows write, one, or all.
    let kinds = [(4, 0), (1, 1), (1, 7)];
    for (seed, (floor, writes)) in (0..300).flat_map(|seed| kinds.map(|kind| (seed, kind))) {
        let mut random = Random::seeded(seed);
        let mut world = World::new(20, floor, 5_000);
        let mut part = 20;
        for _ in 0..600 {
            world.now += random.within(0..20);
            let before = world.held();
            match random.within(0..20) {
                0 => world.rebalance(),
                1 => {
                    part = Seats::try_from(random.within(4..40)).unwrap();
                    // Also levels whose sum is not the part, as from a ledger that somebody has damaged.
                    let names = ["a", "b", "c", "catch-all", "exempt"];
                    let levels = names.map(|name| (name, random.within(0..20)));
                    let levels = levels.map(|(name, at)| (name, Seats::try_from(at).unwrap()));
                    let known = if random.percent(50) { 5 } else { 0 };
                    world.share_levels(part, &levels[..known], floor);
                }
                2 => world.lease.set_until(at(world.now + random.within(0..200))),
                3..10 => world.finish_first(),
                number => {
                    world.work = Work::ONE;
                    if (world.last + 1) % 7 < writes {
                        world.work = write(random.within(1..500));
                    }
                    world.arrive(["a", "b", "c"][usize::try_from(number % 3).unwrap()]);
                }
            }
            let holds = world.lease.holds(at(world.now));
            let allowed = if holds { part } else { floor };
            let (executing, held) = (world.executing.len(), world.held());
            // What a report says is held bounds what executes until the next change of limits.
            assert!(
                executing <= held as usize,
                "seed {seed}: {executing} > {held}"
            );
            assert!(
                held <= allowed.max(before),
                "seed {seed}: {held} > {allowed}, {before}"
            );
            let uses = world.dispatcher.level_uses();
            let in_use: u32 = uses.iter().map(|level| level.in_use).sum();
            // What lingers is in use, too.
            assert!(in_use as usize >= executing, "seed {seed}");
            assert!(in_use as usize == executing || writes > 0, "seed {seed}");
        }
    }
}

#[test]
fn the_nominal_limits_of_a_part_sum_to_it() {
    let policy = policy();
    for seats in 0..100 {
        let limits = LevelLimits::within(policy.levels(), seats);
        let sum: u32 = limits.iter().map(|limits| limits.nominal).sum();
        assert_eq!(sum, seats);
        assert!(limits.iter().all(|limits| limits.min <= limits.nominal));
    }
}

#[test]
fn a_flow_pays_here_for_what_it_receives_at_other_gateways_while_others_wait() {
    for elsewhere in [0, 4] {
        let mut world = World::new(16, 1, 10_000_000);
        // By number: the flow, and when it ends if it executes.
        let mut flows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut received = [0, 0];
        for step in 0..3_000 {
            world.now += 10;
            let ended: Vec<_> = flows
                .iter()
                .filter(|(number, (_, end))| {
                    world.executing.contains_key(number) && *end <= world.now
                })
                .map(|(number, (flow, _))| (*number, *flow))
                .collect();
            for (number, flow) in ended {
                let mut out = Decisions::default();
                let ticket = world.executing.remove(&number).unwrap();
                ticket.finish(at(world.now), &mut out);
                world.take(out);
                flows.remove(&number);
                received[usize::try_from(flow).unwrap()] += u32::from(step >= 1_000);
            }
            for flow in [0, 1] {
                while flows.values().filter(|(of, _)| *of == flow).count() < 40 {
                    let number = world.arrive_of("a", flow);
                    flows.insert(number, (flow, u64::MAX));
                }
            }
            let began = world.executing.keys().filter_map(|number| {
                flows
                    .get(number)
                    .filter(|(_, end)| *end == u64::MAX)
                    .map(|(of, _)| (*number, *of))
            });
            let began: Vec<_> = began.collect();
            for (number, flow) in began {
                flows.insert(number, (flow, world.now + 100));
            }
            if step % 10 == 0 {
                world.rebalance();
            }
            if step % 100 == 0 {
                world.note_received("a", 0, elsewhere * 1_000);
            }
        }
        let limit = world.executing.len();
        // In seats: a request takes a tenth of a second.
        let seats = received.map(|count| f64::from(count) / 20.0 / 10.0);
        let fair = f64::from(u32::try_from(limit).unwrap()) / 2.0;
        let expected = f64::from(u32::try_from(elsewhere).unwrap()) / 2.0;
        let difference = (seats[0] - (fair - expected)).abs();
        assert!(
            difference < 0.7,
            "{elsewhere} elsewhere: {seats:?} of {limit}"
        );
    }
}

#[test]
fn levels_have_what_the_coordinator_gave_them_and_by_shares_if_it_does_not_know_them_all() {
    for (others, expected) in [
        (["catch-all", "exempt"], 26),
        (["catch-all", "unknown"], 10),
    ] {
        let mut world = World::new(0, 0, 1_000_000);
        let levels = [
            ("a", 26),
            ("b", 2),
            ("c", 2),
            (others[0], 0),
            (others[1], 0),
        ];
        for _ in 0..50 {
            for level in ["a", "b", "c"] {
                world.arrive(level);
            }
        }
        world.share_levels(30, &levels, 3);
        let uses = world.dispatcher.level_uses();
        let of_a = uses.iter().find(|level| &*level.level == "a");
        let in_use = of_a.map_or(0, |level| level.in_use);
        assert!(in_use.abs_diff(expected) <= 1, "{others:?}: {uses:?}");
        assert!(world.held() <= 30, "{uses:?}");
    }
}

#[test]
fn a_level_without_a_seat_of_the_grant_has_one_here_if_there_are_enough() {
    for (seats, levels, expected) in [
        // The richest level gives up what others lack.
        (
            30,
            [("a", 0), ("b", 28), ("c", 2), ("catch-all", 0)],
            [1, 26, 2, 1],
        ),
        (
            4,
            [("a", 0), ("b", 4), ("c", 0), ("catch-all", 0)],
            [1, 2, 1, 0],
        ),
        (
            6,
            [("a", 0), ("b", 6), ("c", 0), ("catch-all", 0)],
            [1, 3, 1, 1],
        ),
        // Nobody gives up more than half, and none its last seat.
        (
            3,
            [("a", 0), ("b", 3), ("c", 0), ("catch-all", 0)],
            [1, 2, 0, 0],
        ),
        (
            2,
            [("a", 0), ("b", 1), ("c", 1), ("catch-all", 0)],
            [0, 1, 1, 0],
        ),
        (
            0,
            [("a", 0), ("b", 0), ("c", 0), ("catch-all", 0)],
            [0, 0, 0, 0],
        ),
    ] {
        let policy = policy();
        let mut granted: Vec<_> = levels.to_vec();
        granted.push(("exempt", 0));
        let shared = SharedSeats {
            seats,
            levels: granted
                .iter()
                .map(|(name, seats)| (std::sync::Arc::from(*name), *seats))
                .collect(),
            floor: 0,
            lease: Arc::new(SeatLease::new(Time::NEVER)),
        };
        let limits = shared.limits(at(1), policy.levels().iter(), &[]);
        let nominal: BTreeMap<&str, Seats> = policy
            .levels()
            .iter()
            .zip(&limits)
            .map(|(spec, (limits, _))| (&*spec.name, limits.nominal))
            .collect();
        let found = levels.map(|(name, _)| nominal[name]);
        assert_eq!(found, expected, "{levels:?}");
        assert_eq!(nominal["exempt"], 0);
        let sum: Seats = limits.iter().map(|(limits, _)| limits.nominal).sum();
        assert_eq!(sum, seats);
    }
}

#[test]
fn where_not_all_levels_can_have_a_seat_those_that_were_asked_come_first() {
    let mut world = World::new(0, 0, 1_000_000);
    let levels = [
        ("a", 0),
        ("b", 3),
        ("c", 0),
        ("catch-all", 0),
        ("exempt", 0),
    ];
    for asked in ["c", "a", "catch-all"] {
        // Somebody asks, and the next ledger divides anew.
        world.arrive(asked);
        world.now += 100;
        world.rebalance();
        world.share_levels(3, &levels, 0);
        let uses = world.dispatcher.level_uses();
        let level = uses.iter().find(|level| &*level.level == asked).unwrap();
        assert_eq!(level.limit, 1, "{uses:?}");
        while !world.executing.is_empty() {
            world.finish_first();
        }
        // Nobody remembers it.
        for _ in 0..40 {
            world.now += 100;
            world.rebalance();
        }
    }
}

#[test]
fn a_seat_that_another_level_gave_up_is_lent_until_somebody_asks_and_is_not_forgotten_soon() {
    let mut world = World::new(0, 0, 1_000_000);
    world.share_levels(
        10,
        &[
            ("a", 0),
            ("b", 10),
            ("c", 0),
            ("catch-all", 0),
            ("exempt", 0),
        ],
        0,
    );
    let limit_of = |world: &World, name: &str| {
        let uses = world.dispatcher.level_uses();
        let level = uses.iter().find(|level| &*level.level == name);
        level.map_or(0, |level| level.limit)
    };
    assert_eq!(limit_of(&world, "a"), 1);
    // All seats are lent to the level that waits.
    for _ in 0..40 {
        world.arrive("b");
    }
    let pass = |world: &mut World, tenths: u64| {
        for _ in 0..tenths {
            world.now += 100;
            world.rebalance();
            // Its requests take a tenth of a second.
            for _ in 0..10 {
                world.finish_first();
                world.arrive("b");
            }
        }
    };
    pass(&mut world, 5);
    assert_eq!((limit_of(&world, "a"), limit_of(&world, "b")), (0, 10));
    // Somebody asks once, and has it for three seconds, also while nothing of his is there.
    world.arrive("a");
    pass(&mut world, 2);
    assert_eq!((limit_of(&world, "a"), limit_of(&world, "b")), (1, 9));
    pass(&mut world, 25);
    assert_eq!((limit_of(&world, "a"), limit_of(&world, "b")), (1, 9));
    pass(&mut world, 15);
    assert_eq!((limit_of(&world, "a"), limit_of(&world, "b")), (0, 10));
}

#[test]
fn what_a_flow_asks_for_counts_the_seats_of_its_waiting_requests() {
    let world = World::new(0, 0, 1_000_000);
    let view = world.dispatcher.view();
    let flow = Flow {
        schema: SchemaIndex(0),
        level: view.policy().level_by_name("a").expect("it is there"),
        hash: 5,
        tenant: 5,
    };
    let work = Work {
        initial_seats: 3,
        ..Work::ONE
    };
    for number in 0..4 {
        let mut out = Decisions::default();
        let arrival = view.arrive(at(1), &flow, work, number, &mut out);
        assert!(matches!(arrival, Arrival::Wait(_)), "there is no seat");
    }
    let uses: Vec<_> = view
        .level(flow.level)
        .inspect(|set| set.flow_uses(10).collect());
    assert_eq!(
        uses.iter().map(|used| used.demand).collect::<Vec<_>>(),
        [12]
    );
}
