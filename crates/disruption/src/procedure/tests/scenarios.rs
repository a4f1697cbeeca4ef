//! The scenarios of evictions against a model of a store. Each has a number, from `e01`; a test of `tests/it/eviction`
//! with the same number is about the same scenario.

use serde_json::{Value, json};

use super::{
    CallOutcome, EvictionRequest, EvictionResult, Outcome, Upstream, UpstreamCall, budget, evict,
    failure, pod, request, run, with_condition, with_policy,
};

/// A running pod, ready or not, with a budget.
fn running(ready: bool, budget: Value) -> Upstream {
    Upstream::default()
        .with_pod(pod("Running", ready))
        .with_budget(budget)
}

fn pending(budget: Value) -> Upstream {
    Upstream::default()
        .with_pod(pod("Pending", false))
        .with_budget(budget)
}

/// A pending pod that starts just before the first deletion; the first `conflicts` deletions conflict.
fn starting(budget: Value, ready: &'static str, conflicts: usize) -> Upstream {
    let mut seen = 0;
    pending(budget).with_fault(move |upstream, call| {
        let UpstreamCall::DeletePod { .. } = call else {
            return None;
        };
        seen += 1;
        if seen == 1 {
            upstream.change_pod(|pod| {
                pod["status"]["phase"] = json!("Running");
                pod["status"]["conditions"][0]["status"] = json!(ready);
            });
        }
        (seen <= conflicts).then(|| failure(409, "conflict"))
    })
}

/// Whether the budget is as it was stored.
fn is_untouched(upstream: &Upstream) -> bool {
    let puts = |call: &UpstreamCall| matches!(call, UpstreamCall::PutBudgetStatus { .. });
    !upstream.calls.iter().any(puts)
}

#[test]
fn e01_a_pending_pod_is_deleted_in_spite_of_conflicts() {
    let mut upstream = pending(budget(0, 0, 0)).with_conflicting_deletes(2);
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.deletes()), (201, 3));
    assert_eq!(outcome.pauses, 2);
    assert!(is_untouched(&upstream));
}

#[test]
fn e02_a_pending_pod_that_becomes_ready_needs_its_budget() {
    let mut upstream = starting(budget(0, 0, 0), "True", 1);
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.deletes()), (429, 1));
    let expected = "The disruption budget foo needs 0 healthy pods and has 0 currently";
    assert_eq!(outcome.cause(), expected);
}

#[test]
fn e03_an_eviction_of_a_pending_pod_that_becomes_unready_and_changes_again_is_refused() {
    let mut upstream = starting(with_policy(budget(0, 0, 0), "AlwaysAllow"), "False", 2);
    let outcome = evict(&mut upstream);
    assert_eq!(upstream.deletes(), 2);
    assert!(outcome.is_still_processed());
}

#[test]
fn e04_a_pending_pod_that_becomes_ready_charges_its_budget() {
    let mut upstream = starting(budget(1, 0, 0), "True", 1);
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.deletes()), (201, 2));
    assert_eq!(upstream.status()["disruptionsAllowed"], 0);
}

#[test]
fn e05_a_pending_pod_that_keeps_changing_is_a_conflict_after_20_attempts() {
    let mut upstream = pending(budget(0, 0, 0)).with_conflicting_deletes(usize::MAX);
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.deletes()), (409, 20));
    assert_eq!(outcome.pauses, 19);
}

#[test]
fn e06_a_resource_version_of_the_caller_allows_no_second_attempt() {
    let mut upstream = pending(budget(0, 0, 0)).with_conflicting_deletes(1);
    let version = upstream.pod()["metadata"]["resourceVersion"].clone();
    let options = json!({"preconditions": {"resourceVersion": version}});
    let outcome = run(&mut upstream, request(options));
    assert_eq!((outcome.code(), upstream.deletes()), (409, 1));
}

