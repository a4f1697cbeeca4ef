//! A gateway whose requests can be made to panic, for the test of the alert about panics.
//!
//! `panicking_gateway DIRECTORY` serves with the `fairgate.yaml` in the directory until it is killed. A request with the
//! query `panic` panics in a layer of its own. Nothing that a client sends makes fairgate itself panic, as far as is
//! known.

use std::{
    convert::Infallible,
    error::Error,
    path::PathBuf,
    task::{Context, Poll},
};

use fairgate::{app, config::Config, observe::GatewayMetrics};
use fairgate_call::{Call, Refusal, Reply};
use tower::{Layer, Service};

/// Makes a [`PanicService`] for each data core.
struct PanicLayer;

impl<S> Layer<S> for PanicLayer {
    type Service = PanicService<S>;

    fn layer(&self, inner: S) -> PanicService<S> {
        PanicService { inner }
    }
}

/// Panics if the request asks for it.
#[derive(Clone)]
struct PanicService<S> {
    inner: S,
}

impl<S> Service<Call> for PanicService<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        assert!(
            call.request.uri().query() != Some("panic"),
            "the request asks for a panic"
        );
        self.inner.call(call)
    }
}

pub(crate) fn main() -> Result<Infallible, Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("name a directory")?);
    let text = std::fs::read(directory.join("fairgate.yaml"))?;
    let (config, _) = Config::parse("fairgate.yaml", &directory, &text).usable()?;
    let metrics = GatewayMetrics::new();
    metrics.install_panic_hook();
    let gateway = app::start_with_layer(config, None, metrics, PanicLayer)?;
    // In the format of the log of fairgate, which the test reads.
    let (address, admin) = (gateway.address(), gateway.admin_address());
    eprintln!("serving address={address} admin={admin}");
    loop {
        std::thread::park();
    }
}
