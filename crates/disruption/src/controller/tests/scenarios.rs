//! The scenarios of the controller. Each has a number, from `c01`; those that are missing here are tested in `finders`
//! and `stale_target`.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Cluster, DiscoveredResource, ObjectKey, Owner, StatusWriteOutcome, SyncEnding, owner, start,
};

const SECOND: Duration = Duration::from_secs(1);

fn replica_set(replicas: i32) -> Owner {
    owner("apps/v1", "ReplicaSet", replicas)
}

fn replication_controller(replicas: i32) -> Owner {
    owner("v1", "ReplicationController", replicas)
}

impl Cluster {
    fn with_owner(mut self, name: &str, owner: Owner) -> Self {
        self.owners.insert(name.to_owned(), owner);
        self
    }

    /// Creates or replaces a pod, and settles. Returns the figures of the budget.
    fn pod(&mut self, name: &str, owner: Option<&str>, ready: bool) -> (i64, i64, i64, i64) {
        self.put_pod(name, owner, ready);
        self.settle();
        self.figures()
    }
}

#[test]
fn c01_without_pods_nothing_is_allowed() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 3}));
    assert_eq!(cluster.figures(), (0, 0, 3, 0));
    assert_eq!(cluster.events, ["NoPods"]);
    assert_eq!(cluster.pod("p", None, true), (0, 1, 3, 1));
}

#[test]
fn c02_an_integer_minimum_counts_pods() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 3}));
    assert_eq!(cluster.figures(), (0, 0, 3, 0));
    for n in 1..=3 {
        assert_eq!(cluster.pod(&format!("p{n}"), None, true), (0, n, 3, n));
    }
    assert_eq!(cluster.pod("p4", None, true), (1, 4, 3, 4));
    assert_eq!(cluster.condition()["reason"], "SufficientPods");
    assert_eq!(cluster.pod("p4", None, false), (0, 3, 3, 4));
    assert_eq!(cluster.condition()["reason"], "InsufficientPods");
    assert_eq!(cluster.status()["observedGeneration"], 1);
}

#[test]
fn c03_pods_without_owner_are_not_expected() {
    let mut cluster = Cluster::with_budget(json!({"maxUnavailable": 1}));
    assert_eq!(cluster.figures().0, 0);
    assert_eq!(cluster.pod("p", None, true).0, 0);
    assert_eq!(cluster.events, ["NoPods", "UnmanagedPods"]);
}

#[test]
fn c04_an_integer_maximum_counts_what_controllers_want() {
    let cluster = Cluster::with_budget(json!({"maxUnavailable": 2}));
    let mut cluster = cluster.with_owner("rs", replica_set(7));
    assert_eq!(cluster.pod("p", Some("rs"), true), (0, 1, 5, 7));
    cluster.owners.get_mut("rs").unwrap().replicas = 5;
    // The change of a scale alone does not cause a sync.
    cluster.pass(10 * SECOND);
    assert_eq!(cluster.figures(), (0, 1, 5, 7));
    assert_eq!(cluster.pod("p", Some("rs"), true), (0, 1, 3, 5));
}

#[test]
fn c05_a_percentage_of_a_maximum_is_rounded_up() {
    for (replicas, figures) in [(7, (0, 1, 4, 7)), (3, (0, 1, 2, 3))] {
        let cluster = Cluster::with_budget(json!({"maxUnavailable": "30%"}));
        let mut cluster = cluster.with_owner("rs", replica_set(replicas));
        assert_eq!(cluster.pod("p", Some("rs"), true), figures);
    }
}

#[test]
fn c06_pods_without_owner_do_not_fail_the_sync() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": "28%"}));
    assert_eq!(cluster.pod("p", None, true).0, 0);
    assert!(cluster.events.contains(&"UnmanagedPods"));
    assert_eq!(cluster.condition()["reason"], "InsufficientPods");
}

#[test]
fn c07_an_owner_of_unknown_kind_fails_the_sync() {
    let cluster = Cluster::with_budget(json!({"minAvailable": "28%"}));
    let unknown = owner("apps.test.io/v1", "TestWorkload", 10);
    let mut cluster = cluster.with_owner("tw", unknown);
    assert_eq!(cluster.pod("p", Some("tw"), true).0, 0);
    assert!(cluster.events.contains(&"CalculateExpectedPodCountFailed"));
    let condition = cluster.condition();
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("SyncFailed"))
    );
    let text = "testworkloads.apps.test.io does not implement the scale subresource";
    assert_eq!(condition["message"], text);
}

#[test]
fn c08_a_percentage_of_a_minimum_counts_what_controllers_want() {
    let cluster = Cluster::with_budget(json!({"minAvailable": "20%"}));
    let mut cluster = cluster.with_owner("rs", replica_set(10));
    assert_eq!(cluster.pod("p", Some("rs"), true), (0, 1, 2, 10));
}

