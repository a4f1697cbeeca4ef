//! Requests go through the layers, on a clock that the test moves, and what is told of them is read.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
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
    AdminServer, GatewayMetrics, HealthChecks, OperatorEndpoints, Telemetry, catalogue,
    dumps::Dump, log,
};
use crate::config::{LogConfig, LogFormat, LogLevel};
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
use fairgate_proxy::fairness::{Caps, Enforcement, FairnessLayer, Gate, Hub, HubSettings};

/// When all tests begin, by the gateway's clock.
const START: Time = Time::from_nanos(1_000_000_000);

type Answer<T> = Pin<Box<dyn Future<Output = T>>>;

/// The leaf: answers 200 at once, but to what has `hold` in its path only when it is told to, and
/// 404 to what has `nothing`.
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
        if !path.contains("hold") {
            return Box::pin(async { Ok(reply) });
        }
        let (go, told) = oneshot::channel();
        self.held.borrow_mut().push_back(go);
        Box::pin(async move {
            let _ = told.await;
            Ok(reply)
        })
    }
}

/// Takes the user's word for who he is; without one he is nobody.
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

/// A level of one seat that refuses, and what is mandatory; with `narrow`, a level of one seat and
/// four queues, too.
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
    };
    Arc::new(Policy::compile(&objects, &settings).unwrap().policy)
}

