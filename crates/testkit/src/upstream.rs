//! A fake upstream: responds as the test says, and records the requests it received.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::mpsc,
};

/// The body of a request or a response.
pub type TestBody = UnsyncBoxBody<Bytes, io::Error>;
/// A response of the upstream.
pub type TestReply = Response<TestBody>;

/// The protocol of the upstream.
#[derive(Clone)]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS.
    Http2,
    /// HTTP/2 without TLS, with this many concurrent streams per connection.
    Http2Streams(u32),
    /// TLS, with the protocol that ALPN selects.
    Tls(Arc<rustls::ServerConfig>),
}

/// A request that the upstream received.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    /// The HTTP method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// The protocol between gateway and upstream.
    pub version: Version,
    /// All headers, as received.
    pub headers: HeaderMap,
}

/// A server on its own thread. It stops when dropped.
pub struct TestUpstream {
    /// The address at which the server listens.
    pub address: SocketAddr,
    /// Whether the server speaks HTTP/2 without TLS.
    pub http2: bool,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    connections: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

impl TestUpstream {
    /// Starts an upstream that responds with what `handler` returns.
    pub fn start<F, A>(speaks: Speaks, handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = TestReply> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0".parse().unwrap(), speaks, handler)
    }

    /// As [`start`](Self::start), at this address: where another one was, for example.
    pub fn start_at<F, A>(address: SocketAddr, speaks: Speaks, handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = TestReply> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            // Handlers read documents as deep as a server takes them.
            .thread_stack_size(fairgate_base::stack::STACK_BYTES)
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // Bound before the runtime runs, so that a test can connect at once.
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<SeenRequest>>> = Arc::default();
        let connections = Arc::<AtomicUsize>::default();
        let handler = Arc::new(handler);
        let http2 = matches!(speaks, Speaks::Http2 | Speaks::Http2Streams(_));
        let (log, count) = (seen.clone(), connections.clone());
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, speaks.clone(), log.clone(), handler.clone()));
            }
        });
        Self {
            address,
            http2,
            seen,
            connections,
            runtime: Some(runtime),
        }
    }

    /// An upstream that responds to every request with 200 and `body`.
    pub fn saying(speaks: Speaks, body: &'static str) -> Self {
        Self::start(speaks, move |_| async move { text(body) })
    }

    /// The requests it has received, in order.
    pub fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// The only request it has received.
    pub fn only(&self) -> SeenRequest {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for TestUpstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime waits for it, which panics in an asynchronous test.
            runtime.shutdown_background();
        }
    }
}

async fn serve<F, A>(
    stream: TcpStream,
    speaks: Speaks,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    handler: Arc<F>,
) where
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = TestReply> + Send + 'static,
{
    stream.set_nodelay(true).unwrap();
    let service = service_fn(move |request: Request<Incoming>| {
        let target = request
            .uri()
            .path_and_query()
            .map(|target| target.as_str().to_owned())
            .unwrap_or_default();
        seen.lock().unwrap().push(SeenRequest {
            method: request.method().clone(),
            target,
            version: request.version(),
            headers: request.headers().clone(),
        });
        let answer = handler(request);
        async move {
            let answer = answer.await;
            match answer.extensions().get::<Reset>() {
                Some(Reset) => Err(io::Error::other("the test wants no response")),
                None => Ok(answer),
            }
        }
    });
    match speaks {
        Speaks::Http1 => serve_http1(TokioIo::new(stream), service).await,
        Speaks::Http2 => serve_http2(TokioIo::new(stream), service, 250).await,
        Speaks::Http2Streams(streams) => {
            serve_http2(TokioIo::new(stream), service, streams).await;
        }
        Speaks::Tls(config) => {
            let acceptor = tokio_rustls::TlsAcceptor::from(config);
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                serve_http2(TokioIo::new(stream), service, 250).await;
            } else {
                serve_http1(TokioIo::new(stream), service).await;
            }
        }
    }
}

async fn serve_http1<I, S>(io: I, service: S)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: hyper::service::Service<Request<Incoming>, Response = TestReply, Error = io::Error>
        + Send
        + 'static,
    S::Future: Send,
{
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(io, service)
        .with_upgrades()
        .await;
}

async fn serve_http2<I, S>(io: I, service: S, streams: u32)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: hyper::service::Service<Request<Incoming>, Response = TestReply, Error = io::Error>
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let _ = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_header_list_size(1 << 20)
        .serve_connection(io, service)
        .await;
}

/// In place of a response: the end of the stream, or of the connection where there are no streams.
#[derive(Clone)]
struct Reset;

/// No response: HTTP/2 resets the stream, HTTP/1.1 closes the connection.
pub fn reset() -> TestReply {
    let mut reply = text("");
    reply.extensions_mut().insert(Reset);
    reply
}

/// A response with status 200 and this text.
pub fn text(body: &'static str) -> TestReply {
    Response::new(full(body))
}

/// A body that is sent at once.
pub fn full(body: impl Into<Bytes>) -> TestBody {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that the test sends piece by piece. An error breaks the connection or resets the stream.
pub fn streamed() -> (mpsc::UnboundedSender<io::Result<Bytes>>, TestBody) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Streamed(receiver).boxed_unsync())
}

struct Streamed(mpsc::UnboundedReceiver<io::Result<Bytes>>);

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
