//! Clients: hyper's for correct requests, a bare socket for others.

use std::{io::Read as _, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};

use crate::upstream::{TestBody, full};

/// A connection to the gateway.
pub struct TestClient {
    sender: Sender,
    driver: JoinHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<TestBody>),
    Http2(http2::SendRequest<TestBody>),
}

impl TestClient {
    /// Speaks HTTP/1.1.
    pub async fn http1(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self::http1_over(TokioIo::new(stream)).await
    }

    /// Speaks HTTP/2 without TLS.
    pub async fn http2(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self::http2_over(TokioIo::new(stream)).await
    }

    /// Speaks HTTP/1.1 over a connection that is open.
    pub async fn http1_over<I>(io: I) -> Self
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io).await.unwrap();
        Self {
            sender: Sender::Http1(sender),
            driver: tokio::spawn(async move {
                let _ = connection.with_upgrades().await;
            }),
        }
    }

    /// Speaks HTTP/2 without TLS, and takes so many bytes of each response before it is read.
    pub async fn http2_with_window(address: SocketAddr, window: u32) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self::http2_by(TokioIo::new(stream), |builder| {
            builder.initial_stream_window_size(window);
        })
        .await
    }

    /// Speaks HTTP/2 over a connection that is open.
    pub async fn http2_over<I>(io: I) -> Self
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        Self::http2_by(io, |_| {}).await
    }

    async fn http2_by<I>(io: I, set: impl FnOnce(&mut http2::Builder<TokioExecutor>)) -> Self
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_header_list_size(1 << 20);
        set(&mut builder);
        let (sender, connection) = builder.handshake(io).await.unwrap();
        Self {
            sender: Sender::Http2(sender),
            driver: tokio::spawn(async move {
                let _ = connection.await;
            }),
        }
    }

    /// One client of HTTP/1.1 and one of HTTP/2.
    pub async fn both(address: SocketAddr) -> [Self; 2] {
        [Self::http1(address).await, Self::http2(address).await]
    }

    /// Whether it speaks HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// A request for a target in origin form.
    pub fn request(&self, method: Method, target: &str) -> http::request::Builder {
        let request = Request::builder().method(method);
        if self.is_http2() {
            request.uri(format!("http://localhost{target}"))
        } else {
            request.uri(target).header("host", "localhost")
        }
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    ///
    /// When the connection breaks or the stream is reset.
    pub async fn send(&mut self, request: Request<TestBody>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }

    /// Sends a request at once; the response may be awaited elsewhere. HTTP/2 only.
    pub fn start(
        &mut self,
        request: Request<TestBody>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + Send + 'static {
        match &mut self.sender {
            Sender::Http1(_) => panic!("HTTP/1 sends one request at a time"),
            Sender::Http2(sender) => sender.send_request(request),
        }
    }

    /// `GET` of a target.
    pub async fn get(&mut self, target: &str) -> Response<Incoming> {
        let request = self.request(Method::GET, target).body(full("")).unwrap();
        self.send(request).await.unwrap()
    }

    /// `POST` to a target.
    pub async fn post(&mut self, target: &str, body: TestBody) -> Response<Incoming> {
        let request = self.request(Method::POST, target).body(body).unwrap();
        self.send(request).await.unwrap()
    }

    /// Waits until the gateway has closed the connection, which this end would keep open.
    ///
    /// # Panics
    ///
    /// When that does not happen.
    pub async fn closed(self) {
        let _sender = self.sender;
        soon(self.driver).await.unwrap();
    }

    /// Sends a request until `happens`, and drops it then: on HTTP/2 the stream is reset.
    ///
    /// # Panics
    ///
    /// When the response comes first.
    pub async fn send_until<T>(
        &mut self,
        request: Request<TestBody>,
        happens: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            response = self.send(request) => panic!("a response came first: {response:?}"),
            happened = soon(happens) => happened,
        }
    }

    /// Closes the connection, also while requests wait for responses.
    pub async fn abandon(self) {
        self.driver.abort();
        let _ = self.driver.await;
    }
}

/// The whole body of a response.
pub async fn body(response: Response<Incoming>) -> Bytes {
    soon(response.into_body().collect())
        .await
        .unwrap()
        .to_bytes()
}

/// The whole body of a response, as text.
pub async fn body_text(response: Response<Incoming>) -> String {
    String::from_utf8(body(response).await.to_vec()).unwrap()
}

/// The next piece of a body; `None` at its end.
pub async fn piece(body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
    loop {
        match soon(body.frame()).await? {
            // HTTP/2 may end with an empty piece.
            Ok(frame) => match frame.into_data() {
                Ok(data) if !data.is_empty() => return Some(Ok(data)),
                _ => {}
            },
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The longest that a test waits for anything. It only bounds a hang: how long something takes says nothing about the
/// gateway, because other tests run on the machine, too.
pub const HANG: Duration = Duration::from_secs(180);

/// Waits for what must happen, and fails after [`HANG`].
pub async fn soon<F: Future>(happens: F) -> F::Output {
    tokio::time::timeout(HANG, happens)
        .await
        .expect("this should have happened by now")
}

/// A connection from 127.0.0.2; most others come from 127.0.0.1.
pub async fn connect_from_elsewhere(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    soon(socket.connect(address)).await.unwrap()
}

/// Sends `bytes` unchanged and reads until the gateway closes the connection.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    raw_on(std::net::TcpStream::connect(address).unwrap(), bytes)
}

/// [`raw`] on this connection.
pub fn raw_on(mut stream: std::net::TcpStream, bytes: &[u8]) -> String {
    use std::io::Write as _;
    stream.set_read_timeout(Some(HANG)).unwrap();
    // The gateway may respond before it has read everything.
    let _ = stream.write_all(bytes);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// The status of a raw response.
pub fn status(response: &str) -> u16 {
    response
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no response: {response:?}"))
}
