//! The HTTP client of the control side.
//!
//! Sends the gateway's own requests to the upstream: reviews, policy objects, metrics.
//! It does not share the connections of clients' requests, so that neither can hold the other up.
//!
//! With [`ConnectionReuse::Pooled`] connections are kept for the next request; ALPN chooses the protocol, and
//! over HTTP/2 one connection carries all requests. With [`ConnectionReuse::PerRequest`] each request has a
//! separate HTTP/1.1 connection, for responses that are long or endless.
//!
//! A connection is only reused after a complete response: one whose request timed out or was dropped may be
//! dead. hyper-util would go on using such an HTTP/2 connection, so it is poisoned here.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER, USER_AGENT},
    uri::PathAndQuery,
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{
    BodyExt as _, Empty, Full, LengthLimitError, Limited, combinators::UnsyncBoxBody,
};
use hyper::{body::Incoming, rt};
use hyper_util::{
    client::legacy::{
        self,
        connect::{CaptureConnection, Connected, Connection, capture_connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::time::timeout;
use tower::Service;

use crate::{
    dial::{HttpVersion, IDLE_TIMEOUT, MAX_IDLE_CONNECTIONS, PING_INTERVAL, PING_TIMEOUT},
    dial_error::DialError,
    target::{GivenUp, TargetDialer, UpstreamTarget},
    tls_in_place_of_http::{expects_tls, may_expect_tls},
};
use fairgate_base::socket::Socket;

/// Gives the headers by which the gateway authenticates itself. Called for each request, since tokens are
/// renewed.
pub type HeaderSource = Arc<dyn Fn() -> HeaderMap + Send + Sync>;

/// The limit for the head of a response to arrive, connecting included.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response that is read as a whole, in bytes. Larger ones are read as streams.
const MAX_BODY_BYTES: usize = 1 << 20;
/// How many characters of the message of an error response are kept.
const MAX_MESSAGE_CHARS: usize = 300;

/// What happens to a connection after its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// It is kept for the next request. HTTP/2 if the upstream offers it.
    Pooled,
    /// It is closed. HTTP/1.1.
    PerRequest,
}

/// Why a request got no usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RequestError {
    /// No connection: nothing has been sent. The reason is the text of a [`DialError`].
    #[error("{reason}")]
    Connect { reason: Arc<str> },
    /// The connection was lost before the response was complete.
    #[error("connection lost: {reason}")]
    Lost { reason: Arc<str> },
    /// The head of the response took longer than [`HEAD_TIMEOUT`].
    #[error("no response within {} s", HEAD_TIMEOUT.as_secs())]
    TimedOut,
    /// A status other than 200 or 201.
    #[error("the upstream answered {status}: {message}")]
    Status {
        status: u16,
        retry_after: Option<Duration>,
        message: Arc<str>,
    },
    /// A body over the limit.
    #[error("the response is longer than {max_bytes} bytes")]
    TooLong { max_bytes: usize },
}

impl RequestError {
    /// Whether another attempt may help, and how long to wait before it, at least.
    ///
    /// A connection that cannot be opened is not tried again: the upstream is down for all requests, and the
    /// client that waits for the result gets the error immediately.
    // Reviews change nothing, so repeating one whose connection was lost is safe.
    pub fn retry_delay(&self) -> Option<Duration> {
        match self {
            Self::Status {
                retry_after: Some(wait),
                ..
            } => Some(*wait),
            Self::Lost { .. }
            | Self::Status {
                status: 429 | 500 | 504,
                ..
            } => Some(Duration::ZERO),
            Self::Connect { .. } | Self::TimedOut | Self::Status { .. } | Self::TooLong { .. } => {
                None
            }
        }
    }
}

/// Sends requests to the upstream in the gateway's own name. Cloning shares the connections.
#[derive(Clone)]
pub struct ApiClient(Arc<ClientParts>);

struct ClientParts {
    target: UpstreamTarget,
    credentials: HeaderSource,
    http: legacy::Client<Connector, RequestBody>,
}

type RequestBody = UnsyncBoxBody<Bytes, BoxError>;
type BoxError = Box<dyn Error + Send + Sync>;

impl ApiClient {
    /// A client that connects when it is needed. Of several servers it uses one as long as that takes requests.
    pub fn new(
        target: impl Into<UpstreamTarget>,
        credentials: HeaderSource,
        reuse: ConnectionReuse,
    ) -> Self {
        let target = target.into();
        let (protocols, max_idle): (&[HttpVersion], _) = match reuse {
            ConnectionReuse::Pooled => (
                &[HttpVersion::Http2, HttpVersion::Http1],
                MAX_IDLE_CONNECTIONS,
            ),
            ConnectionReuse::PerRequest => (&[HttpVersion::Http1], 0),
        };
        let connector = Connector(Arc::new(TargetDialer::new(target.clone(), protocols)));
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(max_idle)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector);
        Self(Arc::new(ClientParts {
            target,
            credentials,
            http,
        }))
    }

    /// Where it sends requests.
    pub fn target(&self) -> &UpstreamTarget {
        &self.0.target
    }

    /// Sends a request with the gateway's credentials, and returns the response, whatever its status, when its head
    /// has come. Of the request's target only path and query are used.
    ///
    /// # Errors
    ///
    /// [`RequestError`], except `Status` and `TooLong`.
    pub async fn send<B>(
        &self,
        mut request: Request<B>,
    ) -> Result<Response<ResponseBody>, RequestError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = self
            .0
            .target
            .endpoint()
            .uri(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        request.headers_mut().extend((self.0.credentials)());
        let unproven = Unproven(Some(capture_connection(&mut request)));
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let response = timeout(HEAD_TIMEOUT, self.0.http.request(request)).await;
        let response = response
            .map_err(|_elapsed| RequestError::TimedOut)?
            .map_err(|error| failed(&error));
        self.check_scheme(&response).await?;
        Ok(response?.map(|inner| ResponseBody { inner, unproven }))
    }

    /// Looks whether the server speaks TLS although the URL says `http://`, if a response makes that likely.
    ///
    /// # Errors
    ///
    /// [`RequestError::Connect`] if it does. Of several servers each is asked by the client that probes it.
    async fn check_scheme(
        &self,
        response: &Result<Response<Incoming>, RequestError>,
    ) -> Result<(), RequestError> {
        let UpstreamTarget::One(endpoint) = &self.0.target else {
            return Ok(());
        };
        let is_likely = match response {
            Ok(response) => may_expect_tls(response.status(), response.headers()),
            Err(error) => matches!(error, RequestError::Lost { .. }),
        };
        if is_likely && let Some(error) = expects_tls(endpoint).await {
            let reason = error.to_string().into();
            return Err(RequestError::Connect { reason });
        }
        if response.is_ok() && endpoint.note_tls(false) {
            tracing::info!(upstream = %endpoint.url(), "the upstream answers requests without TLS");
        }
        Ok(())
    }

    /// Gets what is at `path`, with its query, in the format `accept`. Returns the status, whatever it is, and the body,
    /// of at most `max_bytes`. It has no time limit for the body.
    ///
    /// # Errors
    ///
    /// [`RequestError`], except `Status`.
    pub async fn get(
        &self,
        path: PathAndQuery,
        accept: &'static str,
        max_bytes: usize,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        let (head, body) = self.open(path, accept).await?.into_parts();
        Ok((head.status, read_body(body, max_bytes).await?))
    }

    /// As [`get`](Self::get), with the version of the document (its entity tag) if the server tells it.
    ///
    /// # Errors
    ///
    /// [`RequestError`], except `Status`.
    pub async fn get_with_version(
        &self,
        path: PathAndQuery,
        accept: &'static str,
        max_bytes: usize,
    ) -> Result<(StatusCode, Option<HeaderValue>, Bytes), RequestError> {
        let (mut head, body) = self.open(path, accept).await?.into_parts();
        let version = head.headers.remove(ETAG);
        Ok((head.status, version, read_body(body, max_bytes).await?))
    }

    /// Whether what is at `path` has another version than this by now. Reads no document.
    ///
    /// # Errors
    ///
    /// [`RequestError`], except `Status` and those of bodies.
    pub async fn has_changed(
        &self,
        path: PathAndQuery,
        accept: &'static str,
        version: HeaderValue,
    ) -> Result<bool, RequestError> {
        let mut request = get_request(path, accept);
        request.headers_mut().insert(IF_NONE_MATCH, version);
        // 304 if it has not; others say nothing about it.
        Ok(self.send(request).await?.status() == StatusCode::OK)
    }

    /// As [`get`](Self::get), with the body still to be read.
    ///
    /// # Errors
    ///
    /// [`RequestError`], except `Status` and those of bodies.
    pub async fn open(
        &self,
        path: PathAndQuery,
        accept: &'static str,
    ) -> Result<Response<ResponseBody>, RequestError> {
        self.send(get_request(path, accept)).await
    }

    /// Posts JSON, and returns the body of a response of status 200 or 201.
    ///
    /// # Errors
    ///
    /// [`RequestError`].
    pub(crate) async fn post_json(
        &self,
        path: PathAndQuery,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        let json = HeaderValue::from_static("application/json");
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.into();
        request.headers_mut().insert(CONTENT_TYPE, json.clone());
        request.headers_mut().insert(ACCEPT, json);
        let (head, body) = self.send(request).await?.into_parts();
        let body = read_body(body, MAX_BODY_BYTES).await?;
        match head.status {
            StatusCode::OK | StatusCode::CREATED => Ok(body),
            status => Err(RequestError::Status {
                status: status.as_u16(),
                retry_after: retry_after(&head.headers),
                message: message(&body, status),
            }),
        }
    }
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient")
            .field("target", &self.0.target.name())
            .finish_non_exhaustive()
    }
}