#[test]
fn e07_a_terminating_pod_is_deleted_with_the_given_grace_period() {
    let mut upstream = running(true, budget(0, 0, 0));
    upstream.pod()["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    let outcome = run(&mut upstream, request(json!({"gracePeriodSeconds": 300})));
    assert_eq!((outcome.code(), upstream.deletes()), (201, 1));
    let Some(UpstreamCall::DeletePod { options, .. }) = upstream.calls.last() else {
        panic!("the last call deletes");
    };
    let expected = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 300,
        "preconditions": {"uid": "u"},
    });
    assert_eq!(*options, expected);
}

#[test]
fn e08_an_ended_pod_is_deleted_without_reading_budgets() {
    for phase in ["Succeeded", "Failed"] {
        let mut upstream = Upstream::default()
            .with_pod(pod(phase, false))
            .with_budget(budget(0, 0, 0));
        let outcome = evict(&mut upstream);
        assert_eq!((outcome.code(), upstream.deletes()), (201, 1));
        let lists = |call: &UpstreamCall| matches!(call, UpstreamCall::ListBudgets { .. });
        assert!(is_untouched(&upstream) && !upstream.calls.iter().any(lists));
    }
}

#[test]
fn e09_an_exhausted_budget_refuses_without_retry_after() {
    let mut upstream = running(true, budget(0, 2, 2));
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.writes()), (429, 0));
    let expected = "The disruption budget foo needs 2 healthy pods and has 2 currently";
    assert_eq!(outcome.cause(), expected);
    assert_eq!(outcome.status().retry_after(), None);
}

#[test]
fn e10_a_ready_pod_charges_its_budget() {
    let mut upstream = running(true, budget(1, 3, 3));
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.deletes()), (201, 1));
    assert_eq!(upstream.status()["disruptionsAllowed"], 0);
    let entries = &upstream.status()["disruptedPods"];
    assert_eq!(*entries, json!({"p": "2024-01-01T00:00:00Z"}));
}

#[test]
fn e11_an_unready_pod_of_a_healthy_budget_is_evicted_without_charging_it() {
    for policy in [Value::Null, json!("IfHealthyBudget"), json!("Later")] {
        let mut stored = budget(0, 2, 2);
        stored["spec"]["unhealthyPodEvictionPolicy"] = policy;
        let mut upstream = running(false, stored);
        let outcome = evict(&mut upstream);
        assert_eq!((outcome.code(), upstream.deletes()), (201, 1));
        let Some(UpstreamCall::DeletePod { options, .. }) = upstream.calls.last() else {
            panic!("the last call deletes");
        };
        assert!(options["preconditions"]["resourceVersion"].is_string());
        assert!(is_untouched(&upstream));
    }
}

#[test]
fn e12_an_unready_pod_is_always_evicted_if_the_policy_says_so() {
    let mut upstream = running(false, with_policy(budget(0, 0, 0), "AlwaysAllow"));
    let outcome = evict(&mut upstream);
    assert_eq!((outcome.code(), upstream.deletes()), (201, 1));
}

#[test]
fn e13_an_unready_pod_of_a_budget_with_desired_healthy_0_needs_it() {
    let mut upstream = running(false, with_policy(budget(0, 0, 0), "IfHealthyBudget"));
    assert_eq!(evict(&mut upstream).code(), 429);
    assert_eq!(upstream.writes(), 0);
}

#[test]
fn e14_an_eviction_of_an_unready_pod_that_changes_meanwhile_is_refused() {
    let mut upstream = running(false, budget(0, 2, 2)).with_conflicting_deletes(1);
    let outcome = evict(&mut upstream);
    assert_eq!(upstream.deletes(), 1);
    assert!(outcome.is_still_processed());
}

#[test]
fn e15_another_error_of_the_deletion_is_passed_on() {
    let mut upstream = running(false, budget(0, 2, 2)).with_fault(|_, call| {
        let deletes = matches!(call, UpstreamCall::DeletePod { .. });
        deletes.then(|| failure(500, "broken"))
    });
    let expected = EvictionResult::Upstream {
        code: 500,
        response: "broken".to_owned(),
    };
    assert_eq!(evict(&mut upstream).result, expected);
    assert_eq!(upstream.deletes(), 1);
}

