//! The admin port: metrics, health checks and dumps. Plain HTTP/1, read only, without authentication.
//!
//! It runs on the control runtime, and metrics are rendered on its blocking pool, one scrape at a time: a
//! slow reader delays no request.
//!
//! A kubelet restarts the gateway if its probes here get no response within a second, so no client may keep
//! others from being served. A connection has a few seconds to send a complete request. At the limit of
//! connections a new one replaces an old one ([`admin_connections`](crate::admin_connections)). For the case
//! that file descriptors run out, one is kept in reserve, and a connection without a request is closed.
//!
//! Every client that reaches this port can read everything on it; by default it listens on loopback.

use std::{
    convert::Infallible,
    fs::File,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header::ALLOW};
use http_body::{Body, Frame, SizeHint};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::Notify,
};

use crate::{
    admin_connections::{AdminConnections, AdmittedConnection},
    encoded_reply::{self, EncodedReply, accepts_gzip},
    endpoints::OperatorEndpoints,
    gateway_metrics::AdminConnectionCut,
};
use fairgate_base::{
    account::{ByteBudget, ByteShare},
    tasks,
};

/// The maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may take to send the head of its first request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be idle between requests. Scrapes come every 15 s to 60 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a connection may stay open.
const LIFE: Duration = Duration::from_secs(300);
/// How long its last response may take after that.
const LAST_ANSWER: Duration = Duration::from_secs(30);
/// Bytes of responses that were not read yet, of all connections.
const UNREAD_BYTES: usize = 64 << 20;
/// Responses of up to this many bytes do not count: health checks have to be answered in any case.
const SHORT: usize = 16 << 10;
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// The admin port, bound and ready to run.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    endpoints: Arc<OperatorEndpoints>,
}

/// Bytes of a response that are passed to hyper at once. They may not be sent yet when the body ends.
const PIECE: usize = 16 << 10;

/// The body of a response. Until it is sent, its connection counts as busy.
struct Sending {
    rest: Bytes,
    admitted: Arc<AdmittedConnection>,
    /// What it takes of the memory for responses.
    _share: ByteShare,
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.admitted.set_busy(false);
    }
}

impl AdminServer {
    /// Binds `address`; with port 0 the system chooses one.
    ///
    /// # Errors
    ///
    /// When the address is in use, or not an address of this host.
    pub async fn bind(address: SocketAddr, endpoints: Arc<OperatorEndpoints>) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            endpoints,
        })
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// When the operating system does not return it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped. To be spawned on the control runtime.
    pub async fn run(self) {
        let limit = AdminConnections::new(MAX_CONNECTIONS);
        let mut spare = spare();
        let mut failing = false;
        let unread = ByteBudget::new(UNREAD_BYTES);
        let mut number = 0_u64;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    failing = false;
                    spare = spare.or_else(self::spare);
                    let (admitted, crowded) = limit.admit();
                    if crowded {
                        self.endpoints
                            .metrics()
                            .admin_connection_cut(AdminConnectionCut::Crowded);
                    }
                    number += 1;
                    let share = unread.share(number.to_string());
                    let serving = serve(Arc::clone(&self.endpoints), stream, admitted, share);
                    tasks::spawn(&Handle::current(), serving);
                }
                // The next attempt has the descriptor that is free now.
                Err(_) if spare.take().is_some() => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "the admin port cannot accept connections");
                    }
                    if limit.evict_idle() {
                        self.endpoints
                            .metrics()
                            .admin_connection_cut(AdminConnectionCut::Crowded);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// A file descriptor in reserve, to be closed when there is none left.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Serves a connection, whose responses have another share each of the memory.
async fn serve(
    endpoints: Arc<OperatorEndpoints>,
    stream: TcpStream,
    admitted: AdmittedConnection,
    memory: ByteShare,
) {
    let admitted = Arc::new(admitted);
    tokio::select! {
        () = converse(&endpoints, stream, &admitted, &memory) => {}
        () = admitted.evicted() => {}
    }
}

/// Serves the requests of a connection.
async fn converse(
    endpoints: &Arc<OperatorEndpoints>,
    stream: TcpStream,
    admitted: &Arc<AdmittedConnection>,
    memory: &ByteShare,
) {
    let begun = Notify::new();
    let service = service_fn(|request| {
        begun.notify_one();
        admitted.set_busy(true);
        let (endpoints, admitted) = (Arc::clone(endpoints), Arc::clone(admitted));
        let mut share = memory.another();
        async move {
            let mut answer = answer(&endpoints, &request).await;
            let bytes = answer.body().len();
            if bytes > SHORT && !share.take(bytes) {
                let why = "too many bytes of responses were not read yet\n";
                answer = encoded_reply::text(StatusCode::SERVICE_UNAVAILABLE, why);
            }
            Ok::<_, Infallible>(answer.map(|rest| Sending {
                rest,
                admitted,
                _share: share,
            }))
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .half_close(true)
            .max_buf_size(16 << 10)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        _ = connection.as_mut() => return,
        () = begun.notified() => {}
        () = tokio::time::sleep(HEAD_TIMEOUT) => {
            endpoints.metrics().admin_connection_cut(AdminConnectionCut::TooSlow);
            return;
        }
    }
    if tokio::time::timeout(LIFE, connection.as_mut())
        .await
        .is_err()
    {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
    }
}

async fn answer<B>(endpoints: &OperatorEndpoints, request: &Request<B>) -> EncodedReply {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal =
            encoded_reply::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(ALLOW, allowed);
        return refusal;
    }
    let (path, query) = (request.uri().path(), request.uri().query());
    match endpoints.get(path, query.unwrap_or_default(), true).await {
        Some(found) => encoded_reply::encode(found, accepts_gzip(request.headers())).await,
        None => encoded_reply::not_found(),
    }
}