#[test]
fn c09_a_custom_owner_with_a_scale_subresource_counts() {
    let cluster = Cluster::with_budget(json!({"maxUnavailable": 5}));
    let widget = Owner {
        is_custom: true,
        ..owner("example.com/v1", "Widget", 10)
    };
    let mut cluster = cluster.with_owner("w", widget);
    for n in 0..4 {
        cluster.pod(&format!("p{n}"), Some("w"), true);
    }
    assert_eq!(cluster.figures(), (0, 4, 5, 10));
}

#[test]
fn c11_owned_pods_are_expected() {
    let cluster = Cluster::with_budget(json!({"minAvailable": "1%"}));
    let mut cluster = cluster.with_owner("rc", replication_controller(1));
    for name in ["a", "b"] {
        assert_eq!(cluster.pod(name, None, true).0, 0);
    }
    cluster.pod("a", Some("rc"), true);
    assert_eq!(cluster.pod("b", Some("rc"), true), (1, 2, 1, 1));
}

#[test]
fn c12_a_replication_controller_counts() {
    let cluster = Cluster::with_budget(json!({"minAvailable": "34%"}));
    let mut cluster = cluster.with_owner("rc", replication_controller(3));
    assert_eq!(cluster.figures(), (0, 0, 0, 0));
    assert_eq!(cluster.pod("p1", Some("rc"), true), (0, 1, 2, 3));
    assert_eq!(cluster.pod("p2", Some("rc"), true), (0, 2, 2, 3));
    assert_eq!(cluster.pod("p3", Some("rc"), true), (1, 3, 2, 3));
    assert_eq!(cluster.pod("p4", None, true), (2, 4, 2, 3));
}

#[test]
fn c13_a_stateful_set_counts() {
    let cluster = Cluster::with_budget(json!({"minAvailable": "34%"}));
    let mut cluster = cluster.with_owner("ss", owner("apps/v1", "StatefulSet", 3));
    assert_eq!(cluster.figures(), (0, 0, 0, 0));
    assert_eq!(cluster.pod("p1", Some("ss"), true), (0, 1, 2, 3));
    assert_eq!(cluster.pod("p2", Some("ss"), true), (0, 2, 2, 3));
    assert_eq!(cluster.pod("p3", Some("ss"), true), (1, 3, 2, 3));
}

#[test]
fn c14_two_controllers_are_added_up() {
    let cluster = Cluster::with_budget(json!({"minAvailable": "28%"}));
    let mut cluster = cluster
        .with_owner("rc", replication_controller(11))
        .with_owner("rs", replica_set(11));
    for n in 1..=6 {
        assert_eq!(
            cluster.pod(&format!("rc-{n}"), Some("rc"), false),
            (0, 0, 4, 11)
        );
    }
    for k in 1..=4 {
        assert_eq!(
            cluster.pod(&format!("rc-{}", k + 6), Some("rc"), true),
            (0, k, 4, 11)
        );
    }
    assert_eq!(cluster.pod("rc-11", Some("rc"), true), (1, 5, 4, 11));
    for n in 1..=7 {
        assert_eq!(
            cluster.pod(&format!("rs-{n}"), Some("rs"), false),
            (0, 5, 7, 22)
        );
    }
    assert_eq!(cluster.pod("rs-8", Some("rs"), true), (0, 6, 7, 22));
    assert_eq!(cluster.pod("rs-9", Some("rs"), true), (0, 7, 7, 22));
    assert_eq!(cluster.pod("rs-10", Some("rs"), true), (1, 8, 7, 22));
    assert_eq!(cluster.pod("rs-11", Some("rs"), true), (2, 9, 7, 22));
    assert_eq!(cluster.pod("rc-11", Some("rc"), false), (1, 8, 7, 22));
    assert_eq!(cluster.pod("rs-11", Some("rs"), false), (0, 7, 7, 22));
    assert_eq!(cluster.pod("rc-11", Some("rc"), true), (1, 8, 7, 22));
}

#[test]
fn c15_an_unknown_budget_is_no_error() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 1}));
    let writes = cluster.writes.len();
    cluster.controller.queue_all();
    cluster
        .controller
        .delete_budget(&ObjectKey::new("ns", "foo"));
    cluster.budgets.clear();
    assert_eq!(cluster.settle(), None);
    assert_eq!(cluster.writes.len(), writes);
}

