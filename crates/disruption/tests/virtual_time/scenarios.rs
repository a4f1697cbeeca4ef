//! Scenarios of evictions together with the controller, numbered from `x01`.

use std::time::Duration;

use fairgate_disruption::procedure::{
    calls::CallReply,
    machine::{Eviction, EvictionResult, EvictionStep},
    request::EvictionRequest,
    server_clock::ServerClock,
};
use serde_json::{Value, json};

use super::world::World;

/// A `ReplicaSet` of `pods` pods, of which `ready` are ready, with a budget.
fn world(spec: &Value, pods: usize, ready: usize) -> World {
    let mut spec = spec.clone();
    spec["selector"] = json!({});
    let mut world = World::new(&spec, pods, 1, 0);
    let names: Vec<String> = world.pods.keys().cloned().collect();
    for name in &names[ready..] {
        let mut pod = world.pods[name].clone();
        pod["status"]["conditions"][0]["status"] = json!("False");
        world.put_pod(name, pod);
    }
    settle(&mut world);
    world
}

/// Advances time until the controller has caught up and replaced pods have become ready.
fn settle(world: &mut World) {
    for _ in 0..300 {
        world.pass(world.elapsed + Duration::from_millis(50), |_| {});
        world.control();
    }
}

/// Changes the spec of the budget.
fn set_spec(world: &mut World, spec: &Value) {
    let mut budget = world.budget.clone();
    let generation = budget["metadata"]["generation"].as_i64().unwrap();
    budget["metadata"]["generation"] = json!(generation + 1);
    budget["spec"] = spec.clone();
    budget["spec"]["selector"] = json!({});
    world.put_budget(budget);
    settle(world);
}

/// Evicts a pod, and settles. Returns whether the eviction was granted. Only an exhausted budget may refuse it.
fn evict_pod(world: &mut World, name: &str) -> bool {
    let body = json!({"metadata": {"name": name}});
    let request = EvictionRequest::new("ns", name, &[], &body).unwrap();
    let mut eviction: Eviction<String> = Eviction::new(request, ServerClock::default());
    while let EvictionStep::Call(call) = eviction.step() {
        let outcome = world.call(&call);
        eviction.replied(CallReply {
            outcome,
            sent: world.now(),
            received: world.now(),
            date: None,
        });
    }
    let is_granted = match eviction.into_result().unwrap() {
        EvictionResult::Evicted => true,
        EvictionResult::Refused(refusal) => {
            assert_eq!(refusal.reason(), "budget-exhausted");
            false
        }
        result => panic!("{result:?}"),
    };
    settle(world);
    is_granted
}

/// Evicts the first pod.
fn evict(world: &mut World) -> bool {
    let name = world.pods.keys().next().unwrap().clone();
    evict_pod(world, &name)
}

/// Evicts all pods in turn, none of which is replaced. Returns how many evictions were granted.
fn evict_all(world: &mut World) -> usize {
    world.replaces = false;
    let names: Vec<String> = world.pods.keys().cloned().collect();
    names.iter().filter(|name| evict_pod(world, name)).count()
}

#[test]
fn x01_without_a_budget_a_pod_is_evicted() {
    let mut world = world(&json!({"minAvailable": 1}), 1, 1);
    world.budget = Value::Null;
    assert!(evict(&mut world));
}

#[test]
fn x02_a_number_of_pods_stays() {
    for (pods, granted) in [(2, false), (3, true)] {
        let mut world = world(&json!({"minAvailable": 2}), pods, pods);
        assert_eq!(evict(&mut world), granted);
    }
}

#[test]
fn x03_a_percentage_of_pods_stays() {
    for (ready, granted) in [(10, true), (9, false)] {
        let mut world = world(&json!({"minAvailable": "90%"}), 10, ready);
        assert_eq!(evict(&mut world), granted);
    }
}

#[test]
fn x04_a_percentage_of_pods_may_be_missing() {
    let mut world = world(&json!({"maxUnavailable": "10%"}), 10, 10);
    assert_eq!(evict_all(&mut world), 1);
}

#[test]
fn x05_pods_that_are_not_ready_are_missing() {
    let mut world = world(&json!({"maxUnavailable": 1}), 10, 9);
    assert!(!evict(&mut world));
}

#[test]
fn x06_a_changed_budget_applies_to_the_next_eviction() {
    let mut world = world(&json!({"minAvailable": 3}), 3, 3);
    assert!(!evict(&mut world));
    set_spec(&mut world, &json!({"minAvailable": 2}));
    assert!(evict(&mut world));
    set_spec(&mut world, &json!({"maxUnavailable": 0}));
    assert!(!evict(&mut world));
    world.budget = Value::Null;
    assert!(evict(&mut world));
}

const POLICIES: [Option<&str>; 3] = [None, Some("IfHealthyBudget"), Some("AlwaysAllow")];

#[test]
fn x07_one_of_three_ready_pods_is_evicted_under_every_policy() {
    for policy in POLICIES {
        let spec = json!({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": policy});
        assert_eq!(evict_all(&mut world(&spec, 3, 3)), 1, "{policy:?}");
    }
}

#[test]
fn x08_pods_that_are_never_ready_are_evicted_only_under_always_allow() {
    for policy in POLICIES {
        let spec = json!({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": policy});
        let expected = if policy == Some("AlwaysAllow") { 3 } else { 0 };
        assert_eq!(evict_all(&mut world(&spec, 3, 0)), expected, "{policy:?}");
    }
}
