//! Reviews over HTTP to the upstream, on connections of their own.
//!
//! Those of tokens are what it was made for; any other kind is posted in the same way.
//!
//! Reviews do not share the connections of requests, so that neither can hold the other up. The server
//! chooses the protocol by ALPN: over HTTP/2 one connection carries all reviews, over HTTP/1.1 each
//! running review has one. How many run at once is bounded by the caller.
//!
//! A connection whose review was given up in the middle is not used again: it may be dead.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE, HOST, RETRY_AFTER},
    uri::{Authority, PathAndQuery},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{PostFuture, ReviewTransport, TransportError};
use fairgate_core::sync;

/// Gives the headers by which the gateway proves itself; asked anew for each review.
pub type HeaderSource = Arc<dyn Fn() -> HeaderMap + Send + Sync>;

/// Where reviews go.
#[derive(Clone)]
pub struct HttpTransportSettings {
    /// Host and port of the upstream; without a port 443, or 80 without TLS.
    pub authority: Authority,
    /// The TLS settings, with the gateway's certificate if it has one. `alpn_protocols` says which of
    /// `h2` and `http/1.1` are offered. Without TLS, HTTP/1.1 is spoken in plain text.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The name the upstream's certificate must bear; the host if absent.
    pub server_name: Option<ServerName<'static>>,
    /// Such as [`HttpTransport::TOKEN_REVIEWS`].
    pub path: PathAndQuery,
    /// For instance `Authorization` with the gateway's own token.
    pub credential: HeaderSource,
}

/// Why a transport cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum HttpTransportError {
    /// The host is neither an address nor a name.
    #[error("upstream {host:?}: not a name for TLS; set the server name")]
    ServerName { host: String },
}

/// A [`ReviewTransport`] over HTTP/1.1 or HTTP/2.
pub struct HttpTransport {
    settings: HttpTransportSettings,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    /// Connections that wait for their next review.
    http1: Vec<Http1>,
    /// The one connection all share, with its number.
    http2: Option<(u64, Http2)>,
    opened: u64,
}

type Http1 = http1::SendRequest<Full<Bytes>>;
type Http2 = http2::SendRequest<Full<Bytes>>;

enum Connection {
    Http1(Http1),
    Http2(u64, Http2),
}

/// An answer is one user with its groups, or a reason.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Idle connections beyond this are closed.
const MAX_IDLE: usize = 32;

impl HttpTransport {
    /// Where Kubernetes takes reviews of tokens.
    pub const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
    /// Where Kubernetes takes reviews of what somebody may do.
    pub const SUBJECT_ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

    /// A transport that will connect when it is needed.
    ///
    /// # Errors
    ///
    /// [`HttpTransportError`].
    pub fn new(settings: HttpTransportSettings) -> Result<Self, HttpTransportError> {
        let tls = match &settings.tls {
            None => None,
            Some(config) => {
                let name = server_name(&settings)?;
                Some((TlsConnector::from(Arc::clone(config)), name))
            }
        };
        Ok(Self {
            settings,
            tls,
            pool: Mutex::default(),
        })
    }

    async fn exchange(&self, body: Bytes) -> Result<Bytes, TransportError> {
        match self.checkout().await? {
            Connection::Http1(mut connection) => {
                let request = self.request(body, false);
                let answer = read(connection.send_request(request).await).await;
                if answer.is_reusable() && !connection.is_closed() {
                    let mut pool = sync::lock(&self.pool);
                    if pool.http1.len() < MAX_IDLE {
                        pool.http1.push(connection);
                    }
                }
                answer.0
            }
            Connection::Http2(number, mut connection) => {
                let mut suspect = Suspect {
                    pool: &self.pool,
                    number: Some(number),
                };
                let request = self.request(body, true);
                let answer = read(connection.send_request(request).await).await;
                if answer.is_reusable() {
                    suspect.number = None;
                }
                answer.0
            }
        }
    }

    /// A connection on which a review can be sent.
    async fn checkout(&self) -> Result<Connection, TransportError> {
        while let Some(pooled) = self.pooled() {
            match pooled {
                Connection::Http1(mut http1) => {
                    if http1.ready().await.is_ok() {
                        return Ok(Connection::Http1(http1));
                    }
                }
                Connection::Http2(number, mut http2) => {
                    if http2.ready().await.is_ok() {
                        return Ok(Connection::Http2(number, http2));
                    }
                    sync::lock(&self.pool).forget(number);
                }
            }
        }
        self.connect().await
    }

    fn pooled(&self) -> Option<Connection> {
        let mut pool = sync::lock(&self.pool);
        if let Some((number, http2)) = &pool.http2 {
            return Some(Connection::Http2(*number, http2.clone()));
        }
        pool.http1.pop().map(Connection::Http1)
    }

