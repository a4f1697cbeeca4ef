//! What clients and operators are told of evictions that wait for their budgets: a header of the response, the dump, an event on
//! the budget; and that some would wait in vain.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::{
    GRANTED,
    cluster::{Cluster, Fault, SeenCall, budget, pod},
    gateway::{Gateway, Got, eviction, path},
};
use crate::failures::until;

const EVENTS: &str = "/api/v1/namespaces/ns/events";

/// A gateway at which evictions wait for up to an hour.
fn waiting(cluster: &Cluster) -> Gateway {
    let wait = json!({"limit": "1h", "groups": ["devs"]});
    Gateway::with(
        cluster,
        json!({"eviction": {"mode": "authoritative", "wait": wait}, "drain": {"delay": "0s"}}),
    )
}

async fn begin(gateway: &Gateway, user: &'static str, pod: &str) -> tokio::task::JoinHandle<Got> {
    let mut user = gateway.user(user).await;
    let (target, body) = (path(pod), eviction(pod, &Value::Null).to_string());
    let json = [("content-type", "application/json")];
    tokio::spawn(async move { user.ask(Method::POST, &target, &json, body).await })
}

async fn until_waiting(gateway: &Gateway, count: usize) -> Vec<BTreeMap<String, String>> {
    crate::client::soon(async {
        loop {
            let rows = gateway.waiting_evictions().await;
            if rows.len() == count {
                return rows;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// The writes of events that the cluster has seen.
fn events(cluster: &Cluster) -> Vec<SeenCall> {
    let calls = cluster.calls().into_iter();
    calls
        .filter(|call| call.target.starts_with(EVENTS))
        .collect()
}

#[tokio::test]
async fn the_response_says_that_the_eviction_has_waited() {
    let cluster = Cluster::start()
        .with_ready_pods(2)
        .with_budget(budget(0, 2, 2));
    let gateway = waiting(&cluster);
    let asking = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    cluster.allow("foo", 1);
    let got = asking.await.unwrap();
    assert_eq!((got.code, got.text()), (201, GRANTED.to_owned()));
    let warning = got.header("warning");
    assert!(
        warning.starts_with("299 - \"the eviction of pod p0 waited ")
            && warning.ends_with(" s for its disruption budget\""),
        "{warning}"
    );
    // One that did not have to wait says nothing.
    cluster.allow("foo", 1);
    let got = gateway.alice().await.evict("p1", Value::Null).await;
    assert_eq!((got.code, got.header("warning")), (201, ""));
}

#[tokio::test]
async fn the_dump_lists_who_waits_for_what_in_the_order_of_turns() {
    let cluster = Cluster::start()
        .with_ready_pods(4)
        .with_budget(budget(0, 2, 2));
    let gateway = waiting(&cluster);
    let mut asking = Vec::new();
    for (number, (user, pod)) in [("alice", "p0"), ("alice", "p1"), ("bob", "p2")]
        .into_iter()
        .enumerate()
    {
        asking.push(begin(&gateway, user, pod).await);
        until_waiting(&gateway, number + 1).await;
    }
    let rows = gateway.waiting_evictions().await;
    let column = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("Namespace"), ["ns"; 3]);
    assert_eq!(column("PodDisruptionBudget"), ["foo"; 3]);
    assert_eq!(column("Position"), ["1", "2", "3"]);
    assert_eq!(column("Pod"), ["p0", "p2", "p1"], "users take turns");
    assert_eq!(column("UserName"), ["alice", "bob", "alice"]);
    let reason = "The disruption budget foo needs 2 healthy pods and has 2 currently";
    assert_eq!(column("Reason"), [reason; 3]);
    assert!(
        column("TimeLeft")
            .iter()
            .all(|left| left.starts_with("59m")),
        "{rows:?}"
    );
    assert!(
        column("Age").iter().all(|age| age.ends_with('s')),
        "{rows:?}"
    );
    for one in asking {
        one.abort();
    }
    until_waiting(&gateway, 0).await;
}

#[tokio::test]
async fn an_event_on_the_budget_says_that_evictions_wait() {
    let mut foo = budget(0, 2, 2);
    foo["metadata"]["uid"] = json!("u-foo");
    let cluster = Cluster::start().with_ready_pods(5).with_budget(foo);
    let gateway = waiting(&cluster);
    let first = begin(&gateway, "alice", "p0").await;
    until(|| !events(&cluster).is_empty()).await;
    let [created] = &events(&cluster)[..] else {
        panic!("{:?}", events(&cluster));
    };
    // It is there while the eviction waits.
    assert_eq!(gateway.waiting_evictions().await.len(), 1);
    assert_eq!(
        (created.method.clone(), created.target.as_str()),
        (Method::POST, EVENTS)
    );
    assert_eq!(created.user, "", "in the gateway's own name");
    let event: Value = serde_json::from_slice(&created.body).unwrap();
    assert_eq!(
        event["involvedObject"],
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "namespace": "ns", "name": "foo", "uid": "u-foo"})
    );
    assert_eq!(
        (&event["type"], &event["reason"]),
        (&json!("Normal"), &json!("EvictionsWaiting"))
    );
    assert_eq!(event["source"]["component"], "fairgate");
    assert_eq!(
        event["message"],
        "The disruption budget foo needs 2 healthy pods and has 2 currently. Evictions of its pods wait until it allows \
         them, for up to 1h0m0s each; requested by \"alice\""
    );
    // Others that wait for the same budget make no further event.
    let mut others = Vec::new();
    for pod in ["p1", "p2", "p3", "p4"] {
        others.push(begin(&gateway, "bob", pod).await);
    }
    until_waiting(&gateway, 5).await;
    let reads = cluster.count("GET budget");
    until(|| cluster.count("GET budget") > reads + 2).await;
    assert_eq!(events(&cluster).len(), 1);
    cluster.allow("foo", 5);
    for asking in others.into_iter().chain([first]) {
        assert_eq!(asking.await.unwrap().code, 201);
    }
}

#[tokio::test]
async fn an_event_that_cannot_be_recorded_neither_delays_nor_fails_an_eviction() {
    for (fault, code) in [("refused", Some(403)), ("hangs", None)] {
        let cluster = Cluster::start()
            .with_ready_pods(1)
            .with_budget(budget(0, 2, 2));
        cluster.fail(move |call| {
            let is_event = call.target.starts_with(EVENTS);
            is_event.then(|| code.map_or(Fault::Hang, Fault::Refuse))
        });
        let gateway = waiting(&cluster);
        let asking = begin(&gateway, "alice", "p0").await;
        until(|| !events(&cluster).is_empty()).await;
        cluster.allow("foo", 1);
        assert_eq!(asking.await.unwrap().code, 201, "{fault}");
    }
}

/// A cluster with a pod each for the budgets `foo` and `bar`, which allow nothing.
fn two_budgets() -> Cluster {
    let mut bar = budget(0, 2, 2);
    bar["metadata"]["name"] = json!("bar");
    bar["spec"]["selector"]["matchLabels"]["app"] = json!("other");
    let mut other = pod("p1", "Running", true);
    other["metadata"]["labels"]["app"] = json!("other");
    let cluster = Cluster::start().with_ready_pods(1).with_pod(other);
    cluster.with_budget(budget(0, 2, 2)).with_budget(bar)
}

/// Waits until the budgets were read, and what is to be said of their evictions is.
async fn until_read_often(cluster: &Cluster) {
    let reads = cluster.count("GET budget");
    until(|| cluster.count("GET budget") > reads + 6).await;
}

#[tokio::test]
async fn a_gateway_that_may_not_record_events_does_not_try_for_each_budget() {
    let cluster = two_budgets();
    cluster.fail(|call| {
        let is_event = call.target.starts_with(EVENTS);
        is_event.then_some(Fault::Refuse(403))
    });
    let gateway = waiting(&cluster);
    let first = begin(&gateway, "alice", "p0").await;
    until(|| !events(&cluster).is_empty()).await;
    until_read_often(&cluster).await;
    let second = begin(&gateway, "alice", "p1").await;
    until_waiting(&gateway, 2).await;
    until_read_often(&cluster).await;
    assert_eq!(events(&cluster).len(), 1);
    for budget in ["foo", "bar"] {
        cluster.allow(budget, 1);
    }
    for asking in [first, second] {
        assert_eq!(asking.await.unwrap().code, 201);
    }
}

#[tokio::test]
async fn without_eviction_wait_events_none_is_recorded() {
    for (is_on, expected) in [(true, 2), (false, 0)] {
        let cluster = two_budgets();
        let wait = json!({"limit": "1h", "groups": ["devs"], "events": is_on});
        let gateway = Gateway::with(
            &cluster,
            json!({"eviction": {"mode": "authoritative", "wait": wait}, "drain": {"delay": "0s"}}),
        );
        let first = begin(&gateway, "alice", "p0").await;
        let second = begin(&gateway, "alice", "p1").await;
        until_waiting(&gateway, 2).await;
        until_read_often(&cluster).await;
        until(|| events(&cluster).len() >= expected).await;
        assert_eq!(events(&cluster).len(), expected, "{is_on}");
        for asking in [first, second] {
            asking.abort();
        }
    }
}

/// A budget with this bound in its spec, whose status requires `desired` of `expected` pods.
fn bound(name: &str, bound: &Value, desired: i64, expected: i64) -> Value {
    let mut budget = budget(0, expected, desired);
    budget["spec"]["maxUnavailable"] = Value::Null;
    budget["spec"][name] = bound.clone();
    budget
}

#[tokio::test]
async fn an_eviction_that_would_wait_in_vain_is_refused_at_once_and_says_why() {
    for (name, value, desired, why) in [
        (
            "maxUnavailable",
            json!(0),
            2,
            "spec.maxUnavailable is 0; raise it",
        ),
        (
            "maxUnavailable",
            json!("0%"),
            2,
            "spec.maxUnavailable is 0%; raise it",
        ),
        (
            "minAvailable",
            json!("100%"),
            2,
            "spec.minAvailable is 100%; lower it",
        ),
        (
            "minAvailable",
            json!(2),
            2,
            "spec.minAvailable requires 2 healthy pods and there are 2 in all; lower it or add replicas",
        ),
    ] {
        let cluster = Cluster::start().with_ready_pods(1);
        let cluster = cluster.with_budget(bound(name, &value, desired, 2));
        // A gateway at which nobody waits answers as kube-apiserver does.
        let usual = Gateway::deciding("authoritative", &cluster)
            .alice()
            .await
            .evict("p0", Value::Null)
            .await;
        let gateway = waiting(&cluster);
        let got = gateway.alice().await.evict("p0", Value::Null).await;
        assert_eq!(
            (got.code, got.text()),
            (429, usual.text()),
            "{name} {value}"
        );
        assert_eq!(
            got.cause(),
            "The disruption budget foo needs 2 healthy pods and has 2 currently"
        );
        assert_eq!(got.header("retry-after"), "");
        let warning = format!(
            "299 - \"waiting is useless: this pod's disruption budget never allows its eviction: {why}\""
        );
        assert_eq!(got.header("warning"), warning);
        assert_eq!(gateway.waiting_evictions().await.len(), 0);
        assert_eq!(gateway.counted("authoritative", "refused").await, 1);
        assert_eq!(
            gateway
                .metric("fairgate_eviction_wait_duration_seconds_count")
                .await,
            0
        );
        assert_eq!(events(&cluster), []);
    }
}

#[tokio::test]
async fn an_eviction_that_waits_goes_on_waiting_while_a_pod_is_replaced() {
    // Of three pods two must be available.
    let cluster = Cluster::start().with_ready_pods(1);
    let cluster = cluster.with_budget(bound("minAvailable", &json!(2), 2, 3));
    cluster.change_budget("foo", |mut budget| {
        budget["status"]["currentHealthy"] = json!(2);
        Some(budget)
    });
    let gateway = waiting(&cluster);
    let asking = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    // The third is gone, and the one in its place is not there yet. The eviction is tried again all the same, after a while.
    cluster.change_budget("foo", |mut budget| {
        budget["status"]["expectedPods"] = json!(2);
        budget["status"]["currentHealthy"] = json!(1);
        Some(budget)
    });
    crate::client::soon(async {
        while !until_waiting(&gateway, 1).await[0]["Reason"].ends_with("and has 1 currently") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cluster.allow("foo", 1);
    assert_eq!(asking.await.unwrap().code, 201);
}

#[tokio::test]
async fn exempt_users_do_not_wait() {
    let cluster = Cluster::start()
        .with_ready_pods(2)
        .with_budget(budget(0, 2, 2));
    let wait = json!({"limit": "1h", "groups": ["devs"], "exemptUsers": ["bob"]});
    let gateway = Gateway::with(
        &cluster,
        json!({"eviction": {"mode": "authoritative", "wait": wait}, "drain": {"delay": "0s"}}),
    );
    let asking = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    let refused = gateway.user("bob").await.evict("p1", Value::Null).await;
    assert_eq!((refused.code, refused.header("warning")), (429, ""));
    asking.abort();
}
