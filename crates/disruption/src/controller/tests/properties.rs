//! Properties of a sync, over random budgets and pods.

use proptest::prelude::*;
use serde_json::json;

use super::{super::scale::ControllerScale, Cluster, ControllerRef, Owner, Pod, owner, start};
use crate::{
    budget::{BudgetStatus, DisruptionBudget},
    controller::sync::{Scales, SyncOutcome, SyncResult, sync},
};

fn bound() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        Just(json!(null)),
        (0..8).prop_map(|count| json!(count)),
        (0..=100).prop_map(|percent| json!(format!("{percent}%"))),
    ]
}

/// A budget with any spec and status.
fn budget() -> impl Strategy<Value = DisruptionBudget> {
    let entries = proptest::collection::btree_map("p[0-9]", -200_i64..=0, 0..5);
    let conditions = prop_oneof![
        Just(json!(null)),
        Just(json!([{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}])),
        Just(json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}])),
    ];
    (
        bound(),
        bound(),
        any::<bool>(),
        0..3_i64,
        0..6,
        entries,
        conditions,
    )
        .prop_map(
            |(min, max, is_max, observed, allowed, entries, conditions)| {
                let (min, max) = if is_max {
                    (json!(null), max)
                } else {
                    (min, json!(null))
                };
                let entries = entries.into_iter().map(|(pod, ago)| {
                    let time = start() + std::time::Duration::from_secs(1000);
                    (
                        pod,
                        json!((time + jiff::SignedDuration::from_secs(ago)).to_string()),
                    )
                });
                let entries: serde_json::Map<_, _> = entries.collect();
                DisruptionBudget::from_value(json!({
                    "metadata": {"name": "foo", "namespace": "ns", "generation": 2},
                    "spec": {"minAvailable": min, "maxUnavailable": max, "selector": {}},
                    "status": {
                        "observedGeneration": observed, "disruptionsAllowed": allowed,
                        "disruptedPods": entries, "conditions": conditions,
                    },
                }))
                .unwrap()
            },
        )
}

/// Pods with or without an owner, ready or not, some of them terminating.
fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let pod = (0..4_usize, any::<bool>(), proptest::bool::weighted(0.2));
    proptest::collection::vec(pod, 0..10).prop_map(|pods| {
        let pod = |(index, (owner, ready, terminating)): (usize, (usize, bool, bool))| {
            let mut metadata = json!({"name": format!("p{index}"), "namespace": "ns"});
            if owner > 0 {
                let owner = format!("rs{owner}");
                metadata["ownerReferences"] = json!([{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner,
                    "controller": true,
                }]);
            }
            if terminating {
                metadata["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            }
            let ready = if ready { "True" } else { "False" };
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let pod = json!({"metadata": metadata, "status": {"conditions": conditions}});
            Pod::from_value(&pod).unwrap()
        };
        pods.into_iter().enumerate().map(pod).collect()
    })
}

fn run(budget: &DisruptionBudget, pods: &[Pod], replicas: Option<i32>) -> SyncOutcome {
    let pods: Vec<&Pod> = pods.iter().collect();
    let now = start() + std::time::Duration::from_secs(1000);
    match sync(budget, &pods, &Scales::new(), now) {
        SyncResult::Done(outcome) => outcome,
        SyncResult::NeedScales(owners) => {
            let scale = |owner: &ControllerRef| {
                let uid = owner.uid.clone();
                Ok(replicas.map(|replicas| ControllerScale { uid, replicas }))
            };
            let scales = owners.into_iter().map(|owner| {
                let scale = scale(&owner);
                (owner, scale)
            });
            match sync(budget, &pods, &scales.collect(), now) {
                SyncResult::Done(outcome) => outcome,
                SyncResult::NeedScales(owners) => panic!("these scales are known: {owners:?}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn a_status_that_was_just_written_is_not_written_again(
        budget in budget(), pods in pods(), replicas in proptest::option::of(0..20),
    ) {
        let first = run(&budget, &pods, replicas);
        if let Some(object) = first.write {
            let written = DisruptionBudget::from_value(object).unwrap();
            let second = run(&written, &pods, replicas);
            prop_assert_eq!(second.write, None);
            prop_assert_eq!(second.error, first.error);
            prop_assert_eq!(second.recheck_at, first.recheck_at);
        }
    }

    #[test]
    fn a_sync_allows_no_more_than_the_budget(
        budget in budget(), pods in pods(), replicas in proptest::option::of(0..20),
    ) {
        let outcome = run(&budget, &pods, replicas);
        let failed = outcome.error.is_some();
        let written = outcome.write.map(|object| DisruptionBudget::from_value(object).unwrap());
        let BudgetStatus {
            disruptions_allowed, current_healthy, desired_healthy, expected_pods, conditions, ..
        } = written.unwrap_or(budget).status;
        prop_assert!(disruptions_allowed >= 0);
        if failed {
            prop_assert_eq!(disruptions_allowed, 0);
        } else {
            let left = current_healthy - disruptions_allowed;
            prop_assert!(disruptions_allowed == 0 || left >= desired_healthy);
            prop_assert!(disruptions_allowed == 0 || expected_pods > 0);
            prop_assert!(current_healthy <= i32::try_from(pods.len()).unwrap());
            let says = if disruptions_allowed > 0 { "True" } else { "False" };
            prop_assert_eq!(&conditions[0]["status"], says);
        }
    }

    #[test]
    fn the_controller_stops_writing_when_nothing_changes(
        changes in proptest::collection::vec((0..6_usize, 0..4_usize, any::<bool>(), 0..100_u64), 1..30),
        min in bound(),
    ) {
        let mut cluster = Cluster::with_budget(json!({"minAvailable": min}));
        for n in 1..3 {
            let set = Owner { controller: None, ..owner("apps/v1", "ReplicaSet", 3) };
            cluster.owners.insert(format!("rs{n}"), set);
        }
        for (pod, owner, ready, pause) in changes {
            let name = format!("p{pod}");
            match owner {
                3 => cluster.delete_pod(&name),
                0 => cluster.put_pod(&name, None, ready),
                owner => cluster.put_pod(&name, Some(&format!("rs{owner}")), ready),
            }
            cluster.pass(std::time::Duration::from_millis(pause));
        }
        cluster.pass(std::time::Duration::from_secs(10));
        prop_assert_eq!(cluster.settle(), None);
        let before = cluster.writes.len();
        cluster.controller.queue_all();
        cluster.settle();
        prop_assert_eq!(cluster.writes.len(), before);
    }
}
