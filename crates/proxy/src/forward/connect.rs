//! Opens connections for requests of clients.
//!
//! The dialer is [`fairgate_upstream`]'s. This adds what a pool needs: the HTTP version that the configuration
//! selects, and events for the metrics.

use std::sync::Arc;

use super::{
    UpstreamProtocol, UpstreamSettings,
    connection_event::{ConnectionEvent, OpenConnection},
};
use fairgate_base::socket::Socket;
use fairgate_upstream::{
    dial::{Dialer, HttpVersion},
    dial_error::DialError,
};

/// Why there is no connection for a request. Nothing has been sent.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// No connection could be opened.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The maximum number of connections is open.
    #[error("{url}: all connections are in use; raise upstream.maxConnections")]
    Full {
        /// The upstream: scheme, host and port.
        url: Arc<str>,
    },
    /// The HTTP handshake failed.
    #[error("{url}: {source}")]
    Http {
        /// The upstream: scheme, host and port.
        url: Arc<str>,
        /// The error of hyper.
        source: Arc<hyper::Error>,
    },
}

/// A new connection.
pub(super) struct NewConnection {
    pub(super) socket: Socket,
    /// The HTTP version to use on it.
    pub(super) version: HttpVersion,
    /// To be kept as long as the connection.
    pub(super) open: OpenConnection,
}

/// Opens connections.
pub(super) struct Connector {
    settings: Arc<UpstreamSettings>,
    /// Offers what the settings allow.
    any: Dialer,
    /// Offers only HTTP/1.1, for upgrades.
    http1: Dialer,
}

impl Connector {
    pub(super) fn new(settings: Arc<UpstreamSettings>) -> Self {
        let offer: &[HttpVersion] = match settings.protocol {
            UpstreamProtocol::Auto => &[HttpVersion::Http2, HttpVersion::Http1],
            UpstreamProtocol::Http1 => &[HttpVersion::Http1],
            UpstreamProtocol::Http2 => &[HttpVersion::Http2],
        };
        Self {
            any: Dialer::new(settings.endpoint.clone(), offer),
            http1: Dialer::new(settings.endpoint.clone(), &[HttpVersion::Http1]),
            settings,
        }
    }

    /// Opens a connection and determines its HTTP version. With `upgrade`, always HTTP/1.1.
    pub(super) async fn open(&self, upgrade: bool) -> Result<NewConnection, ConnectError> {
        let dialer = if upgrade { &self.http1 } else { &self.any };
        let dialed = match dialer.dial().await {
            Ok(dialed) => dialed,
            Err(error) => {
                self.settings.events.send(ConnectionEvent::NotOpened);
                return Err(error.into());
            }
        };
        let version = match dialed.negotiated {
            Some(version) => version,
            // Without ALPN, HTTP/2 is used only if the configuration says that the upstream supports it.
            None if self.settings.protocol == UpstreamProtocol::Http2 && !upgrade => {
                HttpVersion::Http2
            }
            None => HttpVersion::Http1,
        };
        Ok(NewConnection {
            socket: dialed.socket,
            version,
            open: OpenConnection::new(&self.settings.events),
        })
    }
}
