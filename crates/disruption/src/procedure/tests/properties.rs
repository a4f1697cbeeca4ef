//! Properties that hold for all responses of the upstream, in any order.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    CallOutcome, CallReply, Eviction, EvictionStep, MAX_CALLS, ServerClock, UpstreamCall, budget,
    crowd::Crowd, failure, pod, request, start, with_policy,
};

proptest! {
    /// Calls are lost, late or repeated, and servers report errors for calls that they have executed.
    #[test]
    fn no_more_pods_are_evicted_than_the_budget_allows(
        seed in any::<u64>(), pods in 1..8_usize, allowed in 0..6, faults in 0..60_u64,
    ) {
        let mut crowd = Crowd::new(pods, allowed, seed).with_faults(faults);
        for _ in 0..3 {
            crowd.run();
            let gone = pods - crowd.upstream.pods.len();
            let left = crowd.upstream.status()["disruptionsAllowed"].as_i64().unwrap();
            let taken = i64::from(allowed) - left;
            prop_assert!(left >= 0);
            prop_assert!(i64::try_from(gone).unwrap() <= taken);
            crowd.repeat();
        }
    }

    /// Without faults, no disruption of the budget is wasted either.
    #[test]
    fn as_many_pods_are_evicted_as_the_budget_allows(seed in any::<u64>(), pods in 1..12_usize, allowed in 0..12) {
        let mut crowd = Crowd::new(pods, allowed, seed);
        crowd.run();
        let gone = pods - crowd.upstream.pods.len();
        prop_assert_eq!(gone, pods.min(usize::try_from(allowed).unwrap()));
        let granted = crowd.codes().iter().filter(|code| **code == 201).count();
        prop_assert_eq!(granted, gone);
    }

    /// Any reply to any call.
    #[test]
    fn an_eviction_ends_with_any_sequence_of_replies(
        kinds in proptest::collection::vec(0..answers("").len(), 1..60), options in options(),
    ) {
        let mut kinds = kinds.into_iter().cycle();
        ends(options, |_, version| answers(version).swap_remove(kinds.next().unwrap()));
    }

    /// Always the same reply to the same call, which makes evictions longest.
    #[test]
    fn an_eviction_ends_if_each_call_always_gets_the_same_reply(
        kinds in proptest::collection::vec(0..answers("").len(), 6), options in options(),
    ) {
        ends(options, |call, version| {
            let kind = match call {
                UpstreamCall::GetPod { .. } => 0,
                UpstreamCall::ListBudgets { .. } => 1,
                UpstreamCall::GetBudget { .. } => 2,
                UpstreamCall::PutBudgetStatus { .. } => 3,
                UpstreamCall::PatchPodStatus { .. } => 4,
                UpstreamCall::DeletePod { .. } => 5,
            };
            answers(version).swap_remove(kinds[kind])
        });
    }
}

fn options() -> impl Strategy<Value = Value> {
    proptest::sample::select(vec![
        json!(null),
        json!({"dryRun": ["All"]}),
        json!({"preconditions": {"uid": "u"}}),
        json!({"preconditions": {"resourceVersion": "1"}}),
    ])
}

/// Valid and invalid replies; `version` is the resource version, which differs each time.
fn answers(version: &str) -> Vec<CallOutcome<String>> {
    let mut stored = budget(3, 5, 2);
    stored["metadata"]["resourceVersion"] = json!(version);
    let lenient = with_policy(stored.clone(), "AlwaysAllow");
    let list = |budget: &Value| json!({"metadata": {}, "items": [budget]});
    let endless = json!({"metadata": {"continue": version}, "items": []});
    let mut successes = vec![
        json!(null),
        json!([]),
        stored.clone(),
        list(&stored),
        list(&lenient),
        endless,
        json!({"metadata": {}, "items": [stored, lenient]}),
    ];
    for (phase, ready) in [
        ("Running", true),
        ("Running", false),
        ("Pending", false),
        ("Failed", false),
    ] {
        for resource_version in ["1", version] {
            let mut pod = pod(phase, ready);
            pod["metadata"]["resourceVersion"] = json!(resource_version);
            successes.push(pod.clone());
            pod["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            successes.push(pod);
        }
    }
    let codes = [400, 403, 404, 409, 410, 422, 429, 500, 503];
    successes
        .into_iter()
        .map(CallOutcome::Success)
        .chain(codes.map(|code| failure(code, "")))
        .chain([CallOutcome::Unknown, CallOutcome::NotSent])
        .collect()
}

/// Fails unless the eviction ends within its bound of calls, and with fewer pauses.
fn ends(options: Value, mut answer: impl FnMut(&UpstreamCall, &str) -> CallOutcome<String>) {
    let is_dry_run = options["dryRun"].is_array();
    let mut eviction = Eviction::new(request(options), ServerClock::default());
    let (mut calls, mut pauses) = (0, 0);
    loop {
        match eviction.step() {
            EvictionStep::Call(call) => {
                calls += 1;
                assert!(calls <= MAX_CALLS);
                assert!(!is_dry_run || call.is_read_only());
                let outcome = answer(&call, &calls.to_string());
                eviction.replied(CallReply {
                    outcome,
                    sent: start(),
                    received: start(),
                    date: None,
                });
            }
            EvictionStep::Pause(_) => {
                pauses += 1;
                assert!(pauses <= calls);
                eviction.paused();
            }
            EvictionStep::Done(_) => break,
        }
    }
}
