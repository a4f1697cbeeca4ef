//! Evictions that wait for their budgets.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    GRANTED,
    cluster::{Cluster, Fault, budget},
    gateway::{Gateway, Got, eviction, path},
};
use crate::{client, failures::until};

/// Pods that are ready, and a budget that allows no disruption.
fn exhausted(pods: usize) -> Cluster {
    let cluster = Cluster::start().with_ready_pods(pods);
    cluster.with_budget(budget(0, 2, 2))
}

/// A gateway at which the evictions of alice and bob wait.
fn waiting(cluster: &Cluster, limit: &str) -> Gateway {
    with_places(cluster, limit, 100)
}

fn with_places(cluster: &Cluster, limit: &str, places: usize) -> Gateway {
    let wait =
        json!({"limit": limit, "users": ["alice", "bob"], "perBudget": places, "total": places});
    let sections = json!({
        "eviction": {"mode": "authoritative", "wait": wait},
        "drain": {"delay": "0s"},
    });
    Gateway::with(cluster, sections)
}

/// Evicts a pod in the background.
async fn begin(gateway: &Gateway, user: &'static str, pod: &str) -> JoinHandle<Got> {
    begin_at(gateway, user, pod, path(pod), &[]).await
}

async fn begin_at(
    gateway: &Gateway,
    user: &'static str,
    pod: &str,
    target: String,
    headers: &[(&'static str, &'static str)],
) -> JoinHandle<Got> {
    let mut user = gateway.user(user).await;
    let body = eviction(pod, &Value::Null).to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-type", "application/json"));
    tokio::spawn(async move { user.ask(http::Method::POST, &target, &headers, body).await })
}

