//! The disruption controller of a gateway: what it watches, what it writes, and which gateway leads.

use fairgate_store::{Precondition, ReadRevision};
use fairgate_testkit::client::soon;
use http::Method;
use serde_json::{Value, json};

use super::{cluster::pod, control_plane::ControlPlane, gateway::Gateway};
use crate::failures::until;

const PODS: (&str, &str) = ("/api/v1", "pods");
const EVENTS: (&str, &str) = ("/api/v1", "events");
const BUDGETS: (&str, &str) = ("/apis/policy/v1", "poddisruptionbudgets");
const SETS: (&str, &str) = ("/apis/apps/v1", "replicasets");
const WIDGETS: (&str, &str) = ("/apis/test.dev/v1", "widgets");
const LEASES: (&str, &str) = ("/apis/coordination.k8s.io/v1", "leases");
const LEASE: &str = "fairgate-disruption-controller";
const LIST_PODS: &str = "/api/v1/pods?&limit=500";
const PUT_STATUS: &str = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/foo/status";
/// Pods, budgets and four kinds of owners.
const KINDS: usize = 6;

fn counting(server: &ControlPlane) -> Gateway {
    let sections = json!({"eviction": {"controller": "on"}, "drain": {"delay": "0s"}});
    Gateway::before(server.upstream.address, sections)
}

fn budget(spec: &Value) -> Value {
    let mut budget = json!({
        "metadata": {"name": "foo", "namespace": "ns", "uid": "uid-of-foo", "generation": 1},
        "spec": spec, "status": {},
    });
    if budget["spec"]["selector"].is_null() {
        budget["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    }
    budget
}

fn ready(name: &str) -> Value {
    pod(name, "Running", true)
}

fn owned(name: &str, api_version: &str, kind: &str, owner: &str) -> Value {
    let mut pod = ready(name);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": api_version, "kind": kind, "name": owner, "uid": format!("uid-of-{owner}"),
        "controller": true,
    }]);
    pod
}

fn owner(name: &str, replicas: u32) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": {"replicas": replicas}})
}

impl ControlPlane {
    /// The status of the budget `foo` (disruptions allowed, pods healthy, desired and expected), once computed.
    fn figures(&self) -> Option<[i64; 4]> {
        let budget = self.get(BUDGETS, "foo")?;
        let status = &budget["status"];
        (status["observedGeneration"] == budget["metadata"]["generation"]).then_some(())?;
        Some(
            [
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ]
            .map(|field| status[field].as_i64().unwrap()),
        )
    }

    async fn settles(&self, figures: [i64; 4]) {
        until(|| self.figures() == Some(figures)).await;
    }

    fn holder(&self) -> String {
        let lease = self.get_in("kube-system", LEASES, LEASE);
        let holder = lease.map(|lease| lease["spec"]["holderIdentity"].clone());
        holder
            .and_then(|holder| Some(holder.as_str()?.to_owned()))
            .unwrap_or_default()
    }

    /// The message of the condition `DisruptionAllowed`.
    fn message(&self) -> String {
        let budget = self.get(BUDGETS, "foo").unwrap();
        let conditions = budget["status"]["conditions"].as_array();
        let condition = conditions.and_then(|conditions| conditions.first());
        condition.map_or_else(String::new, |one| {
            one["message"].as_str().unwrap().to_owned()
        })
    }
}

#[tokio::test]
async fn a_gateway_without_controller_watches_nothing() {
    let server = ControlPlane::start();
    let gateway = Gateway::before(
        server.upstream.address,
        json!({"eviction": {"mode": "authoritative"}}),
    );
    let got = gateway.alice().await.evict("p0", Value::Null).await;
    // This server does not implement access reviews.
    assert_eq!(got.code, 500);
    assert_eq!(
        server.targets(),
        ["/apis/authorization.k8s.io/v1/subjectaccessreviews"]
    );
    assert_eq!(
        gateway
            .metric("fairgate_disruption_controller_leader")
            .await,
        0
    );
}

