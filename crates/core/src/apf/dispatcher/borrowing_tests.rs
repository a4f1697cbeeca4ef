//! Borrowing between two levels under load, in virtual time.

use std::{cmp::Reverse, collections::BinaryHeap};

use serde_json::json;

use super::*;
use crate::apf::{ObjectSet, PolicySettings};

const SECOND: u64 = 1_000_000_000;

/// Two levels of 100 shares, each with a schema of its name; lendable and borrowing percents.
fn policy(levels: [(u32, u32); 2], semantics: Semantics) -> Arc<Policy> {
    let objects = (0..).zip(levels).flat_map(|(i, (lendable, borrowing))| {
        let level = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": format!("pl{i}")},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 100, "lendablePercent": lendable,
                "borrowingLimitPercent": borrowing,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 10, "handSize": 2, "queueLengthLimit": 10}},
            }},
        });
        let schema = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": format!("fs{i}")},
            "spec": {"matchingPrecedence": 100 + i, "priorityLevelConfiguration": {"name": format!("pl{i}")}},
        });
        [("test", level), ("test", schema)]
    });
    let objects = ObjectSet::read(objects.collect::<Vec<_>>())
        .with_bootstrap(crate::apf::objects::Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: 24,
        semantics,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let compiled = Policy::compile(&objects, &settings).expect("usable objects");
    Arc::new(compiled.policy)
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call(u32),
    End(u32, usize),
    Rebalance,
}

/// 24 clients of the first level and 6 of the second repeat requests of 250 ms: the mean number of
/// requests that execute in each level from the tenth second to the twenty-fifth.
fn averages(levels: [(u32, u32); 2], semantics: Semantics, period: u64) -> [f64; 2] {
    let dispatcher = Dispatcher::new(policy(levels, semantics), Time::ZERO);
    let view = dispatcher.view();
    let mut heap = BinaryHeap::new();
    let mut tickets = Vec::new();
    let mut averages = [0.0; 2];
    for i in 0..30 {
        heap.push(Reverse((u64::from(i), Event::Call(i))));
    }
    heap.push(Reverse((period, Event::Rebalance)));
    while let Some(Reverse((at, event))) = heap.pop() {
        if at > 25 * SECOND {
            break;
        }
        let now = Time::from_nanos(at);
        let mut out = Decisions::default();
        match event {
            Event::Call(i) => {
                let name = if i < 24 { "fs0" } else { "fs1" };
                let schema = view.policy().schema_by_name(name).expect("it is there");
                let level = view.policy().schema(schema).level;
                let flow = Flow {
                    schema,
                    level,
                    hash: 1,
                    tenant: 1,
                };
                match view.arrive(now, &flow, Work::ONE, i, &mut out) {
                    Arrival::Execute(ticket) => out.dispatched.push((i, ticket)),
                    Arrival::Wait(_) => {}
                    Arrival::Reject(_) => heap.push(Reverse((at + SECOND, Event::Call(i)))),
                }
            }
            Event::End(i, slot) => {
                let ticket: Option<_> = std::mem::take(&mut tickets[slot]);
                let ticket: crate::apf::level::Ticket<u32> = ticket.expect("a call ends once");
                ticket.finish(now, &mut out);
                heap.push(Reverse((at + 1, Event::Call(i))));
            }
            Event::Rebalance => {
                dispatcher.rebalance(now, &mut out);
                heap.push(Reverse((at + period, Event::Rebalance)));
            }
        }
        for (i, ticket) in out.dispatched {
            heap.push(Reverse((at + SECOND / 4, Event::End(i, tickets.len()))));
            tickets.push(Some(ticket));
            let counted = (at + SECOND / 4).clamp(10 * SECOND, 25 * SECOND)
                - at.clamp(10 * SECOND, 25 * SECOND);
            #[expect(clippy::cast_precision_loss, reason = "some seconds")]
            let part = counted as f64 / (15 * SECOND) as f64;
            averages[usize::from(i >= 24)] += part;
        }
    }
    averages
}

#[test]
fn a_level_borrows_what_another_lends_and_no_more_than_it_may() {
    let cases = [
        ("bounded by lending", [(50, 67), (33, 50)]),
        ("bounded by borrowing", [(50, 33), (67, 50)]),
    ];
    for (what, levels) in cases {
        for (semantics, period) in [
            (Semantics::Compatible, 10 * SECOND),
            (Semantics::Improved, SECOND),
        ] {
            let [first, second] = averages(levels, semantics, period);
            assert!(
                (15.5..=16.1).contains(&first),
                "{what}, {semantics:?}: {first}"
            );
            assert!(
                (5.5..=6.1).contains(&second),
                "{what}, {semantics:?}: {second}"
            );
        }
    }
}

/// 600 seats: a level of type Reject has one of 200 shares, and no other level has demand.
fn small_reject_level() -> Arc<Policy> {
    let level = |name: &str, shares: u32| {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": name},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": shares, "lendablePercent": 100,
                "limitResponse": {"type": "Reject"},
            }},
        })
    };
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "small"},
        "spec": {"matchingPrecedence": 100, "priorityLevelConfiguration": {"name": "small"}},
    });
    let objects = [level("small", 1), level("others", 199), schema].map(|object| ("test", object));
    let objects =
        ObjectSet::read(objects.to_vec()).with_bootstrap(crate::apf::objects::Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: 600,
        semantics: Semantics::Improved,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let compiled = Policy::compile(&objects, &settings).expect("usable objects");
    Arc::new(compiled.policy)
}

