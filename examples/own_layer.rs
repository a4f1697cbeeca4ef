//! A custom `tower` layer in the request path.
//!
//! ```sh
//! cargo run --example own_layer
//! ```
//!
//! The layer stands inside flow control: it sees each request that has a user, a FlowSchema and its
//! seats, before the hosted API and the upstream do. This one prints who requests what, and marks the
//! response. See `crates/proxy/src/stack.rs` for the order of all layers.

use std::{
    env,
    error::Error,
    fs,
    future::Future,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    pin::Pin,
    process,
    task::{Context, Poll},
};

use fairgate::{app, config::Config, observe::GatewayMetrics};
use fairgate_call::{Call, Refusal, Reply};
use http::HeaderValue;
use tower::{Layer, Service};

/// Makes a [`Marked`] service for each data core.
struct MarkLayer;

impl<S> Layer<S> for MarkLayer {
    type Service = Marked<S>;

    fn layer(&self, inner: S) -> Marked<S> {
        Marked { inner }
    }
}

/// Prints each call, and adds a header to its response.
#[derive(Clone)]
struct Marked<S> {
    inner: S,
}

impl<S> Service<Call> for Marked<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: 'static,
{
    type Response = Reply;
    type Error = Refusal;
    // A box costs an allocation per request. The layers of the gateway have named futures instead.
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let user = &call.digest.user.name;
        println!(
            "{user}: {} {}",
            call.request.method(),
            call.request.uri().path()
        );
        let response = self.inner.call(call);
        // A data core has one thread, so neither the layer nor its future needs to be `Send`. It must
        // not block: all other requests of the core would wait.
        Box::pin(async move {
            let mut reply = response.await?;
            let mark = HeaderValue::from_static("own-layer");
            reply.headers_mut().insert("x-passed-through", mark);
            Ok(reply)
        })
    }
}

/// A gateway without an upstream; see the example `embed`.
const CONFIGURATION: &str = "
apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: standalone
listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
authentication: {tokenReview: {enabled: false}}
drain: {delay: 0s, grace: 1s}
";

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let reading = Config::parse("own_layer.yaml", directory, CONFIGURATION.as_bytes());
    let (config, _) = reading.usable()?;
    let gateway = app::start_with_layer(config, None, GatewayMetrics::new(), MarkLayer)?;

    let mut connection = TcpStream::connect(gateway.address())?;
    connection
        .write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    connection.read_to_string(&mut response)?;
    println!("{response}");
    assert!(
        response.contains("x-passed-through: own-layer"),
        "{response}"
    );

    gateway.shut_down();
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::temp_dir().join(format!("fairgate-own-layer-{}", process::id()));
    fs::create_dir_all(&directory)?;
    let result = run(&directory);
    fs::remove_dir_all(&directory)?;
    result
}
