//! Evictions that the gateway carries out itself (`eviction.mode: authoritative`).

use serde_json::{Value, json};

use super::{
    GRANTED,
    cluster::{Cluster, Fault, budget, pod},
    gateway::{Gateway, Got, eviction, path},
};
use crate::{client::soon, failures::until};

const PROCESSED: &str = "The disruption budget foo is still being processed by the server.";

/// Evicts `p0` through an authoritative gateway.
async fn evicted(cluster: &Cluster, options: Value) -> Got {
    let gateway = Gateway::deciding("authoritative", cluster);
    gateway.alice().await.evict("p0", options).await
}

fn one(budget: Value) -> Cluster {
    Cluster::start().with_ready_pods(1).with_budget(budget)
}

fn own_requests(cluster: &Cluster) -> Vec<String> {
    let calls = cluster.calls();
    assert!(calls.iter().all(|call| call.user.is_empty()), "{calls:?}");
    cluster.seen()
}

#[tokio::test]
async fn e10_a_ready_pod_takes_from_its_budget_before_it_is_deleted() {
    let cluster = one(budget(1, 3, 2));
    let got = evicted(&cluster, json!({"gracePeriodSeconds": 7})).await;
    assert_eq!((got.code, &*got.text()), (201, GRANTED));
    let steps = [
        "POST review",
        "GET pod",
        "GET budgets",
        "PUT budget/status",
        "PATCH pod/status",
        "DELETE pod",
    ];
    assert_eq!(own_requests(&cluster), steps);
    let status = &cluster.budget("foo")["status"];
    assert_eq!(
        (&status["disruptionsAllowed"], &status["alsoUnknown"]),
        (&json!(0), &json!(7))
    );
    assert!(status["disruptedPods"]["p0"].is_string());
    assert_eq!(cluster.budget("foo")["spec"]["unknown"]["kept"], true);
    let options: Value = serde_json::from_slice(&cluster.calls()[5].body).unwrap();
    assert_eq!(
        options,
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 7,
            "preconditions": {"uid": "uid-of-p0"}})
    );
}

#[tokio::test]
async fn e09_an_exhausted_budget_refuses_without_retry_after() {
    let cluster = one(budget(0, 2, 2));
    let got = evicted(&cluster, Value::Null).await;
    assert_eq!(
        got.text(),
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"Cannot evict pod as it would violate the pod's disruption budget.","#,
            r#""reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget","#,
            r#""message":"The disruption budget foo needs 2 healthy pods and has 2 currently"}]},"#,
            r#""code":429}"#,
            "\n"
        )
    );
    assert_eq!((got.code, got.header("retry-after")), (429, ""));
    assert_eq!(got.header("x-fairgate-reason"), "budget-exhausted");
    assert_eq!((cluster.writes(), cluster.pods()), (0, 1));
}

#[tokio::test]
async fn e22_an_eviction_is_refused_while_its_budget_is_still_being_processed() {
    let mut unseen = budget(5, 9, 2);
    unseen["metadata"]["generation"] = json!(2);
    let cluster = one(unseen);
    let got = evicted(&cluster, Value::Null).await;
    assert_eq!((got.code, got.header("retry-after")), (429, "10"));
    assert_eq!(got.cause(), PROCESSED);
    assert_eq!(got.json()["details"]["retryAfterSeconds"], 10);
    assert_eq!(cluster.writes(), 0);
}

#[tokio::test]
async fn e20_e23_e24_e26_other_refusals_change_nothing() {
    let mut crowded = budget(3, 9, 2);
    let entries = (0..2001).map(|index| (format!("x{index}"), json!("2024-01-01T00:00:00Z")));
    crowded["status"]["disruptedPods"] = entries.collect::<serde_json::Map<_, _>>().into();
    let mut second = budget(3, 9, 2);
    second["metadata"]["name"] = json!("bar");
    let cases = [
        (
            one(budget(1, 9, 2)).with_budget(second),
            500,
            "This pod has more than one PodDisruptionBudget",
        ),
        (
            one(budget(-1, 9, 2)),
            403,
            "poddisruptionbudget.policy \"foo\" is forbidden: pdb disruptions",
        ),
        (
            one(crowded),
            403,
            "poddisruptionbudget.policy \"foo\" is forbidden: DisruptedPods map too big",
        ),
        (Cluster::start(), 404, "not found"),
    ];
    for (cluster, code, message) in cases {
        let got = evicted(&cluster, Value::Null).await;
        let text = got.json()["message"].as_str().unwrap().to_owned();
        assert!(
            got.code == code && text.starts_with(message),
            "{}",
            got.text()
        );
        assert_eq!(cluster.writes(), 0, "{message}");
    }
}

