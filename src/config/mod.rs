//! Settings: a file becomes a [`Config`], or a list of everything wrong with it.
//!
//! The file is a Kubernetes-style object (`apiVersion: fairgate.dev/v1alpha1`, `kind:
//! Configuration`). It is taken in two steps: the file as written, walked key by key so that all
//! mistakes are told at once, then a [`Config`] ready to use, with its certificates and keys read.
//! Defaults live in `read` and nowhere else. Without a file the defaults apply and nothing is
//! picked up from the working directory.
//!
//! A key that is absent or `null` has its default; an empty path or text means "none". Relative
//! paths begin at the file's own directory. No secret is printed, not even in a debug print.
//!
//! Not here: the policy objects, which come from a [`crate::source`].

mod error;
mod pem;
mod read;
mod secret;
mod section;
mod url;
mod validate;
mod values;

use std::{
    collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, sync::Arc,
    time::Duration,
};

pub use error::ConfigError;
pub use pem::{Authorities, CertificateAndKey};
pub use read::ConfigReading;
pub use secret::Secret;

use fairgate_core::apf::{Seats, objects::Bootstrap, policy::Semantics};

/// All settings of a gateway, ready to use.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where policy objects come from, and what is answered here.
    pub mode: GatewayMode,
    /// Where clients connect.
    pub listen: ListenConfig,
    /// Bounds on what clients may use.
    pub limits: LimitsConfig,
    /// How long things may take.
    pub timeouts: TimeoutsConfig,
    /// Cores that serve requests; `None`: every core there is.
    pub data_cores: Option<NonZeroU32>,
    /// How clients prove who they are.
    pub authentication: AuthenticationConfig,
    /// The API server behind the gateway.
    pub upstream: UpstreamConfig,
    /// Whether there is one: not behind a standalone gateway that names none.
    pub has_upstream: bool,
    /// The API of the policy objects, where it is answered here.
    pub hosted_api: HostedApiConfig,
    /// Where those objects are kept.
    pub store: StoreConfig,
    /// Priority and fairness.
    pub flow_control: FlowControlConfig,
    /// The port for operators.
    pub admin: AdminConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Value of the metrics' `apiserver` label; never empty.
    pub apiserver: String,
    /// How the gateway stops.
    pub drain: DrainConfig,
    /// Every key's path with its value in effect; see [`Config::restart_needed_for`].
    effective: BTreeMap<String, String>,
}

/// Where policy objects come from, and what is answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayMode {
    /// From files; every request goes upstream.
    Files,
    /// From the gateway's own API, with or without an upstream for the rest.
    Standalone,
    /// From the gateway's own API, which takes the place of the upstream's.
    Overlay,
    /// From the upstream's API.
    Sidecar,
}

impl GatewayMode {
    /// Whether the API of the policy objects is answered here.
    pub fn hosts(self) -> bool {
        matches!(self, Self::Standalone | Self::Overlay)
    }
}

/// The API of the policy objects, where it is answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedApiConfig {
    /// The version of Kubernetes that `/version` claims, such as `v1.36.3`.
    pub kubernetes_version: String,
    /// Groups whose members read the objects, metrics and lists of rights.
    pub reader_groups: Vec<String>,
    /// How long the upstream's leave holds, where it is asked who may do what.
    pub authorized_ttl: Duration,
    /// How long its refusal holds.
    pub unauthorized_ttl: Duration,
}

/// Where hosted objects are kept.
#[derive(Clone, Debug)]
pub enum StoreConfig {
    /// In a file.
    Local {
        /// The file.
        path: PathBuf,
    },
    /// In an etcd that several gateways share.
    Etcd(EtcdConfig),
}

/// How an etcd is reached.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// `http://` or `https://` addresses of its members; not empty.
    pub endpoints: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// Authorities (PEM) of the members' certificates.
    pub authorities_pem: Option<Vec<u8>>,
    /// The gateway's own certificate and key (PEM).
    pub client_pem: Option<(Vec<u8>, Secret<Vec<u8>>)>,
    /// User and password.
    pub user: Option<(String, Secret<String>)>,
    /// Whether the gateway drops the cluster's old history.
    pub compaction: bool,
}

/// Where clients connect.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The address and port to bind.
    pub address: SocketAddr,
    /// The serving certificate; `None`: plain HTTP.
    pub tls: Option<CertificateAndKey>,
}