#[tokio::test]
async fn statuses_follow_pods_and_budgets() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 2})));
    server.put(PODS, ready("a"));
    let gateway = counting(&server);
    server.settles([0, 1, 2, 1]).await;
    server.put(PODS, ready("b"));
    server.put(PODS, ready("c"));
    server.settles([1, 3, 2, 3]).await;
    server.put(PODS, pod("c", "Running", false));
    server.settles([0, 2, 2, 3]).await;
    server.delete(PODS, "c");
    server.settles([0, 2, 2, 2]).await;
    let mut changed = budget(&json!({"minAvailable": 1}));
    changed["metadata"]["generation"] = json!(2);
    server.put(BUDGETS, changed);
    server.settles([1, 2, 1, 2]).await;

    assert_eq!(server.watches(), KINDS);
    assert_eq!(
        gateway
            .metric("fairgate_disruption_controller_leader")
            .await,
        1
    );
    assert_eq!(gateway.metric("fairgate_disruption_pods").await, 2);
    assert_eq!(gateway.metric("fairgate_disruption_budgets ").await, 1);
    assert_eq!(
        gateway
            .metric("fairgate_disruption_budgets_exhausted")
            .await,
        0
    );
    let written = "fairgate_disruption_syncs_total{outcome=\"written\"}";
    assert!(gateway.metric(written).await >= 5);
}

#[tokio::test]
async fn long_lists_are_read_in_pages() {
    let server = ControlPlane::start();
    for number in 0..1201 {
        server.put(PODS, ready(&format!("p{number}")));
    }
    server.put(BUDGETS, budget(&json!({"minAvailable": "0%"})));
    let mut all = budget(&json!({"minAvailable": 1000}));
    all["spec"]["selector"] = json!({});
    server.put(BUDGETS, all);
    let _gateway = counting(&server);
    server.settles([201, 1201, 1000, 1201]).await;
    assert_eq!(server.count(&Method::GET, "/api/v1/pods?&limit=500"), 3);
}

#[tokio::test]
async fn a_broken_watch_is_resumed_without_a_new_list() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    server.put(PODS, ready("a"));
    let _gateway = counting(&server);
    server.settles([1, 1, 0, 1]).await;
    for (round, name) in [(2, "b"), (3, "c")] {
        // From now on watches are refused; what happens meanwhile is seen when they are opened again.
        server.fail(|_, target| target.contains("watch=true").then_some(503));
        let before = server.count(&Method::GET, "/api/v1/pods");
        server.break_watches("pods");
        server.put(PODS, ready(name));
        until(|| server.count(&Method::GET, "/api/v1/pods") > before).await;
        server.fail(|_, _| None);
        server.settles([round, round, 0, round]).await;
    }
    assert_eq!(server.count(&Method::GET, LIST_PODS), 1);
}

#[tokio::test]
async fn after_410_everything_is_listed_again_and_deleted_pods_are_forgotten() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    for name in ["a", "b", "c"] {
        server.put(PODS, ready(name));
    }
    let gateway = counting(&server);
    server.settles([3, 3, 0, 3]).await;
    server.fail(|_, target| target.contains("watch=true").then_some(503));
    server.break_watches("pods");
    server.delete(PODS, "a");
    server.delete(PODS, "b");
    server.put(PODS, ready("d"));
    server.compact();
    server.fail(|_, _| None);
    server.settles([2, 2, 0, 2]).await;
    assert!(server.count(&Method::GET, LIST_PODS) > 1);
    assert_eq!(gateway.metric("fairgate_disruption_pods").await, 2);
}

#[tokio::test]
async fn a_status_whose_write_conflicts_is_computed_again() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    server.put(PODS, ready("a"));
    let mut conflicts = 3;
    server.fail(move |method, target| {
        let hit = conflicts > 0 && *method == Method::PUT && target == PUT_STATUS;
        conflicts -= usize::from(hit);
        hit.then_some(409)
    });
    let gateway = counting(&server);
    server.settles([1, 1, 0, 1]).await;
    assert_eq!(server.count(&Method::PUT, PUT_STATUS), 4);
    let conflict = "fairgate_disruption_syncs_total{outcome=\"conflict\"}";
    assert_eq!(gateway.metric(conflict).await, 3);
}