#[test]
fn c16_entries_of_granted_evictions_are_pruned() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 1}));
    cluster.elapsed = Duration::from_secs(600);
    let ago = |seconds: u64| (cluster.now() - Duration::from_secs(seconds)).to_string();
    let mut budget = cluster.budgets["foo"].clone();
    budget["status"]["disruptedPods"] =
        json!({"p1": ago(0), "p2": ago(180), "p3": ago(60), "notthere": ago(0)});
    let (now, kept) = (ago(0), ago(60));
    cluster.store_budget("foo", budget);
    for name in ["p2", "p3"] {
        cluster.put_pod(name, None, true);
    }
    cluster.store_pod(json!({
        "metadata": {"name": "p1", "namespace": "ns", "deletionTimestamp": now},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }));
    cluster.settle();
    assert_eq!(cluster.figures(), (0, 1, 1, 3));
    assert_eq!(cluster.status()["disruptedPods"], json!({"p3": kept}));
    assert!(cluster.events.contains(&"NotDeleted"));
    // After the time-out the pod counts again, and the entry is removed.
    cluster.pass(61 * SECOND);
    assert_eq!(cluster.figures(), (1, 2, 1, 3));
    assert_eq!(cluster.status().get("disruptedPods"), None);
}

#[test]
fn c19_a_status_is_computed_again_if_evictions_were_written_first() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 1}));
    for name in ["a", "b", "c"] {
        cluster.pod(name, None, true);
    }
    assert_eq!(cluster.figures(), (2, 3, 1, 3));
    cluster.before_write = Some(Box::new(|cluster| {
        let mut budget = cluster.budgets["foo"].clone();
        let now = cluster.now().to_string();
        budget["status"]["disruptionsAllowed"] = json!(0);
        budget["status"]["disruptedPods"] = json!({"a": now, "b": now});
        cluster.store_budget("foo", budget);
        cluster.delete_pod("a");
        cluster.delete_pod("b");
        None
    }));
    cluster.delete_pod("c");
    let mut seen = Vec::new();
    for _ in 0..50 {
        cluster.pass(Duration::from_millis(5));
        seen.push(cluster.figures().0);
    }
    assert!(seen.iter().all(|allowed| *allowed == 0), "{seen:?}");
    assert_eq!(cluster.figures(), (0, 0, 1, 0));
}

#[test]
fn c20_an_invalid_selector_fails_the_sync() {
    for expression in [
        json!({"key": "a/b/c", "operator": "Exists"}),
        json!({"key": "a", "operator": "illegal"}),
    ] {
        let selector = json!({"matchExpressions": [expression]});
        let mut cluster = Cluster::with_budget(json!({"minAvailable": 1, "selector": selector}));
        cluster.put_pod("p", None, true);
        cluster.pass(SECOND);
        assert_eq!(cluster.figures(), (0, 0, 0, 0));
        assert_eq!(cluster.condition()["reason"], "SyncFailed");
        assert_eq!(cluster.status().get("observedGeneration"), None);
        assert!(cluster.events.contains(&"NoPods"));
    }
}

#[test]
fn c22_conditions_of_other_types_are_kept() {
    let mut cluster = Cluster::default();
    let other = json!({"type": "Other", "status": "True", "reason": "Mine", "message": "x"});
    cluster.store_budget(
        "foo",
        json!({
            "metadata": {"name": "foo", "namespace": "ns", "generation": 1},
            "spec": {"minAvailable": 3, "selector": {}},
            "status": {"conditions": [other.clone()]},
        }),
    );
    cluster.settle();
    assert_eq!(cluster.figures(), (0, 0, 3, 0));
    assert_eq!(cluster.status()["conditions"][0], other);
    assert_eq!(cluster.condition()["reason"], "InsufficientPods");
}

#[test]
fn c23_at_its_time_out_an_entry_is_kept_and_its_pod_counts() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 0}));
    cluster.put_pod("p", None, true);
    let mut budget = cluster.budgets["foo"].clone();
    let entry = json!({"p": start().to_string()});
    budget["status"]["disruptedPods"] = entry.clone();
    cluster.elapsed = Duration::from_secs(119);
    cluster.store_budget("foo", budget);
    cluster.settle();
    assert_eq!(cluster.figures(), (0, 0, 0, 1));

    cluster.elapsed = Duration::from_secs(120);
    cluster.controller.queue_all();
    cluster.settle();
    assert_eq!(cluster.figures(), (1, 1, 0, 1));
    assert_eq!(cluster.status()["disruptedPods"], entry);

    cluster.pass(SECOND);
    assert_eq!(cluster.status().get("disruptedPods"), None);
}

#[test]
fn c24_replica_sets_of_one_deployment_count_once() {
    let cluster = Cluster::with_budget(json!({"maxUnavailable": 1}));
    let of = |replicas| Owner {
        controller: Some("deployment"),
        ..replica_set(replicas)
    };
    let mut cluster = cluster
        .with_owner("deployment", owner("apps/v1", "Deployment", 5))
        .with_owner("old", of(3))
        .with_owner("new", of(2));
    cluster.pod("a", Some("old"), true);
    assert_eq!(cluster.pod("b", Some("new"), true), (0, 2, 4, 5));
}