impl World {
    /// To be called on a local set.
    fn new() -> Self {
        let clock = Clock::manual(START);
        let settings = HubSettings {
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
        };
        let hub = Hub::new(1, policy(true), settings, START);
        let gate = Gate::new(Arc::clone(&hub), 0, clock.clone(), 1);
        tokio::task::spawn_local(Rc::clone(&gate).run());
        let telemetry = Telemetry::new(hub, clock.clone(), "kube:6443", GatewayMetrics::new());
        let leaf = Leaf::default();
        let inside = telemetry.dumps_layer(Handle::current()).layer(leaf.clone());
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
            request,
            peer: Rc::new(Peer::local()),
            received: self.clock.now(),
        }
    }

    /// Sends a request and lets it get as far as it does.
    async fn send(&mut self, method: Method, target: &str, user: &str) -> JoinHandle<Got> {
        let inbound = self.inbound(method, target, user);
        let answer = (self.stack)(inbound);
        let sent = tokio::task::spawn_local(async move {
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

    /// Has the leaf answer what it has held longest.
    async fn release(&self) {
        let held = self.leaf.held.borrow_mut().pop_front();
        held.unwrap().send(()).unwrap();
        settle().await;
    }

    /// Ann holds the seat of her level for two seconds, and two of hers wait for it.
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

/// Lets everything that can go on do so.
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

/// A metrics text, taken apart by the rules of the format.
#[derive(Default)]
struct Scrape {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut family = String::new();
        let mut helped = BTreeSet::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect(line);
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect(line);
                assert!(helped.contains(name), "help goes first: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let before = scrape.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "families are told once: {line}");
                family = name.to_owned();
            } else {
                let (series, value) = line.rsplit_once(' ').expect(line);
                scrape.check_series(&family, series);
                let value = match value {
                    "+Inf" => f64::INFINITY,
                    value => value.parse().expect(line),
                };
                let before = scrape.samples.insert(series.to_owned(), value);
                assert_eq!(before, None, "series are told once: {line}");
            }
        }
        scrape.check_histograms();
        scrape
    }

    fn check_series(&self, family: &str, series: &str) {
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(series)),
            None => (series, ""),
        };
        let suffixes: &[&str] = match &*self.kinds[family] {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let fits = suffixes.iter().any(|s| name == format!("{family}{s}"));
        assert!(fits, "{series} under {family}");
        let name_of = |text: &str| {
            let rest = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
            assert!(
                rest.len() < text.len(),
                "a name begins {text:?} in {series}"
            );
            text.len() - rest.len()
        };
        let mut rest = labels;
        let mut names = Vec::new();
        while !rest.is_empty() {
            let end = name_of(rest);
            names.push(rest[..end].to_owned());
            rest = rest[end..].strip_prefix("=\"").expect(series);
            let mut escaped = false;
            let end = rest.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            rest = &rest[end.expect(series) + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        names.retain(|name| name != "le");
        assert!(names.is_sorted(), "{series}");
    }

    /// Buckets rise and end with the count.
    fn check_histograms(&self) {
        let mut last: Option<(String, f64)> = None;
        let families = self.kinds.iter().filter(|(_, kind)| *kind == "histogram");
        for (family, _) in families {
            let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            for (series, value) in &self.samples {
                let Some(labels) = series.strip_prefix(&format!("{family}_bucket")) else {
                    continue;
                };
                let (labels, bound) = labels.rsplit_once("le=\"").expect(series);
                let bound = match bound.trim_end_matches("\"}") {
                    "+Inf" => f64::INFINITY,
                    bound => bound.parse().unwrap(),
                };
                let group = format!("{family}_count{}}}", labels.trim_end_matches(','));
                groups.entry(group).or_default().push((bound, *value));
            }
            for (count, mut buckets) in groups {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{count}");
                let (bound, most) = buckets.pop().unwrap();
                assert!(bound.is_infinite());
                assert!((self.samples[&count] - most).abs() < 0.5, "{count}");
                last = Some((count, most));
            }
        }
        assert!(last.is_some(), "there are histograms");
    }

    fn bounds(&self, family: &str) -> Vec<String> {
        let prefix = format!("{family}_bucket");
        let mut bounds: Vec<_> = self
            .samples
            .keys()
            .filter(|series| series.starts_with(&prefix))
            .map(|series| {
                let (_, bound) = series.rsplit_once("le=\"").unwrap();
                bound.trim_end_matches("\"}").to_owned()
            })
            .filter(|bound| bound != "+Inf")
            .collect();
        bounds.sort_by(|a, b| a.parse::<f64>().unwrap().total_cmp(&b.parse().unwrap()));
        bounds.dedup();
        bounds
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let found = self.samples.get(series);
        *found.unwrap_or_else(|| panic!("no {series} in\n{:#?}", self.samples.keys()))
    }

    #[track_caller]
    fn is(&self, series: &str, expected: f64) {
        let value = self.value(series);
        assert!((value - expected).abs() < 1e-6, "{series}: {value}");
    }
}

const APF: &str = "apiserver_flowcontrol_";
const ANN: &str = r#"apiserver="kube:6443",flow_schema="elephants",priority_level="narrow""#;

#[test]
fn every_metric_is_told_under_its_name_with_its_labels_and_buckets() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let refused = world.get("/api/v1/namespaces/hold/pods/d", "ann").await;
        assert_eq!(refused.status, 429);
        world.get("/livez", "sid").await;
        world
            .telemetry
            .sampler()
            .sample(world.telemetry.hub(), world.clock.now());
        let text = world.telemetry.render_metrics();
        let scrape = Scrape::parse(&text);

        for family in catalogue::CELL_METRICS {
            assert!(scrape.kinds.contains_key(family.name), "{}", family.name);
        }
        let one = |name: &str, value| scrape.is(&format!("{APF}{name}{{{ANN}}}"), value);
        one("dispatched_requests_total", 1.0);
        one("current_inqueue_requests", 2.0);
        one("current_inqueue_seats", 2.0);
        one("current_executing_requests", 1.0);
        one("current_executing_seats", 1.0);
        one("request_concurrency_in_use", 1.0);
        one("request_queue_length_after_enqueue_count", 3.0);
        one("work_estimated_seats_count", 4.0);
        one("request_dispatch_no_accommodation_total", 0.0);
        scrape.is(
            &format!("{APF}rejected_requests_total{{{ANN},reason=\"queue-full\"}}"),
            1.0,
        );
        scrape.is(
            &format!("{APF}rejected_requests_total{{{ANN},reason=\"time-out\"}}"),
            0.0,
        );
        let execute = |execute: &str| {
            format!(
                "{APF}request_wait_duration_seconds_count{{apiserver=\"kube:6443\",\
                 execute=\"{execute}\",flow_schema=\"elephants\",priority_level=\"narrow\"}}"
            )
        };
        scrape.is(&execute("true"), 1.0);
        scrape.is(&execute("false"), 1.0);
        let level = |name: &str, value| {
            let labels = r#"apiserver="kube:6443",priority_level="narrow""#;
            scrape.is(&format!("{APF}{name}{{{labels}}}"), value);
        };
        level("nominal_limit_seats", 1.0);
        level("request_concurrency_limit", 1.0);
        level("lower_limit_seats", 1.0);
        level("upper_limit_seats", 1.0);
        level("current_limit_seats", 1.0);
        level("demand_seats_count", 2e9);
        scrape.value(&format!("{APF}seat_fair_frac{{apiserver=\"kube:6443\"}}"));
        let bound = |name: &str, bound: &str| {
            scrape.value(&format!(
                "{APF}{name}{{apiserver=\"kube:6443\",bound=\"{bound}\",priority_level=\"narrow\"}}"
            ))
        };
        assert!(bound("next_s_bounds", "min") <= bound("next_s_bounds", "max"));
        bound("next_discounted_s_bounds", "min");

        // Of two seconds, the first half was spent with nobody waiting, in quarters of eight places.
        let ratio = |name: &str, phase: &str, rest: &str| {
            scrape.value(&format!(
                "{APF}{name}{{apiserver=\"kube:6443\",phase=\"{phase}\",priority_level=\"narrow\"{rest}}}"
            ))
        };
        let waiting = ratio("priority_level_request_utilization_sum", "waiting", "");
        let expected = 0.5e9 / 8.0 + 2.0 * 1.0e9 / 8.0;
        assert!((waiting - expected).abs() < 1.0, "{waiting}");
        let seats = ratio("priority_level_seat_utilization_sum", "executing", "");
        assert!((seats - 2e9).abs() < 1.0, "{seats}");

        let durations: &[&str] = &[
            "0", "0.005", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "15", "30",
        ];
        assert_eq!(
            scrape.bounds(&format!("{APF}request_wait_duration_seconds")),
            durations
        );
        assert_eq!(
            scrape.bounds(&format!("{APF}work_estimated_seats")),
            ["1", "2", "4", "8", "16", "32", "64", "100"]
        );
        assert_eq!(
            scrape.bounds(&format!("{APF}request_queue_length_after_enqueue")),
            ["0", "10", "25", "50", "100", "250", "500", "1000"]
        );
        assert_eq!(
            scrape
                .bounds(&format!("{APF}read_vs_write_current_requests"))
                .len(),
            15
        );
        assert_eq!(
            scrape.bounds("apiserver_request_filter_duration_seconds"),
            [
                "0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "5", "10",
                "15", "30"
            ]
        );
        drop(sent);
    });
}

