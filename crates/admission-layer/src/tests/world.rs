//! A cluster in memory, and the layers before it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fairgate_admission::{AdmissionMode, AdmissionRecord, AdmissionRecorder, Fidelity, PolicySet};
use fairgate_base::clock::Clock;
use fairgate_call::{Call, ClientBody, Inbound, Peer, Refusal, Reply, ReplyBody, RequestContext};
use fairgate_core::digest::{RequestDigest, RequestInfo, User};
use fairgate_testkit::upstream::{Speaks, TestUpstream, full};
use fairgate_upstream::{
    access_review::{AccessReviewSettings, AccessReviews},
    client::{ApiClient, ConnectionReuse},
    endpoint::Endpoint,
    review::ReviewClient,
};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::{sync::Notify, task::LocalSet};
use tower::{Layer, Service};

use super::test_cluster::{TestCluster, shared};
use crate::{
    AdmissionLayer, AdmissionWaitLayer, ClusterState, ForwardedPolicies, PublishedPolicies,
    RequestEvaluator, RequestEvaluatorSettings, WorkerPool, limits::audit_places::AuditPlaces,
};

/// The objects of the upstream by path.
pub(super) type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

/// What the upstream keeps of its objects: revision, path and object, or nothing where it was deleted.
pub(super) type Revisions = Arc<Mutex<Vec<(u64, String, Option<Value>)>>>;

#[derive(Debug, Default)]
pub(super) struct Records {
    all: Mutex<Vec<AdmissionRecord>>,
    changed: Notify,
}

impl AdmissionRecorder for Records {
    fn record(&self, record: AdmissionRecord) {
        self.all.lock().unwrap().push(record);
        self.changed.notify_waiters();
    }
}

impl Records {
    pub(super) fn all(&self) -> Vec<AdmissionRecord> {
        self.all.lock().unwrap().clone()
    }

    /// Waits until there are so many.
    pub(super) async fn at_least(&self, number: usize) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if self.all.lock().unwrap().len() >= number {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        waited.expect("records are made");
    }
}

/// A request that reached the services further inside.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

pub(super) type Answer = dyn Fn(&Sent) -> Response<String>;

/// The services further inside.
#[derive(Clone)]
pub(super) struct Inside {
    pub(super) sent: Rc<RefCell<Vec<Sent>>>,
    pub(super) answer: Rc<Answer>,
    records: Arc<Records>,
    /// How many records there must be before it answers.
    pub(super) answers_after: Rc<Cell<usize>>,
    /// Whether it answers only once what is read and evaluated meanwhile has been.
    pub(super) answers_when_idle: Rc<Cell<bool>>,
    places: Rc<AuditPlaces>,
    /// How long it takes to carry out a request.
    pub(super) takes: Rc<Cell<Duration>>,
}

impl Inside {
    /// Whether something is read or evaluated.
    pub(super) fn is_busy(&self) -> bool {
        self.places.taken() > 0
    }
}

impl Service<Call> for Inside {
    type Response = Reply;
    type Error = Refusal;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let (head, body) = call.request.into_parts();
            let body = body.collect().await.map_err(|_| Refusal::ClientGone)?;
            let sent = Sent {
                method: head.method.to_string(),
                target: head.uri.to_string(),
                headers: head.headers,
                body: body.to_bytes(),
            };
            this.sent.borrow_mut().push(sent.clone());
            this.records.at_least(this.answers_after.get()).await;
            while this.answers_when_idle.get() && this.is_busy() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(this.takes.get()).await;
            Ok((this.answer)(&sent).map(ReplyBody::full))
        })
    }
}

/// Layers, and what is behind them.
pub(super) struct World {
    pub(super) cluster: Arc<TestCluster>,
    pub(super) policies: Arc<PublishedPolicies>,
    pub(super) records: Arc<Records>,
    pub(super) objects: Objects,
    pub(super) revisions: Revisions,
    /// Who has it holds the reads of objects back.
    pub(super) reading: Arc<tokio::sync::Mutex<()>>,
    pub(super) inside: Inside,
    pub(super) layer: AdmissionLayer,
    pub(super) user: User,
    pub(super) upstream: TestUpstream,
}

