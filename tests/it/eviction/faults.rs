//! Evictions while the upstream fails: no budget allows a disruption too many, and no pod is deleted that was not
//! charged to its budget.

use serde_json::Value;

use super::{
    cluster::{Cluster, Fault, budget},
    gateway::{Gateway, Got, eviction, path},
};
use crate::failures::until;

type MakeFault = fn() -> Fault;

async fn evicted(cluster: &Cluster) -> Got {
    let gateway = Gateway::deciding("authoritative", cluster);
    gateway.alice().await.evict("p0", Value::Null).await
}

fn one() -> Cluster {
    Cluster::start()
        .with_ready_pods(1)
        .with_budget(budget(3, 9, 2))
}

#[tokio::test]
async fn g03_a_charge_whose_outcome_is_unknown_is_looked_up() {
    let faults: [(MakeFault, usize); 4] = [
        (|| Fault::CutAfter, 1),
        (|| Fault::CutBefore, 2),
        (|| Fault::FailAfter(504), 1),
        (|| Fault::FailAfter(500), 1),
    ];
    for (fault, puts) in faults {
        let cluster = one();
        cluster.fail_next("PUT budget/status", fault);
        let got = evicted(&cluster).await;
        assert_eq!(got.code, 201, "{}", got.text());
        assert_eq!(cluster.count("PUT budget/status"), puts);
        assert_eq!((cluster.allowed("foo"), cluster.disrupted("foo")), (2, 1));
        assert_eq!((cluster.count("DELETE pod"), cluster.pods()), (1, 0));
    }
}

#[tokio::test]
async fn g06_budgets_that_cannot_be_read_evict_nothing() {
    let faults: [(&str, MakeFault, u16); 6] = [
        ("GET budgets", || Fault::Refuse(403), 403),
        ("GET budgets", || Fault::Refuse(500), 500),
        ("GET budgets", || Fault::Refuse(401), 503),
        ("GET budgets", || Fault::Refuse(404), 503),
        ("GET budgets", || Fault::CutBefore, 503),
        ("GET pod", || Fault::CutBefore, 503),
    ];
    for (what, fault, code) in faults {
        let cluster = one();
        cluster.fail(move |call| (call.what() == what).then(fault));
        let got = evicted(&cluster).await;
        assert_eq!(got.code, code, "{}", got.text());
        assert_eq!(got.cause(), "");
        assert_eq!((cluster.writes(), cluster.pods()), (0, 1));
    }
}

#[tokio::test]
async fn rights_that_cannot_be_reviewed_evict_nothing() {
    let faults: [MakeFault; 3] = [
        || Fault::CutBefore,
        || Fault::CutAfter,
        || Fault::Refuse(500),
    ];
    for fault in faults {
        let cluster = one();
        cluster.fail(move |call| (call.what() == "POST review").then(fault));
        let got = evicted(&cluster).await;
        assert_eq!(got.code, 500, "{}", got.text());
        assert!(cluster.count("POST review") > 0);
        assert_eq!((cluster.writes(), cluster.pods()), (0, 1));
    }
}

#[tokio::test]
async fn a_deletion_that_fails_after_the_charge_is_repeated() {
    let faults: [MakeFault; 5] = [
        || Fault::Refuse(503),
        || Fault::Refuse(429),
        || Fault::CutBefore,
        || Fault::CutAfter,
        || Fault::FailAfter(500),
    ];
    for what in ["PATCH pod/status", "DELETE pod"] {
        for fault in faults {
            let cluster = one();
            cluster.fail_next(what, fault);
            let got = evicted(&cluster).await;
            assert_eq!((got.code, cluster.pods()), (201, 0), "{}", got.text());
            assert_eq!((cluster.allowed("foo"), cluster.disrupted("foo")), (2, 1));
        }
    }
}

#[tokio::test]
async fn a_deletion_that_keeps_failing_is_charged_once() {
    let cluster = one();
    cluster.fail(|call| (call.what() == "DELETE pod").then_some(Fault::Refuse(429)));
    let got = evicted(&cluster).await;
    assert_eq!((got.code, got.header("retry-after")), (429, ""));
    assert_eq!(got.cause(), "");
    assert_eq!((cluster.allowed("foo"), cluster.pods()), (2, 1));
    assert_eq!(cluster.count("DELETE pod"), 6);
}

#[tokio::test]
async fn g02_a_gateway_that_dies_between_charge_and_deletion_wastes_a_disruption() {
    let cluster = one();
    cluster.fail(|call| (call.what() == "PATCH pod/status").then_some(Fault::Hang));
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut alice = gateway.alice().await;
    let asking = tokio::spawn(async move { alice.evict("p0", Value::Null).await });
    until(|| cluster.count("PATCH pod/status") == 1).await;
    drop(gateway);
    asking.abort();
    assert_eq!((cluster.allowed("foo"), cluster.disrupted("foo")), (2, 1));
    assert_eq!((cluster.count("DELETE pod"), cluster.pods()), (0, 1));
}

#[tokio::test]
async fn a_client_waits_no_longer_than_its_timeout() {
    let cluster = one();
    cluster.fail(|call| (call.what() == "GET budgets").then_some(Fault::Hang));
    let gateway = Gateway::deciding("authoritative", &cluster);
    let target = format!("{}?timeout=300ms", path("p0"));
    let body = eviction("p0", &Value::Null);
    let got = gateway.alice().await.post(&target, &body).await;
    assert_eq!((got.code, &got.json()["reason"]), (504, &"Timeout".into()));
    assert_eq!(
        (got.cause(), got.header("retry-after")),
        (String::new(), "")
    );
    assert_eq!((cluster.writes(), cluster.pods()), (0, 1));
}

#[tokio::test]
async fn an_eviction_that_outlasts_its_clients_timeout_is_completed_in_the_background() {
    let cluster = one();
    // The patch is repeated after half a second each time, so it succeeds a second after the client's timeout.
    let mut left = 5;
    cluster.fail(move |call| {
        let fails = left > 0 && call.what() == "PATCH pod/status";
        left -= i32::from(fails);
        fails.then_some(Fault::Refuse(503))
    });
    let gateway = Gateway::deciding("authoritative", &cluster);
    let target = format!("{}?timeout=1500ms", path("p0"));
    let body = eviction("p0", &Value::Null);
    let got = gateway.alice().await.post(&target, &body).await;
    assert_eq!((got.code, got.header("retry-after")), (504, ""));
    until(|| cluster.pods() == 0).await;
    assert_eq!((cluster.allowed("foo"), cluster.disrupted("foo")), (2, 1));
}