#[test]
fn all_requests_are_counted_when_they_have_ended() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        assert_eq!(
            world
                .get("/api/v1/namespaces/hold/pods/d", "ann")
                .await
                .status,
            429
        );
        assert_eq!(world.get("/api/v1/pods", "").await.status, 401);
        assert_eq!(world.get("/api/v1/nothing", "sid").await.status, 404);
        let watch = world.get("/api/v1/pods?watch=1", "sid").await;
        assert_eq!(watch.status, 200);
        for sent in sent {
            world.release().await;
            assert_eq!(sent.await.unwrap().status, 200);
        }
        let scrape = Scrape::parse(&world.telemetry.render_metrics());
        let pods = "group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
        let label = |rest: &str| format!("{{apiserver=\"kube:6443\",{rest}}}");
        scrape.is(
            &format!(
                "apiserver_request_total{}",
                label(&format!(
                    "code=\"200\",component=\"apiserver\",dry_run=\"\",{pods}"
                ))
            ),
            3.0,
        );
        let other = "group=\"other\",resource=\"other\",scope=\"resource\",subresource=\"other\",verb=\"GET\",version=\"other\"";
        scrape.is(
            &format!(
                "apiserver_request_terminations_total{}",
                label(&format!("code=\"429\",component=\"apiserver\",{other}"))
            ),
            1.0,
        );
        scrape.is(
            &format!(
                "apiserver_request_sli_duration_seconds_count{}",
                label(&format!("component=\"apiserver\",{pods}"))
            ),
            3.0,
        );
        // The second and third waited; their waits of 1.5 and 1 seconds do not count.
        scrape.is(
            &format!(
                "apiserver_request_sli_duration_seconds_sum{}",
                label(&format!("component=\"apiserver\",{pods}"))
            ),
            2.0,
        );
        scrape.is(
            "fairgate_refusals_total{apiserver=\"kube:6443\",reason=\"queue-full\"}",
            1.0,
        );
        scrape.is(
            "fairgate_refusals_total{apiserver=\"kube:6443\",reason=\"unauthorized\"}",
            1.0,
        );
        scrape.is(
            &format!("{APF}request_execution_seconds_count{{{ANN},type=\"regular\"}}"),
            3.0,
        );
        scrape.is(&format!("{APF}current_executing_requests{{{ANN}}}"), 0.0);
    });
}

