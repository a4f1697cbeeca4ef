//! Calls whose outcome is unknown, failing servers, and gateways that stop in the middle of an eviction.

use std::{cell::RefCell, rc::Rc, time::Duration};

use serde_json::{Value, json};

use super::{
    CallOutcome, CallReply, Eviction, EvictionResult, EvictionStep, ServerClock, Upstream,
    UpstreamCall, budget, evict, failure, pod, request, run, start, with_policy,
};
use crate::{
    budget::DisruptionBudget,
    controller::sync::{Scales, SyncResult, sync},
    pod::Pod,
};

fn upstream() -> Upstream {
    Upstream::default()
        .with_pod(pod("Running", true))
        .with_budget(budget(3, 5, 2))
}

fn is_put(call: &UpstreamCall) -> bool {
    matches!(call, UpstreamCall::PutBudgetStatus { .. })
}

fn is_delete(call: &UpstreamCall) -> bool {
    matches!(call, UpstreamCall::DeletePod { .. })
}

/// The first call that `which` selects gets no response; `applied` says whether it is executed.
fn unknown(which: fn(&UpstreamCall) -> bool, applied: bool) -> Upstream {
    let mut first = true;
    upstream().with_fault(move |upstream, call| {
        if !which(call) || !std::mem::take(&mut first) {
            return None;
        }
        if applied {
            upstream.carry_out(call);
        }
        Some(CallOutcome::Unknown)
    })
}

fn allowed(upstream: &Upstream) -> i64 {
    upstream.status()["disruptionsAllowed"].as_i64().unwrap()
}

#[test]
fn g03_a_charge_that_was_stored_although_it_timed_out_is_found() {
    let mut upstream = unknown(is_put, true);
    assert_eq!(evict(&mut upstream).code(), 201);
    assert_eq!((allowed(&upstream), upstream.deletes()), (2, 1));
    let puts = upstream.calls.iter().filter(|call| is_put(call)).count();
    assert_eq!(puts, 1);
}

#[test]
fn a_charge_that_was_lost_is_repeated() {
    let mut upstream = unknown(is_put, false);
    assert_eq!(evict(&mut upstream).code(), 201);
    assert_eq!((allowed(&upstream), upstream.deletes()), (2, 1));
}

#[test]
fn a_charge_that_is_stored_late_is_found_too() {
    let late: Rc<RefCell<Option<UpstreamCall>>> = Rc::default();
    let mut puts = 0;
    let mut upstream = upstream().with_fault(move |upstream, call| {
        if !is_put(call) {
            return None;
        }
        puts += 1;
        if puts == 1 {
            *late.borrow_mut() = Some(call.clone());
            return Some(CallOutcome::Unknown);
        }
        // The first arrives just before the second.
        if let Some(first) = late.borrow_mut().take() {
            upstream.carry_out(&first);
        }
        None
    });
    assert_eq!(evict(&mut upstream).code(), 201);
    assert_eq!((allowed(&upstream), upstream.deletes()), (2, 1));
}

#[test]
fn after_a_server_error_the_charge_is_looked_up_and_if_absent_the_error_passed_on() {
    for applied in [true, false] {
        let mut upstream = upstream().with_fault(move |upstream, call| {
            if !is_put(call) {
                return None;
            }
            if applied {
                upstream.carry_out(call);
            }
            Some(failure(500, "etcd timed out"))
        });
        let outcome = evict(&mut upstream);
        if applied {
            assert_eq!((outcome.code(), allowed(&upstream)), (201, 2));
        } else {
            assert_eq!((outcome.code(), allowed(&upstream)), (500, 3));
            assert_eq!(upstream.deletes(), 0);
        }
    }
}

#[test]
fn a_charge_that_never_gets_a_response_deletes_nothing() {
    let mut upstream = upstream().with_fault(|_, call| {
        let is_budget = is_put(call) || matches!(call, UpstreamCall::GetBudget { .. });
        is_budget.then_some(CallOutcome::Unknown)
    });
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.deletes()), (504, 0));
    assert_eq!(outcome.json()["details"], Value::Null);
}

#[test]
fn an_eviction_whose_budget_other_clients_always_change_first_is_refused() {
    let mut upstream = upstream().with_fault(|upstream, call| {
        if is_put(call) {
            let version = upstream.next_version();
            upstream.budgets.get_mut("foo").unwrap()["metadata"]["resourceVersion"] = version;
        }
        None
    });
    let outcome = evict(&mut upstream);
    assert!(outcome.is_still_processed());
    let puts = upstream.calls.iter().filter(|call| is_put(call)).count();
    assert_eq!((puts, outcome.pauses, upstream.deletes()), (20, 19, 0));
}

