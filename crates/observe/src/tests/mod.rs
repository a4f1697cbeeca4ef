//! Sends requests through the layers on a manual clock, and reads the resulting metrics, logs and dumps.

mod access_log;
mod admin_port;
mod dumps;
mod exposition;
mod scrape;
mod users;

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    io::Write,
    pin::Pin,
    rc::Rc,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Handle,
    sync::oneshot,
    task::{JoinHandle, LocalSet},
};
use tower::{Layer, Service};

use super::{
    AdminServer, GatewayMetrics, HealthChecks, OperatorEndpoints, Telemetry, dumps::Dump,
    metrics::catalogue, ports::dumps_layer::DumpsLayer,
};
use fairgate_base::clock::Clock;
use fairgate_call::{
    Call, ClientBody, Inbound, Peer, Refusal, Reply, ReplyBody, RequestContext, SpoolLimits,
    handle_refusal::HandleRefusalLayer,
};
use fairgate_core::{
    apf::{
        ObjectSet, Policy, PolicySettings, Semantics, objects::Bootstrap, work::EstimatorSettings,
    },
    digest::{RequestDigest, RequestInfo, User},
    time::Time,
};
use fairgate_proxy::fairness::{
    BodyLimits, Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate,
};

/// The time of the clock at the start of each test.
const START: Time = Time::from_nanos(1_000_000_000);

type Answer<T> = Pin<Box<dyn Future<Output = T>>>;

/// The innermost service: responds 200 at once. It holds requests with `hold` in their path until
/// [`World::release`], and responds 404 to those with `nothing`, and 500 to those
/// with `broken`.
#[derive(Clone, Default)]
struct Leaf {
    held: Rc<RefCell<VecDeque<oneshot::Sender<()>>>>,
}

impl Service<Call> for Leaf {
    type Response = Reply;
    type Error = Refusal;
    type Future = Answer<Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let path = call.request.uri().path();
        let mut reply = Response::new(ReplyBody::full("hello"));
        if path.contains("nothing") {
            *reply.status_mut() = StatusCode::NOT_FOUND;
        }
        if path.contains("broken") {
            *reply.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        if !path.contains("hold") {
            return Box::pin(async { Ok(reply) });
        }
        let (release, released) = oneshot::channel();
        self.held.borrow_mut().push_back(release);
        Box::pin(async move {
            let _ = released.await;
            Ok(reply)
        })
    }
}

/// Trusts the `user` header; without it, the request is unauthenticated.
#[derive(Clone)]
struct AuthLayer;

#[derive(Clone)]
struct Auth<S>(S);

impl<S> Layer<S> for AuthLayer {
    type Service = Auth<S>;
    fn layer(&self, inner: S) -> Auth<S> {
        Auth(inner)
    }
}

impl<S> Service<Inbound> for Auth<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: 'static,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = Answer<Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        let header = |name| inbound.request.headers().get(name);
        let Some(name) = header("user").map(|name| name.to_str().unwrap().to_owned()) else {
            return Box::pin(async { Err(Refusal::Unauthorized) });
        };
        let group = header("group").map(|group| group.to_str().unwrap().to_owned());
        let user = User::new(name, group.into_iter().chain([User::AUTHENTICATED.into()]));
        let target = inbound.request.uri().to_string();
        let info = RequestInfo::from_target(inbound.request.method().as_str(), &target).unwrap();
        let digest = RequestDigest {
            info,
            user: Arc::new(user),
        };
        let call = Call::new(inbound, Arc::new(digest), Duration::from_secs(60)).unwrap();
        Box::pin(self.0.call(call))
    }
}

/// A gateway of one core, without sockets.
struct World {
    clock: Clock,
    telemetry: Arc<Telemetry>,
    leaf: Leaf,
    stack: Box<dyn FnMut(Inbound) -> Answer<Reply>>,
}

fn object(kind: &str, name: &str, spec: &Value) -> (&'static str, Value) {
    let version = "flowcontrol.apiserver.k8s.io/v1";
    let meta = json!({"name": name});
    (
        "test",
        json!({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}),
    )
}

fn schema(name: &str, level: &str, user: &str) -> (&'static str, Value) {
    let spec = json!({
        "matchingPrecedence": 500,
        "priorityLevelConfiguration": {"name": level},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": user}}],
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "clusterScope": true, "namespaces": ["*"]
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        }]
    });
    object("FlowSchema", name, &spec)
}

/// The mandatory objects and `strict`, a level of one seat that rejects; with `narrow`, also a level of one
/// seat and four queues.
fn policy(narrow: bool) -> Arc<Policy> {
    let queuing = json!({"queues": 4, "handSize": 1, "queueLengthLimit": 2});
    let queued = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing}}});
    let strict = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"}}});
    let mut objects = vec![
        object("PriorityLevelConfiguration", "strict", &strict),
        schema("strangers", "strict", "sid"),
    ];
    if narrow {
        objects.push(object("PriorityLevelConfiguration", "narrow", &queued));
        objects.push(schema("elephants", "narrow", "ann"));
    }
    let objects = ObjectSet::read(objects).with_bootstrap(Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats: 2,
        semantics: Semantics::Improved,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    Arc::new(Policy::compile(&objects, &settings).unwrap().policy)
}

