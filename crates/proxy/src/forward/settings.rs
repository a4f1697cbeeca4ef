//! How the upstream is reached.

use std::{sync::Arc, time::Duration};

use http::uri::Authority;

use super::{ConnectionEvent, ConnectionLimit};
use fairgate_base::events::EventSink;
use fairgate_core::time::Time;
use fairgate_upstream::{
    dial::{IDLE_TIMEOUT, PING_INTERVAL, PING_TIMEOUT},
    endpoint::Endpoint,
    servers::UpstreamServers,
    tls::UpstreamTls,
};

/// The upstream's own timeout reply may be late by one part in so many of the time that a request had.
const GRACE_SHARE: u32 = 20;

/// How the upstream is reached. Shared by all cores.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// The address of the upstream, and how to connect to it.
    pub endpoint: Endpoint,
    /// The servers that requests are spread over, where there are several. `endpoint` is the first of them then.
    pub servers: Option<Arc<UpstreamServers>>,
    /// Which HTTP version to speak.
    pub protocol: UpstreamProtocol,
    /// How long after a request's deadline the gateway still waits at most for the upstream's own timeout reply: 5 s. It is
    /// never more than a twentieth of the time that the request had.
    pub deadline_grace: Duration,
    /// The longest pause within the response to an ordinary request: 60 s.
    pub silence: Duration,
    /// How long the stream of an abandoned request continues before it may be reset: 1 s, in which most responses
    /// end.
    pub abandoned_linger: Duration,
    /// How long a tunnel may be idle in both directions: 4 h.
    pub tunnel_idle: Duration,
    /// Streams that one HTTP/2 connection may have, even if the upstream allows more: 100.
    pub streams_per_connection: usize,
    /// Window of one HTTP/2 stream: 256 KiB.
    pub(crate) stream_window: u32,
    /// How many HTTP/2 connections there may be: 512 for each lane, all cores together. When all are full,
    /// long-running requests are refused, and others wait for a stream.
    pub connection_limit: Arc<ConnectionLimit>,
    /// How long an idle connection is kept: 60 s, less than the upstream's own 90 s.
    pub idle_timeout: Duration,
    /// How long an HTTP/2 connection may be silent before a `PING` is sent: 30 s.
    pub(crate) keep_alive_interval: Duration,
    /// How long the reply to the `PING` may take: 15 s.
    pub(crate) keep_alive_timeout: Duration,
    /// Largest head of a response: 1 MiB.
    pub head_bytes: u32,
    /// More headers that are removed from clients' requests: those from which the upstream reads an identity.
    pub reserved_headers: ReservedHeaders,
    /// Receives events of connections.
    pub events: EventSink<ConnectionEvent>,
}

/// Headers that only the gateway may send to the upstream, in addition to the well-known ones.
#[derive(Clone, Debug, Default)]
pub struct ReservedHeaders {
    names: Vec<Box<str>>,
    prefixes: Vec<Box<str>>,
}

impl ReservedHeaders {
    /// The headers of these names, and those whose names begin with one of these prefixes. The case of letters does
    /// not matter, and `_` and `-` count as the same character, since some servers treat the two alike.
    pub fn new<'a>(
        names: impl IntoIterator<Item = &'a str>,
        prefixes: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let folded = |name: &str| Box::from(name.to_ascii_lowercase().replace('_', "-"));
        Self {
            names: names.into_iter().map(folded).collect(),
            prefixes: prefixes.into_iter().map(folded).collect(),
        }
    }

    /// Whether a header of this name, in lower case and without `_`, is one of them.
    pub(super) fn contain(&self, name: &str) -> bool {
        self.names.iter().any(|reserved| name == &**reserved)
            || self
                .prefixes
                .iter()
                .any(|prefix| name.starts_with(&**prefix))
    }
}

/// Which HTTP version to speak upstream.
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
            servers: None,
            protocol: UpstreamProtocol::Auto,
            deadline_grace: Duration::from_secs(5),
            silence: Duration::from_secs(60),
            abandoned_linger: Duration::from_secs(1),
            tunnel_idle: Duration::from_secs(4 * 3600),
            streams_per_connection: 100,
            stream_window: 256 << 10,
            connection_limit: ConnectionLimit::new(512, 100),
            idle_timeout: IDLE_TIMEOUT,
            keep_alive_interval: PING_INTERVAL,
            keep_alive_timeout: PING_TIMEOUT,
            head_bytes: 1 << 20,
            reserved_headers: ReservedHeaders::default(),
            events: EventSink::default(),
        }
    }

    /// The same for one of the servers. Each has its own limit of connections.
    pub(super) fn of_server(&self, endpoint: &Endpoint) -> Self {
        Self {
            endpoint: endpoint.clone(),
            servers: None,
            connection_limit: self.connection_limit.of_server(endpoint.name()),
            ..self.clone()
        }
    }

    /// How long the upstream may take to begin its reply to a request that was received at `received`.
    pub(super) fn wait_until(&self, received: Time, deadline: Time) -> Time {
        let share = deadline.since(received) / GRACE_SHARE;
        deadline.plus(self.deadline_grace.min(share))
    }

    /// The window of a connection: the windows of all its streams together, as far as HTTP/2 allows.
    pub(crate) fn connection_window(&self) -> u32 {
        let streams = u32::try_from(self.streams_per_connection).unwrap_or(u32::MAX);
        self.stream_window
            .saturating_mul(streams)
            .min(i32::MAX as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_limit_is_exceeded_by_a_twentieth_and_a_long_one_by_five_seconds() {
        let settings = UpstreamSettings::new(Authority::from_static("127.0.0.1:1"), None);
        let received = Time::ZERO.plus(Duration::from_secs(7));
        for (limit, late) in [(500, 25), (4_000, 200), (60_000, 3_000), (600_000, 5_000)] {
            let deadline = received.plus(Duration::from_millis(limit));
            let until = settings.wait_until(received, deadline);
            assert_eq!(
                until.since(deadline),
                Duration::from_millis(late),
                "{limit}"
            );
        }
    }
}