#[test]
fn a_deletion_that_was_executed_although_it_timed_out_is_found() {
    let mut upstream = unknown(is_delete, true);
    assert_eq!(evict(&mut upstream).code(), 201);
    assert_eq!((upstream.deletes(), allowed(&upstream)), (1, 2));

    let mut upstream = unknown(is_delete, true);
    upstream.pod()["metadata"]["finalizers"] = json!(["example.com/keep"]);
    assert_eq!(evict(&mut upstream).code(), 201);
    assert_eq!(upstream.deletes(), 1);
}

#[test]
fn a_deletion_that_was_lost_is_repeated_for_the_same_pod_only() {
    let mut upstream = unknown(is_delete, false);
    assert_eq!(evict(&mut upstream).code(), 201);
    let Some(UpstreamCall::DeletePod { options, .. }) = upstream.calls.last() else {
        panic!("the last call deletes");
    };
    assert_eq!(options["preconditions"], json!({"uid": "u"}));

    // The deletion was executed, and a new pod has the same name.
    for seen_by_look_up in [true, false] {
        let mut deletes = 0;
        let replace = |upstream: &mut Upstream| {
            upstream.change_pod(|pod| pod["metadata"]["uid"] = json!("new"));
        };
        let mut upstream = super::faults::upstream().with_fault(move |upstream, call| {
            if !is_delete(call) {
                return None;
            }
            deletes += 1;
            let replaces = if seen_by_look_up { 1 } else { 2 };
            if deletes == replaces {
                replace(upstream);
            }
            (deletes == 1).then_some(CallOutcome::Unknown)
        });
        assert_eq!(evict(&mut upstream).code(), 201);
        assert_eq!(upstream.pod()["metadata"]["uid"], "new");
    }
}

#[test]
fn once_the_budget_is_charged_failed_calls_of_the_deletion_are_repeated() {
    for (failures, code) in [(5, 201), (6, 503)] {
        let mut left = failures;
        let mut upstream = upstream().with_fault(move |_, call| {
            let fails = matches!(call, UpstreamCall::PatchPodStatus { .. }) && left > 0;
            left -= usize::from(fails);
            fails.then(|| failure(503, "busy"))
        });
        assert_eq!(evict(&mut upstream).code(), code);
        assert_eq!(upstream.deletes(), usize::from(code == 201));
    }
}

#[test]
fn a_call_that_conflicts_without_a_changed_pod_is_repeated() {
    let uid = || json!({"preconditions": {"uid": "u"}});
    for options in [Value::Null, uid()] {
        let mut left = 2;
        let mut upstream = upstream().with_fault(move |_, call| {
            let fails = matches!(call, UpstreamCall::PatchPodStatus { .. }) && left > 0;
            left -= i32::from(fails);
            fails.then(|| failure(409, "busy"))
        });
        assert_eq!(run(&mut upstream, request(options)).code(), 201);
        assert_eq!((allowed(&upstream), upstream.deletes()), (2, 1));
    }
    // The pod was replaced: it is gone, or not the one that the caller demands.
    for (options, code) in [(Value::Null, 404), (uid(), 409)] {
        let mut upstream = upstream().with_fault(|upstream, call| {
            if matches!(call, UpstreamCall::PatchPodStatus { .. }) {
                upstream.change_pod(|pod| pod["metadata"]["uid"] = json!("new"));
            }
            None
        });
        let outcome = run(&mut upstream, request(options));
        assert_eq!((outcome.code(), upstream.deletes()), (code, 0));
        assert!(matches!(outcome.result, EvictionResult::Refused(_)));
    }
}

#[test]
fn a_patch_whose_outcome_is_unknown_may_have_changed_a_demanded_resource_version() {
    // It is unknown whether the pod is still as the caller knew it.
    let lost = |applied: bool| {
        let mut first = true;
        move |upstream: &mut Upstream, call: &UpstreamCall| {
            let is_patch = matches!(call, UpstreamCall::PatchPodStatus { .. });
            if !is_patch || !std::mem::take(&mut first) {
                return None;
            }
            if applied {
                upstream.carry_out(call);
            }
            Some(CallOutcome::Unknown)
        }
    };
    let options = || request(json!({"preconditions": {"resourceVersion": "1"}}));
    for (applied, code) in [(true, 409), (false, 201)] {
        let mut upstream = upstream().with_fault(lost(applied));
        assert_eq!(run(&mut upstream, options()).code(), code);
    }
    // It is also unknown whether an unready pod has become ready; the client has to retry.
    let unready = Upstream::default()
        .with_pod(pod("Running", false))
        .with_budget(with_policy(budget(0, 0, 0), "AlwaysAllow"));
    let outcome = evict(&mut unready.with_fault(lost(true)));
    assert!(outcome.is_still_processed());
}

