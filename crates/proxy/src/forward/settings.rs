//! How the upstream is reached.

use std::{sync::Arc, time::Duration};

use http::uri::Authority;

use super::{ConnectionEvent, ConnectionLimit};
use fairgate_base::events::EventSink;
use fairgate_upstream::{
    dial::{IDLE_TIMEOUT, PING_INTERVAL, PING_TIMEOUT},
    endpoint::Endpoint,
    tls::UpstreamTls,
};

/// How the upstream is reached. Shared by all cores.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Which HTTP to speak.
    pub protocol: UpstreamProtocol,
    /// How long after a request's deadline the upstream's own time-out may still come: 5 s.
    pub deadline_grace: Duration,
    /// Longest silence inside the answer of an ordinary request: 60 s.
    pub silence: Duration,
    /// Longest silence of a tunnel, both ways: 4 h.
    pub tunnel_idle: Duration,
    /// Streams one HTTP/2 connection is given at most, whatever the upstream allows: 100.
    pub streams_per_connection: usize,
    /// Bytes one stream may hold unread: 256 KiB.
    pub stream_window: u32,
    /// How many HTTP/2 connections there may be: 512 for each lane, all cores together. When all are full,
    /// long-running requests are refused, and others wait for a stream.
    pub connection_limit: Arc<ConnectionLimit>,
    /// How long an unused connection is kept; below the upstream's own 90 s: 60 s.
    pub idle_timeout: Duration,
    /// Silence after which an HTTP/2 connection is asked for a sign of life: 30 s.
    pub keep_alive_interval: Duration,
    /// How long that may take: 15 s.
    pub keep_alive_timeout: Duration,
    /// Largest answer head: 1 MiB.
    pub head_bytes: u32,
    /// Whether the addresses in a client's `X-Forwarded-For` are believed, and ours appended.
    pub trust_forwarded: bool,
    /// Further header names to strip from clients, lower-case: those the upstream reads identity from.
    pub reserved_headers: Vec<String>,
    /// Hears of connections.
    pub events: EventSink<ConnectionEvent>,
}

/// Which HTTP to speak upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/2 if TLS negotiates it, else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; on a plain connection without negotiation.
    Http2,
}

impl UpstreamSettings {
    /// Defaults for an upstream at `authority` (`host:port`; the port defaults to 443 or 80).
    pub fn new(authority: Authority, tls: Option<UpstreamTls>) -> Self {
        Self::at(Endpoint::new(authority, tls))
    }

    /// Defaults for this upstream.
    pub fn at(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            protocol: UpstreamProtocol::Auto,
            deadline_grace: Duration::from_secs(5),
            silence: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(4 * 3600),
            streams_per_connection: 100,
            stream_window: 256 << 10,
            connection_limit: ConnectionLimit::new(512, 100),
            idle_timeout: IDLE_TIMEOUT,
            keep_alive_interval: PING_INTERVAL,
            keep_alive_timeout: PING_TIMEOUT,
            head_bytes: 1 << 20,
            trust_forwarded: false,
            reserved_headers: Vec::new(),
            events: EventSink::default(),
        }
    }

    /// Room for every stream's window, as far as HTTP/2 allows.
    pub(crate) fn connection_window(&self) -> u32 {
        let streams = u32::try_from(self.streams_per_connection).unwrap_or(u32::MAX);
        self.stream_window
            .saturating_mul(streams)
            .min(i32::MAX as u32)
    }
}
