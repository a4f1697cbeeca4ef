//! Clients: hyper's for good behaviour, a bare socket for bad.

use std::{io::Read as _, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, task::JoinHandle};

use crate::upstream::{TestBody, full};

/// One connection to the gateway.
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

    /// Speaks HTTP/2 over a connection that is open.
    pub async fn http2_over<I>(io: I) -> Self
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(1 << 20)
            .handshake(io)
            .await
            .unwrap();
        Self {
            sender: Sender::Http2(sender),
            driver: tokio::spawn(async move {
                let _ = connection.await;
            }),
        }
    }

    /// One of each kind.
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
            request.uri(format!("http://gate{target}"))
        } else {
            request.uri(target).header("host", "gate")
        }
    }

    /// Sends a request and waits for the head of its answer.
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

    /// Sends at once; the answer may be awaited elsewhere. HTTP/2 only.
    pub fn start(
        &mut self,
        request: Request<TestBody>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + Send + 'static {
        match &mut self.sender {
            Sender::Http1(_) => panic!("one at a time on HTTP/1"),
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

    /// Waits until the gateway has closed the connection.
    pub async fn closed(self) {
        drop(self.sender);
        soon(self.driver).await.unwrap();
    }

    /// Closes the connection, whatever is under way.
    pub async fn abandon(self) {
        self.driver.abort();
        let _ = self.driver.await;
    }
}

/// All of a response's body.
pub async fn body(response: Response<Incoming>) -> Bytes {
    soon(response.into_body().collect())
        .await
        .unwrap()
        .to_bytes()
}

/// All of a response's body, which is text.
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

/// Waits for what must happen, and fails instead of hanging. How long that takes says nothing about the gateway: other
/// tests run on the machine, too.
pub async fn soon<F: Future>(happens: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), happens)
        .await
        .expect("this should have happened by now")
}

/// Sends `bytes` as they are and reads whatever comes until the gateway closes.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // The gateway may refuse before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of a raw answer.
pub fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no answer: {answer:?}"))
}