#[test]
fn a_pending_pod_whose_deletion_got_no_response_is_not_reported_missing() {
    let mut first = true;
    let mut upstream = Upstream::default()
        .with_pod(pod("Pending", false))
        .with_fault(move |upstream, call| {
            if !is_delete(call) || !std::mem::take(&mut first) {
                return None;
            }
            upstream.carry_out(call);
            Some(CallOutcome::Unknown)
        });
    assert_eq!(evict(&mut upstream).code(), 201);
    assert_eq!(upstream.deletes(), 1);
}

#[test]
fn g06_if_budgets_cannot_be_listed_nothing_is_evicted() {
    for outcome in [
        failure(403, "no rights"),
        failure(500, "broken"),
        failure(429, "too many requests"),
        CallOutcome::Unknown,
        CallOutcome::NotSent,
        CallOutcome::Success(json!({"items": [{"metadata": {}}]})),
        CallOutcome::Success(json!({"items": {}})),
    ] {
        let lists = |call: &UpstreamCall| matches!(call, UpstreamCall::ListBudgets { .. });
        let answer = outcome.clone();
        let mut upstream =
            upstream().with_fault(move |_, call| lists(call).then(|| answer.clone()));
        let came_to = evict(&mut upstream);
        assert_eq!(upstream.writes(), 0);
        match outcome {
            CallOutcome::Failure { code, .. } => {
                assert!(matches!(came_to.result, EvictionResult::Upstream { .. }));
                assert_eq!(came_to.code(), code);
            }
            CallOutcome::Success(_) => assert_eq!(came_to.code(), 500),
            CallOutcome::NotSent | CallOutcome::Unknown => {
                assert_eq!(came_to.code(), 503);
                assert_eq!(came_to.json()["reason"], "ServiceUnavailable");
            }
        }
    }
}

#[test]
fn g02_a_charge_without_a_deletion_expires_after_two_minutes() {
    let mut upstream = upstream();
    let mut eviction: Eviction<String> =
        Eviction::new(request(Value::Null), ServerClock::default());
    let mut was_committed = Vec::new();
    loop {
        let EvictionStep::Call(call) = eviction.step() else {
            panic!("nothing fails");
        };
        was_committed.push(eviction.is_committed());
        if matches!(call, UpstreamCall::PatchPodStatus { .. }) {
            break;
        }
        let outcome = upstream.call(&call);
        eviction.replied(CallReply {
            outcome,
            sent: start(),
            received: start(),
            date: None,
        });
    }
    // Before: the read of the pod, the list of budgets, the charge, the patch.
    assert_eq!(was_committed, [false, false, true, true]);
    drop(eviction);
    assert_eq!((allowed(&upstream), upstream.pods.len()), (2, 1));

    let others = (1..5).map(|n| {
        let mut other = pod("Running", true);
        other["metadata"]["name"] = json!(format!("q{n}"));
        other
    });
    let pods: Vec<Pod> = others
        .chain([pod("Running", true)])
        .map(|pod| Pod::from_value(&pod).unwrap())
        .collect();
    let pods: Vec<&Pod> = pods.iter().collect();
    let mut stored = upstream.budgets["foo"].clone();
    stored["spec"]["maxUnavailable"] = Value::Null;
    stored["spec"]["minAvailable"] = json!(2);
    let after = |seconds: u64, stored: &Value| {
        let budget = DisruptionBudget::from_value(stored.clone()).unwrap();
        let now = start() + Duration::from_secs(seconds);
        match sync(&budget, &pods, &Scales::new(), now) {
            SyncResult::Done(outcome) => outcome.write.unwrap_or(stored.clone()),
            SyncResult::NeedScales(owners) => panic!("not for an integer: {owners:?}"),
        }
    };
    let stored = after(60, &stored);
    assert_eq!(stored["status"]["disruptionsAllowed"], 2);
    let stored = after(121, &stored);
    assert_eq!(stored["status"]["disruptionsAllowed"], 3);
    assert_eq!(stored["status"].get("disruptedPods"), None);
}

#[test]
fn g04_a_charge_has_the_upstreams_time() {
    let mut upstream = upstream();
    let mut eviction: Eviction<String> =
        Eviction::new(request(Value::Null), ServerClock::default());
    while let EvictionStep::Call(call) = eviction.step() {
        let outcome = upstream.call(&call);
        eviction.replied(CallReply {
            outcome,
            sent: start(),
            received: start(),
            date: Some(start() + Duration::from_secs(180)),
        });
    }
    let entries = json!({"p": "2024-01-01T00:03:00Z"});
    assert_eq!(upstream.status()["disruptedPods"], entries);
    assert_eq!(eviction.clock().ahead().as_secs(), 180);
}