/// What a client got.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Got {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }

    pub(super) fn warnings(&self) -> Vec<&str> {
        let all = self.headers.get_all("warning").iter();
        all.map(|value| value.to_str().unwrap()).collect()
    }

    pub(super) fn reason(&self) -> &str {
        let reason = self.headers.get("x-fairgate-reason");
        reason.map_or("", |reason| reason.to_str().unwrap())
    }
}

impl World {
    pub(super) fn new(mode: AdmissionMode) -> Self {
        Self::with_budget(mode, 32 << 20)
    }

    /// A world in which a core may hold this many bytes.
    pub(super) fn with_budget(mode: AdmissionMode, body_budget: usize) -> Self {
        Self::of(mode, body_budget, Duration::from_secs(30), false)
    }

    /// A world in which requests hardly wait for policies.
    pub(super) fn impatient(mode: AdmissionMode) -> Self {
        Self::of(mode, 32 << 20, Duration::from_millis(5), false)
    }

    /// A world whose clock stands still, so that no evaluation goes on elsewhere because it takes long.
    pub(super) fn at_rest(mode: AdmissionMode) -> Self {
        let clock = Clock::manual(Clock::system().now());
        Self::by_clock(clock, mode, 32 << 20, Duration::from_secs(30), false)
    }

    /// A world in which writes are conditional on the evaluated object.
    pub(super) fn guarded() -> Self {
        let limit = Duration::from_secs(30);
        Self::of(AdmissionMode::Enforce, 32 << 20, limit, true)
    }

    fn of(mode: AdmissionMode, body_budget: usize, ready_limit: Duration, guard: bool) -> Self {
        Self::by_clock(Clock::system(), mode, body_budget, ready_limit, guard)
    }