#[test]
fn a_client_that_leaves_is_counted_too() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        sent[1].abort();
        settle().await;
        let scrape = Scrape::parse(&world.telemetry.render_metrics());
        let gone = scrape
            .samples
            .iter()
            .filter(|(series, _)| series.starts_with("apiserver_request_total"));
        let gone: Vec<_> = gone.collect();
        assert_eq!(gone.len(), 1);
        assert!(gone[0].0.contains("code=\"499\""), "{gone:?}");
        scrape.is(
            &format!("{APF}rejected_requests_total{{{ANN},reason=\"time-out\"}}"),
            1.0,
        );
    });
}

#[test]
fn readers_and_writers_are_sampled_apart() {
    local(async {
        let mut world = World::new();
        let (hub, sampler) = (Arc::clone(world.telemetry.hub()), world.telemetry.clone());
        let sampler = sampler.sampler();
        sampler.sample(&hub, world.clock.now());
        let sent = world.crowd().await;
        let post = world
            .send(Method::POST, "/api/v1/namespaces/hold/pods", "sid")
            .await;
        sampler.sample(&hub, world.clock.now());
        for _ in 0..10 {
            world.clock.advance(Duration::from_millis(100));
            sampler.sample(&hub, world.clock.now());
        }
        let scrape = Scrape::parse(&world.telemetry.render_metrics());
        let kind = |name: &str, kind: &str| {
            scrape.value(&format!(
                "apiserver_current_{name}_requests{{apiserver=\"kube:6443\",request_kind=\"{kind}\"}}"
            ))
        };
        let most = [
            kind("inflight", "readOnly"),
            kind("inflight", "mutating"),
            kind("inqueue", "readOnly"),
            kind("inqueue", "mutating"),
        ];
        assert_eq!(most.map(|most| most.to_string()), ["1", "1", "2", "0"]);
        let sum = |phase: &str, kind: &str| {
            scrape.value(&format!(
                "{APF}read_vs_write_current_requests_sum{{apiserver=\"kube:6443\",phase=\"{phase}\",request_kind=\"{kind}\"}}"
            ))
        };
        // A second of two waiting in eight places, and of one executing; the nominal limits are
        // 1, 1, and 2 of the catch-all.
        assert!(
            (sum("waiting", "readOnly") - 0.25e9).abs() < 1.0,
            "{}",
            sum("waiting", "readOnly")
        );
        assert!(
            (sum("executing", "mutating") - 0.25e9).abs() < 1.0,
            "{}",
            sum("executing", "mutating")
        );
        assert!(sum("waiting", "mutating").abs() < 1.0);
        drop((sent, post));
    });
}