#[test]
fn an_upstream_that_rejects_the_gateways_credentials_or_has_no_budgets_is_unavailable() {
    for (code, lists) in [(401, false), (401, true), (404, true)] {
        let mut upstream = upstream().with_fault(move |_, call| {
            let is_list = matches!(call, UpstreamCall::ListBudgets { .. });
            (is_list == lists).then(|| failure(code, "no"))
        });
        let outcome = evict(&mut upstream);
        assert_eq!((outcome.code(), upstream.writes()), (503, 0));
    }
}

/// Evicts the pod. The client has disconnected once a call for which `leaves` is true is about to be sent.
fn evict_abandoned(
    upstream: &mut Upstream,
    leaves: fn(&UpstreamCall) -> bool,
) -> EvictionResult<String> {
    let mut eviction: Eviction<String> =
        Eviction::new(request(Value::Null), ServerClock::default());
    loop {
        let call = match eviction.step() {
            EvictionStep::Call(call) => call,
            EvictionStep::Pause(_) => {
                eviction.paused();
                continue;
            }
            EvictionStep::Done(_) => return eviction.into_result().unwrap(),
        };
        if leaves(&call) {
            eviction.abandon();
            if matches!(eviction.step(), EvictionStep::Done(_)) {
                continue;
            }
        }
        let outcome = upstream.call(&call);
        eviction.replied(CallReply {
            outcome,
            sent: start(),
            received: start(),
            date: None,
        });
    }
}

#[test]
fn an_abandoned_eviction_ends_before_the_charge_or_is_completed() {
    let mut early = upstream();
    let result = evict_abandoned(&mut early, |call| {
        matches!(call, UpstreamCall::ListBudgets { .. })
    });
    let unavailable = EvictionResult::Unavailable {
        outcome_unknown: false,
    };
    assert_eq!((result, early.writes()), (unavailable.clone(), 0));

    let mut late = upstream();
    assert_eq!(evict_abandoned(&mut late, is_put), EvictionResult::Evicted);
    assert_eq!((allowed(&late), late.deletes()), (2, 1));

    // A charge that conflicted or was lost is not repeated.
    let mut conflict = upstream().with_fault(|_, call| is_put(call).then(|| failure(409, "stale")));
    assert_eq!(evict_abandoned(&mut conflict, is_put), unavailable);
    let mut lost = unknown(is_put, false);
    let result = evict_abandoned(&mut lost, is_put);
    assert!(matches!(
        result,
        EvictionResult::Unavailable {
            outcome_unknown: true
        }
    ));
    assert_eq!((allowed(&lost), lost.deletes()), (3, 0));
    let mut found = unknown(is_put, true);
    assert_eq!(evict_abandoned(&mut found, is_put), EvictionResult::Evicted);
    assert_eq!((allowed(&found), found.deletes()), (2, 1));
}

/// Replies to calls. Charges get `outcomes`, from the last to the first. Returns when a charge is due and none is left.
fn until_a_charge_is_due(
    upstream: &mut Upstream,
    eviction: &mut Eviction<String>,
    mut outcomes: Vec<CallOutcome<String>>,
) {
    loop {
        match eviction.step() {
            EvictionStep::Call(call) => {
                let is_charge = matches!(call, UpstreamCall::PutBudgetStatus { .. });
                let outcome = match outcomes.pop() {
                    None if is_charge => return,
                    Some(outcome) if is_charge => outcome,
                    unused => {
                        outcomes.extend(unused);
                        upstream.call(&call)
                    }
                };
                eviction.replied(CallReply {
                    outcome,
                    sent: start(),
                    received: start(),
                    date: None,
                });
            }
            EvictionStep::Pause(_) => eviction.paused(),
            EvictionStep::Done(result) => panic!("{result:?}"),
        }
    }
}

#[test]
fn an_eviction_gives_way_to_others_unless_it_may_have_charged_the_budget() {
    for (outcomes, gives_way) in [
        (vec![], true),
        (vec![failure(409, "stale")], true),
        (vec![CallOutcome::Unknown], false),
    ] {
        let mut upstream = Upstream::default()
            .with_pod(pod("Running", true))
            .with_budget(budget(2, 4, 2));
        let mut eviction = Eviction::new(request(Value::Null), ServerClock::default());
        assert!(!eviction.give_way(), "no charge is due");
        until_a_charge_is_due(&mut upstream, &mut eviction, outcomes);
        assert_eq!(eviction.budget(), "foo");
        assert_eq!(eviction.give_way(), gives_way);
        assert_eq!(eviction.is_committed(), !gives_way);
        if gives_way {
            let status = eviction.into_result().unwrap().status().unwrap();
            let text = serde_json::to_string(&status).unwrap();
            let cause = "The disruption budget foo does not allow evicting pods currently";
            assert!(status.code == 429 && text.contains(cause), "{text}");
        }
        assert_eq!(upstream.status()["disruptionsAllowed"], 2);
    }
}
