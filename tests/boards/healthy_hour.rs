//! An hour of a gateway's flow control in virtual time, for the test of the alerts: no speed of the machine changes what it shows.
//!
//! `healthy_hour POLICY` writes the metrics of 30 s after 30 s to standard output, each after a line `# SCRAPE`. The layers, flow
//! control and the metrics are those of a gateway; in place of sockets there are clients here, and in place of an upstream a service that
//! takes as long as a request says. Users read and write, and after a quarter of the hour one of them sends far more than its level
//! serves, until the end. With the policy `fair` that is the policy of a gateway by default. With `shared` all flows of the level share two
//! queues, and have the semantics `Compatible`: the flood, which is larger, hurts others.

use std::{
    error::Error,
    future::Future,
    io::Write as _,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fairgate_base::{clock::Clock, turns};
use fairgate_call::{
    Call, ClientBody, Inbound, Peer, Refusal, Reply, ReplyBody, RequestContext, ResetLimits,
    SpoolLimits, handle_refusal::HandleRefusalLayer,
};
use fairgate_core::{
    apf::{
        ObjectSet, Policy, PolicySettings, Semantics, objects::Bootstrap, work::EstimatorSettings,
    },
    digest::{RequestDigest, User},
};
use fairgate_observe::{GatewayMetrics, Telemetry, TraceLayer};
use fairgate_proxy::fairness::{
    BodyLimits, Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate,
};
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::{Layer, Service};

/// Between two scrapes.
const INTERVAL: Duration = Duration::from_secs(30);
/// How many there are.
const SCRAPES: u32 = 121;
/// The longest wait is a quarter of it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A fifth of what a gateway has by default, so that the hour takes less long.
const TOTAL_SEATS: u32 = 120;
/// How many clients the user has who floods: fewer than there are seats and places in the queues of one flow.
const FLOOD: u64 = 150;
/// How many of them come between two scrapes.
const GROWTH: u64 = 6;

/// Requests that a client sends one after the other.
#[derive(Clone, Debug)]
struct Client {
    user: &'static str,
    group: &'static str,
    method: &'static str,
    path: &'static str,
    takes: Duration,
    pause: Duration,
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const PODS: &str = "/api/v1/namespaces/a/pods";

/// What is sent all the time.
fn calm() -> Vec<Client> {
    let client = |user, method, path, takes, pause| Client {
        user,
        group: match user {
            "root" => "system:masters",
            "system:node:a" => "system:nodes",
            _ => "tenants",
        },
        method,
        path,
        takes: ms(takes),
        pause: ms(pause),
    };
    vec![
        client("mouse", "GET", PODS, 20, 250),
        client("mouse", "GET", PODS, 20, 250),
        client("mouse", "GET", "/api/v1/namespaces/a/pods/one", 5, 250),
        client("mouse", "DELETE", "/api/v1/namespaces/a/pods/one", 10, 500),
        client("impatient", "GET", PODS, 20, 500),
        Client {
            takes: ms(20),
            pause: ms(250),
            ..flood()
        },
        client("system:node:a", "GET", "/api/v1/nodes/a", 5, 500),
        client("root", "GET", PODS, 20, 500),
    ]
}

/// A client of the user who floods.
const fn flood() -> Client {
    Client {
        user: "elephant",
        group: "tenants",
        method: "GET",
        path: PODS,
        takes: Duration::ZERO,
        pause: Duration::ZERO,
    }
}

/// An upstream that takes as long as the header of a request says.
#[derive(Clone, Debug)]
struct TimedUpstream;

type Answer<T> = Pin<Box<dyn Future<Output = T>>>;

impl Service<Call> for TimedUpstream {
    type Response = Reply;
    type Error = Refusal;
    type Future = Answer<Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let takes = call.request.headers().get("takes");
        let takes = takes.and_then(|value| value.to_str().ok()?.parse().ok());
        Box::pin(async move {
            tokio::time::sleep(ms(takes.unwrap_or_default())).await;
            Ok(http::Response::new(ReplyBody::full("done")))
        })
    }
}

/// Believes the headers `user` and `group`.
#[derive(Clone)]
struct Trusting<S>(S);

impl<S> Service<Inbound> for Trusting<S>
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
        let header = |name| inbound.request.headers().get(name)?.to_str().ok();
        let (name, group) = (header("user").unwrap_or(""), header("group").unwrap_or(""));
        let user = User::new(
            name.to_owned(),
            [group.to_owned(), User::AUTHENTICATED.into()],
        );
        let info = inbound.info().expect("the requests here are valid");
        let user = Arc::new(user);
        let digest = RequestDigest { info, user };
        match Call::new(inbound, Arc::new(digest), REQUEST_TIMEOUT) {
            Ok(call) => Box::pin(self.0.call(call)),
            Err(refusal) => Box::pin(async { Err(refusal) }),
        }
    }
}