    fn by_clock(
        clock: Clock,
        mode: AdmissionMode,
        body_budget: usize,
        ready_limit: Duration,
        guard: bool,
    ) -> Self {
        let objects = Objects::default();
        let (reading, revisions) = (Arc::default(), Revisions::default());
        let upstream = stored(&objects, &revisions, &reading);
        let authority = upstream.address.to_string().parse().unwrap();
        let endpoint = Endpoint::new(authority, None);
        let client = ApiClient::new(endpoint, Arc::new(HeaderMap::new), ConnectionReuse::Pooled);
        let control = tokio::runtime::Handle::current();
        let access = AccessReviews::new(
            AccessReviewSettings::default(),
            ReviewClient::access(client.clone()),
            clock.clone(),
            control.clone(),
        );
        let cluster = Arc::<TestCluster>::default();
        let default = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "ns", "labels": {"env": "prod"}}});
        let namespaces = &cluster.namespaces;
        namespaces
            .lock()
            .unwrap()
            .insert("ns".to_owned(), shared(&default));
        let (policies, records) = (
            Arc::<PublishedPolicies>::default(),
            Arc::<Records>::default(),
        );
        let mut evaluator = RequestEvaluator::new(RequestEvaluatorSettings {
            mode,
            policies: Arc::clone(&policies),
            cluster: Arc::clone(&cluster) as Arc<dyn ClusterState>,
            recorder: Arc::clone(&records) as Arc<dyn AdmissionRecorder>,
            access,
            client,
            body_budget,
            guard,
            workers: Arc::new(WorkerPool::new(1)),
            clock,
        });
        let settings = Arc::get_mut(&mut evaluator).unwrap();
        settings.ready_limit = ready_limit;
        let layer = AdmissionLayer::new(evaluator, crate::AnsweredHere::none(), control);
        let places = Rc::clone(&layer.side().unwrap().audits);
        Self {
            layer,
            cluster,
            policies,
            records: Arc::clone(&records),
            objects,
            revisions,
            reading,
            inside: Inside {
                sent: Rc::default(),
                answer: Rc::new(|_| Response::new("{\"kind\":\"Done\"}".to_owned())),
                records,
                answers_after: Rc::default(),
                answers_when_idle: Rc::default(),
                places,
                takes: Rc::default(),
            },
            user: User::new("alice", ["devs"]),
            upstream,
        }
    }

    /// Runs a test in a world, on the thread of a core.
    pub(super) fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async { test().await });
    }

    /// Puts policies into force, each with the fidelity that it asks for.
    pub(super) fn enforce(&self, policies: &[Value]) {
        let (mut objects, mut bindings, mut fidelity) = (Vec::new(), Vec::new(), Vec::new());
        for one in policies {
            let name = one["name"].as_str().unwrap();
            let mut spec = one["spec"].clone();
            spec["matchConstraints"]["namespaceSelector"] =
                one.get("namespaces").cloned().unwrap_or_else(|| json!({}));
            spec["matchConstraints"]["objectSelector"] = json!({});
            spec["matchConstraints"]["matchPolicy"] = json!("Equivalent");
            let actions = one.get("actions").cloned();
            let mut binding = json!({"policyName": name,
                "validationActions": actions.unwrap_or_else(|| json!(["Deny"]))});
            if let Some(params) = one.get("paramRef") {
                binding["paramRef"] = params.clone();
            }
            objects.push(json!({"metadata": {"name": name}, "spec": spec}));
            bindings.push(json!({"metadata": {"name": format!("{name}-b")}, "spec": binding}));
            let wanted = one["fidelity"].as_str().and_then(Fidelity::of_name);
            fidelity.push((name.to_owned(), wanted.unwrap_or(Fidelity::Completed)));
        }
        fidelity.sort();
        let (objects, bindings): (Vec<_>, Vec<_>) =
            (objects.iter().collect(), bindings.iter().collect());
        let set = PolicySet::from_json(&objects, &bindings).unwrap();
        self.policies.publish(ForwardedPolicies {
            set: Arc::new(set),
            fidelity,
            are_static: false,
        });
    }

    pub(super) fn store(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    /// Stores an object at a revision, or deletes it. Returns it.
    pub(super) fn write(&self, revision: u64, path: &str, object: Option<Value>) -> Option<Value> {
        write(&self.objects, &self.revisions, revision, path, object)
    }

    /// Makes the upstream refuse requests for a path with this `Status`.
    pub(super) fn fail(&self, path: &str, code: u16, status: &Value) {
        self.store(path, json!([code, status.to_string()]));
    }

    pub(super) fn sent(&self) -> Vec<Sent> {
        self.inside.sent.borrow().clone()
    }

    /// The requests that reached the services further inside.
    pub(super) fn targets(&self) -> Vec<String> {
        let sent = self.sent();
        let line = |one: &Sent| format!("{} {}", one.method, one.target);
        sent.iter().map(line).collect()
    }

    pub(super) fn call(&self, method: &str, target: &str, content_type: &str, body: Bytes) -> Call {
        let mut request = Request::new(ClientBody::full(body));
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = target.parse().unwrap();
        if !content_type.is_empty() {
            let value = content_type.parse().unwrap();
            request.headers_mut().insert("content-type", value);
        }
        let context = RequestContext::new(request.method().clone(), None, 7);
        let inbound = Inbound {
            request: Box::new(request),
            peer: Rc::new(Peer::local()),
            received: Clock::system().now(),
            context: Rc::new(context),
        };
        let digest = RequestDigest {
            info: RequestInfo::from_target(method, target).unwrap(),
            user: Arc::new(self.user.clone()),
        };
        Call::new(inbound, Arc::new(digest), Duration::from_secs(20)).unwrap()
    }

    pub(super) async fn send(&self, call: Call) -> Got {
        let waiting = AdmissionWaitLayer::of(&self.layer);
        let mut service = waiting.layer(self.layer.layer(self.inside.clone()));
        let reply = service.call(call).await.unwrap();
        let (head, body) = reply.into_parts();
        Got {
            code: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    /// Sends JSON.
    pub(super) async fn json(&self, method: &str, target: &str, body: &Value) -> Got {
        let body = match body {
            Value::Null => Bytes::new(),
            body => body.to_string().into(),
        };
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        self.send(self.call(method, target, content_type, body))
            .await
    }
}

/// Stores an object at a revision, or deletes it. Returns it.
pub(super) fn write(
    objects: &Objects,
    revisions: &Revisions,
    revision: u64,
    path: &str,
    mut object: Option<Value>,
) -> Option<Value> {
    let path = path.to_owned();
    let mut objects = objects.lock().unwrap();
    if let Some(object) = &mut object {
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        objects.insert(path.clone(), object.clone());
    } else {
        objects.remove(&path);
    }
    revisions
        .lock()
        .unwrap()
        .push((revision, path, object.clone()));
    object
}

/// A policy with one validation, for all operations on resources such as `apps/deployments`.
pub(super) fn policy(name: &str, resource: &str, expression: &str) -> Value {
    let (group, resource) = resource.split_once(' ').unwrap();
    json!({"name": name, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"apiGroups": [group], "apiVersions": ["*"],
            "operations": ["*"], "resources": [resource], "scope": "*"}]},
        "validations": [{"expression": expression}],
    }})
}