#[test]
fn e16_an_empty_selector_selects_every_pod() {
    let mut stored = budget(0, 3, 3);
    stored["spec"]["selector"] = json!({});
    let outcome = evict(&mut running(true, stored));
    let expected = "The disruption budget foo needs 3 healthy pods and has 3 currently";
    assert_eq!(outcome.cause(), expected);
}

/// The cause of the refusal for a ready pod.
fn cause(budget: Value) -> String {
    evict(&mut running(true, budget)).cause()
}

#[test]
fn e17_a_failed_sync_is_the_cause() {
    let stored = with_condition(budget(0, 0, 0), "False", "SyncFailed", "hoge");
    let expected = "The disruption budget foo does not allow evicting pods currently because it \
                    failed sync: hoge";
    assert_eq!(cause(stored), expected);
}

#[test]
fn e18_another_condition_is_the_cause_if_enough_pods_are_healthy() {
    let stored = with_condition(budget(0, 4, 3), "False", "bar-reason", "hoge");
    let expected =
        "The disruption budget foo does not allow evicting pods currently (bar-reason): hoge";
    assert_eq!(cause(stored), expected);
    let stored = with_condition(budget(0, 3, 3), "False", "bar-reason", "hoge");
    assert!(cause(stored).ends_with("needs 3 healthy pods and has 3 currently"));
}

#[test]
fn e19_without_a_condition_the_cause_has_no_reason() {
    let expected = "The disruption budget foo does not allow evicting pods currently";
    assert_eq!(cause(budget(0, 4, 3)), expected);
    let silent = with_condition(budget(0, 4, 3), "False", "SyncFailed", "");
    assert_eq!(cause(silent), expected);
    let other = with_condition(budget(0, 4, 3), "True", "SyncFailed", "hoge");
    assert_eq!(cause(other), expected);
}

#[test]
fn e20_two_budgets_that_select_a_pod_are_an_error() {
    let mut other = budget(5, 5, 0);
    other["metadata"]["name"] = json!("bar");
    for (ready, options) in [(true, json!(null)), (false, json!({"dryRun": ["All"]}))] {
        let mut upstream =
            running(ready, with_policy(budget(1, 1, 0), "AlwaysAllow")).with_budget(other.clone());
        let outcome = run(&mut upstream, request(options));
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
            "message": "This pod has more than one PodDisruptionBudget, which the eviction \
                        subresource does not support.",
        });
        assert_eq!(outcome.json(), expected);
        assert_eq!(upstream.writes(), 0);
    }
}

#[test]
fn e21_budgets_of_other_pods_do_not_matter() {
    let of = |selector: Value| {
        let mut stored = budget(0, 0, 0);
        stored["spec"]["selector"] = selector;
        stored
    };
    let mut elsewhere = of(json!({}));
    elsewhere["metadata"]["namespace"] = json!("other");
    let unreadable = json!({"matchExpressions": [{"key": "a", "operator": "illegal"}]});
    for stored in [
        of(json!({"matchLabels": {"app": "db"}})),
        of(Value::Null),
        of(unreadable),
        elsewhere,
    ] {
        let mut upstream = running(true, stored);
        assert_eq!((evict(&mut upstream).code(), upstream.deletes()), (201, 1));
        assert!(is_untouched(&upstream));
    }
}

#[test]
fn e22_an_eviction_is_refused_while_its_budget_is_still_being_processed() {
    let mut stored = budget(5, 5, 0);
    stored["metadata"]["generation"] = json!(2);
    assert!(evict(&mut running(true, stored)).is_still_processed());
}

#[test]
fn e23_a_negative_budget_is_forbidden() {
    let json = evict(&mut running(true, budget(-1, 0, 0))).json();
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "poddisruptionbudget.policy \"foo\" is forbidden: pdb disruptions allowed is negative",
        "reason": "Forbidden",
        "details": {"name": "foo", "group": "policy", "kind": "poddisruptionbudget"},
        "code": 403,
    });
    assert_eq!(json, expected);
}