#[tokio::test]
async fn e24_two_thousand_unconfirmed_evictions_are_not_too_many() {
    let mut crowded = budget(3, 9, 2);
    let entries = (0..2000).map(|index| (format!("x{index}"), json!("2024-01-01T00:00:00Z")));
    crowded["status"]["disruptedPods"] = entries.collect::<serde_json::Map<_, _>>().into();
    let cluster = one(crowded);
    assert_eq!(evicted(&cluster, Value::Null).await.code, 201);
    assert_eq!(cluster.disrupted("foo"), 2001);
}

#[tokio::test]
async fn e11_w07_an_unready_pod_is_evicted_at_once_without_its_budget() {
    let mut always = budget(0, 0, 0);
    always["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    for budget in [budget(0, 2, 2), always] {
        let unready = pod("p0", "Running", false);
        let cluster = Cluster::start().with_pod(unready).with_budget(budget);
        assert_eq!(evicted(&cluster, Value::Null).await.code, 201);
        assert_eq!((cluster.count("PUT budget/status"), cluster.pods()), (0, 0));
        assert_eq!(cluster.writes(), 2);
    }
}

#[tokio::test]
async fn e14_an_eviction_of_an_unready_pod_that_changes_meanwhile_is_refused() {
    let cluster = Cluster::start()
        .with_pod(pod("p0", "Running", false))
        .with_budget(budget(0, 2, 2));
    cluster.fail_next("PATCH pod/status", || Fault::Refuse(409));
    let got = evicted(&cluster, Value::Null).await;
    assert_eq!(
        (got.code, &*got.cause(), got.header("retry-after")),
        (429, PROCESSED, "10")
    );
    assert_eq!(cluster.pods(), 1);
}

#[tokio::test]
async fn e01_e08_pods_that_need_no_budget_are_deleted_without_one() {
    for phase in ["Pending", "Succeeded", "Failed"] {
        let cluster = Cluster::start()
            .with_pod(pod("p0", phase, false))
            .with_budget(budget(0, 2, 2));
        cluster.fail_next("DELETE pod", || Fault::Refuse(409));
        assert_eq!(evicted(&cluster, Value::Null).await.code, 201, "{phase}");
        let seen = cluster.seen();
        assert!(!seen.iter().any(|what| what.contains("budget")), "{seen:?}");
        assert_eq!((cluster.count("DELETE pod"), cluster.pods()), (2, 0));
    }
}

#[tokio::test]
async fn e27_w01_a_dry_run_changes_nothing() {
    let dry = json!({"dryRun": ["All"]});
    for (query, options) in [
        ("?dryRun=All", Value::Null),
        ("", dry.clone()),
        ("?dryRun=All", dry),
    ] {
        let cluster = one(budget(1, 3, 2));
        let before = (cluster.budget("foo"), cluster.pod("p0"));
        let gateway = Gateway::deciding("authoritative", &cluster);
        let target = format!("{}{query}", path("p0"));
        let got = gateway
            .alice()
            .await
            .post(&target, &eviction("p0", &options))
            .await;
        assert_eq!((got.code, &*got.text()), (201, GRANTED));
        assert_eq!((cluster.budget("foo"), cluster.pod("p0")), before);
        // The upstream checks admission and preconditions.
        assert_eq!((cluster.count("DELETE pod"), cluster.writes()), (1, 1));
    }
}

