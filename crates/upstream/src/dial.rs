//! Opens connections to the upstream.
//!
//! Every connection is opened here, for requests of clients and for those of the gateway itself: name
//! resolution, TCP and the TLS handshake within one time-out, and the same socket options. HTTP begins after
//! that and is up to the caller. Proxies of the environment (`HTTPS_PROXY`) are not used.

use std::{io, sync::Arc, time::Duration};

use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use crate::endpoint::Endpoint;
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

/// Why no connection could be opened. Nothing has been sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// Resolving the name, connecting or the TLS handshake failed.
    #[error("upstream {name}: {source}")]
    Io {
        /// The name of the upstream.
        name: Arc<str>,
        /// The error of the resolver, the connection or the handshake.
        source: Arc<io::Error>,
    },
    /// It took longer than the endpoint's time-out.
    #[error("upstream {name}: connecting took longer than timeouts.upstreamConnect")]
    TimedOut {
        /// The name of the upstream.
        name: Arc<str>,
    },
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

    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    pub async fn dial(&self) -> Result<Dialed, DialError> {
        let name = || Arc::clone(self.endpoint.name());
        match timeout(self.endpoint.connect_timeout(), self.connect()).await {
            Ok(Ok(dialed)) => Ok(dialed),
            Ok(Err(error)) => Err(DialError::Io {
                name: name(),
                source: Arc::new(error),
            }),
            Err(_elapsed) => Err(DialError::TimedOut { name: name() }),
        }
    }

    async fn connect(&self) -> io::Result<Dialed> {
        let stream = TcpStream::connect(self.endpoint.address()).await?;
        set_up(&stream)?;
        let Some(tls) = self.endpoint.tls() else {
            return Ok(Dialed {
                socket: Socket::Plain(stream),
                negotiated: None,
            });
        };
        // Made for each connection, so that it has the certificates of this moment.
        let stream = TlsConnector::from(tls.offering(&self.protocols))
            .connect(tls.server_name(), stream)
            .await?;
        let chosen = stream.get_ref().1.alpn_protocol();
        let versions = [HttpVersion::Http1, HttpVersion::Http2];
        Ok(Dialed {
            negotiated: versions.into_iter().find(|v| chosen == Some(v.alpn())),
            socket: Socket::Tls(Box::new(stream.into())),
        })
    }
}