#[test]
fn e24_more_than_2000_unconfirmed_evictions_are_too_many() {
    for (entries, code) in [(2001, 403), (2000, 201)] {
        let mut stored = budget(5, 5, 0);
        let names = (0..entries).map(|n| (format!("p{n}"), json!("2024-01-01T00:00:00Z")));
        stored["status"]["disruptedPods"] = Value::Object(names.collect());
        let mut upstream = running(true, stored);
        let outcome = evict(&mut upstream);
        assert_eq!(outcome.code(), code);
        if code == 403 {
            let expected = "poddisruptionbudget.policy \"foo\" is forbidden: DisruptedPods map too \
                            big - too many evictions not confirmed by PDB controller";
            assert_eq!(outcome.json()["message"], expected);
        }
    }
}

#[test]
fn e25_the_name_in_the_body_must_be_that_in_the_path() {
    let take = |body: Value| EvictionRequest::new("ns", "p", &[], &body);
    for body in [json!({"metadata": {"name": "q"}}), json!({}), json!(null)] {
        let refusal = take(body).unwrap_err().status();
        let json = serde_json::to_value(&refusal).unwrap();
        assert_eq!((refusal.code, &json["reason"]), (400, &json!("BadRequest")));
        let expected = "name in URL does not match name in Eviction object";
        assert_eq!(json["message"], expected);
    }
    let refusal = take(json!({"metadata": {"name": "p", "namespace": "other"}})).unwrap_err();
    let expected =
        "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(
        (refusal.to_string().as_str(), refusal.status().code),
        (expected, 400)
    );
    assert!(take(json!({"metadata": {"name": "p", "namespace": "ns"}})).is_ok());
}

#[test]
fn e26_an_absent_pod_is_not_found() {
    let outcome = evict(&mut Upstream::default());
    let expected = EvictionResult::Upstream {
        code: 404,
        response: "no pod".to_owned(),
    };
    assert_eq!(outcome.result, expected);
}

#[test]
fn e27_a_dry_run_changes_nothing() {
    let all = ["All".to_owned()];
    let body = |options: Value| json!({"metadata": {"name": "p"}, "deleteOptions": options});
    for (query, body) in [
        (&all[..], body(Value::Null)),
        (&all[..], body(json!({}))),
        (&[], body(json!({"dryRun": ["All"]}))),
        (&all[..], body(json!({"dryRun": ["All"]}))),
    ] {
        let request = EvictionRequest::new("ns", "p", query, &body).unwrap();
        let mut upstream = running(true, budget(1, 3, 2));
        let before = (upstream.pods.clone(), upstream.budgets.clone());
        assert_eq!(run(&mut upstream, request).code(), 201);
        assert_eq!((upstream.pods.clone(), upstream.budgets.clone()), before);
        assert_eq!((upstream.writes(), upstream.deletes()), (0, 1));
    }
}

#[test]
fn e28_dry_runs_of_query_and_body_must_agree() {
    let body = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["x"]}});
    let refusal = EvictionRequest::new("ns", "p", &["All".to_owned()], &body).unwrap_err();
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
        "message": "Non-matching dry-run options in request and content: [All] and [x]",
    });
    assert_eq!(serde_json::to_value(refusal.status()).unwrap(), expected);
}

#[test]
fn e29_unsafe_deletion_is_refused() {
    let field = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let mut body = json!({"metadata": {"name": "p"}, "deleteOptions": {field: true}});
    let refusal = EvictionRequest::new("ns", "p", &[], &body).unwrap_err();
    let status = serde_json::to_value(refusal.status()).unwrap();
    assert_eq!(
        (status["code"].as_i64(), &status["reason"]),
        (Some(422), &json!("Invalid"))
    );
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["field"], format!("deleteOptions.{field}"));
    let text = "can not be set for pod eviction, try after removing the option";
    assert!(cause["message"].as_str().unwrap().ends_with(text));
    body["deleteOptions"][field] = json!(false);
    assert!(EvictionRequest::new("ns", "p", &[], &body).is_ok());
}