#[tokio::test]
async fn a_deleted_budget_is_forgotten() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    let mut other = budget(&json!({"minAvailable": 0}));
    other["metadata"]["name"] = json!("other");
    server.put(BUDGETS, other);
    let gateway = counting(&server);
    server.settles([0, 0, 0, 0]).await;
    server.delete(BUDGETS, "foo");
    soon(async { while gateway.metric("fairgate_disruption_budgets ").await != 1 {} }).await;
    let writes = server.count(&Method::PUT, PUT_STATUS);
    server.put(PODS, ready("a"));
    let healthy = || server.get(BUDGETS, "other").unwrap()["status"]["currentHealthy"] == 1;
    until(healthy).await;
    assert_eq!(server.count(&Method::PUT, PUT_STATUS), writes);
    assert_eq!(gateway.metric("fairgate_disruption_budgets ").await, 1);
}

#[tokio::test]
async fn scales_come_from_watches_or_from_the_scale_subresource() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"maxUnavailable": 1})));
    server.put(SETS, owner("set", 3));
    server.put(WIDGETS, owner("widget", 4));
    server.put(PODS, owned("a", "apps/v1", "ReplicaSet", "set"));
    server.put(PODS, owned("b", "test.dev/v1", "Widget", "widget"));
    let _gateway = counting(&server);
    server.settles([0, 2, 6, 7]).await;
    assert_eq!(server.count(&Method::GET, "/apis/apps/v1/namespaces"), 0);
    assert!(
        server.count(
            &Method::GET,
            "/apis/test.dev/v1/namespaces/ns/widgets/widget/scale"
        ) > 0
    );

    server.put(PODS, owned("c", "test.dev/v1", "Gizmo", "gizmo"));
    let failed = "no matches for kind \"Gizmo\" in version \"test.dev/v1\"";
    until(|| server.message() == failed).await;
    server.put(PODS, owned("c", "apps/v1", "ReplicaSet", "set"));
    server.settles([0, 3, 6, 7]).await;
}

#[tokio::test]
async fn the_scale_is_read_in_the_version_that_the_server_prefers() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"maxUnavailable": 1})));
    server.put(WIDGETS, owner("widget", 4));
    // Widgets have a scale in v1 only.
    server.put(PODS, owned("a", "test.dev/v1alpha1", "Widget", "widget"));
    let _gateway = counting(&server);
    server.settles([0, 1, 3, 4]).await;
    let read = |version: &str| {
        let path = format!("/apis/test.dev/{version}/namespaces/ns/widgets/widget/scale");
        server.count(&Method::GET, &path)
    };
    assert!(read("v1") > 0);
    assert_eq!(read("v1alpha1"), 0);

    // The owner is deleted: the version in the reference decides whether its kind has a scale.
    server.delete(WIDGETS, "widget");
    server.put(PODS, owned("b", "test.dev/v1", "Widget", "widget"));
    let failed = "widgets.test.dev does not implement the scale subresource";
    until(|| server.message() == failed).await;
}

#[tokio::test]
async fn a_kind_of_owner_that_the_server_does_not_serve_has_no_objects() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    server.put(PODS, ready("a"));
    server.fail(|_, target| target.starts_with("/apis/apps/").then_some(404));
    let _gateway = counting(&server);
    server.settles([1, 1, 0, 1]).await;
}

