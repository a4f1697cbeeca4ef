//! A client of the bench: one connection to the gateway.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// A Pod, by its path.
pub(crate) const POD: &str = "/api/v1/namespaces/default/pods/web-0";

/// A connection over which one request is sent after the other.
pub(crate) struct Client(http1::SendRequest<Full<Bytes>>);

impl Client {
    pub(crate) async fn new(address: SocketAddr) -> Self {
        let (sender, connection) = http1::handshake(connect(address).await)
            .await
            .expect("it speaks HTTP");
        tokio::spawn(connection);
        Self(sender)
    }

    /// Sends a request, and waits for the head of its response.
    pub(crate) async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Response<Incoming> {
        let host = HeaderValue::from_static("gateway");
        request.headers_mut().insert("host", host);
        self.0.ready().await.expect("the connection stays");
        self.0.send_request(request).await.expect("it answers")
    }

    /// Sends a request, and waits until its response is whole.
    pub(crate) async fn exchange(&mut self, request: Request<Full<Bytes>>, expected: StatusCode) {
        whole(self.send(request).await, expected).await;
    }
}

/// A connection over which requests are sent together.
pub(crate) struct Http2Client(http2::SendRequest<Full<Bytes>>);

impl Http2Client {
    pub(crate) async fn new(address: SocketAddr) -> Self {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), connect(address).await)
            .await
            .expect("it speaks HTTP/2");
        tokio::spawn(connection);
        Self(sender)
    }

    /// Sends so many GETs at once, and waits until all responses are whole.
    pub(crate) async fn get_together(&mut self, requests: usize) {
        let target = format!("http://gateway{POD}");
        let sent: Vec<_> = (0..requests)
            .map(|_| self.0.send_request(get(&target)))
            .collect();
        let answered = sent.into_iter().map(|response| async {
            whole(response.await.expect("it answers"), StatusCode::OK).await;
        });
        futures_util::future::join_all(answered).await;
    }
}

/// A GET of this target.
pub(crate) fn get(target: &str) -> Request<Full<Bytes>> {
    with_body(Method::GET, target, Bytes::new())
}

/// A request with a body.
pub(crate) fn with_body(method: Method, target: &str, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().expect("it is a target");
    request
}

async fn connect(address: SocketAddr) -> TokioIo<TcpStream> {
    let stream = TcpStream::connect(address).await;
    TokioIo::new(stream.expect("the gateway listens"))
}

async fn whole(response: Response<Incoming>, expected: StatusCode) {
    assert_eq!(response.status(), expected);
    let body = response.into_body().collect().await;
    body.expect("the body is whole");
}
