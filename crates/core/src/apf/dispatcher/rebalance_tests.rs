//! What a rebalancing looks at, counted in levels.

use serde_json::json;

use super::*;
use crate::apf::{ObjectSet, PolicySettings, objects::Bootstrap};

const MILLI: u64 = 1_000_000;

/// `count` levels of ten seats, of which they lend five, beside the mandatory ones.
fn tenants(count: u32, semantics: Semantics) -> Arc<Policy> {
    let objects = (0..count).map(|number| {
        let level = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": format!("tenant-{number:05}")},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 10, "lendablePercent": 50,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 1, "handSize": 1, "queueLengthLimit": 50}},
            }},
        });
        ("test", level)
    });
    let objects = ObjectSet::read(objects).with_bootstrap(Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: 10 * count,
        semantics,
        hash_key: [0; 16],
    };
    let compiled = Policy::compile(&objects, &settings).expect("usable objects");
    Arc::new(compiled.policy)
}

/// How many times the `rebalance` of `dispatcher` at `millis` looks at a level.
fn visits(dispatcher: &Dispatcher<u32>, millis: u64) -> usize {
    let before = lock(&dispatcher.control).visits;
    let mut out = Decisions::default();
    dispatcher.rebalance(Time::from_nanos(millis * MILLI), &mut out);
    assert!(out.dispatched.is_empty(), "nothing waits");
    lock(&dispatcher.control).visits - before
}

#[test]
fn a_rebalancing_looks_at_every_level() {
    let dispatcher = Dispatcher::new(tenants(1_000, Semantics::Improved), Time::ZERO);
    for round in 1..5 {
        assert_eq!(visits(&dispatcher, 100 * round), 1_002);
    }
}
