//! A gateway for tests. The user of a request is alice, unless the request names another one or none.

use std::{
    future::{Future, Ready, ready},
    num::NonZero,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fairgate::app::{AppSettings, CoreContext, Gateway, runtimes::control_runtime};
use fairgate_base::clock::Clock;
use fairgate_call::{Call, HeaderLines, Inbound, Refusal, Reply};
use fairgate_core::{
    apf::{ObjectSet, Policy, PolicySettings, Semantics, queueset::QueueSetSummary},
    digest::{RequestDigest, User},
    time::Time,
};
use fairgate_proxy::{
    fairness::{FairnessLayer, FlowControl, Gate as FairnessGate},
    forward::{Forward, UpstreamProtocol, UpstreamSettings, WriteIdentity},
    stack::{AdmissionLayers, EvictionLayers, stack},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use tower::{Layer, Service, layer::util::Identity};

use crate::{rules::Rules, upstream::TestUpstream};

pub struct Gate {
    pub gateway: Gateway,
    pub limit: Seats,
    /// By which its seats are shared.
    clock: Clock,
}

/// The seats of all levels together.
#[derive(Clone)]
pub struct Seats(pub Arc<FlowControl>);

impl Seats {
    pub const ALL: u32 = 1000;

    /// The number of seats that no request holds.
    pub fn free(&self) -> u32 {
        let levels = self.0.dispatcher().report(Clock::system().now());
        Self::ALL
            - levels
                .iter()
                .map(|level| level.summary.seats_in_use)
                .sum::<u32>()
    }
}

/// What all cores of a test's gateway share: the built-in policy, and more seats than a test needs.
pub fn flow_control(cores: usize) -> Arc<FlowControl> {
    let settings = PolicySettings {
        total_seats: 100 * Seats::ALL,
        semantics: Semantics::Improved,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    let policy = Policy::compile(&ObjectSet::default(), &settings)
        .unwrap()
        .policy;
    FlowControl::new(
        u16::try_from(cores).unwrap(),
        Arc::new(policy),
        Rules::new().settings,
        Time::ZERO,
    )
}

/// The fairness layer of the core that calls this.
pub fn fairness(flow_control: &Arc<FlowControl>, core: &CoreContext) -> FairnessLayer {
    fairness_by(core.clock.clone(), flow_control, core)
}

/// The same, for which time passes as `clock` shows.
fn fairness_by(clock: Clock, flow_control: &Arc<FlowControl>, core: &CoreContext) -> FairnessLayer {
    let index = u16::try_from(core.index).unwrap();
    let gate = FairnessGate::new(Arc::clone(flow_control), index, clock, 1);
    fairgate_base::turns::spawn_local(Rc::clone(&gate).run());
    FairnessLayer::new(gate)
}

impl Gate {
    /// A gateway in front of `upstream`.
    pub fn before(upstream: &TestUpstream) -> Self {
        Self::with(upstream, |_, _| {})
    }

    /// A gateway in front of `upstream`, with the settings that `adapt` changes.
    pub fn with(
        upstream: &TestUpstream,
        adapt: impl FnOnce(&mut AppSettings, &mut UpstreamSettings),
    ) -> Self {
        Self::towards(to(upstream), adapt)
    }

    pub fn towards(
        to: UpstreamSettings,
        adapt: impl FnOnce(&mut AppSettings, &mut UpstreamSettings),
    ) -> Self {
        Self::towards_under(flow_control, to, adapt)
    }

    /// A gateway in front of `upstream`, with the policy and settings of `rules`.
    pub fn governed(upstream: &TestUpstream, rules: &Rules) -> Self {
        Self::governed_with(upstream, rules, |_, _| {})
    }

    /// As [`Self::governed`], with the settings that `adapt` changes.
    pub fn governed_with(
        upstream: &TestUpstream,
        rules: &Rules,
        adapt: impl FnOnce(&mut AppSettings, &mut UpstreamSettings),
    ) -> Self {
        Self::towards_under(|cores| rules.flow_control(cores), to(upstream), adapt)
    }

    /// As [`Self::governed`], but requests take as long as `clock` shows, not as long as the machine needs for them.
    pub fn governed_by_clock(upstream: &TestUpstream, rules: &Rules, clock: &Clock) -> Self {
        let flow_control = |cores| rules.flow_control(cores);
        Self::by_clock(clock, flow_control, to(upstream), |_, _| {})
    }

    pub fn towards_under(
        flow_control: impl FnOnce(usize) -> Arc<FlowControl>,
        to: UpstreamSettings,
        adapt: impl FnOnce(&mut AppSettings, &mut UpstreamSettings),
    ) -> Self {
        Self::by_clock(&Clock::system(), flow_control, to, adapt)
    }

    fn by_clock(
        clock: &Clock,
        flow_control: impl FnOnce(usize) -> Arc<FlowControl>,
        mut to: UpstreamSettings,
        adapt: impl FnOnce(&mut AppSettings, &mut UpstreamSettings),
    ) -> Self {
        let mut settings = settings();
        adapt(&mut settings, &mut to);
        let to = Arc::new(to);
        let flow_control = flow_control(settings.cores.get());
        let limit = Seats(Arc::clone(&flow_control));
        let fairness_clock = clock.clone();
        let gateway = Gateway::start(
            settings,
            control_runtime().unwrap(),
            move |core: CoreContext| {
                let fairness = fairness_by(fairness_clock.clone(), &flow_control, &core);
                let identity: Rc<dyn WriteIdentity> = Rc::new(write_identity);
                let leaf = Forward::new(to.clone(), identity, core.clock);
                stack(
                    &Identity::new(),
                    &TestAuth,
                    &fairness,
                    &Identity::new(),
                    &AdmissionLayers::none(),
                    &EvictionLayers::none(),
                    &Identity::new(),
                    leaf,
                )
            },
        )
        .unwrap();
        Self {
            gateway,
            limit,
            clock: clock.clone(),
        }
    }

    /// A gateway whose innermost service is `leaf`.
    pub fn around<L>(
        leaf: impl Fn() -> L + Send + Sync + 'static,
        adapt: impl FnOnce(&mut AppSettings),
    ) -> Self
    where
        L: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
        L::Future: Unpin + 'static,
    {
        Self::around_under(flow_control, leaf, adapt)
    }

    /// A gateway whose innermost service is `leaf`, with the policy of `flow_control`.
    pub fn around_under<L>(
        flow_control: impl FnOnce(usize) -> Arc<FlowControl>,
        leaf: impl Fn() -> L + Send + Sync + 'static,
        adapt: impl FnOnce(&mut AppSettings),
    ) -> Self
    where
        L: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
        L::Future: Unpin + 'static,
    {
        let mut settings = settings();
        adapt(&mut settings);
        let flow_control = flow_control(settings.cores.get());
        let limit = Seats(Arc::clone(&flow_control));
        let gateway = Gateway::start(
            settings,
            control_runtime().unwrap(),
            move |core: CoreContext| {
                stack(
                    &Identity::new(),
                    &TestAuth,
                    &fairness(&flow_control, &core),
                    &Identity::new(),
                    &AdmissionLayers::none(),
                    &EvictionLayers::none(),
                    &Identity::new(),
                    leaf(),
                )
            },
        )
        .unwrap();
        Self {
            gateway,
            limit,
            clock: Clock::system(),
        }
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.gateway.address()
    }

    /// The flow control that all cores share.
    pub fn flow_control(&self) -> &Arc<FlowControl> {
        &self.limit.0
    }

    /// The present state of a level.
    pub fn level(&self, name: &str) -> QueueSetSummary {
        let levels = self.flow_control().dispatcher().report(self.clock.now());
        let level = levels.iter().find(|level| &*level.spec.name == name);
        level.expect("there is such a level").summary
    }
}

/// How to reach `upstream`.
fn to(upstream: &TestUpstream) -> UpstreamSettings {
    let mut to = UpstreamSettings::new(upstream.address.to_string().parse().unwrap(), None);
    if upstream.http2 {
        to.protocol = UpstreamProtocol::Http2;
    }
    to
}

fn settings() -> AppSettings {
    let mut settings = AppSettings {
        cores: NonZero::new(2).unwrap(),
        ..AppSettings::default()
    };
    settings.serve.listen.set_port(0);
    settings
}

fn write_identity(call: &Call, lines: &mut dyn HeaderLines) -> Result<(), Refusal> {
    let name = HeaderValue::from_str(&call.digest.user.name)
        .map_err(|_| Refusal::IdentityNotRepresentable("name".into()))?;
    lines.add(&HeaderName::from_static("x-remote-user"), &name);
    Ok(())
}

/// Authenticates every request as alice, unless it has the header `X-Nobody` (anonymous) or names another user in
/// `X-User`. The user root belongs to `system:masters`.
#[derive(Clone, Copy)]
pub struct TestAuth;

impl<S> Layer<S> for TestAuth {
    type Service = TestAuthed<S>;

    fn layer(&self, inner: S) -> TestAuthed<S> {
        TestAuthed(inner)
    }
}

#[derive(Clone)]
pub struct TestAuthed<S>(S);

impl<S> Service<Inbound> for TestAuthed<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        let mut inner = self.0.clone();
        Box::pin(async move {
            let user = user_of(inbound.request.headers());
            let digest = RequestDigest {
                info: inbound.info()?,
                user: Arc::new(user),
            };
            let call = Call::new(inbound, Arc::new(digest), Duration::from_secs(60))?;
            inner.call(call).await
        })
    }
}

fn user_of(headers: &HeaderMap) -> User {
    if headers.contains_key("x-nobody") {
        return User::anonymous();
    }
    let name = headers.get("x-user").map(|name| name.to_str().unwrap());
    match name.unwrap_or("alice") {
        "root" => User::new("root", [User::MASTERS, User::AUTHENTICATED]),
        name => User::new(name, ["staff", User::AUTHENTICATED]),
    }
}

/// An innermost service that replies at once.
#[derive(Clone)]
pub struct Leaf<F>(pub F);

impl<F: FnMut(&Call) -> Result<Reply, Refusal>> Service<Call> for Leaf<F> {
    type Response = Reply;
    type Error = Refusal;
    type Future = Ready<Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        ready((self.0)(&call))
    }
}
