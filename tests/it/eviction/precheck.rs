//! Evictions that the upstream decides, with and without a check by the gateway first.

use serde_json::{Value, json};

use super::{
    GRANTED,
    cluster::{Cluster, Fault, budget, pod},
    gateway::{Gateway, eviction, path},
};

const REFUSED: &str = r#"{"kind":"Status","status":"Failure","code":429,"details":{"causes":[{"reason":"DisruptionBudget"}]}}"#;

#[tokio::test]
async fn g01_the_upstream_alone_decides_relayed_evictions() {
    let cluster = Cluster::start()
        .with_ready_pods(1)
        .with_budget(budget(1, 3, 2));
    let gateway = Gateway::deciding("relay", &cluster);
    let mut alice = gateway.alice().await;
    cluster.answer_evictions(201, GRANTED, None);
    let body = eviction("p0", &Value::Null);
    let got = alice.post(&path("p0"), &body).await;
    assert_eq!((got.code, &*got.text()), (201, GRANTED));
    cluster.answer_evictions(429, REFUSED, Some("10"));
    let got = alice.post(&path("p0"), &body).await;
    assert_eq!(
        (got.code, &*got.text(), got.header("retry-after")),
        (429, REFUSED, "10")
    );
    assert_eq!(got.header("warning"), "299 - \"from the upstream\"");
    assert_eq!(cluster.seen(), ["POST pod/eviction"; 2]);
    for call in cluster.calls() {
        assert_eq!(
            (&*call.user, &*call.body),
            ("alice", body.to_string().as_bytes())
        );
    }
    assert_eq!(cluster.allowed("foo"), 1);
    assert_eq!(gateway.counted("relay", "granted").await, 1);
    assert_eq!(gateway.counted("relay", "refused").await, 1);
}

#[tokio::test]
async fn a_check_refuses_evictions_that_must_fail_and_forwards_others_unchanged() {
    let cluster = Cluster::start()
        .with_ready_pods(2)
        .with_pod(pod("pending", "Pending", false))
        .with_budget(budget(0, 2, 2));
    cluster.answer_evictions(201, GRANTED, None);
    let gateway = Gateway::deciding("precheck", &cluster);
    let mut alice = gateway.alice().await;

    let got = alice.evict("p0", Value::Null).await;
    let cause = "The disruption budget foo needs 2 healthy pods and has 2 currently";
    assert_eq!(
        (got.code, &*got.cause(), got.header("retry-after")),
        (429, cause, "")
    );
    let got = alice.evict("absent", Value::Null).await;
    assert_eq!(
        (got.code, &got.json()["message"]),
        (404, &json!("pods \"absent\" not found"))
    );
    let got = alice.post(&path("p0"), &eviction("p1", &Value::Null)).await;
    assert_eq!(got.code, 400);
    assert_eq!(cluster.count("POST pod/eviction"), 0);

    // Large enough to arrive in several pieces.
    let mut body = eviction("pending", &Value::Null);
    body["metadata"]["annotations"] = json!({"x": "y".repeat(300_000)});
    let got = alice.post(&path("pending"), &body).await;
    assert_eq!((got.code, &*got.text()), (201, GRANTED));
    let forwarded = cluster.calls().pop().unwrap();
    assert_eq!(
        (forwarded.what(), &*forwarded.user),
        ("POST pod/eviction".into(), "alice")
    );
    assert_eq!(forwarded.body, body.to_string());

    for body in ["{", "[]", "{\"metadata\":{\"name\":1}}"] {
        let kind = [("content-type", "application/json")];
        alice
            .ask(http::Method::POST, &path("p0"), &kind, body)
            .await;
        assert_eq!(cluster.calls().pop().unwrap().body, body);
    }
    let huge = vec![b' '; (3 << 20) + 1000];
    let kind = [("content-type", "application/json")];
    alice
        .ask(http::Method::POST, &path("p0"), &kind, huge.clone())
        .await;
    assert_eq!(cluster.calls().pop().unwrap().body, huge);
    assert_eq!((cluster.writes(), cluster.allowed("foo")), (0, 0));
    assert_eq!(gateway.counted("precheck", "refused").await, 1);
    assert_eq!(gateway.counted("precheck", "rejected").await, 2);
}

#[tokio::test]
async fn a_check_that_cannot_decide_forwards_the_eviction() {
    let cluster = Cluster::start()
        .with_ready_pods(1)
        .with_budget(budget(0, 2, 2));
    cluster.answer_evictions(201, GRANTED, None);
    let gateway = Gateway::deciding("precheck", &cluster);
    for what in ["POST review", "GET pod", "GET budgets"] {
        cluster.fail(move |call| (call.what() == what).then_some(Fault::Refuse(403)));
        let got = gateway.alice().await.evict("p0", Value::Null).await;
        assert_eq!(got.code, 201, "{what}");
    }
    // Nothing is read for a user who may not evict.
    cluster.fail(|_| None);
    let before = cluster.count("GET pod");
    let got = gateway.user("mallory").await.evict("p0", Value::Null).await;
    assert_eq!((got.code, cluster.count("GET pod")), (201, before));
    assert_eq!(cluster.allowed("foo"), 0);
}