#[test]
fn e30_the_last_disruption_sets_the_condition_to_false() {
    let stored = with_condition(budget(1, 3, 2), "True", "SufficientPods", "");
    let mut upstream = running(true, stored);
    assert_eq!(evict(&mut upstream).code(), 201);
    let expected = json!([{
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "2024-01-01T00:00:00Z",
    }]);
    assert_eq!(upstream.status()["conditions"], expected);
}

#[test]
fn e31_other_disruptions_do_not_change_the_condition() {
    let stored = with_condition(budget(3, 5, 2), "True", "SufficientPods", "");
    let conditions = stored["status"]["conditions"].clone();
    let mut upstream = running(true, stored);
    assert_eq!(evict(&mut upstream).code(), 201);
    assert_eq!(upstream.status()["disruptionsAllowed"], 2);
    assert_eq!(upstream.status()["conditions"], conditions);
}

/// Evicts a ready pod of version 1 and UID `u` under these preconditions.
fn under(preconditions: &Value) -> (Outcome, Upstream) {
    let mut upstream = running(true, budget(1, 3, 2));
    let outcome = run(
        &mut upstream,
        request(json!({"preconditions": preconditions})),
    );
    (outcome, upstream)
}

#[test]
fn e32_preconditions_must_hold() {
    for (preconditions, code) in [
        (json!({"uid": "u"}), 201),
        (json!({"uid": "v"}), 409),
        (json!({"resourceVersion": "1"}), 201),
        (json!({"resourceVersion": "0"}), 409),
        (json!({"uid": "u", "resourceVersion": "1"}), 201),
    ] {
        let (outcome, upstream) = under(&preconditions);
        assert_eq!(outcome.code(), code);
        assert_eq!(upstream.deletes(), usize::from(code == 201));
    }
    let (outcome, _) = under(&json!({"resourceVersion": "0"}));
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Operation cannot be fulfilled on Pod \"p\": the ResourceVersion in the \
                    precondition (0) does not match the ResourceVersion in record (1). The object \
                    might have been modified",
        "reason": "Conflict", "details": {"name": "p", "kind": "Pod"}, "code": 409,
    });
    assert_eq!(outcome.json(), expected);
}

#[test]
fn e33_the_condition_disruption_target_is_set_before_the_deletion_but_not_by_a_dry_run() {
    for (phase, options, marked) in [
        ("Running", json!(null), true),
        ("Succeeded", json!(null), true),
        ("Running", json!({"dryRun": ["All"]}), false),
    ] {
        let mut stored = pod(phase, true);
        stored["metadata"]["finalizers"] = json!(["example.com/keep"]);
        let mut upstream = Upstream::default().with_pod(stored);
        assert_eq!(run(&mut upstream, request(options)).code(), 201);
        let conditions = upstream.pod()["status"]["conditions"].clone();
        let expected = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": "2024-01-01T00:00:00Z",
        });
        assert_eq!(conditions.as_array().unwrap().contains(&expected), marked);
        assert_eq!(
            upstream.pod()["metadata"]["deletionTimestamp"].is_string(),
            marked
        );
    }
}

#[test]
fn e34_a_budget_that_is_deleted_between_attempts_is_not_found() {
    let mut upstream = running(true, budget(1, 3, 2)).with_fault(|upstream, call| {
        let UpstreamCall::PutBudgetStatus { .. } = call else {
            return None;
        };
        upstream.budgets.clear();
        Some(failure(409, "conflict"))
    });
    let expected = EvictionResult::Upstream {
        code: 404,
        response: "no budget".to_owned(),
    };
    assert_eq!(evict(&mut upstream).result, expected);
    assert_eq!(upstream.deletes(), 0);
}

