//! A model of an upstream, and tests of evictions against it.

mod crowd;
mod faults;
mod precheck;
mod properties;
mod scenarios;
mod wire;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    calls::{CallOutcome, CallReply, UpstreamCall},
    machine::{Eviction, EvictionResult, EvictionStep, MAX_CALLS},
    refusal::EvictionStatus,
    request::EvictionRequest,
    server_clock::ServerClock,
};

/// The body of the model's error responses.
type Response = String;

/// Called before each call is executed. If it returns an outcome, the call is not executed.
type Fault = Box<dyn FnMut(&mut Upstream, &UpstreamCall) -> Option<CallOutcome<Response>>>;

/// An upstream that stores pods and budgets of the namespace `ns`, and enforces nothing.
#[derive(Default)]
struct Upstream {
    pods: BTreeMap<String, Value>,
    budgets: BTreeMap<String, Value>,
    version: u64,
    /// All calls so far.
    calls: Vec<UpstreamCall>,
    fault: Option<Fault>,
    /// The number of budgets in one page of a list; 0 means all.
    page: usize,
}

fn failure(code: u16, text: &str) -> CallOutcome<Response> {
    CallOutcome::Failure {
        code,
        response: text.to_owned(),
    }
}

impl Upstream {
    fn next_version(&mut self) -> Value {
        self.version += 1;
        json!(self.version.to_string())
    }

    fn with_pod(mut self, mut pod: Value) -> Self {
        pod["metadata"]["resourceVersion"] = self.next_version();
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.pods.insert(name, pod);
        self
    }

    fn with_budget(mut self, mut budget: Value) -> Self {
        budget["metadata"]["resourceVersion"] = self.next_version();
        let name = budget["metadata"]["name"].as_str().unwrap().to_owned();
        self.budgets.insert(name, budget);
        self
    }

    fn with_fault(
        mut self,
        fault: impl FnMut(&mut Self, &UpstreamCall) -> Option<CallOutcome<Response>> + 'static,
    ) -> Self {
        self.fault = Some(Box::new(fault));
        self
    }

    /// The first `times` deletions fail with a conflict.
    fn with_conflicting_deletes(self, times: usize) -> Self {
        let mut left = times;
        self.with_fault(move |_, call| {
            let conflicts = matches!(call, UpstreamCall::DeletePod { .. }) && left > 0;
            left -= usize::from(conflicts);
            conflicts.then(|| failure(409, "conflict"))
        })
    }

    fn pod(&mut self) -> &mut Value {
        self.pods.get_mut("p").unwrap()
    }

    /// Changes the pod as another client would.
    fn change_pod(&mut self, change: impl FnOnce(&mut Value)) {
        let version = self.next_version();
        let pod = self.pod();
        change(pod);
        pod["metadata"]["resourceVersion"] = version;
    }

    fn status(&self) -> &Value {
        &self.budgets["foo"]["status"]
    }

    fn deletes(&self) -> usize {
        let is_delete = |call: &&UpstreamCall| matches!(call, UpstreamCall::DeletePod { .. });
        self.calls.iter().filter(is_delete).count()
    }

    fn writes(&self) -> usize {
        self.calls
            .iter()
            .filter(|call| !call.is_read_only())
            .count()
    }

