//! A minimal HTTP/1.1 client: one connection that sends a request and reads the whole response.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, HOST},
};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinSet};

use fairgate_base::tasks;
use fairgate_loadkit::pauses;

/// The target of all requests: a GET of one object, which takes one seat.
const TARGET: &str = "/api/v1/namespaces/default/configmaps/demo";

/// A connection to the gateway. Dropping it closes it.
#[derive(Debug)]
pub(super) struct DemoConnection {
    sender: SendRequest<Empty<Bytes>>,
    host: HeaderValue,
    _driver: JoinSet<()>,
}

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientResponse {
    pub(super) status: StatusCode,
    /// The value of `Retry-After`.
    pub(super) retry_after: Option<Duration>,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    #[error("no response: {0}")]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
}

impl DemoConnection {
    /// Connects to the gateway at `address`.
    pub(super) async fn open(address: SocketAddr) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(tasks::boxed(async move {
            // An error of the connection is returned by the request on it.
            let _ = connection.await;
        }));
        let host = HeaderValue::try_from(address.to_string()).map_err(http::Error::from)?;
        Ok(Self {
            sender,
            host,
            _driver: driver,
        })
    }

    /// Sends a request with this `Authorization` header, and reads the whole response.
    pub(super) async fn send(
        &mut self,
        authorization: &HeaderValue,
    ) -> Result<ClientResponse, ClientError> {
        self.sender.ready().await?;
        let request = Request::get(TARGET)
            .header(HOST, &self.host)
            .header(AUTHORIZATION, authorization)
            .body(Empty::new())?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let retry_after = pauses::retry_after(response.headers());
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(ClientResponse {
            status,
            retry_after,
        })
    }
}