#[test]
fn a_level_of_type_reject_borrows_seats_for_the_requests_it_rejects() {
    let dispatcher = Dispatcher::new(small_reject_level(), Time::ZERO);
    let view = dispatcher.view();
    let schema = view.policy().schema_by_name("small").expect("it is there");
    let flow = Flow {
        schema,
        level: view.policy().schema(schema).level,
        hash: 1,
        tenant: 1,
    };
    // Six clients, each sends 90 requests of 100 ms a second, served or not: 54 seats.
    let mut running = std::collections::VecDeque::new();
    let (mut refused, mut refused_late) = (0, 0);
    for number in 0..5_400_u64 {
        let now = number * SECOND / 540;
        let mut out = Decisions::default();
        while let Some((end, _)) = running.front().filter(|(end, _)| *end <= now) {
            let at = Time::from_nanos(*end);
            let (_, ticket): (u64, crate::apf::level::Ticket<u32>) =
                running.pop_front().expect("it is the first");
            ticket.finish(at, &mut out);
        }
        if number % 27 == 0 {
            // Every 50 ms, as is done after rejections.
            dispatcher.rebalance(Time::from_nanos(now), &mut out);
        }
        let at = Time::from_nanos(now);
        match view.arrive(at, &flow, Work::ONE, 0, &mut out) {
            Arrival::Execute(ticket) => running.push_back((now + SECOND / 10, ticket)),
            Arrival::Wait(_) => panic!("the level has no queues"),
            Arrival::Reject(_) => {
                refused += 1;
                refused_late += u32::from(now >= 2 * SECOND / 5);
            }
        }
    }
    for (_, ticket) in running {
        ticket.finish(Time::from_nanos(20 * SECOND), &mut Decisions::default());
    }
    assert!(
        refused <= 54,
        "at most those of a tenth of a second: {refused}"
    );
    assert_eq!(refused_late, 0, "after four tenths of a second");
}

#[test]
fn a_view_knows_which_levels_are_exempt() {
    let dispatcher: Dispatcher<()> = Dispatcher::new(small_reject_level(), Time::ZERO);
    let view = dispatcher.view();
    let is_exempt = |name| view.is_exempt(view.policy().level_by_name(name).expect("it is there"));
    assert!(is_exempt("exempt"));
    assert!(!is_exempt("small"));
}

#[test]
fn a_rebalancing_reports_the_limits_that_change_and_the_fair_fraction() {
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        let dispatcher =
            Dispatcher::<u32>::new(policy([(50, 67), (33, 50)], semantics), Time::ZERO);
        let view = dispatcher.view();
        let limits = || -> std::collections::BTreeMap<String, Seats> {
            let reports = dispatcher.report(Time::ZERO).into_iter();
            reports
                .map(|level| (level.spec.name.to_string(), level.current))
                .collect()
        };
        let before = limits();
        let schema = view.policy().schema_by_name("fs0").expect("it is there");
        let level = view.policy().schema(schema).level;
        let mut out = Decisions::default();
        let mut tickets = Vec::new();
        for waiter in 0..24 {
            let flow = Flow {
                schema,
                level,
                hash: 1,
                tenant: 1,
            };
            let now = Time::from_nanos(u64::from(waiter));
            let arrival = view.arrive(now, &flow, Work::ONE, waiter, &mut out);
            tickets.push(arrival);
        }
        let changes = dispatcher.rebalance(Time::from_nanos(10 * SECOND), &mut out);
        let after = limits();
        let changed: std::collections::BTreeMap<String, (Seats, Seats)> = before
            .iter()
            .filter(|(name, limit)| after[*name] != **limit)
            .map(|(name, limit)| (name.clone(), (*limit, after[name])))
            .collect();
        let reported = changes
            .into_iter()
            .map(|c| (c.level.to_string(), (c.from, c.to)));
        assert!(changed.contains_key("pl0"), "{semantics:?}: it borrows");
        assert_eq!(
            reported.collect::<std::collections::BTreeMap<_, _>>(),
            changed
        );
        let fraction = dispatcher.fair_fraction();
        assert!(
            fraction > 0.0 && fraction.is_finite(),
            "{semantics:?}: {fraction}"
        );
    }
}

#[test]
fn a_level_that_is_no_longer_configured_is_removed_once_it_is_idle() {
    let policy_of_two = policy([(50, 67), (33, 50)], Semantics::Improved);
    let dispatcher = Dispatcher::<u32>::new(policy_of_two, Time::ZERO);
    let view = dispatcher.view();
    let schema = view.policy().schema_by_name("fs1").expect("it is there");
    let flow = Flow {
        schema,
        level: view.policy().schema(schema).level,
        hash: 1,
        tenant: 1,
    };
    let mut out = Decisions::default();
    let Arrival::Execute(ticket) = view.arrive(Time::ZERO, &flow, Work::ONE, 7, &mut out) else {
        panic!("a seat is free");
    };
    let defaults = Policy::compile(&ObjectSet::default(), view.policy().settings());
    let defaults = Arc::new(defaults.expect("the built-in objects compile").policy);
    dispatcher.apply(Time::ZERO, defaults, &mut out);
    let has = |name: &str| {
        dispatcher
            .levels()
            .iter()
            .any(|(level, _)| &**level == name)
    };
    assert!(!has("pl0"), "it was idle");
    assert!(has("pl1"), "a request executes in it");
    ticket.finish(Time::ZERO, &mut out);
    dispatcher.rebalance(Time::from_nanos(SECOND), &mut out);
    assert!(!has("pl1"));
}