/// Bounds on what clients may use. All at least 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Client connections at once.
    pub connections: u32,
    /// Concurrent streams of one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Bytes of a request's header block.
    pub header_bytes: u32,
    /// Bytes that the unfinished header blocks of all clients may take in memory.
    pub unfinished_header_bytes: u32,
    /// Requests that wait for a seat, over all levels.
    pub queued_requests: u32,
    /// Long-running requests other than watches, which no level holds back, of one user.
    pub long_running_per_user: u32,
    /// The same, of all users.
    pub long_running_total: u32,
    /// Watches of one user.
    pub watches_per_user: u32,
    /// Watches of all users.
    pub watches_total: u32,
    /// Bytes of one answer that are read ahead of a client that reads slowly. May be 0.
    pub spool_per_answer: u64,
    /// The same, of all answers. May be 0.
    pub spool_total: u64,
    /// Bytes a second that a client has to read of an answer that does not fit, while no seat of its
    /// level is free. May be 0.
    pub min_read_rate: u64,
}

/// How long things may take. None is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeoutsConfig {
    /// A client's TLS handshake.
    pub handshake: Duration,
    /// A client's request head.
    pub header_read: Duration,
    /// A client's connection without a request.
    pub idle: Duration,
    /// A request from its arrival to its answer; a quarter of it is the longest wait in a queue.
    pub request: Duration,
    /// The gap between two bytes of the body of an ordinary request or answer, either way.
    pub body_idle: Duration,
    /// The gap between two bytes of an upgraded connection.
    pub tunnel_idle: Duration,
    /// Connecting to the upstream, TLS included.
    pub upstream_connect: Duration,
    /// An upstream connection without a request.
    pub upstream_idle: Duration,
}

/// How clients prove who they are.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// Authorities of client certificates; `None`: certificates are no credential.
    pub client_certificate: Option<Authorities>,
    /// Another proxy's word for its clients; `None`: nobody's.
    pub request_header: Option<RequestHeaderConfig>,
    /// The token file as read (CSV: token, user, uid, groups); `None`: no static tokens.
    pub token_file: Option<TokenFileConfig>,
    /// Asking the upstream who a bearer token belongs to; `None`: not done.
    pub token_review: Option<TokenReviewConfig>,
    /// Who may come without a credential.
    pub anonymous: AnonymousConfig,
}

/// Whose word for a client is taken, and in which headers it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// Authorities of the proxy's certificate.
    pub authorities: Authorities,
    /// Common names the proxy's certificate may have; empty: any.
    pub allowed_names: Vec<String>,
    /// Headers that may hold the user, first one found wins; lower case, as all that follow.
    pub username_headers: Vec<http::HeaderName>,
    /// Headers that may hold the uid.
    pub uid_headers: Vec<http::HeaderName>,
    /// Headers that hold a group each.
    pub group_headers: Vec<http::HeaderName>,
    /// What the names of headers with further attributes begin with.
    pub extra_header_prefixes: Vec<String>,
}

/// A static token file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFileConfig {
    /// Where it was read.
    pub path: PathBuf,
    /// What it holds.
    pub contents: Secret<Arc<[u8]>>,
}

/// How a `TokenReview` is made, and how long its answer is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReviewConfig {
    /// Audiences asked for; empty: the upstream's own.
    pub audiences: Vec<String>,
    /// How long one may take.
    pub timeout: Duration,
    /// How long a yes is remembered; zero: not at all.
    pub cache_ttl: Duration,
    /// How long a no is remembered; zero: not at all.
    pub refusal_ttl: Duration,
}

/// Who may come without a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnonymousConfig {
    /// Nobody.
    Refused,
    /// Whoever asks for exactly one of these decoded paths.
    Paths(Vec<String>),
    /// Everybody.
    Everywhere,
}

/// The API server behind the gateway.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Where it is.
    pub url: UpstreamUrl,
    /// Authorities of its serving certificate; always there with HTTPS.
    pub authorities: Option<Authorities>,
    /// The name its certificate must bear.
    pub tls_server_name: Option<String>,
    /// The gateway's own certificate.
    pub client_certificate: Option<CertificateAndKey>,
    /// A file with the gateway's own bearer token. Such tokens expire: read it again every minute.
    pub token_file: Option<PathBuf>,
    /// How it is told who the client is.
    pub identity: UpstreamIdentityConfig,
    /// HTTP versions to speak.
    pub protocol: ProtocolConfig,
    /// Concurrent streams of one HTTP/2 connection; at least 1.
    pub max_streams: u32,
    /// HTTP/2 connections at once, for each kind of traffic.
    pub max_connections: u32,
}

/// An upstream's address; no path, no user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// HTTPS rather than HTTP.
    pub tls: bool,
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// Given, or the scheme's own.
    pub port: u16,
}

