//! The pure core in virtual time: a greedy flow and a polite one share one priority level.
//!
//! ```sh
//! cargo run -p fairgate-core --example two_flows
//! ```
//!
//! The core has no clock and no tasks. The caller passes the time in, gets decisions back, and
//! delivers them. Here the caller is an event queue, so ten virtual minutes take milliseconds.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fairgate_core::{
    apf::{
        ObjectSet, Policy, PolicySettings, Semantics, Work,
        dispatcher::Dispatcher,
        level::{Arrival, Decisions, Ticket},
        objects::Bootstrap,
    },
    digest::{RequestDigest, RequestInfo, User},
    time::Time,
};
use serde_json::json;

const SERVICE_TIME: Duration = Duration::from_millis(100);
const END: Time = Time::from_nanos(600_000_000_000);
/// Name, concurrent clients, and how long each client pauses between two requests.
const FLOWS: [(&str, usize, Duration); 2] = [
    ("greedy", 50, Duration::ZERO),
    ("polite", 1, Duration::from_millis(900)),
];

/// Identifies a waiting request to the dispatcher: its flow, and when it arrived.
#[derive(Clone, Copy)]
struct Waiter {
    flow: usize,
    arrived: Time,
}

enum Event {
    Arrive(usize),
    Finish(Waiter, Ticket<Waiter>),
}

/// One level of ten seats, and one FlowSchema that makes each user a flow of its own.
fn policy() -> Arc<Policy> {
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "shared"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 100,
            "limitResponse": {"type": "Queue", "queuing": {
                "queues": 64, "handSize": 6, "queueLengthLimit": 50}}}},
    });
    let anyone = json!([{"kind": "Group", "group": {"name": "system:authenticated"}}]);
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "everybody"},
        "spec": {
            "matchingPrecedence": 1000,
            "priorityLevelConfiguration": {"name": "shared"},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": anyone, "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "clusterScope": true, "namespaces": ["*"]}]}],
        },
    });
    let objects = ObjectSet::read([("example", level), ("example", schema)])
        .with_bootstrap(Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: 10,
        semantics: Semantics::Improved,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    Arc::new(
        Policy::compile(&objects, &settings)
            .expect("the objects are valid")
            .policy,
    )
}

/// Runs the ten minutes. Returns the waiting times of each flow's requests, in order of dispatch.
fn run() -> [Vec<Duration>; 2] {
    let dispatcher = Dispatcher::new(policy(), Time::ZERO);
    let view = dispatcher.view();
    let flows = FLOWS.map(|(name, _, _)| {
        let info = RequestInfo::from_target("GET", "/api/v1/pods").expect("a valid target");
        let user = Arc::new(User::new(name, ["system:authenticated"]));
        view.policy().classify(&RequestDigest { info, user })
    });

    // The number makes keys unique and keeps the order of events at the same time.
    let mut number = 0;
    let mut events = BTreeMap::new();
    let mut schedule = |events: &mut BTreeMap<_, _>, at: Time, event| {
        number += 1;
        events.insert((at, number), event);
    };
    for (flow, (_, clients, _)) in FLOWS.iter().enumerate() {
        for _ in 0..*clients {
            schedule(&mut events, Time::ZERO, Event::Arrive(flow));
        }
    }

    let mut waits = [Vec::new(), Vec::new()];
    while let Some(((now, _), event)) = events.pop_first() {
        if now > END {
            break;
        }
        let mut decisions = Decisions::default();
        match event {
            Event::Arrive(flow) => {
                let waiter = Waiter { flow, arrived: now };
                match view.arrive(now, &flows[flow], Work::ONE, waiter, &mut decisions) {
                    Arrival::Execute(ticket) => decisions.dispatched.push((waiter, ticket)),
                    Arrival::Wait(_) => {}
                    Arrival::Reject(reason) => panic!("the queues are long enough: {reason:?}"),
                }
            }
            Event::Finish(waiter, ticket) => {
                let _ = ticket.finish(now, &mut decisions);
                let pause = FLOWS[waiter.flow].2;
                schedule(&mut events, now.plus(pause), Event::Arrive(waiter.flow));
            }
        }
        for (waiter, ticket) in decisions.dispatched {
            waits[waiter.flow].push(now.since(waiter.arrived));
            schedule(
                &mut events,
                now.plus(SERVICE_TIME),
                Event::Finish(waiter, ticket),
            );
        }
    }
    waits
}

pub(crate) fn main() {
    println!("{:8} {:>9} {:>13}", "FLOW", "REQUESTS", "LONGEST WAIT");
    for ((name, _, _), waits) in FLOWS.iter().zip(run()) {
        let longest = waits.iter().max().copied().unwrap_or_default();
        println!("{name:8} {:>9} {:>10} ms", waits.len(), longest.as_millis());
        assert!(!waits.is_empty(), "{name} was starved");
    }
}
