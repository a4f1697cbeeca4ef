//! The bodies of evictions: JSON, YAML or protobuf, with any delete options, and their outcomes.
//!
//! Properties: strict and lenient decoding agree on bodies without problems; an accepted eviction ends, charges the
//! budget at most once and deletes the pod at most once; the options of the deletion are those that an eviction may
//! have; a dry run changes nothing; nothing is deleted that has another UID or version than the body demands.

use fairgate_disruption::procedure::{
    calls::{CallOutcome, CallReply, UpstreamCall},
    machine::{Eviction, EvictionResult, EvictionStep, MAX_CALLS},
    request::EvictionRequest,
    server_clock::ServerClock,
};
use fairgate_eviction_layer::fuzzing::read_eviction;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::body_format;
use crate::{Outcome, Target};

/// The target `evictions`.
pub const TARGET: Target = Target {
    name: "evictions",
    run,
    dictionary: &[
        "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",",
        "\"metadata\":{\"name\":\"p\"}",
        "\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\"}",
        "\"deleteOptions\":{",
        "\"gracePeriodSeconds\":",
        "\"preconditions\":{\"uid\":\"u\"}",
        "\"preconditions\":{\"resourceVersion\":\"1\"}",
        "\"propagationPolicy\":\"Orphan\"",
        "\"orphanDependents\":true",
        "\"dryRun\":[\"All\"]",
        "\"dryRun\":[\"x\"]",
        "\"ignoreStoreReadErrorWithClusterBreakingPotential\":true",
        "apiVersion: policy/v1beta1\nkind: Eviction\n",
        "metadata:\n  name: p\n",
        "deleteOptions:\n",
        "  dryRun: [All]\n",
        "k8s\0",
        "\x0a",
        "\x12",
        "null",
        "-1",
        "}",
        ",",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let (&control, body) = data.split_first().unwrap_or((&0, &[]));
    let format = body_format(control);
    let query = match control >> 2 & 3 {
        0 => vec!["All".to_owned()],
        1 => vec!["other".to_owned()],
        _ => Vec::new(),
    };
    let (request, warnings) = read_eviction(format, &query, false, body);
    let (strict, _) = read_eviction(format, &query, true, body);
    match &request {
        Ok(_) if warnings.is_empty() => assert_eq!(strict, request),
        Ok(_) => assert!(strict.is_err(), "{warnings:?}"),
        Err(error) => {
            assert!(!error.is_empty() && strict.is_err());
            return Outcome::of((control % 3, about(error)));
        }
    }
    let Ok(request) = request else {
        return Outcome::of(control);
    };
    assert!((&*request.namespace, &*request.pod) == ("ns", "p"));
    let end = evicted(request);
    Outcome::of((control % 3, warnings.len().min(3), end))
}

/// An upstream with one pod and one budget.
struct Upstream {
    pod: Option<Value>,
    budget: Value,
    writes: u32,
}

/// Evicts the pod as requested, and returns the outcome.
fn evicted(request: EvictionRequest) -> (u16, u32) {
    let dry_run = request.is_dry_run();
    let mut upstream = Upstream {
        pod: Some(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })),
        budget: json!({
            "metadata": {"name": "foo", "namespace": "ns", "generation": 1, "resourceVersion": "7"},
            "spec": {"selector": {}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 2, "currentHealthy": 4, "desiredHealthy": 2},
        }),
        writes: 0,
    };
    let mut eviction = Eviction::new(request, ServerClock::default());
    for _ in 0..=MAX_CALLS {
        match eviction.step() {
            EvictionStep::Call(call) => {
                let outcome = upstream.call(&call);
                let now = Timestamp::UNIX_EPOCH;
                eviction.replied(CallReply {
                    outcome,
                    sent: now,
                    received: now,
                    date: None,
                });
            }
            EvictionStep::Pause(_) => eviction.paused(),
            EvictionStep::Done(result) => {
                let code = match result {
                    EvictionResult::Upstream { code, .. } => *code,
                    result => result.status().map_or(0, |status| status.code),
                };
                let left = upstream.budget["status"]["disruptionsAllowed"].as_i64();
                let is_gone = upstream.pod.is_none();
                assert!(left == Some(2 - i64::from(is_gone)), "{left:?} {is_gone}");
                assert_eq!(is_gone, code == 201 && !dry_run);
                assert!(!dry_run || upstream.writes == 0);
                return (code, upstream.writes);
            }
        }
    }
    panic!("an eviction ends");
}

impl Upstream {
    fn call(&mut self, call: &UpstreamCall) -> CallOutcome<()> {
        self.writes += u32::from(!call.is_read_only());
        let Some(pod) = &mut self.pod else {
            return failure(404);
        };
        CallOutcome::Success(match call {
            UpstreamCall::GetPod { .. } => pod.clone(),
            UpstreamCall::GetBudget { .. } => self.budget.clone(),
            UpstreamCall::ListBudgets { .. } => json!({"items": [self.budget]}),
            UpstreamCall::PutBudgetStatus { object, .. } => {
                self.budget["status"] = object["status"].clone();
                self.budget.clone()
            }
            UpstreamCall::PatchPodStatus { patch, .. } => {
                if differs(pod, &patch["metadata"]) {
                    return failure(409);
                }
                pod["metadata"]["resourceVersion"] = json!("2");
                pod.clone()
            }
            UpstreamCall::DeletePod {
                options, dry_run, ..
            } => {
                check_options(options);
                if differs(pod, &options["preconditions"]) {
                    return failure(409);
                }
                assert_eq!(*dry_run, options["dryRun"].is_array());
                if !dry_run {
                    self.pod = None;
                }
                Value::Null
            }
        })
    }
}

fn failure(code: u16) -> CallOutcome<()> {
    CallOutcome::Failure { code, response: () }
}

fn differs(pod: &Value, wanted: &Value) -> bool {
    ["uid", "resourceVersion"]
        .into_iter()
        .any(|member| !wanted[member].is_null() && wanted[member] != pod["metadata"][member])
}

/// A deletion has no other options than those that an eviction may ask for.
fn check_options(options: &Value) {
    const KNOWN: [&str; 7] = [
        "apiVersion",
        "dryRun",
        "gracePeriodSeconds",
        "kind",
        "orphanDependents",
        "preconditions",
        "propagationPolicy",
    ];
    for (name, _) in options.as_object().into_iter().flatten() {
        assert!(KNOWN.contains(&&**name), "{options}");
    }
    assert!(options["preconditions"]["uid"].is_string(), "{options}");
}

/// What an error is about.
fn about(error: &str) -> Option<usize> {
    const ABOUT: [&str; 12] = [
        "unmarshal",
        "no kind",
        "strict decoding",
        "unknown conversion",
        "name in URL",
        "the namespace",
        "Non-matching",
        "can not be set",
        "couldn't",
        "missing",
        "yaml",
        "proto",
    ];
    ABOUT.iter().position(|about| error.contains(about))
}
