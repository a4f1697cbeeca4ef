//! The admin port: metrics, health checks and dumps. Plain HTTP/1, read only, without authentication.
//!
//! It runs on the control runtime, and metrics are rendered on its blocking pool, one scrape at a time: a
//! slow reader delays no request.
//!
//! A kubelet restarts the gateway if its probes here get no response within a second, so no client may keep
//! others from being served. A connection has a few seconds to send a complete request. At the limit of
//! connections a new one replaces an old one ([`admin_connections`](super::admin_connections)). For the case
//! that file descriptors run out, one is kept in reserve, and a connection without a request is closed.
//!
//! Every client that reaches this port can read everything on it; by default it listens on loopback. A web page that a browser on
//! this host shows must not reach it by a name of its own that resolves to this address: requests are refused whose `Host` is
//! neither an IP address, nor `localhost`, nor a configured name.

use std::{
    convert::Infallible,
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{ALLOW, HOST},
    uri::Authority,
};
use http_body::{Body, Frame, SizeHint};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::Notify,
};

use super::{
    admin_connections::{AdminConnection, AdminConnections},
    encoded_reply::{self, EncodedReply, accepts_gzip},
    endpoints::OperatorEndpoints,
};
use crate::metrics::gateway_metrics::AdminConnectionCut;
use fairgate_base::{
    account::{ByteBudget, ByteShare},
    tasks,
};

const UNKNOWN_HOST: &str =
    "the Host of the request is neither an IP address, nor localhost, nor one of admin.hosts\n";
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
    hosts: AdminHosts,
}

/// The names by which clients may address the admin port, besides `localhost` and IP addresses.
#[derive(Clone, Debug, Default)]
pub struct AdminHosts(Arc<[String]>);

impl AdminHosts {
    /// These names.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Whether a request may be for this host, with or without a port. A page of another origin cannot send an IP address here
    /// and read the response.
    fn allows(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        let name = authority.host();
        // What is behind the brackets of an address is a port.
        let rest = host.strip_prefix(name);
        if rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with(':')) {
            return false;
        }
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        let is_address = address.unwrap_or(name).parse::<IpAddr>().is_ok();
        let name = name.strip_suffix('.').unwrap_or(name);
        let mut names = self.0.iter().map(String::as_str).chain(["localhost"]);
        !host.contains('@') && (is_address || names.any(|one| one.eq_ignore_ascii_case(name)))
    }

    /// Whether a request may be served. HTTP/1.0 has no host.
    fn allow<B>(&self, request: &Request<B>) -> bool {
        let lines = request.headers().get_all(HOST).iter();
        let lines = lines.map(|line| line.to_str().unwrap_or_default());
        let mut hosts = lines.chain(request.uri().authority().map(Authority::as_str));
        hosts.all(|host| self.allows(host))
    }
}

/// Bytes of a response that are passed to hyper at once. They may not be sent yet when the body ends.
const PIECE: usize = 16 << 10;

/// The body of a response. Until it is sent, its connection counts as busy.
struct Sending {
    rest: Bytes,
    opened: Arc<AdminConnection>,
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
        self.opened.set_busy(false);
    }
}

impl AdminServer {
    /// Binds `address`; with port 0 the system chooses one. Clients may also address it by the names `hosts`.
    ///
    /// # Errors
    ///
    /// When the address is in use, or not an address of this host.
    pub async fn bind(
        address: SocketAddr,
        hosts: AdminHosts,
        endpoints: Arc<OperatorEndpoints>,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            endpoints,
            hosts,
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
                    let (opened, crowded) = limit.open();
                    if crowded {
                        self.endpoints
                            .metrics()
                            .admin_connection_cut(AdminConnectionCut::Crowded);
                    }
                    number += 1;
                    let share = unread.share(number.to_string());
                    let serving = serve(
                        Arc::clone(&self.endpoints),
                        self.hosts.clone(),
                        stream,
                        opened,
                        share,
                    );
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
    hosts: AdminHosts,
    stream: TcpStream,
    opened: AdminConnection,
    memory: ByteShare,
) {
    let opened = Arc::new(opened);
    tokio::select! {
        () = converse(&endpoints, &hosts, stream, &opened, &memory) => {}
        () = opened.evicted() => {}
    }
}

/// Serves the requests of a connection.
async fn converse(
    endpoints: &Arc<OperatorEndpoints>,
    hosts: &AdminHosts,
    stream: TcpStream,
    opened: &Arc<AdminConnection>,
    memory: &ByteShare,
) {
    let begun = Notify::new();
    let service = service_fn(|request| {
        begun.notify_one();
        opened.set_busy(true);
        let (endpoints, opened) = (Arc::clone(endpoints), Arc::clone(opened));
        let mut share = memory.another();
        async move {
            let mut answer = if hosts.allow(&request) {
                answer(&endpoints, &request).await
            } else {
                encoded_reply::text(StatusCode::FORBIDDEN, UNKNOWN_HOST)
            };
            let bytes = answer.body().len();
            // Nobody gets more than half of the bytes; a longer response counts as that.
            if bytes > SHORT && !share.take(bytes.min(UNREAD_BYTES / 2)) {
                let why = "too many bytes of responses were not read yet\n";
                answer = encoded_reply::text(StatusCode::SERVICE_UNAVAILABLE, why);
            }
            Ok::<_, Infallible>(answer.map(|rest| Sending {
                rest,
                opened,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_known_is_refused() {
        let hosts = AdminHosts::new(["fairgate.ops.svc".to_owned()]);
        for host in [
            "localhost",
            "LOCALHOST:9080",
            "localhost.",
            "127.0.0.1:9080",
            "[::1]:9080",
            "[::1]",
            "10.0.0.7",
            "fairgate.ops.svc:9080",
            "Fairgate.Ops.Svc",
        ] {
            assert!(hosts.allows(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example@localhost",
            "localhost@127.0.0.1",
            "[::1].evil.example",
            "xfairgate.ops.svc",
            "local host",
        ] {
            assert!(!hosts.allows(host), "{host}");
        }
        let request = |host: &str, target: &str| {
            let request = Request::get(target).header(HOST, host);
            hosts.allow(&request.body(()).unwrap())
        };
        assert!(request("localhost", "/metrics"));
        assert!(!request("evil.example", "/metrics"));
        assert!(!request("localhost", "http://evil.example/metrics"));
        let none = Request::get("/metrics").body(()).unwrap();
        assert!(hosts.allow(&none), "a request of HTTP/1.0");
    }
}
