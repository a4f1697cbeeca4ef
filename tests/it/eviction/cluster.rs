//! A small API server: pods, disruption budgets and access reviews, in memory. It enforces no budget.
//!
//! What it does with resource versions, preconditions, dry runs and finalizers is what kube-apiserver does.
//! A test can have it fail any request, before or after carrying it out.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::upstream::{Speaks, TestReply, TestUpstream, full};

/// What happens to a request instead of the usual handling.
pub enum Fault {
    /// It is refused with this status.
    Refuse(u16),
    /// The connection is closed before it is carried out.
    CutBefore,
    /// It is carried out, then the connection is closed.
    CutAfter,
    /// It is carried out, and the response has this status.
    FailAfter(u16),
    /// It is not carried out, and gets no response.
    Hang,
}

type Faults = Box<dyn FnMut(&SeenCall) -> Option<Fault> + Send>;

/// A request that the gateway sent for itself or for a client.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenCall {
    pub method: Method,
    pub target: String,
    /// Whom the gateway impersonates; empty for its own requests.
    pub user: String,
    pub body: Bytes,
}

impl SeenCall {
    /// Method and kind of object: `GET pod`, `PUT budget/status`.
    pub fn what(&self) -> String {
        let path = self.target.split('?').next().unwrap();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let object = match segments[..] {
            ["api", "v1", "namespaces", _, "pods", _] => "pod".to_owned(),
            ["api", "v1", "namespaces", _, "pods", _, sub] => format!("pod/{sub}"),
            [
                "apis",
                "policy",
                "v1",
                "namespaces",
                _,
                "poddisruptionbudgets",
            ] => "budgets".into(),
            [
                "apis",
                "policy",
                "v1",
                "namespaces",
                _,
                "poddisruptionbudgets",
                _,
            ] => "budget".into(),
            [
                "apis",
                "policy",
                "v1",
                "namespaces",
                _,
                "poddisruptionbudgets",
                _,
                sub,
            ] => {
                format!("budget/{sub}")
            }
            ["apis", "authorization.k8s.io", "v1", "subjectaccessreviews"] => "review".into(),
            _ => path.to_owned(),
        };
        format!("{} {object}", self.method)
    }
}

#[derive(Default)]
struct State {
    version: u64,
    pods: BTreeMap<String, Value>,
    budgets: BTreeMap<String, Value>,
    calls: Vec<SeenCall>,
    faults: Option<Faults>,
    /// How far the server's clock is ahead, in seconds.
    ahead: i64,
    /// The response to evictions that reach the server: status, body, `Retry-After`.
    eviction: Option<(u16, String, Option<&'static str>)>,
}

/// The server; it stops when this is dropped.
pub struct Cluster {
    pub upstream: TestUpstream,
    state: Arc<Mutex<State>>,
}

impl Cluster {
    pub fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let upstream = TestUpstream::start(Speaks::Http1, move |request| {
            respond(Arc::clone(&shared), request)
        });
        Self { upstream, state }
    }

    pub fn with_pod(self, pod: Value) -> Self {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.change(|state| {
            let pod = state.versioned(pod);
            state.pods.insert(name, pod);
        });
        self
    }

    pub fn with_budget(self, budget: Value) -> Self {
        let name = budget["metadata"]["name"].as_str().unwrap().to_owned();
        self.change(|state| {
            let budget = state.versioned(budget);
            state.budgets.insert(name, budget);
        });
        self
    }

    /// Pods `p0` … that are ready.
    pub fn with_ready_pods(mut self, count: usize) -> Self {
        for index in 0..count {
            self = self.with_pod(pod(&format!("p{index}"), "Running", true));
        }
        self
    }

    /// Sets the function that decides whether each further request fails.
    pub fn fail(&self, faults: impl FnMut(&SeenCall) -> Option<Fault> + Send + 'static) {
        self.change(|state| state.faults = Some(Box::new(faults)));
    }

    /// Fails the next request of this kind.
    pub fn fail_next(&self, what: &'static str, fault: impl Fn() -> Fault + Send + 'static) {
        let mut left = 1;
        self.fail(move |call| {
            let hit = left > 0 && call.what() == what;
            left -= usize::from(hit);
            hit.then(&fault)
        });
    }

    pub fn set_ahead(&self, seconds: i64) {
        self.change(|state| state.ahead = seconds);
    }

    /// Sets the response to evictions that reach the server.
    pub fn answer_evictions(&self, code: u16, body: &str, retry_after: Option<&'static str>) {
        self.change(|state| state.eviction = Some((code, body.to_owned(), retry_after)));
    }

    pub fn change_pod(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.change(|state| {
            let mut pod = state.pods[name].clone();
            change(&mut pod);
            let pod = state.versioned(pod);
            state.pods.insert(name.to_owned(), pod);
        });
    }

    pub fn delete_pod(&self, name: &str) {
        self.change(|state| {
            state.pods.remove(name).unwrap();
        });
    }