#[tokio::test]
async fn nothing_is_computed_until_everything_is_known() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    server.put(PODS, ready("a"));
    server.fail(|_, target| {
        target
            .starts_with("/apis/apps/v1/statefulsets")
            .then_some(403)
    });
    let gateway = counting(&server);
    until(|| server.count(&Method::GET, "/apis/apps/v1/statefulsets") > 1).await;
    soon(async { while gateway.metric("fairgate_disruption_pods").await != 1 {} }).await;
    assert_eq!(server.count(&Method::PUT, PUT_STATUS), 0);
    let note = "cannot watch statefulsets: the upstream answered 403";
    soon(async { while !gateway.health().await.contains(note) {} }).await;
    server.fail(|_, _| None);
    server.settles([1, 1, 0, 1]).await;
    // It is gone once the watch is open, too.
    soon(async { while gateway.health().await.contains(note) {} }).await;
}

#[tokio::test]
async fn repeated_events_are_counted_not_repeated() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"maxUnavailable": 1})));
    server.put(PODS, ready("a"));
    let _gateway = counting(&server);
    server.settles([0, 1, 0, 0]).await;
    for _ in 0..3 {
        server.put(PODS, ready("a"));
    }
    let counted = || {
        let events = server.all(EVENTS);
        events.len() == 1 && events[0]["count"].as_i64() > Some(1)
    };
    until(counted).await;
    let event = &server.all(EVENTS)[0];
    assert_eq!(event["reason"], "UnmanagedPods");
    assert_eq!(event["involvedObject"]["uid"], "uid-of-foo");
    assert_eq!(event["source"]["component"], "controllermanager");
}

#[tokio::test]
async fn a_stale_disruption_target_is_reset() {
    let server = ControlPlane::start();
    let mut target = ready("a");
    target["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }));
    server.put(PODS, target);
    let _gateway = counting(&server);
    until(|| {
        let pod = server.get(PODS, "a").unwrap();
        pod["status"]["conditions"][1]["status"] == "False"
    })
    .await;
}

#[tokio::test]
async fn one_of_two_gateways_leads_and_hands_over_when_it_drains() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    let first = counting(&server);
    server.settles([0, 0, 0, 0]).await;
    let leader = server.holder();
    let second = counting(&server);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE}");
    let reads = server.count(&Method::GET, &path);
    until(|| server.count(&Method::GET, &path) > reads + 1).await;
    assert_eq!((server.holder(), server.watches()), (leader.clone(), KINDS));
    assert_eq!(
        second.metric("fairgate_disruption_controller_leader").await,
        0
    );

    let stopping = first.shut_down();
    soon(tokio::task::spawn_blocking(|| stopping.join()))
        .await
        .unwrap()
        .unwrap();
    // The lease is released, or the second gateway already holds it.
    assert_ne!(server.holder(), leader);
    server.put(PODS, ready("a"));
    server.settles([1, 1, 0, 1]).await;
    assert!(!server.holder().is_empty());
    assert_eq!(
        second.metric("fairgate_disruption_controller_leader").await,
        1
    );
    let lease = server.get_in("kube-system", LEASES, LEASE).unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
}

#[tokio::test]
async fn a_gateway_that_lost_the_lease_stops_writing() {
    let server = ControlPlane::start();
    server.put(BUDGETS, budget(&json!({"minAvailable": 0})));
    let gateway = counting(&server);
    server.settles([0, 0, 0, 0]).await;
    let mut lease = server.get_in("kube-system", LEASES, LEASE).unwrap();
    lease["spec"]["holderIdentity"] = json!("somebody");
    server.put(LEASES, lease);
    soon(async {
        while gateway
            .metric("fairgate_disruption_controller_leader")
            .await
            != 0
        {}
    })
    .await;
    until(|| server.watches() == 0).await;
    let writes = server.count(&Method::PUT, PUT_STATUS);
    server.put(PODS, ready("a"));
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE}");
    let reads = server.count(&Method::GET, &path);
    until(|| server.count(&Method::GET, &path) > reads).await;
    assert_eq!(server.count(&Method::PUT, PUT_STATUS), writes);
    assert_eq!(gateway.metric("fairgate_disruption_pods").await, 0);
    assert_eq!(server.holder(), "somebody");
}