    async fn connect(&self) -> Result<Connection, TransportError> {
        let authority = &self.settings.authority;
        let port = if self.tls.is_some() { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(port);
        let host = authority.host().trim_matches(['[', ']']);
        let tcp = TcpStream::connect((host, port))
            .await
            .map_err(no_connection)?;
        tcp.set_nodelay(true).map_err(no_connection)?;
        let Some((connector, name)) = &self.tls else {
            return connect_http1(tcp).await;
        };
        let stream = connector
            .connect(name.clone(), tcp)
            .await
            .map_err(no_connection)?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.connect_http2(stream).await
        } else {
            connect_http1(stream).await
        }
    }

    async fn connect_http2(&self, stream: impl Stream) -> Result<Connection, TransportError> {
        let (http2, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(no_connection)?;
        tokio::spawn(connection);
        let mut pool = sync::lock(&self.pool);
        pool.opened += 1;
        let number = pool.opened;
        pool.http2 = Some((number, http2.clone()));
        Ok(Connection::Http2(number, http2))
    }

    fn request(&self, body: Bytes, http2: bool) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        let headers = request.headers_mut();
        *headers = (self.settings.credential)();
        let json = HeaderValue::from_static("application/json");
        headers.insert(CONTENT_TYPE, json.clone());
        headers.insert(ACCEPT, json);
        let authority = &self.settings.authority;
        let mut uri = http::uri::Parts::default();
        uri.path_and_query = Some(self.settings.path.clone());
        if http2 {
            uri.scheme = Some(http::uri::Scheme::HTTPS);
            uri.authority = Some(authority.clone());
        } else if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
            headers.insert(HOST, host);
        }
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default(); // whole, so it is valid
        request
    }
}

impl ReviewTransport for HttpTransport {
    fn post(&self, body: Bytes) -> PostFuture<'_> {
        Box::pin(self.exchange(body))
    }
}

impl Pool {
    fn forget(&mut self, number: u64) {
        if matches!(self.http2, Some((current, _)) if current == number) {
            self.http2 = None;
        }
    }
}

/// Takes the shared connection out of use, unless its number is taken away first.
struct Suspect<'a> {
    pool: &'a Mutex<Pool>,
    number: Option<u64>,
}

impl Drop for Suspect<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            sync::lock(self.pool).forget(number);
        }
    }
}

struct Answer(Result<Bytes, TransportError>);

impl Answer {
    /// Whether the connection has brought the whole answer, whatever that says.
    fn is_reusable(&self) -> bool {
        matches!(self.0, Ok(_) | Err(TransportError::Status { .. }))
    }
}

async fn read(response: Result<Response<Incoming>, hyper::Error>) -> Answer {
    Answer(read_body(response).await)
}

async fn read_body(
    response: Result<Response<Incoming>, hyper::Error>,
) -> Result<Bytes, TransportError> {
    let (head, body) = response.map_err(lost)?.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(TransportError::TooLong {
                max_bytes: MAX_BODY_BYTES,
            });
        }
        Err(error) => return Err(lost(error)),
    };
    match head.status {
        StatusCode::OK | StatusCode::CREATED => Ok(body),
        status => Err(TransportError::Status {
            status: status.as_u16(),
            retry_after: retry_after(&head.headers),
            message: message(&body, status),
        }),
    }
}

/// What an answer says, if it is a `Status`, cut to a length fit for a log; otherwise the name of its code.
fn message(body: &[u8], status: StatusCode) -> Arc<str> {
    let read = serde_json::from_slice::<serde_json::Value>(body).ok();
    let told = read.as_ref().and_then(|value| value["message"].as_str());
    let told = told.or(status.canonical_reason()).unwrap_or_default();
    told.chars().take(300).collect::<String>().into()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn server_name(
    settings: &HttpTransportSettings,
) -> Result<ServerName<'static>, HttpTransportError> {
    if let Some(name) = &settings.server_name {
        return Ok(name.clone());
    }
    let host = settings.authority.host().trim_matches(['[', ']']);
    ServerName::try_from(host.to_owned()).map_err(|_invalid| HttpTransportError::ServerName {
        host: host.to_owned(),
    })
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static> Stream for T {}

async fn connect_http1(stream: impl Stream) -> Result<Connection, TransportError> {
    let (http1, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(no_connection)?;
    tokio::spawn(connection);
    Ok(Connection::Http1(http1))
}

fn no_connection(error: impl fmt::Display) -> TransportError {
    TransportError::Connect {
        reason: error.to_string().into(),
    }
}

fn lost(error: impl fmt::Display) -> TransportError {
    TransportError::Lost {
        reason: error.to_string().into(),
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport")
            .field("authority", &self.settings.authority)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "http_transport_tests.rs"]
mod tests;