    /// Changes a budget, or removes it, as its controller or an administrator would.
    pub fn change_budget(&self, name: &str, change: impl FnOnce(Value) -> Option<Value>) {
        self.change(|state| {
            let budget = state.budgets.remove(name).unwrap();
            if let Some(budget) = change(budget) {
                let budget = state.versioned(budget);
                state.budgets.insert(name.to_owned(), budget);
            }
        });
    }

    /// Sets how many disruptions the budget allows, as its controller would.
    pub fn allow(&self, name: &str, allowed: i64) {
        self.change_budget(name, |mut budget| {
            budget["status"]["disruptionsAllowed"] = json!(allowed);
            Some(budget)
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub fn pods(&self) -> usize {
        self.state.lock().unwrap().pods.len()
    }

    pub fn pod(&self, name: &str) -> Option<Value> {
        self.state.lock().unwrap().pods.get(name).cloned()
    }

    pub fn budget(&self, name: &str) -> Value {
        self.state.lock().unwrap().budgets[name].clone()
    }

    pub fn allowed(&self, name: &str) -> i64 {
        self.budget(name)["status"]["disruptionsAllowed"]
            .as_i64()
            .unwrap()
    }

    /// The entries of `disruptedPods`.
    pub fn disrupted(&self, name: &str) -> usize {
        let budget = self.budget(name);
        let entries = budget["status"]["disruptedPods"].as_object();
        entries.map_or(0, serde_json::Map::len)
    }

    /// All requests except those for metrics, which the gateway sends from time to time.
    pub fn calls(&self) -> Vec<SeenCall> {
        let calls = self.state.lock().unwrap().calls.clone();
        let is_metrics = |call: &SeenCall| call.target == "/metrics";
        calls.into_iter().filter(|call| !is_metrics(call)).collect()
    }

    /// Method and kind of object of all requests, in order.
    pub fn seen(&self) -> Vec<String> {
        self.calls().iter().map(SeenCall::what).collect()
    }

    pub fn count(&self, what: &str) -> usize {
        self.seen().iter().filter(|seen| *seen == what).count()
    }

    /// The number of requests that change something.
    pub fn writes(&self) -> usize {
        let writes = |what: &String| {
            !what.starts_with("GET ")
                && !["review", "eviction", "events"]
                    .iter()
                    .any(|of| what.ends_with(of))
        };
        self.seen().iter().filter(|what| writes(what)).count()
    }
}

async fn respond(state: Arc<Mutex<State>>, request: Request<Incoming>) -> TestReply {
    let (head, body) = request.into_parts();
    // A client may have disconnected, which does not matter here.
    let body = body.collect().await;
    let body = body.map(http_body_util::Collected::to_bytes);
    let call = SeenCall {
        target: head.uri.path_and_query().unwrap().as_str().to_owned(),
        method: head.method,
        user: text(&head.headers, "impersonate-user"),
        body: body.unwrap_or_default(),
    };
    let content_type = text(&head.headers, "content-type");
    let fault = {
        let mut state = state.lock().unwrap();
        state.calls.push(call.clone());
        let mut faults = state.faults.take();
        let fault = faults.as_mut().and_then(|faults| faults(&call));
        state.faults = faults;
        fault
    };
    let carry_out = || state.lock().unwrap().carry_out(&call, &content_type);
    match fault {
        None => carry_out(),
        // As an authorizer says it, whatever was asked.
        Some(Fault::Refuse(403)) => {
            status(403, "User \"fairgate\" cannot create resource \"events\"")
        }
        Some(Fault::Refuse(code)) => status(code, "refused by the test"),
        Some(Fault::FailAfter(code)) => {
            carry_out();
            status(code, "refused by the test")
        }
        // The task of the connection ends, and with it the connection.
        Some(Fault::CutBefore) => resume_unwind(Box::new("cut")),
        Some(Fault::CutAfter) => {
            carry_out();
            resume_unwind(Box::new("cut"))
        }
        Some(Fault::Hang) => std::future::pending().await,
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name);
    value.map_or("", |value| value.to_str().unwrap()).to_owned()
}

/// The header `Date` of a server whose clock is `ahead` by so many seconds.
pub fn date(ahead: i64) -> String {
    let seconds = fairgate_base::clock::Clock::system().unix_seconds();
    let at = i64::try_from(seconds).unwrap() + ahead;
    let at = jiff::Timestamp::from_second(at).unwrap();
    jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&at)
        .unwrap()
}

fn status(code: u16, message: &str) -> TestReply {
    let value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code});
    reply(code, &value)
}

fn reply(code: u16, value: &Value) -> TestReply {
    let mut reply = Response::new(full(value.to_string()));
    *reply.status_mut() = code.try_into().unwrap();
    let headers = reply.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    reply
}

fn found(object: Option<&Value>) -> TestReply {
    object.map_or_else(|| status(404, "not found"), |object| reply(200, object))
}

impl State {
    fn versioned(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object
    }

