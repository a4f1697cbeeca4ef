//! One HTTP/1.1 connection of a client, as plain as can be: it asks, and reads the answer to its end.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, HOST, RETRY_AFTER},
};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinSet};

/// What is asked for: one object, which costs one seat.
const TARGET: &str = "/api/v1/namespaces/default/configmaps/demo";

/// A connection to the gateway. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct ClientConnection {
    sender: SendRequest<Empty<Bytes>>,
    host: HeaderValue,
    _driver: JoinSet<()>,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientResponse {
    pub(super) status: StatusCode,
    /// How long the gateway asks to be left alone.
    pub(super) retry_after: Option<Duration>,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
    #[error("no request can be made: {0}")]
    Request(#[from] http::Error),
}

impl ClientConnection {
    /// Connects to the gateway at `address`.
    pub(super) async fn open(address: SocketAddr) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // What breaks a connection is told to its request.
            let _ = connection.await;
        });
        let host = HeaderValue::try_from(address.to_string()).map_err(http::Error::from)?;
        Ok(Self {
            sender,
            host,
            _driver: driver,
        })
    }

    /// Asks with this `Authorization`, and reads the answer to its end.
    pub(super) async fn ask(
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
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
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
