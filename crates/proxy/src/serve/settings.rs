//! How clients are served.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use super::ClientEvent;
use fairgate_base::events::EventSink;
use fairgate_call::ResetLimits;

/// How clients are served. Defaults are the API server's own where it has any.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// Where to listen: 127.0.0.1:6443.
    pub listen: SocketAddr,
    /// TLS, unless plain. See [`super::tls::server_config`].
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Client connections in all; beyond, they wait in the kernel's queue: 16384.
    pub connections: usize,
    /// Requests at a time on one HTTP/2 connection: 250.
    pub streams_per_connection: u32,
    /// Largest request head: 1 MiB.
    pub head_bytes: usize,
    /// Memory that the unfinished heads of all clients may take together, beyond 8 KiB of each:
    /// 64 MiB.
    pub unfinished_head_bytes: usize,
    /// Most header lines of a request: 512.
    pub header_lines: usize,
    /// Time to shake hands: 10 s.
    pub handshake_timeout: Duration,
    /// Time to send a whole request head, once begun: 32 s.
    pub head_timeout: Duration,
    /// How long a connection may be idle: 120 s. At least the 90 s for which clients keep theirs.
    pub idle_timeout: Duration,
    /// How long a client may refuse to take what is ready for it: 60 s.
    pub stall_timeout: Duration,
    /// Silence after which an HTTP/2 client is asked for a sign of life: 30 s.
    pub keep_alive_interval: Duration,
    /// How long that may take: 15 s.
    pub keep_alive_timeout: Duration,
    /// Bytes of waiting requests' bodies a core may hold: 64 MiB.
    pub read_ahead_bytes: usize,
    /// Bytes of one waiting request's body, always: 3 MiB, what the API server takes at most.
    pub read_ahead_small_bytes: usize,
    /// Bytes of one waiting request's body, while the core's total is not half used: 16 MiB.
    pub read_ahead_large_bytes: usize,
    /// How many requests a connection may reset before they are answered.
    pub resets: ResetLimits,
    /// Hears what is done about clients.
    pub events: EventSink<ClientEvent>,
    /// See [`DrainSettings`].
    pub drain: DrainSettings,
}

/// How the gateway ends.
#[derive(Clone, Copy, Debug)]
pub struct DrainSettings {
    /// How long to go on as before, not ready any more, for load balancers to notice: 0 s.
    pub delay: Duration,
    /// Over how long the ends of watches are spread: 10 s.
    pub watch_spread: Duration,
    /// How long idle HTTP/1 connections may still bring one more request: 1 s.
    pub idle_grace: Duration,
    /// When everything ends, counted from the end of `delay`: 60 s.
    pub limit: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6443)),
            tls: None,
            connections: 16_384,
            streams_per_connection: 250,
            head_bytes: 1 << 20,
            unfinished_head_bytes: 64 << 20,
            header_lines: 512,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(120),
            stall_timeout: Duration::from_secs(60),
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(15),
            read_ahead_bytes: 64 << 20,
            read_ahead_small_bytes: 3 << 20,
            read_ahead_large_bytes: 16 << 20,
            resets: ResetLimits::PER_CONNECTION,
            events: EventSink::default(),
            drain: DrainSettings::default(),
        }
    }
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            watch_spread: Duration::from_secs(10),
            idle_grace: Duration::from_secs(1),
            limit: Duration::from_secs(60),
        }
    }
}