    fn carry_out(&mut self, call: &SeenCall, content_type: &str) -> TestReply {
        let (path, query) = call.target.split_once('?').unwrap_or((&call.target, ""));
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let body = || serde_json::from_slice::<Value>(&call.body).unwrap_or_default();
        let mut reply = match (call.what().as_str(), &segments[..]) {
            ("POST review", _) => review(&body()),
            ("GET pod", [.., name]) => found(self.pods.get(*name)),
            ("GET budgets", _) => self.list(query),
            ("GET budget", [.., name]) => found(self.budgets.get(*name)),
            ("PUT budget/status", [.., name, _]) => self.put_budget(name, &body()),
            ("PATCH pod/status", [.., name, _]) => {
                assert_eq!(content_type, "application/strategic-merge-patch+json");
                self.patch_pod(name, &body())
            }
            ("DELETE pod", [.., name]) => self.delete_pod(name, &body(), query),
            ("POST pod/eviction", _) => self.evict(),
            _ => status(404, "no such route"),
        };
        let date = date(self.ahead);
        reply.headers_mut().insert("date", date.parse().unwrap());
        reply
    }

    fn list(&self, query: &str) -> TestReply {
        let number = |key: &str, default: usize| {
            let pair = query.split('&').find_map(|pair| pair.strip_prefix(key));
            pair.map_or(default, |value| value.parse().unwrap())
        };
        let (from, limit) = (number("continue=", 0), number("limit=", usize::MAX));
        let all: Vec<&Value> = self.budgets.values().collect();
        let to = from.saturating_add(limit).min(all.len());
        let items = all[from..to].iter().map(|item| {
            let mut item = (*item).clone();
            item.as_object_mut().unwrap().remove("kind");
            item.as_object_mut().unwrap().remove("apiVersion");
            item
        });
        let mut list = json!({"metadata": {}, "items": items.collect::<Vec<_>>()});
        if to < all.len() {
            list["metadata"]["continue"] = json!(to.to_string());
        }
        reply(200, &list)
    }

    fn put_budget(&mut self, name: &str, object: &Value) -> TestReply {
        let Some(mut budget) = self.budgets.get(name).cloned() else {
            return status(404, "not found");
        };
        if budget["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return status(409, "the object has been modified");
        }
        budget["status"] = object["status"].clone();
        let budget = self.versioned(budget);
        self.budgets.insert(name.to_owned(), budget.clone());
        reply(200, &budget)
    }

    fn is_other(&self, name: &str, wanted: &Value) -> bool {
        ["uid", "resourceVersion"].into_iter().any(|member| {
            let wanted = &wanted[member];
            !wanted.is_null() && *wanted != self.pods[name]["metadata"][member]
        })
    }

    fn patch_pod(&mut self, name: &str, patch: &Value) -> TestReply {
        let Some(mut pod) = self.pods.get(name).cloned() else {
            return status(404, "not found");
        };
        if self.is_other(name, &patch["metadata"]) {
            return status(409, "the object has been modified");
        }
        let condition = &patch["status"]["conditions"][0];
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        conditions.retain(|old| old["type"] != condition["type"]);
        conditions.push(condition.clone());
        let pod = self.versioned(pod);
        self.pods.insert(name.to_owned(), pod.clone());
        reply(200, &pod)
    }

    fn delete_pod(&mut self, name: &str, options: &Value, query: &str) -> TestReply {
        let Some(mut pod) = self.pods.get(name).cloned() else {
            return status(404, "not found");
        };
        if self.is_other(name, &options["preconditions"]) {
            return status(409, "the object has been modified");
        }
        let dry_run = query.contains("dryRun=All");
        assert_eq!(options["dryRun"] == json!(["All"]), dry_run, "{options}");
        if dry_run {
            return reply(200, &pod);
        }
        if pod["metadata"]["finalizers"].is_array() {
            pod["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            let pod = self.versioned(pod);
            self.pods.insert(name.to_owned(), pod.clone());
            return reply(200, &pod);
        }
        self.pods.remove(name);
        reply(200, &json!({"kind": "Status", "status": "Success"}))
    }

    fn evict(&self) -> TestReply {
        let Some((code, body, retry_after)) = &self.eviction else {
            return status(404, "the server could not find the requested resource");
        };
        let mut reply = Response::new(full(body.clone()));
        *reply.status_mut() = (*code).try_into().unwrap();
        let headers = reply.headers_mut();
        headers.insert("content-type", "application/json".parse().unwrap());
        headers.insert("warning", "299 - \"from the upstream\"".parse().unwrap());
        if let Some(seconds) = retry_after {
            headers.insert("retry-after", seconds.parse().unwrap());
        }
        reply
    }
}

/// Mallory may do nothing.
fn review(review: &Value) -> TestReply {
    let allowed = review["spec"]["user"] != "mallory";
    reply(
        201,
        &json!({"status": {"allowed": allowed, "reason": "by the test"}}),
    )
}

/// A pod of the application `web`.
pub fn pod(name: &str, phase: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}"),
            "labels": {"app": "web"}},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// A budget `foo` for the application `web`.
pub fn budget(allowed: i64, current: i64, desired: i64) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "foo", "namespace": "ns", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1, "unknown": {"kept": true}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
            "currentHealthy": current, "desiredHealthy": desired, "expectedPods": current,
            "alsoUnknown": 7},
    })
}