fn get_request(path: PathAndQuery, accept: &'static str) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = path.into();
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    headers.insert(USER_AGENT, HeaderValue::from_static("fairgate"));
    request
}

/// The whole body of a response, of at most `max_bytes`.
async fn read_body(body: ResponseBody, max_bytes: usize) -> Result<Bytes, RequestError> {
    match read_whole(body, max_bytes).await {
        Ok(body) => Ok(body),
        Err(error) if error.is::<LengthLimitError>() => Err(RequestError::TooLong { max_bytes }),
        Err(error) => Err(RequestError::Lost {
            reason: with_causes(&*error).into(),
        }),
    }
}

/// Reads the whole body of a response, of at most `max_bytes`, for who makes something else of an error than
/// [`RequestError`].
///
/// # Errors
///
/// A [`LengthLimitError`], or why the rest did not arrive.
pub async fn read_whole(
    body: ResponseBody,
    max_bytes: usize,
) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
    let whole = Limited::new(body, max_bytes).collect().await?;
    Ok(whole.to_bytes())
}

/// The message of a `Status`, cut to a length fit for a log; without one, the reason phrase of the code.
fn message(body: &[u8], status: StatusCode) -> Arc<str> {
    let read = serde_json::from_slice::<serde_json::Value>(body).ok();
    let text = read.as_ref().and_then(|value| value["message"].as_str());
    let text = text.or(status.canonical_reason()).unwrap_or_default();
    text.chars()
        .take(MAX_MESSAGE_CHARS)
        .collect::<String>()
        .into()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn failed(error: &legacy::Error) -> RequestError {
    // The error's own text only says in which phase it failed.
    let reason = error
        .source()
        .map_or_else(|| error.to_string(), with_causes)
        .into();
    if error.is_connect() {
        RequestError::Connect { reason }
    } else {
        RequestError::Lost { reason }
    }
}

/// The text of an error and of its causes, as far as each says more than those before.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

/// Keeps a connection from being reused when dropped, unless the response was complete.
#[derive(Debug)]
struct Unproven(Option<CaptureConnection>);

impl Drop for Unproven {
    fn drop(&mut self) {
        if let Some(captured) = &self.0
            && let Some(connected) = &*captured.connection_metadata()
        {
            connected.poison();
        }
    }
}

/// The body of a response. If it is dropped before its end, its connection is not reused.
#[derive(Debug)]
pub struct ResponseBody {
    inner: Incoming,
    unproven: Unproven,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let is_ended = matches!(polled, Poll::Ready(None));
        if is_ended || (matches!(polled, Poll::Ready(Some(Ok(_)))) && self.inner.is_end_stream()) {
            self.unproven.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Opens connections for the client.
#[derive(Clone)]
struct Connector(Arc<TargetDialer>);

impl Service<Uri> for Connector {
    type Response = PooledSocket;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<PooledSocket, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialer = Arc::clone(&self.0);
        Box::pin(async move {
            let (dialed, given_up) = dialer.dial().await?;
            Ok(PooledSocket {
                is_http2: dialed.negotiated == Some(HttpVersion::Http2),
                io: TokioIo::new(dialed.socket),
                given_up,
            })
        })
    }
}

/// A socket, and what the pool must know about it.
struct PooledSocket {
    io: TokioIo<Socket>,
    is_http2: bool,
    /// Completes when the server does not answer, and others are to be used.
    given_up: Option<GivenUp>,
}

impl Connection for PooledSocket {
    fn connected(&self) -> Connected {
        if self.is_http2 {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl rt::Read for PooledSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(given_up) = &mut self.given_up
            && given_up.as_mut().poll(cx).is_ready()
        {
            self.given_up = None;
            let reason = "the API server does not answer; another one is used";
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                reason,
            )));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl rt::Write for PooledSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