/// How the upstream is told who the client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamIdentityConfig {
    /// By `Impersonate-*`; the gateway's power is bounded by RBAC.
    Impersonate,
    /// As a front proxy; the gateway's certificate can name any user.
    RequestHeader {
        /// Who the gateway itself is, for what it asks in its own name; never empty.
        gateway_user: String,
        /// Header of the user.
        username: http::HeaderName,
        /// Header of the uid.
        uid: http::HeaderName,
        /// Header of each group.
        group: http::HeaderName,
        /// What the names of headers with further attributes begin with.
        extra_prefix: String,
    },
}

/// HTTP versions spoken to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtocolConfig {
    /// HTTP/2 where TLS offers it, else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only, also without TLS.
    Http2,
}

/// Priority and fairness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowControlConfig {
    /// Whether decisions are kept to.
    pub enforcement: EnforcementConfig,
    /// Whose behaviour to follow where the original is known to be wrong.
    pub semantics: Semantics,
    /// The server concurrency limit; at least 1.
    pub total_seats: Seats,
    /// Key of the flow hash; `None`: drawn at random by the process.
    pub hash_key: Option<Secret<[u8; 16]>>,
    /// Which objects are built in.
    pub bootstrap: Bootstrap,
    /// A directory of policy objects; `None`: the bootstrap objects alone.
    pub policies: Option<PathBuf>,
    /// How often the levels' limits are balanced; not zero.
    pub borrowing_period: Duration,
}

/// Whether the decisions of flow control are kept to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnforcementConfig {
    /// Requests wait and are refused as decided.
    #[default]
    Enforce,
    /// Decisions are made and counted; no request waits.
    Observe,
    /// No decisions are made.
    Off,
}

/// The port for operators: metrics, health, dumps; plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address and port to bind.
    pub address: SocketAddr,
}

/// What is logged, and how; to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The form of a line.
    pub format: LogFormat,
    /// The least grave events that are logged.
    pub level: LogLevel,
    /// Whether there is a line for every request.
    pub access: bool,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The least grave events that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words say it")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// How the gateway stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// From turning unready to closing the listener; may be zero.
    pub delay: Duration,
    /// How long running requests may go on after that; watches end spread over it. May be zero.
    pub grace: Duration,
}

/// The keys that a reload applies; all others need a restart.
const APPLIED_BY_RELOAD: [&str; 12] = [
    "authentication.clientCertificate.caFile",
    "authentication.requestHeader.allowedNames",
    "authentication.requestHeader.caFile",
    "authentication.tokenFile",
    "flowControl.borrowingPeriod",
    "flowControl.enforcement",
    "flowControl.policies.directory",
    "flowControl.semantics",
    "flowControl.totalSeats",
    "limits.minReadRate",
    "limits.spoolPerAnswer",
    "limits.spoolTotal",
];

/// A key of the configuration, for its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigKey {
    /// The full path, such as `limits.connections`.
    pub path: String,
    /// How its value is written, such as `duration`; a list of words where there are few.
    pub notation: String,
    /// The least and the greatest value, where it has bounds.
    pub range: Option<String>,
    /// Whether a reload applies it; otherwise it needs a restart.
    pub reload: bool,
}

impl Config {
    /// All keys, in alphabetical order.
    pub fn keys() -> Vec<ConfigKey> {
        let notations = read::notations().into_iter();
        let key = |(path, (notation, range)): (String, _)| ConfigKey {
            reload: APPLIED_BY_RELOAD.contains(&path.as_str()),
            path,
            notation,
            range,
        };
        notations.map(key).collect()
    }

    /// The keys that differ in `new` and that a reload does not apply, in the order of the alphabet.
    ///
    /// A file whose content alone has changed counts as its key.
    pub fn restart_needed_for(&self, new: &Self) -> Vec<String> {
        let mut keys: Vec<String> = self
            .effective
            .iter()
            .filter(|(key, value)| new.effective.get(*key) != Some(value))
            .chain(
                new.effective
                    .iter()
                    .filter(|(key, _)| !self.effective.contains_key(*key)),
            )
            .map(|(key, _)| key.trim_end_matches(" (content)").to_owned())
            .filter(|key| !APPLIED_BY_RELOAD.contains(&key.as_str()))
            .collect();
        if self.flow_control.hash_key != new.flow_control.hash_key {
            keys.push("flowControl.hashKey".to_owned());
        }
        keys.sort();
        keys.dedup();
        keys
    }
}

#[cfg(test)]
mod tests;
