//! A node is drained through several gateways, with the controller, in virtual time: at no time may fewer pods be
//! healthy than the budget demands, and in the end all pods must have been replaced.
//!
//! Messages are late, lost, and delivered after their senders have given up; the gateways' clocks are
//! wrong; the controller sees changes late.

use std::time::Duration;

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{Drainer, World};

/// The time step of the simulation.
const TICK: Duration = Duration::from_millis(50);

/// Drains `pods` pods, and checks that at least `least` are healthy at all times. `faults` is the percentage of calls
/// that fail.
fn drain(spec: &Value, least: usize, pods: usize, seed: u64, faults: u64) {
    let mut world = World::new(spec, pods, seed, faults);
    world.keeps_names = world.random.percent(50);
    let mut drainers: Vec<Drainer> = world
        .pods
        .iter()
        .map(|(name, pod)| Drainer {
            pod: name.clone(),
            uid: pod["metadata"]["uid"].clone(),
            eviction: None,
            asks_at: Duration::ZERO,
            skew: SignedDuration::ZERO,
        })
        .collect();
    for drainer in &mut drainers {
        let seconds = i64::try_from(world.random.within(0..1200)).unwrap();
        drainer.skew = SignedDuration::from_secs(seconds - 600);
    }
    while !drainers.iter().all(|one| one.is_done(&world)) {
        let now = world.elapsed + TICK;
        assert!(now < Duration::from_secs(7200), "the drain does not end");
        let check = |world: &World| {
            let elapsed = world.elapsed;
            assert!(world.healthy() >= least, "too few after {elapsed:?}");
        };
        world.pass(now, check);
        for drainer in &mut drainers {
            if world.random.percent(50) {
                drainer.act(&mut world);
                check(&world);
            }
        }
        if world.random.percent(50) {
            world.control();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_drain_keeps_a_number_of_pods_healthy(
        seed in any::<u64>(), pods in 1..8_usize, spare in 1..4_usize, faults in 0..40_u64,
    ) {
        let least = pods.saturating_sub(spare);
        drain(&json!({"minAvailable": least, "selector": {}}), least, pods, seed, faults);
    }

    #[test]
    fn a_drain_keeps_all_but_a_number_of_pods_healthy(
        seed in any::<u64>(), pods in 1..8_usize, spare in 1..4_usize, faults in 0..40_u64,
    ) {
        let least = pods.saturating_sub(spare);
        drain(&json!({"maxUnavailable": spare, "selector": {}}), least, pods, seed, faults);
    }
}