/// The upstream, as far as the gateway asks it in its own name.
fn stored(
    objects: &Objects,
    revisions: &Revisions,
    reading: &Arc<tokio::sync::Mutex<()>>,
) -> TestUpstream {
    let (objects, revisions) = (Arc::clone(objects), Arc::clone(revisions));
    let reading = Arc::clone(reading);
    TestUpstream::start(Speaks::Http1, move |request| {
        let (objects, revisions) = (Arc::clone(&objects), Arc::clone(&revisions));
        let reading = Arc::clone(&reading);
        async move {
            let path = request.uri().path().to_owned();
            let query = request.uri().query().unwrap_or_default().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            if path.ends_with("/subjectaccessreviews") {
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                let limit = &review["spec"]["resourceAttributes"]["fieldSelector"];
                let is_elsewhere = limit["rawSelector"] == "spec.nodeName=elsewhere";
                let is_allowed = review["spec"]["user"] != "mallory" && !is_elsewhere;
                review["status"] = json!({"allowed": is_allowed, "reason": "rbac"});
                return Response::new(full(review.to_string()));
            }
            drop(reading.lock().await);
            let mut found = objects.lock().unwrap().get(&path).cloned();
            if found.is_none() && query.contains("fieldSelector=metadata.name%3D") {
                found = listed(&revisions.lock().unwrap(), &path, &query);
            }
            match found {
                Some(Value::String(error)) => {
                    let mut response = Response::new(full(error));
                    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                    response
                }
                Some(Value::Array(failure)) => {
                    let text = failure[1].as_str().unwrap_or_default().to_owned();
                    let code = failure[0]
                        .as_u64()
                        .and_then(|code| u16::try_from(code).ok());
                    let mut response = Response::new(full(text));
                    *response.status_mut() = http::StatusCode::from_u16(code.unwrap()).unwrap();
                    response
                }
                Some(object) => Response::new(full(part_of(object, &query).to_string())),
                None => {
                    let name = path.rsplit('/').next().unwrap_or_default();
                    let absent =
                        json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}});
                    let mut response = Response::new(full(absent.to_string()));
                    *response.status_mut() = http::StatusCode::NOT_FOUND;
                    response
                }
            }
        }
    })
}

/// The list of one object, as it was at the revision of a query, or is. An upstream without revisions has no lists.
fn listed(revisions: &[(u64, String, Option<Value>)], path: &str, query: &str) -> Option<Value> {
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key));
    let (last, ..) = revisions.last()?;
    let at = value("resourceVersion=").map_or(*last, |at| at.parse().unwrap());
    let of = format!("{path}/{}", value("fieldSelector=metadata.name%3D")?);
    let mut before = revisions
        .iter()
        .rev()
        .filter(|(revision, ..)| *revision <= at);
    let found = before.find(|(_, path, _)| *path == of);
    let mut item = found.and_then(|(.., object)| object.clone());
    let mut kind = json!("ThingList");
    if let Some(members) = item.as_mut().and_then(Value::as_object_mut) {
        let of = members.remove("kind").unwrap_or_default();
        kind = json!(format!("{}List", of.as_str().unwrap_or("Thing")));
        members.remove("apiVersion");
    }
    Some(
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": at.to_string()},
        "items": item.into_iter().collect::<Vec<_>>()}),
    )
}

/// The objects of a list that a query with `limit` and `continue` asks for; another object as it is.
fn part_of(mut object: Value, query: &str) -> Value {
    let number = |key: &str| {
        let mut values = query.split('&').filter_map(|pair| pair.strip_prefix(key));
        values.next().map(|value| value.parse::<usize>().unwrap())
    };
    let items = object.get_mut("items").and_then(Value::as_array_mut);
    let (Some(limit), Some(items)) = (number("limit="), items) else {
        return object;
    };
    let from = number("continue=").unwrap_or_default();
    let more = items.len() > from + limit;
    let kept: Vec<Value> = items.drain(..).skip(from).take(limit).collect();
    object["items"] = kept.into();
    if more {
        object["metadata"]["continue"] = json!((from + limit).to_string());
    }
    object
}