#[test]
fn the_dumps_have_the_columns_of_the_original() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        assert_eq!(
            world.telemetry.dump(Dump::PriorityLevels).await,
            concat!(
                "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests\n",
                "catch-all,         0,            true,   false,       0,               0,                 0,                  0,                0,                0\n",
                "exempt,            0,            true,   false,       0,               0,                 0,                  0,                0,                0\n",
                "narrow,            1,            false,  false,       2,               1,                 1,                  0,                0,                0\n",
                "strict,            0,            true,   false,       0,               0,                 0,                  0,                0,                0\n",
            )
        );
        let queues = world.telemetry.dump(Dump::Queues).await;
        let rows: Vec<Vec<&str>> = cells(&queues);
        assert_eq!(rows.len(), 5);
        assert_eq!(
            rows[0],
            [
                "PriorityLevelName",
                "Index",
                "PendingRequests",
                "ExecutingRequests",
                "SeatsInUse",
                "NextDispatchR",
                "InitialSeatsSum",
                "MaxSeatsSum",
                "TotalWorkSum"
            ]
        );
        let busy: Vec<_> = rows[1..].iter().filter(|row| row[2] != "0").collect();
        assert_eq!(busy.len(), 1);
        assert_eq!(busy[0][2..5], ["2", "1", "1"]);
        assert_eq!(busy[0][6..], ["2", "2", "0.00600000ss"]);
        let queue = busy[0][1];

        let plain = Dump::of(b"/debug/api_priority_and_fairness/dump_requests", None).unwrap();
        let requests = world.telemetry.dump(plain).await;
        let rows = cells(&requests);
        assert_eq!(
            rows[0],
            [
                "PriorityLevelName",
                "FlowSchemaName",
                "QueueIndex",
                "RequestIndexInQueue",
                "FlowDistingsher",
                "ArriveTime",
                "InitialSeats",
                "FinalSeats",
                "AdditionalLatency",
                "StartTime"
            ]
        );
        let indices: Vec<_> = rows[1..].iter().map(|row| (row[2], row[3])).collect();
        assert_eq!(indices, [(queue, "0"), (queue, "1"), (queue, "-1")]);
        for row in &rows[1..] {
            assert_eq!(row[..2], ["narrow", "elephants"]);
            assert_eq!(row[4], "ann");
            assert_eq!(row[6..9], ["1", "0", "0s"]);
            let arrived: jiff::Timestamp = row[5].parse().unwrap();
            assert!(row[5].ends_with('Z') && arrived.as_second() > 0);
        }
        assert_eq!(rows[1][9], "0001-01-01T00:00:00Z");
        assert_eq!(rows[3][9], rows[3][5], "it started when it arrived");
        let arrived = |row: usize| rows[row][5].parse::<jiff::Timestamp>().unwrap();
        assert_eq!(
            arrived(1).as_nanosecond() - arrived(3).as_nanosecond(),
            500_000_000
        );
        drop(sent);
    });
}

/// Split as consumers do it.
fn cells(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split(',').map(str::trim).collect())
        .collect()
}

#[test]
fn details_tell_what_a_request_asks_for() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let query = Some("x=1&includeRequestDetails=yes");
        let dump = Dump::of(b"/debug/api_priority_and_fairness/dump_requests", query).unwrap();
        let requests = world.telemetry.dump(dump).await;
        let rows = cells(&requests);
        assert_eq!(
            rows[0][10..],
            [
                "UserName",
                "Verb",
                "APIPath",
                "Namespace",
                "Name",
                "APIVersion",
                "Resource",
                "SubResource"
            ]
        );
        assert_eq!(
            rows[3][10..],
            [
                "ann",
                "get",
                "/api/v1/namespaces/hold/pods/a",
                "hold",
                "a",
                "v1",
                "pods",
                ""
            ]
        );
        drop(sent);
    });
    let empty = Some("includeRequestDetails=");
    let dump = Dump::of(b"/debug/api_priority_and_fairness/dump_requests", empty);
    assert_eq!(dump, Some(Dump::Requests { details: false }));
}

