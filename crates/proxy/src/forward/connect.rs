//! Opens connections to the upstream.

use std::{io, sync::Arc};

use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{
    UpstreamProtocol, UpstreamSettings,
    connection_event::{ConnectionEvent, OpenConnection},
    tls::offering,
};
use fairgate_base::socket::{Socket, set_up};

/// Why no connection could be opened. Nothing has been sent.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// Resolving the name, connecting or shaking hands failed.
    #[error("upstream {name}: {source}")]
    Io {
        /// The upstream.
        name: Arc<str>,
        /// What went wrong.
        source: Arc<io::Error>,
    },
    /// It took too long.
    #[error("upstream {name}: connecting took longer than upstream.connectTimeout")]
    TooSlow {
        /// The upstream.
        name: Arc<str>,
    },
    /// There are as many as there may be.
    #[error("upstream {name}: its connections are full; raise upstream.maxConnections")]
    Full {
        /// The upstream.
        name: Arc<str>,
    },
    /// HTTP could not be agreed upon.
    #[error("upstream {name}: {source}")]
    Http {
        /// The upstream.
        name: Arc<str>,
        /// What went wrong.
        source: Arc<hyper::Error>,
    },
}

/// What a new connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    Http1,
    Http2,
}

/// A new connection.
pub(super) struct Opened {
    pub(super) socket: Socket,
    pub(super) spoken: Spoken,
    /// To be kept as long as the connection.
    pub(super) open: OpenConnection,
}

/// Opens connections.
pub(super) struct Connector {
    settings: Arc<UpstreamSettings>,
    /// Offers what the settings allow.
    any: Option<Arc<ClientConfig>>,
    /// Offers HTTP/1.1 alone, for upgrades.
    http1: Option<Arc<ClientConfig>>,
}

impl Connector {
    pub(super) fn new(settings: Arc<UpstreamSettings>) -> Self {
        let offer: &[&[u8]] = match settings.protocol {
            UpstreamProtocol::Auto => &[b"h2", b"http/1.1"],
            UpstreamProtocol::Http1 => &[b"http/1.1"],
            UpstreamProtocol::Http2 => &[b"h2"],
        };
        let tls = settings.tls.as_ref();
        Self {
            any: tls.map(|tls| offering(&tls.config, offer)),
            http1: tls.map(|tls| offering(&tls.config, &[b"http/1.1"])),
            settings,
        }
    }

    /// Opens a connection and says what to speak on it. With `upgrade`, always HTTP/1.1.
    pub(super) async fn open(&self, upgrade: bool) -> Result<Opened, ConnectError> {
        let name = || self.settings.name.clone();
        let opened = self.try_open(upgrade);
        let error = match tokio::time::timeout(self.settings.connect_timeout, opened).await {
            Ok(Ok((socket, spoken))) => {
                return Ok(Opened {
                    socket,
                    spoken,
                    open: OpenConnection::new(&self.settings.events),
                });
            }
            Ok(Err(error)) => ConnectError::Io {
                name: name(),
                source: Arc::new(error),
            },
            Err(_) => ConnectError::TooSlow { name: name() },
        };
        self.settings.events.send(ConnectionEvent::NotOpened);
        Err(error)
    }

    async fn try_open(&self, upgrade: bool) -> io::Result<(Socket, Spoken)> {
        let settings = &*self.settings;
        let stream = TcpStream::connect((settings.host.as_str(), settings.port)).await?;
        set_up(&stream)?;
        let config = if upgrade { &self.http1 } else { &self.any };
        let (Some(config), Some(tls)) = (config, &settings.tls) else {
            let spoken = match settings.protocol {
                UpstreamProtocol::Http2 if !upgrade => Spoken::Http2,
                _ => Spoken::Http1,
            };
            return Ok((Socket::Plain(stream), spoken));
        };
        let stream = TlsConnector::from(config.clone())
            .connect(tls.server_name.clone(), stream)
            .await?;
        let spoken = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Spoken::Http2,
            None if settings.protocol == UpstreamProtocol::Http2 && !upgrade => Spoken::Http2,
            _ => Spoken::Http1,
        };
        Ok((Socket::Tls(Box::new(stream.into())), spoken))
    }
}
