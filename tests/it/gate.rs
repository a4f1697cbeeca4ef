//! A gateway for tests: everybody is alice, but whoever says so is nobody.

use std::{
    future::Future,
    num::NonZero,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fairgate::{
    app::{AppSettings, CoreContext, Gateway, runtimes::control_runtime},
    call::{Call, Inbound, Refusal, Reply},
    digest::{RequestDigest, User},
    forward::{Forward, UpstreamIdentity, UpstreamProtocol, UpstreamSettings},
    limit::LimitLayer,
    stack::stack,
};
use http::{HeaderMap, HeaderValue};
use tower::{Layer, Service};

use crate::upstream::Upstream;

pub struct Gate {
    pub gateway: Gateway,
    pub limit: LimitLayer,
}

impl Gate {
    /// A gateway in front of `upstream`.
    pub fn before(upstream: &Upstream) -> Self {
        Self::with(upstream, |_, _| {})
    }

    /// A gateway in front of `upstream`, with settings of the test's own.
    pub fn with(
        upstream: &Upstream,
        adapt: impl FnOnce(&mut AppSettings, &mut UpstreamSettings),
    ) -> Self {
        let mut to = UpstreamSettings::new(upstream.address.to_string().parse().unwrap(), None);
        if upstream.http2 {
            to.protocol = UpstreamProtocol::Http2;
        }
        Self::towards(to, adapt)
    }

    pub fn towards(
        mut to: UpstreamSettings,
        adapt: impl FnOnce(&mut AppSettings, &mut UpstreamSettings),
    ) -> Self {
        let mut settings = settings();
        adapt(&mut settings, &mut to);
        Self::limited(to, settings, LimitLayer::new(1000))
    }

    /// A gateway that lets so many requests execute.
    pub fn limited(to: UpstreamSettings, settings: AppSettings, limit: LimitLayer) -> Self {
        let to = Arc::new(to);
        let shared = limit.clone();
        let gateway = Gateway::start(
            settings,
            control_runtime().unwrap(),
            move |core: CoreContext| {
                let identity: Rc<dyn UpstreamIdentity> = Rc::new(tell_upstream);
                let leaf = Forward::new(to.clone(), identity, core.clock);
                stack(&TestAuth, &shared, leaf)
            },
        )
        .unwrap();
        Self { gateway, limit }
    }

    /// A gateway whose leaf is `leaf`.
    pub fn around<L>(
        leaf: impl Fn() -> L + Send + Sync + 'static,
        adapt: impl FnOnce(&mut AppSettings),
    ) -> Self
    where
        L: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
        L::Future: 'static,
    {
        let mut settings = settings();
        adapt(&mut settings);
        let limit = LimitLayer::new(1000);
        let shared = limit.clone();
        let gateway = Gateway::start(settings, control_runtime().unwrap(), move |_| {
            stack(&TestAuth, &shared, leaf())
        })
        .unwrap();
        Self { gateway, limit }
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.gateway.address()
    }
}

pub fn settings() -> AppSettings {
    let mut settings = AppSettings {
        cores: NonZero::new(2).unwrap(),
        ..AppSettings::default()
    };
    settings.serve.listen.set_port(0);
    settings
}

fn tell_upstream(user: &User, headers: &mut HeaderMap) -> Result<(), Refusal> {
    let name =
        HeaderValue::from_str(&user.name).map_err(|_| Refusal::IdentityNotRepresentable("name"))?;
    headers.insert("x-remote-user", name);
    Ok(())
}

/// Makes everybody alice, except whoever asks to be nobody.
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
            let user = if inbound.request.headers().contains_key("x-nobody") {
                User::anonymous()
            } else {
                User::new("alice", ["staff"])
            };
            let digest = RequestDigest {
                info: inbound.info()?,
                user: Arc::new(user),
            };
            let call = Call::new(inbound, Arc::new(digest), Duration::from_secs(60))?;
            inner.call(call).await
        })
    }
}