async fn until_waiting(gateway: &Gateway, count: u64) {
    client::soon(async {
        while gateway.metric("fairgate_evictions_waiting ").await != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn waits_that_ended(gateway: &Gateway, outcome: &str) -> u64 {
    let name = "fairgate_eviction_wait_duration_seconds_count";
    gateway
        .metric(&format!("{name}{{outcome=\"{outcome}\"}}"))
        .await
}

#[tokio::test]
async fn an_eviction_waits_without_a_seat_until_its_budget_allows_it() {
    let cluster = exhausted(1);
    let gateway = waiting(&cluster, "1h");
    let asking = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    let executing = "apiserver_flowcontrol_current_executing_requests";
    assert_eq!(gateway.metric(executing).await, 0);
    assert_eq!((cluster.writes(), cluster.pods()), (0, 1));
    cluster.allow("foo", 1);
    let got = asking.await.unwrap();
    assert_eq!((got.code, got.text()), (201, GRANTED.to_owned()));
    assert_eq!((cluster.pods(), cluster.allowed("foo")), (0, 0));
    until_waiting(&gateway, 0).await;
    assert_eq!(waits_that_ended(&gateway, "granted").await, 1);
    assert_eq!(gateway.counted("authoritative", "granted").await, 1);
    assert_eq!(gateway.counted("authoritative", "refused").await, 0);
}

#[tokio::test]
async fn an_eviction_that_no_longer_needs_its_budget_proceeds_although_the_budget_is_exhausted() {
    let cluster = exhausted(3);
    let gateway = waiting(&cluster, "1h");
    let ends = begin(&gateway, "alice", "p0").await;
    let is_deleted = begin(&gateway, "bob", "p1").await;
    let waits = begin(&gateway, "bob", "p2").await;
    until_waiting(&gateway, 3).await;
    cluster.change_pod("p0", |pod| pod["status"]["phase"] = json!("Succeeded"));
    cluster.delete_pod("p1");
    assert_eq!(ends.await.unwrap().code, 201);
    assert_eq!(is_deleted.await.unwrap().code, 404);
    until_waiting(&gateway, 1).await;
    assert_eq!((cluster.pods(), cluster.disrupted("foo")), (1, 0));
    waits.abort();
}

#[tokio::test]
async fn each_attempt_reads_the_pod_and_the_budgets_again() {
    let cluster = exhausted(1);
    let gateway = waiting(&cluster, "1h");
    let asking = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    let before = (cluster.count("GET pod"), cluster.count("GET budgets"));
    cluster.allow("foo", 1);
    assert_eq!(asking.await.unwrap().code, 201);
    let after = (cluster.count("GET pod"), cluster.count("GET budgets"));
    assert_eq!(after, (before.0 + 1, before.1 + 1));
}

#[tokio::test]
async fn an_eviction_that_waits_outlasts_a_store_that_is_away_for_a_moment() {
    for (what, code) in [("GET budgets", 503), ("GET budgets", 500), ("GET pod", 503)] {
        let cluster = exhausted(1);
        let gateway = waiting(&cluster, "1h");
        let asking = begin(&gateway, "alice", "p0").await;
        until_waiting(&gateway, 1).await;
        let before = cluster.count(what);
        cluster.fail_next(what, move || Fault::Refuse(code));
        cluster.allow("foo", 1);
        assert_eq!(asking.await.unwrap().code, 201, "after {what} {code}");
        assert_eq!(cluster.count(what), before + 2);
        assert_eq!((cluster.pods(), cluster.allowed("foo")), (0, 0));
        assert_eq!(gateway.counted("authoritative", "granted").await, 1);
        assert_eq!(gateway.counted("authoritative", "failed").await, 0);
    }
}

#[tokio::test]
async fn a_drain_of_two_does_not_wait_behind_a_drain_of_fifty() {
    let cluster = exhausted(52);
    let gateway = waiting(&cluster, "1h");
    let mut many = Vec::new();
    for pod in 0..50 {
        many.push(begin(&gateway, "alice", &format!("p{pod}")).await);
    }
    until_waiting(&gateway, 50).await;
    let mut few = Vec::new();
    for pod in 50..52 {
        few.push(begin(&gateway, "bob", &format!("p{pod}")).await);
    }
    until_waiting(&gateway, 52).await;
    for left in (48..52).rev() {
        cluster.allow("foo", 1);
        until(|| cluster.pods() == left).await;
    }
    for asking in few {
        assert_eq!(asking.await.unwrap().code, 201);
    }
    assert_eq!(many.iter().filter(|asking| asking.is_finished()).count(), 2);
    for asking in many {
        asking.abort();
    }
    until_waiting(&gateway, 0).await;
}

#[tokio::test]
async fn several_evictions_proceed_at_once_when_their_budget_allows_them() {
    let cluster = exhausted(6);
    let gateway = waiting(&cluster, "1h");
    let mut asking = Vec::new();
    for pod in 0..6 {
        asking.push(begin(&gateway, "alice", &format!("p{pod}")).await);
    }
    until_waiting(&gateway, 6).await;
    cluster.allow("foo", 4);
    until(|| cluster.pods() == 2).await;
    until_waiting(&gateway, 2).await;
    assert_eq!(cluster.allowed("foo"), 0);
    // Without a budget nobody needs to wait.
    cluster.change_budget("foo", |_| None);
    for asking in asking {
        assert_eq!(asking.await.unwrap().code, 201);
    }
    assert_eq!(cluster.pods(), 0);
}

#[tokio::test]
async fn a_later_eviction_does_not_overtake_waiting_ones() {
    let cluster = Arc::new(exhausted(2));
    let gateway = waiting(&cluster, "1h");
    let first = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    // The gateway does not see that the budget allows more until it lists the budgets.
    cluster.fail(|call| (call.what() == "GET budget").then_some(Fault::Refuse(500)));
    cluster.allow("foo", 1);
    let second = begin(&gateway, "bob", "p1").await;
    until_waiting(&gateway, 2).await;
    cluster.fail(|_| None);
    assert_eq!(first.await.unwrap().code, 201);
    assert!(cluster.pod("p0").is_none() && cluster.pod("p1").is_some());
    second.abort();
}

#[tokio::test]
async fn an_eviction_that_may_not_wait_does_not_overtake_waiting_ones() {
    let long: &str = "x".repeat(17 << 10).leak();
    for header in [("x-fairgate-eviction-wait", "0s"), ("x-long", long)] {
        let cluster = exhausted(2);
        let gateway = waiting(&cluster, "1h");
        let first = begin(&gateway, "alice", "p0").await;
        until_waiting(&gateway, 1).await;
        // The gateway does not see that the budget allows more until it lists the budgets.
        cluster.fail(|call| (call.what() == "GET budget").then_some(Fault::Refuse(500)));
        cluster.allow("foo", 1);
        let second = begin_at(&gateway, "bob", "p1", path("p1"), &[header]).await;
        let got = second.await.unwrap();
        assert_eq!(got.code, 429, "{}: {}", header.0, got.text());
        assert_eq!(gateway.counted("authoritative", "refused").await, 1);
        cluster.fail(|_| None);
        assert_eq!(first.await.unwrap().code, 201);
        assert!(cluster.pod("p0").is_none() && cluster.pod("p1").is_some());
    }
}

#[tokio::test]
async fn a_client_that_disconnects_gives_up_its_place() {
    let cluster = exhausted(2);
    let gateway = with_places(&cluster, "1h", 1);
    let alice = gateway.alice().await;
    let reads = || cluster.count("GET budget") > 0;
    alice.evict_and_disconnect("p0", reads).await;
    until_waiting(&gateway, 0).await;
    // There is one place only.
    let next = begin(&gateway, "bob", "p1").await;
    until_waiting(&gateway, 1).await;
    cluster.allow("foo", 2);
    assert_eq!(next.await.unwrap().code, 201);
    assert_eq!((cluster.pods(), cluster.allowed("foo")), (1, 1));
    assert_eq!(waits_that_ended(&gateway, "abandoned").await, 1);
    assert_eq!(gateway.counted("authoritative", "abandoned").await, 1);
}

#[tokio::test]
async fn a_client_that_disconnects_during_its_attempt_does_not_block_the_next() {
    let cluster = Arc::new(exhausted(2));
    let gateway = waiting(&cluster, "1h");
    let first = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    let second = begin(&gateway, "bob", "p1").await;
    until_waiting(&gateway, 2).await;
    // The first attempt hangs before it changes anything.
    let mut hangs = true;
    cluster.fail(move |call| {
        let hit = hangs && call.what() == "GET pod";
        hangs &= !hit;
        hit.then_some(Fault::Hang)
    });
    let reads = cluster.count("GET pod");
    cluster.allow("foo", 1);
    until(|| cluster.count("GET pod") > reads).await;
    first.abort();
    assert_eq!(second.await.unwrap().code, 201);
    assert_eq!((cluster.pod("p0").is_some(), cluster.pods()), (true, 1));
    until_waiting(&gateway, 0).await;
}

#[tokio::test]
async fn after_the_longest_wait_the_response_is_the_same_as_without_waiting() {
    let cluster = exhausted(1);
    let at_once = Gateway::deciding("authoritative", &cluster);
    let expected = at_once.alice().await.evict("p0", Value::Null).await;
    let gateway = waiting(&cluster, "300ms");
    let got = gateway.alice().await.evict("p0", Value::Null).await;
    assert_eq!((got.code, got.text()), (429, expected.text()));
    let names = |got: &Got| {
        let names = got.headers.keys().filter(|name| *name != "warning");
        names.cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&got), names(&expected));
    assert_eq!(expected.header("warning"), "");
    assert_eq!(got.header("x-fairgate-reason"), "budget-exhausted");
    assert_eq!(waits_that_ended(&gateway, "refused").await, 1);
    assert_eq!(gateway.counted("authoritative", "refused").await, 1);
    assert_eq!(gateway.counted("authoritative", "abandoned").await, 0);
}

#[tokio::test]
async fn a_client_may_ask_for_a_shorter_wait() {
    let cluster = exhausted(1);
    let gateway = waiting(&cluster, "1h");
    let less: [(&str, &[(&str, &str)]); 4] = [
        ("", &[("x-fairgate-eviction-wait", "0s")]),
        ("", &[("x-fairgate-eviction-wait", "200ms")]),
        ("?timeout=4s", &[]),
        ("?timeout=1h", &[("x-fairgate-eviction-wait", "100ms")]),
    ];
    for (query, headers) in less {
        let target = path("p0") + query;
        let asking = begin_at(&gateway, "alice", "p0", target, headers).await;
        let got = asking.await.unwrap();
        assert_eq!(got.code, 429, "{query} {headers:?}: {}", got.text());
        assert!(got.cause().starts_with("The disruption budget foo needs 2"));
    }
    let soon = [("x-fairgate-eviction-wait", "soon")];
    let asking = begin_at(&gateway, "alice", "p0", path("p0"), &soon).await;
    let got = asking.await.unwrap();
    assert_eq!(
        (got.code, got.header("x-fairgate-reason")),
        (400, "malformed")
    );
}

#[tokio::test]
async fn only_chosen_users_wait_and_dry_runs_never() {
    let cluster = exhausted(1);
    let wait = json!({"limit": "1h", "groups": ["ops"], "users": ["alice"]});
    let sections = json!({"eviction": {"mode": "authoritative", "wait": wait}});
    let gateway = Gateway::with(&cluster, sections);
    let got = gateway.user("bob").await.evict("p0", Value::Null).await;
    assert_eq!(got.code, 429);
    let dry = json!({"dryRun": ["All"]});
    let got = gateway.alice().await.evict("p0", dry).await;
    assert_eq!(got.code, 429);
    let target = path("p0") + "?dryRun=All";
    let asking = begin_at(&gateway, "alice", "p0", target, &[]).await;
    assert_eq!(asking.await.unwrap().code, 429);
    assert_eq!(gateway.counted("authoritative", "refused").await, 3);
    let got = gateway.user("mallory").await.evict("p0", Value::Null).await;
    assert_eq!(got.code, 403);
}

#[tokio::test]
async fn evictions_that_are_too_many_or_too_large_to_wait_are_refused_at_once() {
    let cluster = exhausted(4);
    let gateway = with_places(&cluster, "1h", 4);
    let mut asking = Vec::new();
    for pod in ["p0", "p1"] {
        asking.push(begin(&gateway, "alice", pod).await);
    }
    until_waiting(&gateway, 2).await;
    // One user may have at most as many places as are still free, and a pod has one.
    for (user, pod) in [("alice", "p2"), ("bob", "p1")] {
        let got = gateway.user(user).await.evict(pod, Value::Null).await;
        assert_eq!(
            (got.code, got.header("retry-after")),
            (429, ""),
            "{user} {pod}"
        );
    }
    asking.push(begin(&gateway, "bob", "p2").await);
    until_waiting(&gateway, 3).await;
    let got = gateway.user("bob").await.evict("p3", Value::Null).await;
    assert_eq!((got.code, got.header("retry-after")), (429, ""));
    let large = json!({"gracePeriodSeconds": 1, "unknown": "x".repeat(20 << 10)});
    asking.pop().unwrap().abort();
    until_waiting(&gateway, 2).await;
    let got = gateway.user("bob").await.evict("p2", large).await;
    assert_eq!(got.code, 429);
    for one in asking {
        one.abort();
    }
}

#[tokio::test]
async fn a_gateway_that_stops_responds_to_waiting_evictions() {
    let cluster = exhausted(1);
    let gateway = waiting(&cluster, "1h");
    let asking = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    let stopping = gateway.shut_down();
    let got = asking.await.unwrap();
    assert_eq!(
        (got.code, got.header("x-fairgate-reason")),
        (429, "budget-exhausted")
    );
    assert_eq!(got.header("connection"), "close");
    stopping.join().unwrap();
    assert_eq!((cluster.writes(), cluster.pods()), (0, 1));
}

#[tokio::test]
async fn two_gateways_never_grant_more_than_the_budget_allows() {
    let cluster = exhausted(20);
    let gateways = [waiting(&cluster, "1h"), waiting(&cluster, "1h")];
    let mut asking = Vec::new();
    for pod in 0..20 {
        let (gateway, user) = (&gateways[pod % 2], ["alice", "bob"][pod % 2]);
        asking.push(begin(gateway, user, &format!("p{pod}")).await);
    }
    for gateway in &gateways {
        until_waiting(gateway, 10).await;
    }
    cluster.allow("foo", 7);
    until(|| cluster.pods() == 13).await;
    until(|| cluster.allowed("foo") == 0).await;
    assert_eq!((cluster.pods(), cluster.disrupted("foo")), (13, 7));
    cluster.allow("foo", 20);
    for asking in asking {
        assert_eq!(asking.await.unwrap().code, 201);
    }
    assert_eq!((cluster.allowed("foo"), cluster.disrupted("foo")), (7, 20));
}

#[tokio::test]
async fn an_eviction_waits_for_a_budget_that_is_not_observed_yet_too() {
    let cluster = exhausted(1);
    cluster.change_budget("foo", |mut budget| {
        budget["metadata"]["generation"] = json!(2);
        budget["status"]["disruptionsAllowed"] = json!(5);
        Some(budget)
    });
    let gateway = waiting(&cluster, "1h");
    let asking = begin(&gateway, "alice", "p0").await;
    until_waiting(&gateway, 1).await;
    cluster.change_budget("foo", |mut budget| {
        budget["status"]["observedGeneration"] = json!(2);
        Some(budget)
    });
    assert_eq!(asking.await.unwrap().code, 201);
    assert_eq!(cluster.allowed("foo"), 4);
}
