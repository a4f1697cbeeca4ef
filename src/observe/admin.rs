//! The port for operators: metrics, health, dumps. Plain HTTP/1, read only.
//!
//! It runs on the control runtime, metrics are rendered on its blocking pool, one scrape at a time:
//! none, however slow its reader, holds up a request. Connections are few and do not live for ever.
//!
//! Whoever reaches this port sees everything it has; it listens on loopback unless told otherwise.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName},
};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::view::View;

/// Connections at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may be without a request, and a request's head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may live.
const LIFE: Duration = Duration::from_secs(300);
/// How long the last answer of a connection may take after that.
const LAST_ANSWER: Duration = Duration::from_secs(30);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);

const TEXT: &str = "text/plain; charset=utf-8";

const INDEX: &str = "fairgate\n\n\
    /metrics\n\
    /livez\n\
    /readyz\n\
    /healthz\n\
    /debug/api_priority_and_fairness/dump_priority_levels\n\
    /debug/api_priority_and_fairness/dump_queues\n\
    /debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1\n";

/// The port for operators, bound and ready to run.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    view: Arc<View>,
}

type Answer = Response<Full<Bytes>>;

impl Admin {
    /// Binds `address`; port 0 takes any that is free.
    ///
    /// # Errors
    ///
    /// When the address is taken, or not ours.
    pub async fn bind(address: SocketAddr, view: Arc<View>) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            view,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// When the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves, for ever. To be spawned on the control runtime.
    pub async fn run(self) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let view = Arc::clone(&self.view);
                    tokio::spawn(async move {
                        serve(view, stream).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin port cannot accept");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn serve(view: Arc<View>, stream: TcpStream) {
    let service = service_fn(|request| {
        let view = Arc::clone(&view);
        async move { Ok::<_, Infallible>(answer(&view, &request).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(stream), service)
    );
    if tokio::time::timeout(LIFE, connection.as_mut())
        .await
        .is_err()
    {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
    }
}

async fn answer<B>(view: &View, request: &Request<B>) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(ALLOW, allowed);
        return refusal;
    }
    let (path, query) = (request.uri().path(), request.uri().query());
    if path == "/" {
        return text(StatusCode::OK, INDEX);
    }
    match view.see(path, query.unwrap_or_default(), true).await {
        Some(seen) => respond(seen.status, seen.content_type, seen.text),
        None => not_found(),
    }
}

fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn text(status: StatusCode, text: &'static str) -> Answer {
    respond(status, TEXT, text)
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    answer
}
