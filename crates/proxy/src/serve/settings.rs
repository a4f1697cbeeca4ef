//! Settings of client connections, and of the shutdown.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use super::{ClientEvent, tls::ServingTls};
use fairgate_base::{account::ByteBudget, events::EventSink};
use fairgate_call::ResetLimits;

/// Settings of client connections. Defaults are those of kube-apiserver where it has any.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// Where to listen: 127.0.0.1:6443.
    pub listen: SocketAddr,
    /// TLS; `None` for plain connections.
    pub tls: Option<ServingTls>,
    /// Client connections in total; further ones wait in the kernel's queue: 16384.
    pub connections: usize,
    /// Connections from one address, or from one IPv6 network of 64 bits; further ones are closed: no limit, since clients
    /// behind a load balancer can have one address.
    pub connections_per_address: Option<usize>,
    /// Concurrent requests on one HTTP/2 connection: 250.
    pub streams_per_connection: u32,
    /// Largest request head: 1 MiB.
    pub head_bytes: usize,
    /// Memory that the unfinished heads of all clients may take together, not counting the first 8 KiB of each:
    /// 64 MiB.
    pub unfinished_head_bytes: usize,
    /// The most header lines that a request may have: 512.
    pub header_lines: usize,
    /// Time for the TLS handshake: 10 s.
    pub handshake_timeout: Duration,
    /// Time to send a complete request head, from its first byte: 32 s.
    pub head_timeout: Duration,
    /// How long a connection may be idle: 120 s. At least the 90 s for which clients keep theirs.
    pub idle_timeout: Duration,
    /// After so long without a request, an HTTP/1 connection keeps its socket and no buffers: 5 s. At least a
    /// millisecond.
    pub park_after: Duration,
    /// How long a client may leave data unread that is ready for it: 60 s.
    pub stall_timeout: Duration,
    /// The same for tunnels, logs and other long-running requests except watches, which users pause: 4 h.
    pub pause_timeout: Duration,
    /// How long an HTTP/2 client may be silent before a `PING` is sent: 30 s.
    pub keep_alive_interval: Duration,
    /// How long the reply to the `PING` may take: 15 s.
    pub keep_alive_timeout: Duration,
    /// Bytes of queued requests' bodies that a core may hold: 64 MiB.
    pub read_ahead_bytes: usize,
    /// Bytes of one queued request's body: 3 MiB, the most that kube-apiserver accepts.
    pub read_ahead_small_bytes: usize,
    /// Bytes of one queued request's body while less than half of the core's total is used: 16 MiB.
    pub read_ahead_large_bytes: usize,
    /// What clients may have sent of the bodies of queued HTTP/2 requests that are not read, in all cores together: 128 MiB (`limits.queuedBodyBytes`).
    pub stream_windows: Arc<ByteBudget>,
    /// How many requests a connection may reset before their replies begin.
    pub resets: ResetLimits,
    /// Receives events of client connections.
    pub events: EventSink<ClientEvent>,
    /// See [`DrainSettings`].
    pub drain: DrainSettings,
}

/// Settings of the shutdown.
#[derive(Clone, Copy, Debug)]
pub struct DrainSettings {
    /// How long to keep serving while not ready, so that load balancers notice: 0 s.
    pub delay: Duration,
    /// The time over which the ends of watches are spread: 10 s.
    pub watch_spread: Duration,
    /// How long idle HTTP/1 connections may still send another request: 1 s.
    pub idle_grace: Duration,
    /// When all connections are closed, counted from the end of `delay`: 60 s.
    pub limit: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6443)),
            tls: None,
            connections: 16_384,
            connections_per_address: None,
            streams_per_connection: 250,
            head_bytes: 1 << 20,
            unfinished_head_bytes: 64 << 20,
            header_lines: 512,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(120),
            park_after: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(60),
            pause_timeout: Duration::from_secs(4 * 3600),
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(15),
            read_ahead_bytes: 64 << 20,
            read_ahead_small_bytes: 3 << 20,
            read_ahead_large_bytes: 16 << 20,
            stream_windows: ByteBudget::new(128 << 20),
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