fn settings() -> FlowControlSettings {
    FlowControlSettings {
        enforcement: Enforcement::Enforce,
        request_timeout: Duration::from_secs(60),
        max_queued: 100,
        borrowing_period: Duration::from_secs(10),
        estimator: EstimatorSettings::default(),
        long_running: Caps {
            per_user: 10,
            total: 10,
        },
        watches: Caps::NONE,
        resets: fairgate_call::ResetLimits::PER_USER,
        spool: SpoolLimits::NONE,
        bodies: BodyLimits::NONE,
        long_head_bytes: usize::MAX,
    }
}

impl World {
    /// Must be called within a local set.
    fn new() -> Self {
        Self::with_top_flows(2)
    }

    /// One whose metrics name so many flows and users of each level.
    fn with_top_flows(top_flows: usize) -> Self {
        let clock = Clock::manual(START);
        let flow_control = FlowControl::new(1, policy(true), settings(), START);
        let gate = Gate::new(Arc::clone(&flow_control), 0, clock.clone(), 1);
        fairgate_base::turns::spawn_local(Rc::clone(&gate).run());
        let telemetry = Telemetry::new(
            flow_control,
            clock.clone(),
            "kube:6443",
            GatewayMetrics::new(),
            top_flows,
        );
        let leaf = Leaf::default();
        let inside = DumpsLayer::new(
            Arc::clone(&telemetry),
            Handle::current(),
            fairgate_call::ResponseMemory::new(64 << 20),
        )
        .layer(leaf.clone());
        let fair = FairnessLayer::new(gate).layer(inside);
        let mut stack = telemetry
            .trace_layer(0)
            .layer(HandleRefusalLayer.layer(AuthLayer.layer(fair)));
        Self {
            stack: Box::new(move |inbound| {
                let answer = stack.call(inbound);
                Box::pin(async move {
                    let Ok(reply) = answer.await;
                    reply
                })
            }),
            clock,
            telemetry,
            leaf,
        }
    }

    /// Changes what happens to decisions.
    async fn enforce(&self, enforcement: Enforcement) {
        self.telemetry
            .flow_control()
            .configure(FlowControlSettings {
                enforcement,
                ..settings()
            });
        settle().await;
    }

    fn inbound(&self, method: Method, target: &str, user: &str) -> Inbound {
        let mut request = Request::builder().method(method.clone()).uri(target);
        if let Some((name, group)) = user.split_once('/') {
            request = request.header("user", name).header("group", group);
        } else if !user.is_empty() {
            request = request.header("user", user);
        }
        let request = request
            .header("user-agent", "kubectl/v1")
            .body(ClientBody::empty())
            .unwrap();
        let target = request.uri().path_and_query().cloned();
        Inbound {
            context: Rc::new(RequestContext::new(method, target, 0x1234)),
            request: Box::new(request),
            peer: Rc::new(Peer::local()),
            received: self.clock.now(),
        }
    }

    /// Sends a request, and runs all tasks until none makes progress.
    async fn send(&mut self, method: Method, target: &str, user: &str) -> JoinHandle<Got> {
        let inbound = self.inbound(method, target, user);
        let answer = (self.stack)(inbound);
        let sent = fairgate_base::turns::spawn_local(async move {
            let (parts, body) = answer.await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Got {
                status: parts.status.as_u16(),
                headers: parts.headers,
                body,
            }
        });
        settle().await;
        sent
    }

    async fn get(&mut self, target: &str, user: &str) -> Got {
        self.send(Method::GET, target, user).await.await.unwrap()
    }

    /// Lets the leaf respond to the request that it has held longest.
    async fn release(&self) {
        let held = self.leaf.held.borrow_mut().pop_front();
        held.unwrap().send(()).unwrap();
        settle().await;
    }

    /// Sends three requests of Ann: one holds the seat of `narrow` for two seconds, and two wait for it.
    async fn crowd(&mut self) -> Vec<JoinHandle<Got>> {
        let mut sent = Vec::new();
        for name in ["a", "b", "c"] {
            let target = format!("/api/v1/namespaces/hold/pods/{name}");
            sent.push(self.send(Method::GET, &target, "ann").await);
            self.clock.advance(Duration::from_millis(500));
        }
        self.clock.advance(Duration::from_millis(500));
        sent
    }
}

struct Got {
    status: u16,
    headers: http::HeaderMap,
    body: Bytes,
}

impl Got {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Runs all tasks until none makes progress.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn local(test: impl Future<Output = ()> + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// The cells of a dump, split as its consumers split it.
fn cells(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split(',').map(str::trim).collect())
        .collect()
}