#[test]
fn on_the_main_port_only_masters_see_the_dumps() {
    local(async {
        let mut world = World::new();
        let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
        let refused = world.get(dump, "ann").await;
        assert_eq!(refused.status, 403);
        let status: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(status["reason"], "Forbidden");
        let shown = world.get(dump, "root/system:masters").await;
        assert_eq!(shown.status, 200);
        assert!(shown.text().starts_with("PriorityLevelName, ActiveQueues"));
        assert_eq!(shown.headers["content-type"], "text/plain; charset=utf-8");
        assert!(
            shown.headers.contains_key("x-kubernetes-pf-flowschema-uid"),
            "it was classified"
        );
        let unknown = "/debug/api_priority_and_fairness/dump_everything";
        assert_eq!(world.get(unknown, "root/system:masters").await.status, 404);
        let posted = world.send(Method::POST, dump, "root/system:masters").await;
        assert_eq!(posted.await.unwrap().status, 405);
        let passed = world.get("/debug/api_priority_and_fairness", "ann").await;
        assert_eq!((passed.status, passed.text()), (200, "hello"));
    });
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

/// Tests that log do so one at a time, asking every callsite anew: what a callsite was told while
/// another's subscriber came or went would else be kept.
static ALONE: Mutex<()> = Mutex::new(());

/// A second subscriber, alive for ever. With one alone, tracing judges a callsite by the thread
/// that meets it first, which may be one of a test that does not log, and keeps the answer.
static SECOND: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(settings: &LogConfig, test: impl Future<Output = ()> + 'static) -> String {
    let collected = Collected::default();
    let to = collected.clone();
    let subscriber = log::subscriber(settings, move || to.clone());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&SECOND);
    tracing::subscriber::with_default(subscriber, || {
        tracing::callsite::rebuild_interest_cache();
        local(test);
    });
    let bytes = collected.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let settings = LogConfig {
        format: LogFormat::Json,
        level: LogLevel::Info,
        access: true,
    };
    let text = logged(&settings, async {
        let mut world = World::new();
        let sent = world.crowd().await;
        world.get("/api/v1/namespaces/hold/pods/d", "ann").await;
        for sent in sent {
            world.release().await;
            sent.await.unwrap();
        }
    });
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    let refused = &lines[0];
    assert_eq!(refused["reason"], "queue-full");
    assert_eq!(refused["status"], 429);
    let second = &lines[2];
    for (key, value) in [
        ("target", json!("fairgate::access")),
        ("method", json!("GET")),
        ("path", json!("/api/v1/namespaces/hold/pods/b")),
        ("user", json!("ann")),
        ("status", json!(200)),
        ("latency", json!("1.5s")),
        ("bytes_out", json!(5)),
        ("apf_pl", json!("narrow")),
        ("apf_fs", json!("elephants")),
        ("apf_iseats", json!(1)),
        ("apf_fseats", json!(0)),
        ("apf_additionalLatency", json!("0s")),
        ("apf_wait", json!("1.5s")),
        ("apf_execution_time", json!("0s")),
        ("user_agent", json!("kubectl/v1")),
        ("audit_id", json!("00000000-0000-0000-0000-000000001234")),
        ("end", json!("complete")),
    ] {
        assert_eq!(second[key], value, "{key} in {second}");
    }
    assert!(second.get("reason").is_none());
}

#[test]
fn without_the_access_log_nothing_is_written() {
    let settings = LogConfig {
        format: LogFormat::Text,
        level: LogLevel::Info,
        access: false,
    };
    let text = logged(&settings, async {
        World::new().get("/api/v1/pods", "ann").await;
    });
    assert_eq!(text, "");
}