#[test]
fn e35_a_wrong_uid_does_not_charge_the_budget() {
    let (outcome, upstream) = under(&json!({"uid": "v"}));
    let expected = "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (v) does \
                    not match the UID in record (u). The object might have been deleted and then \
                    recreated";
    assert_eq!(outcome.json()["message"], expected);
    assert_eq!(upstream.status()["disruptionsAllowed"], 1);
    assert!(is_untouched(&upstream));
}

#[test]
fn e36_a_wrong_uid_of_a_pending_pod_is_a_conflict_at_once() {
    let mut upstream = Upstream::default().with_pod(pod("Pending", false));
    let outcome = run(
        &mut upstream,
        request(json!({"preconditions": {"uid": "v"}})),
    );
    assert_eq!(
        (outcome.code(), outcome.pauses, upstream.writes()),
        (409, 0, 0)
    );
}

#[test]
fn a_stale_resource_version_of_the_caller_is_a_conflict_for_unready_pods_too() {
    let mut upstream = running(false, with_policy(budget(0, 0, 0), "AlwaysAllow"));
    let options = json!({"preconditions": {"resourceVersion": "0"}});
    let outcome = run(&mut upstream, request(options));
    assert_eq!((outcome.code(), upstream.writes()), (409, 0));
}

#[test]
fn options_that_are_invalid_for_a_deletion_do_not_charge_the_budget() {
    for options in [
        json!({"dryRun": ["x"]}),
        json!({"propagationPolicy": "x"}),
        json!({"propagationPolicy": "Orphan", "orphanDependents": false}),
    ] {
        let mut upstream = running(true, budget(1, 3, 2));
        let outcome = run(&mut upstream, request(options));
        let json = outcome.json();
        assert_eq!(outcome.code(), 422, "{json}");
        assert_eq!(json["details"]["kind"], "DeleteOptions");
        assert_eq!(upstream.writes(), 0);
        // As in kube-apiserver, budgets are checked first.
        let mut upstream = running(true, budget(0, 2, 2));
        assert_eq!(
            run(&mut upstream, request(json!({"dryRun": ["x"]}))).code(),
            429
        );
    }
    for options in [
        json!({"preconditions": {"uid": 5}}),
        json!({"dryRun": "All"}),
        json!({"gracePeriodSeconds": "5"}),
        json!([]),
    ] {
        let body = json!({"metadata": {"name": "p"}, "deleteOptions": options});
        let refusal = EvictionRequest::new("ns", "p", &[], &body).unwrap_err();
        assert_eq!(refusal.status().code, 400, "{refusal}");
    }
}

#[test]
fn budgets_are_found_on_every_page() {
    let mut upstream = running(true, budget(0, 2, 2));
    for n in 0..7 {
        let mut other = budget(5, 5, 0);
        other["metadata"]["name"] = json!(format!("a{n}"));
        other["spec"]["selector"] = json!(null);
        upstream = upstream.with_budget(other);
    }
    upstream.page = 2;
    assert_eq!(evict(&mut upstream).code(), 429);
    // The continue token expires, and the list is started again.
    let mut forgets = 2;
    upstream.fault = Some(Box::new(move |_, call| {
        let goes_on = matches!(
            call,
            UpstreamCall::ListBudgets {
                continue_token: Some(_)
            }
        );
        let gone = goes_on && forgets > 0;
        forgets -= i32::from(gone);
        gone.then(|| failure(410, "expired"))
    }));
    assert_eq!(evict(&mut upstream).code(), 429);
    // The list never ends.
    upstream.fault = Some(Box::new(|_, call| {
        let goes_on = matches!(
            call,
            UpstreamCall::ListBudgets {
                continue_token: Some(_)
            }
        );
        goes_on.then(|| CallOutcome::Success(json!({"metadata": {"continue": "1"}})))
    }));
    let outcome = evict(&mut upstream);
    assert_eq!(outcome.code(), 500);
    assert_eq!(upstream.writes(), 0);
}