fn policy(semantics: Semantics) -> Result<Policy, Box<dyn Error>> {
    let shared = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "global-default"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 20, "lendablePercent": 50,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 2, "handSize": 2, "queueLengthLimit": 1000}},
        }},
    });
    let own = (semantics == Semantics::Compatible).then_some(("shared", shared));
    let objects = ObjectSet::read(own).with_bootstrap(Bootstrap::Suggested);
    let settings = PolicySettings {
        total_seats: TOTAL_SEATS,
        semantics,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let compiled = Policy::compile(&objects, &settings);
    Ok(compiled.map_err(|findings| format!("{findings:?}"))?.policy)
}

fn settings() -> FlowControlSettings {
    FlowControlSettings {
        enforcement: Enforcement::Enforce,
        request_timeout: REQUEST_TIMEOUT,
        max_queued: 20_000,
        borrowing_period: Duration::from_secs(10),
        estimator: EstimatorSettings::default(),
        long_running: Caps::NONE,
        watches: Caps::NONE,
        resets: ResetLimits::PER_USER,
        spool: SpoolLimits::NONE,
        bodies: BodyLimits::NONE,
        long_head_bytes: usize::MAX,
    }
}

type Stack = <TraceLayer as Layer<
    <HandleRefusalLayer as Layer<Trusting<<FairnessLayer as Layer<TimedUpstream>>::Service>>>::Service,
>>::Service;

/// Sends the requests of a client, which respond as `takes` says, until the end.
async fn run(client: Client, mut stack: Stack, clock: Clock, takes: impl Fn(u64) -> Duration) {
    for number in 0.. {
        let request = http::Request::builder()
            .method(client.method)
            .uri(client.path)
            .header("user", client.user)
            .header("group", client.group)
            .header("takes", takes(number).as_millis().to_string())
            .body(ClientBody::empty())
            .expect("the requests here are valid");
        let target = request.uri().path_and_query().cloned();
        let inbound = Inbound {
            context: Rc::new(RequestContext::new(
                request.method().clone(),
                target,
                number.into(),
            )),
            request: Box::new(request),
            peer: Rc::new(Peer::local()),
            received: clock.now(),
        };
        let Ok(reply) = stack.call(inbound).await;
        let refused = !reply.status().is_success();
        let _ = reply.into_body().collect().await;
        // A client that is refused waits for a second, as `Retry-After` says.
        tokio::time::sleep(if refused { ms(1000) } else { client.pause }).await;
    }
}

async fn hour(semantics: Semantics) -> Result<(), Box<dyn Error>> {
    let clock = Clock::runtime();
    let policy = Arc::new(policy(semantics)?);
    let flow_control = FlowControl::new(1, policy, settings(), clock.now());
    let gate = Gate::new(Arc::clone(&flow_control), 0, clock.clone(), 1);
    turns::spawn_local(Rc::clone(&gate).run());
    let telemetry = Telemetry::new(
        Arc::clone(&flow_control),
        clock.clone(),
        "virtual",
        GatewayMetrics::new(),
        5,
    );
    tokio::spawn(Arc::clone(&telemetry).run());
    let rebalancing = clock.clone();
    tokio::spawn(async move {
        loop {
            flow_control.borrowing_due().await;
            flow_control.rebalance(rebalancing.now());
        }
    });
    let fair = FairnessLayer::new(gate).layer(TimedUpstream);
    let stack = telemetry
        .trace_layer(0)
        .layer(HandleRefusalLayer.layer(Trusting(fair)));
    let start = |client: Client, takes: fn(u64, &Client) -> Duration, seed: u64| {
        let of = client.clone();
        let takes = move |number| takes(seed + number, &of);
        turns::spawn_local(run(client, stack.clone(), clock.clone(), takes));
    };
    for client in calm() {
        start(client, |_, client| client.takes, 0);
    }
    let begun = clock.now();
    let most = match semantics {
        Semantics::Improved => FLOOD,
        Semantics::Compatible => FLOOD * 3 / 2,
    };
    let mut flooding = 0;
    for scrape in 0..SCRAPES {
        let at = begun.plus(INTERVAL * scrape);
        tokio::time::sleep_until(clock.instant(at)).await;
        let text = telemetry.metrics_text().await?;
        write!(std::io::stdout(), "# SCRAPE\n{text}")?;
        let due = most.min(GROWTH * u64::from((scrape + 1).saturating_sub(SCRAPES / 4)));
        for number in flooding..due {
            // Requests take differently long, as those of an API server do: seats become free all the time.
            let takes = |number, _: &Client| ms(1500 + number * 997 % 3000);
            start(flood(), takes, number * 131);
        }
        flooding = due;
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let semantics = match std::env::args().nth(1).as_deref() {
        Some("fair") => Semantics::Improved,
        Some("shared") => Semantics::Compatible,
        _ => return Err("name a policy: fair or shared".into()),
    };
    // When all tasks wait, its time jumps to when the next one continues.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(hour(semantics))
}
