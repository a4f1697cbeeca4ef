//! The check in front of an upstream that enforces budgets itself: it refuses, but never grants.

use serde_json::{Value, json};

use super::{
    CallOutcome, CallReply, EvictionRequest, Upstream, budget, failure, pod, request, start,
    with_policy,
};
use crate::procedure::precheck::{Precheck, PrecheckStep};

/// The reason of the refusal; `None` if the request is forwarded.
fn check(upstream: &mut Upstream, request: EvictionRequest) -> Option<&'static str> {
    let mut check: Precheck<String> = Precheck::new(request);
    loop {
        match check.step() {
            PrecheckStep::Call(call) => {
                assert!(call.is_read_only());
                let outcome = upstream.call(&call);
                check.replied(CallReply {
                    outcome,
                    sent: start(),
                    received: start(),
                    date: None,
                });
            }
            PrecheckStep::Refuse(refusal) => return Some(refusal.reason()),
            PrecheckStep::Forward => return None,
        }
    }
}

fn with(pod: Value, budgets: &[Value]) -> Upstream {
    let upstream = Upstream::default().with_pod(pod);
    budgets.iter().fold(upstream, |upstream, budget| {
        upstream.with_budget(budget.clone())
    })
}

fn renamed(mut budget: Value) -> Value {
    budget["metadata"]["name"] = json!("bar");
    budget
}

fn unprocessed(mut budget: Value) -> Value {
    budget["metadata"]["generation"] = json!(2);
    budget
}

#[test]
fn certain_refusals_are_made_and_other_requests_are_forwarded() {
    let ready = || pod("Running", true);
    let many: serde_json::Map<_, _> = (0..2001)
        .map(|n| (format!("p{n}"), json!("2024-01-01T00:00:00Z")))
        .collect();
    let mut too_many = budget(1, 1, 0);
    too_many["status"]["disruptedPods"] = json!(many);
    for (pod, budgets, expected) in [
        (ready(), vec![budget(0, 2, 2)], Some("budget-exhausted")),
        (
            ready(),
            vec![unprocessed(budget(5, 5, 0))],
            Some("budget-not-processed"),
        ),
        (ready(), vec![budget(-1, 0, 0)], Some("budget-negative")),
        (ready(), vec![too_many], Some("too-many-disrupted-pods")),
        (
            ready(),
            vec![budget(5, 5, 0), renamed(budget(5, 5, 0))],
            Some("several-budgets"),
        ),
        (ready(), vec![budget(1, 3, 2)], None),
        (ready(), vec![], None),
        (pod("Pending", false), vec![budget(0, 2, 2)], None),
        (pod("Running", false), vec![budget(0, 2, 2)], None),
        (
            pod("Running", false),
            vec![budget(0, 1, 2)],
            Some("budget-exhausted"),
        ),
        (
            pod("Running", false),
            vec![with_policy(budget(0, 1, 2), "AlwaysAllow")],
            None,
        ),
    ] {
        let mut upstream = with(pod, &budgets);
        assert_eq!(
            check(&mut upstream, request(Value::Null)),
            expected,
            "{budgets:?}"
        );
        assert_eq!((upstream.writes(), upstream.deletes()), (0, 0));
    }
}

#[test]
fn in_doubt_the_upstream_decides() {
    let exhausted = || with(pod("Running", true), &[budget(0, 2, 2)]);
    for outcome in [
        failure(500, "broken"),
        failure(403, "no"),
        CallOutcome::Unknown,
    ] {
        let mut upstream = exhausted().with_fault(move |_, _| Some(outcome.clone()));
        assert_eq!(check(&mut upstream, request(Value::Null)), None);
    }
    let absent = check(&mut Upstream::default(), request(Value::Null));
    assert_eq!(absent, Some("pod-gone"));
    // The upstream may have another pod with this name.
    let other = json!({"preconditions": {"uid": "v"}});
    assert_eq!(check(&mut exhausted(), request(other)), None);
    let dry = json!({"dryRun": ["All"]});
    assert_eq!(
        check(&mut exhausted(), request(dry.clone())),
        Some("budget-exhausted")
    );
    let mut free = with(pod("Running", true), &[budget(1, 3, 2)]);
    assert_eq!(check(&mut free, request(dry)), None);
    assert_eq!(free.deletes(), 0);
}