#[test]
fn nobody_can_forge_a_line() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let settings = LogConfig {
            format,
            level: LogLevel::Info,
            access: true,
        };
        let text = logged(&settings, async {
            let mut world = World::new();
            let mut inbound = world.inbound(Method::GET, "/api/v1/pods", "ann");
            let long = format!("/{}", "x".repeat(5000));
            let context = Rc::get_mut(&mut inbound.context).unwrap();
            context.target = Some(long.parse().unwrap());
            let evil = User::new("eve\n\u{1b}[31mFORGED\u{2028}\u{9b}", ["g"]);
            let _ = context.user.set(Arc::new(evil));
            (world.stack)(inbound).await;
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{2028}']), "{text}");
        assert!(text.contains("FORGED"), "{text}");
        assert!(text.len() < 2000, "{}", text.len());
    }
}

/// Asks the admin port and reads to its end.
async fn ask(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn operators_find_everything_on_their_own_port() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let checks = HealthChecks::new().ready("shutdown", || Err("draining".to_owned()));
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let admin = AdminServer::bind(
            anywhere,
            OperatorEndpoints::new(Arc::clone(&world.telemetry), checks),
        )
        .await
        .unwrap();
        let address = admin.address().unwrap();
        let running = tokio::spawn(admin.run());

        let metrics = ask(address, "GET /metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        let (_, text) = metrics.split_once("\r\n\r\n").unwrap();
        Scrape::parse(text).is("fairgate_queued_requests", 2.0);
        assert!(ask(address, "GET /livez").await.ends_with("\r\n\r\nok"));
        let ready = ask(address, "GET /readyz").await;
        assert!(ready.starts_with("HTTP/1.1 500 "), "{ready}");
        assert!(ready.contains("[-]shutdown failed: draining\n"), "{ready}");
        let verbose = ask(address, "GET /healthz?verbose").await;
        assert!(
            verbose.ends_with("[+]ping ok\nhealthz check passed\n"),
            "{verbose}"
        );
        let dump = ask(
            address,
            "GET /debug/api_priority_and_fairness/dump_requests",
        )
        .await;
        assert_eq!(
            dump.lines()
                .filter(|line| line.starts_with("narrow,"))
                .count(),
            3
        );
        assert!(ask(address, "GET /").await.contains("/metrics\n"));
        assert!(
            ask(address, "GET /secret")
                .await
                .starts_with("HTTP/1.1 404 ")
        );
        let head = ask(address, "HEAD /livez").await;
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        let posted = ask(address, "POST /metrics").await;
        assert!(posted.starts_with("HTTP/1.1 405 ") && posted.contains("allow: GET, HEAD\r\n"));
        running.abort();
        drop(sent);
    });
}

#[test]
fn a_level_that_is_gone_takes_its_series_along_once_it_has_drained() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let (hub, now) = (Arc::clone(world.telemetry.hub()), world.clock.now());
        hub.apply(now, policy(false));
        let levels = world.telemetry.dump(Dump::PriorityLevels).await;
        let rows = cells(&levels);
        let narrow = rows.iter().find(|row| row[0] == "narrow").unwrap();
        assert_eq!(
            narrow[1..6],
            ["1", "false", "true", "2", "1"],
            "it is quiescing"
        );
        let scrape = Scrape::parse(&world.telemetry.render_metrics());
        scrape.is(&format!("{APF}current_inqueue_requests{{{ANN}}}"), 2.0);
        scrape.is(&format!("{APF}current_executing_requests{{{ANN}}}"), 1.0);
        for sent in sent {
            world.release().await;
            assert_eq!(sent.await.unwrap().status, 200);
        }
        hub.rebalance(world.clock.now());
        let text = world.telemetry.render_metrics();
        assert!(
            !text.contains("narrow") && !text.contains("elephants"),
            "{text}"
        );
        let dump = Dump::Requests { details: true };
        assert_eq!(world.telemetry.dump(dump).await.lines().count(), 1);
    });
}

#[test]
fn the_same_state_gives_the_same_text() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        world.get("/api/v1/pods", "sid").await;
        assert_eq!(
            world.telemetry.render_metrics(),
            world.telemetry.render_metrics()
        );
        drop(sent);
    });
}