#[tokio::test]
async fn hosted_budgets_are_counted_over_the_pods_of_the_upstream() {
    let server = ControlPlane::start();
    server.put(PODS, ready("a"));
    server.put(PODS, ready("b"));
    let namespace =
        json!({"kind": "Namespace", "metadata": {"name": "ns", "namespace": "", "uid": "u"}});
    server.put(("/api/v1", "namespaces"), namespace);
    let sections = json!({
        "mode": "standalone", "store": {"type": "local", "local": {"path": "objects.redb"}},
        "eviction": {"controller": "on", "mode": "authoritative"}, "drain": {"delay": "0s"},
    });
    let gateway = Gateway::before(server.upstream.address, sections);
    let store = gateway.store();
    let key = "/policy/poddisruptionbudgets/ns/foo";
    let write = async |expected, value: Option<Value>| {
        let value = value.map(|value| value.to_string().into());
        store.write(key, expected, value).await.unwrap();
    };
    let mut stored = budget(&json!({"minAvailable": 1}));
    stored["apiVersion"] = json!("policy/v1");
    stored["kind"] = json!("PodDisruptionBudget");
    write(Precondition::Absent, Some(stored)).await;
    let status = async || {
        let entry = store.get(key, ReadRevision::Cached).await.unwrap().unwrap();
        let object: Value = serde_json::from_slice(&entry.bytes()).unwrap();
        (entry.revision, object["status"].clone())
    };
    let settles = async |allowed: i64| {
        soon(async {
            while status().await.1["disruptionsAllowed"] != allowed {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    settles(1).await;
    server.put(PODS, ready("c"));
    settles(2).await;
    // There is only one such store, so no lease is needed, and the upstream's budgets are not read.
    assert_eq!(server.count(&Method::GET, "/apis/policy/v1"), 0);
    assert_eq!(server.count(&Method::GET, "/apis/coordination.k8s.io"), 0);
    write(Precondition::At(status().await.0), None).await;
    soon(async { while gateway.metric("fairgate_disruption_budgets ").await != 0 {} }).await;
}

#[tokio::test]
async fn g04_hosted_budgets_are_computed_by_the_clock_by_which_evictions_are_recorded() {
    let server = ControlPlane::start();
    server.review();
    server.set_ahead(-180);
    for name in ["a", "b"] {
        server.put(PODS, ready(name));
    }
    let namespace =
        json!({"kind": "Namespace", "metadata": {"name": "ns", "namespace": "", "uid": "u"}});
    server.put(("/api/v1", "namespaces"), namespace);
    // The evicted pod stays.
    server.fail(|method, _| (method == Method::DELETE).then_some(409));
    let sections = json!({
        "mode": "standalone", "store": {"type": "local", "local": {"path": "objects.redb"}},
        "eviction": {"controller": "on", "mode": "authoritative"}, "drain": {"delay": "0s"},
    });
    let gateway = Gateway::before(server.upstream.address, sections);
    let mut root = gateway.user("root").await;
    let budgets = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets";
    let new = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "foo"}, "spec": {"minAvailable": 1, "selector": {}}});
    assert_eq!(root.post(budgets, &new).await.code, 201);
    let foo = format!("{budgets}/foo");
    let mut settles = async |field: &str, value: i64| {
        soon(async {
            loop {
                let status = root.get(&foo).await.json()["status"].clone();
                if status[field] == value {
                    return status;
                }
            }
        })
        .await
    };
    settles("disruptionsAllowed", 1).await;
    let got = gateway.user("root").await.evict("a", Value::Null).await;
    assert_ne!(got.code, 201, "{}", got.text());
    // The status is computed after the eviction was recorded.
    let mut unready = ready("c");
    unready["status"]["conditions"] = json!([]);
    server.put(PODS, unready);
    let status = settles("expectedPods", 3).await;
    assert_eq!(status["disruptionsAllowed"], 0, "{status}");
    assert!(status["disruptedPods"]["a"].is_string(), "{status}");
}
