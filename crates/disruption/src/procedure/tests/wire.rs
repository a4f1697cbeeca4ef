//! The scenarios about responses, as far as they can be tested without a connection, and many evictions at once.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    EvictionRequest, EvictionResult, EvictionStatus, Outcome, Upstream, UpstreamCall, budget,
    crowd::Crowd, evict, pod, request, run, with_policy,
};

#[test]
fn w01_the_response_to_a_granted_eviction_is_a_status_with_201() {
    let body = json!({"metadata": {"name": "p"}});
    let request = EvictionRequest::new("ns", "p", &["All".to_owned()], &body).unwrap();
    let mut upstream = Upstream::default().with_pod(pod("Running", true));
    let outcome = run(&mut upstream, request);
    let text = serde_json::to_string(&outcome.status()).unwrap();
    let expected =
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#;
    assert_eq!(text, expected);
}

#[test]
fn refusals_are_byte_for_byte_those_of_kube_apiserver() {
    let text = |outcome: &Outcome| serde_json::to_string(&outcome.status()).unwrap();
    let mut upstream = Upstream::default()
        .with_pod(pod("Running", true))
        .with_budget(budget(0, 2, 2));
    let expected = concat!(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"Cannot evict pod as it would violate the pod's disruption budget.","#,
        r#""reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget","#,
        r#""message":"The disruption budget foo needs 2 healthy pods and has 2 currently"}]},"#,
        r#""code":429}"#
    );
    assert_eq!(text(&evict(&mut upstream)), expected);
    upstream.budgets.get_mut("foo").unwrap()["metadata"]["generation"] = json!(2);
    let expected = concat!(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"Cannot evict pod as it would violate the pod's disruption budget.","#,
        r#""reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget","#,
        r#""message":"The disruption budget foo is still being processed by the server."}],"#,
        r#""retryAfterSeconds":10},"code":429}"#
    );
    assert_eq!(text(&evict(&mut upstream)), expected);
    assert_eq!(EvictionStatus::evicted().retry_after(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn w04_clients_that_repeat_only_429_see_no_conflict(seed in any::<u64>()) {
        let mut crowd = Crowd::new(10, 10, seed);
        for _ in 0..20 {
            crowd.run();
            let codes = crowd.codes();
            prop_assert!(codes.iter().all(|code| *code == 201 || *code == 429), "{codes:?}");
            if crowd.upstream.pods.is_empty() {
                break;
            }
            crowd.repeat();
        }
        prop_assert!(crowd.upstream.pods.is_empty());
    }

    #[test]
    fn w05_a_budget_of_six_allows_six_evictions(seed in any::<u64>()) {
        let mut crowd = Crowd::new(6, 6, seed);
        crowd.run();
        prop_assert_eq!(crowd.codes(), [201; 6]);
        prop_assert_eq!(&crowd.upstream.status()["disruptionsAllowed"], 0);
        let entries = crowd.upstream.status()["disruptedPods"].as_object().unwrap().len();
        prop_assert_eq!(entries, 6);
    }

    #[test]
    fn w06_a_budget_of_three_allows_three_of_ten_evictions(seed in any::<u64>()) {
        let mut crowd = Crowd::new(10, 3, seed);
        crowd.run();
        let granted = crowd.codes().iter().filter(|code| **code == 201).count();
        prop_assert_eq!(granted, 3);
        prop_assert!(crowd.codes().iter().all(|code| *code == 201 || *code == 429));
    }
}

#[test]
fn w07_an_unready_pod_under_always_allow_takes_one_request() {
    let mut upstream = Upstream::default()
        .with_pod(pod("Running", false))
        .with_budget(with_policy(budget(0, 0, 0), "AlwaysAllow"));
    let outcome = evict(&mut upstream);
    assert_eq!(
        (outcome.code(), outcome.pauses, upstream.deletes()),
        (201, 0, 1)
    );
}

#[test]
fn w08_preconditions_are_answered_by_one_request() {
    for (preconditions, code) in [
        (json!({"resourceVersion": "1"}), 201),
        (json!({"uid": "u"}), 201),
        (json!({"resourceVersion": "1", "uid": "u"}), 201),
        (json!({"resourceVersion": "7"}), 409),
        (json!({"uid": "v"}), 409),
    ] {
        for phase in ["Running", "Pending", "Succeeded"] {
            let mut upstream = Upstream::default().with_pod(pod(phase, true));
            let options = json!({"preconditions": preconditions.clone()});
            let outcome = run(&mut upstream, request(options));
            assert_eq!((outcome.code(), outcome.pauses), (code, 0), "{phase}");
        }
    }
}

#[test]
fn the_deletion_is_guarded_by_the_version_that_the_patch_made() {
    let mut upstream = Upstream::default().with_pod(pod("Pending", false));
    assert_eq!(evict(&mut upstream).code(), 201);
    let [
        _,
        UpstreamCall::PatchPodStatus { patch, .. },
        UpstreamCall::DeletePod { options, .. },
    ] = upstream.calls.as_slice()
    else {
        panic!("{:?}", upstream.calls);
    };
    assert_eq!(
        patch["metadata"],
        json!({"uid": "u", "resourceVersion": "1"})
    );
    assert_eq!(
        options["preconditions"],
        json!({"uid": "u", "resourceVersion": "2"})
    );
}

#[test]
fn a_budget_that_never_allows_refuses_with_the_same_body_and_says_why() {
    let refusal = |spec: Value| {
        let mut of = budget(0, 2, 2);
        of["spec"]["maxUnavailable"] = Value::Null;
        for (name, value) in spec.as_object().unwrap() {
            of["spec"][name] = value.clone();
        }
        of["status"]["expectedPods"] = json!(2);
        let mut upstream = Upstream::default()
            .with_pod(pod("Running", true))
            .with_budget(of);
        match evict(&mut upstream).result {
            EvictionResult::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let usual = refusal(json!({"maxUnavailable": 1}));
    assert_eq!(usual.never(), None);
    for spec in [
        json!({"maxUnavailable": 0}),
        json!({"maxUnavailable": "0%"}),
        json!({"minAvailable": 2}),
    ] {
        let never = refusal(spec);
        assert!(never.never().is_some());
        assert_eq!(never.status(), usual.status());
        let cause = "The disruption budget foo needs 2 healthy pods and has 2 currently";
        assert_eq!(never.cause(), cause);
    }
}