#[tokio::test]
async fn e32_e35_w08_preconditions_are_compared_before_the_budget_is_charged() {
    for (preconditions, code) in [
        (json!({"resourceVersion": "1"}), 201),
        (json!({"uid": "uid-of-p0"}), 201),
        (json!({"uid": "uid-of-p0", "resourceVersion": "1"}), 201),
        (json!({"resourceVersion": "7"}), 409),
        (json!({"uid": "other"}), 409),
    ] {
        let cluster = one(budget(1, 3, 2));
        let got = evicted(&cluster, json!({"preconditions": preconditions})).await;
        assert_eq!(got.code, code, "{preconditions}: {}", got.text());
        assert_eq!(cluster.allowed("foo"), i64::from(code == 409));
        assert_eq!(cluster.pods(), usize::from(code == 409));
        if code == 409 {
            assert_eq!(got.json()["reason"], "Conflict");
            assert!(
                got.text().contains(" in the precondition ("),
                "{}",
                got.text()
            );
        }
    }
}

#[tokio::test]
async fn e33_a_pod_with_a_finalizer_stays_and_has_the_condition() {
    let cluster = one(budget(1, 3, 2));
    cluster.change_pod("p0", |pod| pod["metadata"]["finalizers"] = json!(["x/y"]));
    assert_eq!(evicted(&cluster, Value::Null).await.code, 201);
    let pod = cluster.pod("p0").unwrap();
    let condition = &pod["status"]["conditions"][1];
    assert_eq!(
        (
            &condition["type"],
            &condition["reason"],
            &condition["message"]
        ),
        (
            &json!("DisruptionTarget"),
            &json!("EvictionByEvictionAPI"),
            &json!("Eviction API: evicting")
        )
    );
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn e34_a_budget_that_vanishes_between_attempts_is_not_found() {
    let cluster = one(budget(1, 3, 2));
    cluster.fail(|call| match call.what().as_str() {
        "PUT budget/status" => Some(Fault::Refuse(409)),
        "GET budget" => Some(Fault::Refuse(404)),
        _ => None,
    });
    let got = evicted(&cluster, Value::Null).await;
    assert_eq!(
        (got.code, cluster.pods(), cluster.allowed("foo")),
        (404, 1, 1)
    );
}

/// Evicts all pods at once, each through one of the gateways, and returns the codes.
async fn evict_all(gateways: &[&Gateway], pods: usize) -> Vec<u16> {
    let mut all = Vec::new();
    for index in 0..pods {
        let mut alice = gateways[index % gateways.len()].alice().await;
        all.push(tokio::spawn(async move {
            loop {
                let got = alice.evict(&format!("p{index}"), Value::Null).await;
                // Client libraries retry in the same way.
                if got.header("retry-after").is_empty() {
                    return got.code;
                }
            }
        }));
    }
    let mut codes = Vec::new();
    for one in all {
        codes.push(one.await.unwrap());
    }
    codes.sort_unstable();
    codes
}

#[tokio::test]
async fn w04_w06_concurrent_evictions_use_exactly_the_disruptions_that_the_budget_allows() {
    for (pods, allowed) in [(10, 10), (10, 3)] {
        let cluster = Cluster::start().with_ready_pods(pods).with_budget(budget(
            i64::try_from(allowed).unwrap(),
            20,
            10,
        ));
        let gateway = Gateway::deciding("authoritative", &cluster);
        let codes = evict_all(&[&gateway], pods).await;
        let granted = codes.iter().filter(|code| **code == 201).count();
        let refused = codes.iter().filter(|code| **code == 429).count();
        assert_eq!((granted, refused), (allowed, pods - allowed), "{codes:?}");
        assert_eq!(
            (cluster.allowed("foo"), cluster.pods()),
            (0, pods - allowed)
        );
        assert_eq!(cluster.disrupted("foo"), allowed);
    }
}

#[tokio::test]
async fn evictions_of_one_gateway_take_turns_and_do_not_conflict() {
    let cluster = Cluster::start()
        .with_ready_pods(50)
        .with_budget(budget(50, 100, 50));
    let gateway = Gateway::deciding("authoritative", &cluster);
    let codes = evict_all(&[&gateway], 50).await;
    assert_eq!(codes, [201; 50]);
    // Each eviction that was overtaken reads the budget again, instead of losing its write and pausing.
    let puts = cluster.count("PUT budget/status");
    assert!(puts <= 60, "{puts}");
}

#[tokio::test]
async fn w05_evictions_through_different_gateways_share_the_budget() {
    let cluster = Cluster::start()
        .with_ready_pods(8)
        .with_budget(budget(6, 20, 10));
    let gateways = [(); 2].map(|()| Gateway::deciding("authoritative", &cluster));
    let codes = evict_all(&[&gateways[0], &gateways[1]], 8).await;
    assert_eq!(codes, [201, 201, 201, 201, 201, 201, 429, 429]);
    assert_eq!((cluster.allowed("foo"), cluster.disrupted("foo")), (0, 6));
}

#[tokio::test]
async fn a_client_that_disconnects_before_the_budget_is_charged_changes_nothing() {
    let cluster = one(budget(1, 3, 2));
    cluster.fail_next("GET budgets", || Fault::Hang);
    let gateway = Gateway::deciding("authoritative", &cluster);
    let alice = gateway.alice().await;
    alice
        .evict_and_disconnect("p0", || cluster.count("GET budgets") == 1)
        .await;
    soon(async { while gateway.counted("authoritative", "abandoned").await == 0 {} }).await;
    assert_eq!((cluster.writes(), cluster.pods()), (0, 1));
}

#[tokio::test]
async fn a_client_that_disconnects_after_the_budget_is_charged_has_its_pod_evicted() {
    let cluster = one(budget(1, 3, 2));
    // The patch is applied, but its response is an error.
    let mut hung = false;
    cluster.fail(move |call| {
        let hangs = !hung && call.what() == "PATCH pod/status";
        hung |= hangs;
        hangs.then_some(Fault::FailAfter(503))
    });
    let gateway = Gateway::deciding("authoritative", &cluster);
    let alice = gateway.alice().await;
    // The patch is repeated after a pause, during which the client disconnects.
    alice
        .evict_and_disconnect("p0", || cluster.count("PATCH pod/status") == 1)
        .await;
    until(|| cluster.pods() == 0).await;
    assert_eq!((cluster.allowed("foo"), cluster.disrupted("foo")), (0, 1));
    soon(async { while gateway.counted("authoritative", "granted").await == 0 {} }).await;
}

#[tokio::test]
async fn g04_a_grant_is_recorded_with_the_upstreams_time() {
    let now = || i64::try_from(fairgate_base::clock::Clock::system().unix_seconds()).unwrap();
    for ahead in [-180, 0, 180] {
        let began = now();
        let cluster = one(budget(1, 3, 2));
        cluster.set_ahead(ahead);
        assert_eq!(evicted(&cluster, Value::Null).await.code, 201);
        let entry = cluster.budget("foo")["status"]["disruptedPods"]["p0"].clone();
        let entry: jiff::Timestamp = entry.as_str().unwrap().parse().unwrap();
        // The upstream's clock is told by its responses, in whole seconds, and each of them takes at most as long as all of this.
        let (recorded, took) = (entry.as_second() - ahead, now() - began);
        let possible = began - took - 2..=began + took + 2;
        assert!(
            possible.contains(&recorded),
            "{recorded} is not in {possible:?}"
        );
    }
}

#[tokio::test]
async fn g07_a_rejection_by_flow_control_does_not_look_like_a_refusal_by_a_budget() {
    let cluster = one(budget(1, 3, 2));
    let policies = json!({"eviction": {"mode": "authoritative"},
        "limits": {"queuedRequests": 1}, "flowControl": {"totalSeats": 1}});
    let gateway = Gateway::with(&cluster, policies);
    cluster.fail(|call| (call.what() == "GET pod").then_some(Fault::Hang));
    // One executes and hangs, one waits, and all others are rejected.
    let mut evictions = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut alice = gateway.alice().await;
        evictions.spawn(async move { alice.evict("p0", Value::Null).await });
    }
    let got = evictions.join_next().await.unwrap().unwrap();
    assert_eq!(got.code, 429);
    assert!(!got.header("retry-after").is_empty());
    assert!(!got.text().contains("DisruptionBudget"));
    assert_eq!((cluster.writes(), cluster.allowed("foo")), (0, 1));
}