#[test]
fn an_orphan_fails_the_sync_of_a_percentage_but_not_of_an_integer() {
    let gone = DiscoveredResource {
        name: "replicasets/scale".to_owned(),
        group: "autoscaling".to_owned(),
        kind: "Scale".to_owned(),
    };
    for (spec, allowed) in [
        (json!({"minAvailable": "10%"}), 0),
        (json!({"minAvailable": 1}), 1),
    ] {
        let mut cluster = Cluster::with_budget(spec).with_owner("rs", replica_set(2));
        cluster.discovered = vec![gone.clone()];
        cluster.pod("a", Some("rs"), true);
        cluster.pod("b", Some("missing"), true);
        assert_eq!(cluster.figures().0, allowed);
        if allowed == 0 {
            let text = "found no controllers for pod \"b\"";
            assert_eq!(cluster.condition()["message"], text);
            // The sync is retried, and recovers.
            cluster.owners.insert("missing".to_owned(), replica_set(1));
            cluster.pass(SECOND);
            assert_eq!(cluster.figures(), (1, 2, 1, 3));
        }
    }
}

#[test]
fn a_pod_of_several_budgets_queues_each_and_is_reported_once() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 1}));
    for name in ["goo", "hoo"] {
        cluster.put_budget(name, &json!({"minAvailable": 1, "selector": {}}));
    }
    cluster.settle();
    cluster.events.clear();
    cluster.pod("p", None, true);
    let reported = cluster.events.iter();
    let reported = reported.filter(|event| **event == "MultiplePodDisruptionBudgets");
    assert_eq!(reported.count(), 1);
    assert_eq!(cluster.figures(), (0, 1, 1, 1));
    for name in ["goo", "hoo"] {
        let status = &cluster.budgets[name]["status"];
        assert_eq!(status["expectedPods"], 1, "{name}");
    }
}

#[test]
fn after_a_failed_write_a_status_that_allows_no_disruptions_is_written() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 1}));
    cluster.put_pod("a", None, true);
    cluster.put_pod("b", None, true);
    cluster.before_write = Some(Box::new(|_| {
        Some(StatusWriteOutcome::Failed("no quorum".into()))
    }));
    cluster.settle();
    let safe = |status: &&Value| status["conditions"][0]["message"] == "no quorum";
    let safe = cluster.writes.iter().find(safe).unwrap();
    assert_eq!(
        (&safe["disruptionsAllowed"], &safe["expectedPods"]),
        (&json!(0), &json!(0))
    );
    cluster.pass(SECOND);
    assert_eq!(cluster.figures(), (1, 2, 1, 2));
    assert_eq!(cluster.condition()["reason"], "SufficientPods");
}

#[test]
fn a_stale_disruption_target_is_cleared_in_time() {
    let mut cluster = Cluster::default();
    cluster.store_pod(json!({
        "metadata": {"name": "p", "namespace": "ns"},
        "status": {"phase": "Running", "conditions": [
            {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": start().to_string()},
        ]},
    }));
    cluster.pass(119 * SECOND);
    assert_eq!(cluster.patches, 0);
    cluster.pass(SECOND);
    assert_eq!(cluster.patches, 1);
}

#[test]
fn a_status_that_is_up_to_date_is_not_written() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 1}));
    cluster.pod("p", None, true);
    let writes = cluster.writes.len();
    cluster.pod("p", None, true);
    cluster.controller.queue_all();
    cluster.pass(1000 * SECOND);
    assert_eq!(cluster.writes.len(), writes);
}

#[test]
fn each_sync_is_reported_with_how_it_ended() {
    let mut cluster = Cluster::with_budget(json!({"minAvailable": 1}));
    // The status is written, and the watch then causes another sync.
    let written = [SyncEnding::Written, SyncEnding::Unchanged];
    assert_eq!(cluster.endings, written);
    cluster.endings.clear();

    cluster.before_write = Some(Box::new(|_| Some(StatusWriteOutcome::Conflict)));
    cluster.put_pod("p", None, true);
    cluster.pass(Duration::from_secs(1));
    let conflict = [
        SyncEnding::Conflict,
        SyncEnding::Written,
        SyncEnding::Unchanged,
    ];
    assert_eq!(cluster.endings, conflict);
    cluster.endings.clear();

    cluster.put_budget("foo", &json!({"maxUnavailable": 1, "selector": {}}));
    cluster
        .owners
        .insert("gone".into(), owner("x.test/v1", "Gone", 1));
    cluster.put_pod("p", Some("gone"), true);
    cluster.pass(Duration::from_millis(1));
    assert!(cluster.endings.contains(&SyncEnding::Failed));
}