    fn call(&mut self, call: &UpstreamCall) -> CallOutcome<Response> {
        self.calls.push(call.clone());
        if let Some(mut fault) = self.fault.take() {
            let outcome = fault(self, call);
            self.fault = Some(fault);
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        self.carry_out(call)
    }

    fn carry_out(&mut self, call: &UpstreamCall) -> CallOutcome<Response> {
        match call {
            UpstreamCall::GetPod { name } => match self.pods.get(name) {
                Some(pod) => CallOutcome::Success(pod.clone()),
                None => failure(404, "no pod"),
            },
            UpstreamCall::GetBudget { name } => match self.budgets.get(name) {
                Some(budget) => CallOutcome::Success(budget.clone()),
                None => failure(404, "no budget"),
            },
            UpstreamCall::ListBudgets { continue_token } => {
                self.list(continue_token.as_deref().unwrap_or("0").parse().unwrap())
            }
            UpstreamCall::PutBudgetStatus { name, object } => {
                let version = self.next_version();
                let Some(budget) = self.budgets.get_mut(name) else {
                    return failure(404, "no budget");
                };
                if budget["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return failure(409, "stale budget");
                }
                budget["status"] = object["status"].clone();
                budget["metadata"]["resourceVersion"] = version;
                CallOutcome::Success(budget.clone())
            }
            UpstreamCall::PatchPodStatus { name, patch } => self.patch(name, patch),
            UpstreamCall::DeletePod {
                name,
                options,
                dry_run,
            } => self.delete(name, options, *dry_run),
        }
    }

    fn list(&self, from: usize) -> CallOutcome<Response> {
        let here = |budget: &&Value| budget["metadata"]["namespace"] == "ns";
        let all: Vec<Value> = self.budgets.values().filter(here).cloned().collect();
        let size = if self.page == 0 { all.len() } else { self.page };
        let to = (from + size).min(all.len());
        // As in real lists, the items lack `kind` and `apiVersion`.
        let items = all[from..to].iter().cloned().map(|mut item| {
            item.as_object_mut().unwrap().remove("kind");
            item.as_object_mut().unwrap().remove("apiVersion");
            item
        });
        let mut list = json!({"metadata": {}, "items": items.collect::<Vec<_>>()});
        if to < all.len() {
            list["metadata"]["continue"] = json!(to.to_string());
        }
        CallOutcome::Success(list)
    }

    fn conflicts(&self, name: &str, preconditions: &Value) -> bool {
        ["uid", "resourceVersion"].into_iter().any(|member| {
            let wanted = &preconditions[member];
            !wanted.is_null() && *wanted != self.pods[name]["metadata"][member]
        })
    }

    fn patch(&mut self, name: &str, patch: &Value) -> CallOutcome<Response> {
        if !self.pods.contains_key(name) {
            return failure(404, "no pod");
        }
        if self.conflicts(name, &patch["metadata"]) {
            return failure(409, "changed pod");
        }
        let version = self.next_version();
        let pod = self.pods.get_mut(name).unwrap();
        let condition = patch["status"]["conditions"][0].clone();
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        match conditions
            .iter_mut()
            .find(|old| old["type"] == condition["type"])
        {
            Some(old) if *old == condition => return CallOutcome::Success(pod.clone()),
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
        pod["metadata"]["resourceVersion"] = version;
        CallOutcome::Success(pod.clone())
    }

    fn delete(&mut self, name: &str, options: &Value, dry_run: bool) -> CallOutcome<Response> {
        if !self.pods.contains_key(name) {
            return failure(404, "no pod");
        }
        if self.conflicts(name, &options["preconditions"]) {
            return failure(409, "changed pod");
        }
        assert_eq!(options["dryRun"].is_array(), dry_run);
        if !dry_run {
            if self.pods[name]["metadata"]["finalizers"].is_array() {
                let version = self.next_version();
                let metadata = &mut self.pods.get_mut(name).unwrap()["metadata"];
                metadata["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
                metadata["resourceVersion"] = version;
            } else {
                self.pods.remove(name);
            }
        }
        CallOutcome::Success(json!({}))
    }
}

/// A pod `p` in this phase, ready or not.
fn pod(phase: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// A budget `foo` that selects the pod `p`.
fn budget(allowed: i32, current: i32, desired: i32) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "foo", "namespace": "ns", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": current,
            "desiredHealthy": desired,
        },
    })
}

/// A budget with this `unhealthyPodEvictionPolicy`.
fn with_policy(mut budget: Value, policy: &str) -> Value {
    budget["spec"]["unhealthyPodEvictionPolicy"] = json!(policy);
    budget
}

/// A budget with the condition `DisruptionAllowed`.
fn with_condition(mut budget: Value, status: &str, reason: &str, message: &str) -> Value {
    budget["status"]["conditions"] = json!([{
        "type": "DisruptionAllowed", "status": status, "reason": reason, "message": message,
    }]);
    budget
}

/// A request to evict the pod `p` with these delete options.
fn request(options: Value) -> EvictionRequest {
    let mut body = json!({"metadata": {"name": "p"}});
    body["deleteOptions"] = options;
    EvictionRequest::new("ns", "p", &[], &body).unwrap()
}

/// The result of an eviction.
struct Outcome {
    result: EvictionResult<Response>,
    pauses: usize,
}

impl Outcome {
    fn code(&self) -> u16 {
        match &self.result {
            EvictionResult::Upstream { code, .. } => *code,
            result => result.status().unwrap().code,
        }
    }

    fn status(&self) -> EvictionStatus {
        self.result.status().unwrap()
    }

    fn json(&self) -> Value {
        serde_json::to_value(self.status()).unwrap()
    }

    /// The message of the cause, which is about the budget.
    fn cause(&self) -> String {
        let json = self.json();
        assert_eq!(json["details"]["causes"][0]["reason"], "DisruptionBudget");
        json["details"]["causes"][0]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn is_still_processed(&self) -> bool {
        self.code() == 429
            && self.status().retry_after() == Some(10)
            && self.cause() == "The disruption budget foo is still being processed by the server."
    }
}

fn start() -> Timestamp {
    "2024-01-01T00:00:00Z".parse().unwrap()
}

/// Evicts the pod `p` without options.
fn evict(upstream: &mut Upstream) -> Outcome {
    run(upstream, request(Value::Null))
}

fn run(upstream: &mut Upstream, request: EvictionRequest) -> Outcome {
    let mut eviction = Eviction::new(request, ServerClock::default());
    let (mut pauses, mut calls, mut now) = (0, 0, start());
    loop {
        match eviction.step() {
            EvictionStep::Call(call) => {
                calls += 1;
                assert!(calls <= MAX_CALLS);
                let outcome = upstream.call(&call);
                let sent = now;
                now += Duration::from_millis(10);
                eviction.replied(CallReply {
                    outcome,
                    sent,
                    received: now,
                    date: None,
                });
            }
            EvictionStep::Pause(pause) => {
                pauses += 1;
                now += pause;
                eviction.paused();
            }
            EvictionStep::Done(_) => break,
        }
    }
    Outcome {
        result: eviction.into_result().unwrap(),
        pauses,
    }
}
