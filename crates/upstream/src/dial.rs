//! Opens connections to the upstream.
//!
//! Every connection is opened here, for requests of clients and for those of the gateway itself: name
//! resolution, TCP and the TLS handshake within one time-out, and the same socket options. HTTP begins after
//! that and is up to the caller. Proxies of the environment (`HTTPS_PROXY`) are not used.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{dial_error::DialError, endpoint::Endpoint};
use fairgate_base::socket::{Socket, set_up};

/// How long an unused connection is kept: less than the 90 s after which an API server closes it.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Silence on an HTTP/2 connection after which a PING is sent.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the answer to a PING may take before the connection counts as dead.
pub const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum number of idle connections.
pub(crate) const MAX_IDLE_CONNECTIONS: usize = 32;

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl HttpVersion {
    /// The name by which TLS negotiates it (ALPN).
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// The addresses of the endpoint's host, with its port.
///
/// # Errors
///
/// [`DialError::Unresolved`].
pub(crate) async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, DialError> {
    let addresses = lookup_host(endpoint.address()).await;
    let addresses = addresses.map_err(|source| DialError::Unresolved {
        url: Arc::clone(endpoint.url()),
        source: Arc::new(source),
    })?;
    Ok(addresses.collect())
}

/// A new connection.
#[derive(Debug)]
pub struct Dialed {
    /// The connection, ready for HTTP.
    pub socket: Socket,
    /// What ALPN chose; `None` without TLS, and when the upstream does not know ALPN.
    pub negotiated: Option<HttpVersion>,
}

/// Opens connections to one upstream.
#[derive(Clone, Debug)]
pub struct Dialer {
    endpoint: Endpoint,
    /// The names of the protocols to offer, best first.
    protocols: Vec<&'static [u8]>,
}

impl Dialer {
    /// Connects to `endpoint` and offers `protocols`, best first, if that uses TLS.
    pub fn new(endpoint: Endpoint, protocols: &[HttpVersion]) -> Self {
        let protocols = protocols.iter().map(|version| version.alpn()).collect();
        Self {
            endpoint,
            protocols,
        }
    }

    /// Opens a connection. Whether that succeeded is [`Endpoint::problem`] from then on.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    pub async fn dial(&self) -> Result<Dialed, DialError> {
        let connecting = timeout(self.endpoint.connect_timeout(), self.connect());
        let dialed = connecting.await.unwrap_or_else(|_elapsed| {
            let url = Arc::clone(self.endpoint.url());
            Err(DialError::TimedOut { url })
        });
        self.endpoint.note(dialed.as_ref().err());
        dialed
    }

    async fn connect(&self) -> Result<Dialed, DialError> {
        let url = || Arc::clone(self.endpoint.url());
        let addresses = match self.endpoint.fixed() {
            Some(fixed) => vec![fixed],
            None => resolve(&self.endpoint).await?,
        };
        let connected = TcpStream::connect(&addresses[..]).await;
        let connected = connected.and_then(|stream| set_up(&stream).map(|()| stream));
        let stream = connected.map_err(|source| DialError::NotConnected {
            url: url(),
            source: Arc::new(source),
        })?;
        let Some(tls) = self.endpoint.tls() else {
            return Ok(Dialed {
                socket: Socket::Plain(stream),
                negotiated: None,
            });
        };
        // Made for each connection, so that it has the certificates of this moment.
        let stream = TlsConnector::from(tls.offering(&self.protocols))
            .connect(tls.server_name(), stream)
            .await
            .map_err(|error| DialError::handshake(url(), &error))?;
        let chosen = stream.get_ref().1.alpn_protocol();
        let versions = [HttpVersion::Http1, HttpVersion::Http2];
        Ok(Dialed {
            negotiated: versions.into_iter().find(|v| chosen == Some(v.alpn())),
            socket: Socket::Tls(Box::new(stream.into())),
        })
    }
}
