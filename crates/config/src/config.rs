//! All settings, ready to use: a [`Config`] and its sections.
//!
//! Not here: notations, ranges and defaults (`read`).

use std::{
    collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, sync::Arc,
    time::Duration,
};

use fairgate_core::apf::{Seats, objects::Bootstrap, policy::Semantics};
use fairgate_disruption::EvictionMode;

use crate::{
    admission::{AdmissionConfig, AdmissionSource},
    bearer_token::BearerTokenFile,
    etcd::EtcdConfig,
    fleet::FleetConfig,
    pem::{Authorities, CertificateAndKey},
    secret::Secret,
    url::UpstreamUrl,
};

/// All settings of a gateway, ready to use.
#[derive(Clone, Debug)]
pub struct Config {
    /// The source of the policy objects, and what the gateway serves itself.
    pub mode: GatewayMode,
    /// Where clients connect.
    pub listen: ListenConfig,
    /// Limits on what clients may use.
    pub limits: LimitsConfig,
    /// Time limits.
    pub timeouts: TimeoutsConfig,
    /// Cores that serve requests; `None`: all cores.
    pub data_cores: Option<NonZeroU32>,
    /// How clients authenticate.
    pub authentication: AuthenticationConfig,
    /// The API server behind the gateway.
    pub upstream: UpstreamConfig,
    /// Whether there is an upstream: always, except with mode `standalone` and no URL, or the default URL.
    pub has_upstream: bool,
    /// The API of the policy objects, if the gateway serves it.
    pub hosted_api: HostedApiConfig,
    /// The store of those objects.
    pub store: StoreConfig,
    /// Where the last good policies are kept for the next start; `None`: nowhere.
    pub state_directory: Option<PathBuf>,
    /// Priority and fairness.
    pub flow_control: FlowControlConfig,
    /// Gateways that share one limit.
    pub fleet: FleetConfig,
    /// Evictions of pods.
    pub eviction: EvictionConfig,
    /// Admission policies for forwarded requests.
    pub admission: AdmissionConfig,
    /// The admin port.
    pub admin: AdminConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Value of the metrics' `apiserver` label; never empty.
    pub apiserver: String,
    /// How the gateway stops.
    pub drain: DrainConfig,
    /// The effective value of each key, by its path; see [`Config::restart_needed_for`].
    pub(crate) effective: BTreeMap<String, String>,
    /// The value of each key as it is written, or its default, by its path; see [`Config::change`].
    pub(crate) written: BTreeMap<String, String>,
}

impl Config {
    /// Whether policies come from a source that may have errors, or may not respond, when the gateway starts. A store of the
    /// gateway's own has validated its objects.
    pub fn has_policies_to_keep(&self) -> bool {
        let flow_control = match self.mode {
            GatewayMode::Files => self.flow_control.policies.is_some(),
            GatewayMode::Sidecar => true,
            GatewayMode::Standalone | GatewayMode::Overlay => false,
        };
        let admission = &self.admission;
        flow_control || admission.mode.is_some() && admission.source == AdmissionSource::Files
    }
}

/// The source of the policy objects, and what the gateway serves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayMode {
    /// From files; all requests go to the upstream.
    Files,
    /// From the gateway's own API, with or without an upstream for all other requests.
    Standalone,
    /// From the gateway's own API, in the place of the upstream's.
    Overlay,
    /// From the upstream's API.
    Sidecar,
}

impl GatewayMode {
    /// Whether the gateway serves the API of the policy objects.
    pub fn hosts(self) -> bool {
        matches!(self, Self::Standalone | Self::Overlay)
    }
}

/// The API of the policy objects, if the gateway serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedApiConfig {
    /// The Kubernetes version that `/version` reports, such as `v1.36.3`.
    pub kubernetes_version: String,
    /// Groups whose members may read the objects, metrics and the results of rules reviews.
    pub reader_groups: Vec<String>,
    /// How long allow decisions of the upstream are cached, with mode `overlay`.
    pub authorized_ttl: Duration,
    /// How long deny decisions are cached.
    pub unauthorized_ttl: Duration,
    /// Memory for the bodies of requests, in bytes.
    pub body_budget: u64,
    /// The quotas of objects.
    pub quota: HostedQuotaConfig,
}

/// The quotas of hosted objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedQuotaConfig {
    /// The quota of each kind: the key below `hostedApi.quota`, which in lower case is the plural of the kind. For each
    /// namespace, if the kind has namespaces.
    pub kinds: Vec<(&'static str, ObjectQuota)>,
    /// The quota of all objects together.
    pub total: ObjectQuota,
}

/// The most objects, and the most bytes that they may take as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectQuota {
    /// The most objects; `None`: any number.
    pub objects: Option<u64>,
    /// The most bytes; `None`: any number.
    pub bytes: Option<u64>,
}

/// The store of the hosted objects.
#[derive(Clone, Debug)]
pub enum StoreConfig {
    /// In a file.
    Local {
        /// The path of the file.
        path: PathBuf,
    },
    /// In an etcd that several gateways share.
    Etcd(EtcdConfig),
}

/// Where clients connect.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The address and port to bind.
    pub address: SocketAddr,
    /// The serving certificate; `None`: plain HTTP.
    pub tls: Option<CertificateAndKey>,
}

/// Limits on what clients may use. All at least 1, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Concurrent client connections.
    pub connections: u32,
    /// Concurrent streams of one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Bytes of a request's header block.
    pub header_bytes: u32,
    /// Bytes that the unfinished header blocks of all clients may take in memory.
    pub unfinished_header_bytes: u32,
    /// Requests that wait for a seat, over all levels.
    pub queued_requests: u32,
    /// Long-running requests of one user, other than watches. They bypass flow control.
    pub long_running_per_user: u32,
    /// Long-running requests of all users, other than watches.
    pub long_running_total: u32,
    /// Watches of one user.
    pub watches_per_user: u32,
    /// Watches of all users.
    pub watches_total: u32,
    /// Bytes of one response that are buffered for a slow client. May be 0.
    pub spool_per_answer: u64,
    /// Bytes of all responses that are buffered for slow clients. May be 0.
    pub spool_total: u64,
    /// Bytes of all responses that the gateway makes itself, while they are in memory.
    pub response_budget: u64,
    /// The minimum read rate in bytes per second for a response that does not fit into the buffer, while
    /// no seat of its priority level is free. May be 0.
    pub min_read_rate: u64,
    /// Bytes that requests without a seat may take while their bodies arrive. May be 0.
    pub unfinished_body_bytes: u64,
    /// Bytes that clients of queued HTTP/2 requests may have sent of bodies that are not read.
    pub queued_body_bytes: u64,
    /// Bytes that heads of requests in progress may take beyond 8 KiB each.
    pub long_header_bytes: u64,
    /// Bytes that requests may take while their tokens are reviewed.
    pub token_review_bytes: u64,
    /// The minimum rate in bytes per second at which a client sends a body while its request holds a seat and no seat of its
    /// priority level is free. May be 0.
    pub min_send_rate: u64,
}

/// Time limits; all are greater than zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeoutsConfig {
    /// A client's TLS handshake.
    pub handshake: Duration,
    /// A client's request head.
    pub header_read: Duration,
    /// A client's connection without a request.
    pub idle: Duration,
    /// A request from its arrival to its response; a quarter of it is the longest wait in a queue.
    pub request: Duration,
    /// The gap between two bytes of the body of a request or response that is not long-running, and the time for which the client of
    /// a watch may not read.
    pub body_idle: Duration,
    /// The gap between two bytes of an upgraded connection, and the time for which the client of a long-running request that is not a
    /// watch may not read.
    pub tunnel_idle: Duration,
    /// Connecting to the upstream, TLS included.
    pub upstream_connect: Duration,
    /// An upstream connection without a request.
    pub upstream_idle: Duration,
}

/// How clients authenticate.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// CA certificates for client certificates; `None`: client certificates are not accepted.
    pub client_certificate: Option<Authorities>,
    /// A trusted front proxy; `None`: there is none.
    pub request_header: Option<RequestHeaderConfig>,
    /// The token file as read (CSV: token, user, uid, groups); `None`: no static tokens.
    pub token_file: Option<TokenFileConfig>,
    /// Review of bearer tokens by the upstream; `None`: disabled.
    pub token_review: Option<TokenReviewConfig>,
    /// Requests without a credential.
    pub anonymous: AnonymousConfig,
}

/// A trusted front proxy, and the headers in which it passes the client's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// CA certificates for the proxy's certificate.
    pub authorities: Authorities,
    /// Allowed common names of the proxy's certificate; empty: any.
    pub allowed_names: Vec<String>,
    /// Headers that may contain the user; the first one found wins. Lower case, as all others.
    pub username_headers: Vec<http::HeaderName>,
    /// Headers that may contain the uid.
    pub uid_headers: Vec<http::HeaderName>,
    /// Headers that contain a group each.
    pub group_headers: Vec<http::HeaderName>,
    /// Prefixes of headers with extra attributes.
    pub extra_header_prefixes: Vec<String>,
}

/// A static token file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFileConfig {
    /// The path of the file.
    pub path: PathBuf,
    /// The contents of the file, in CSV.
    pub contents: Secret<Arc<[u8]>>,
}

/// How tokens are reviewed, and how long the results are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReviewConfig {
    /// Requested audiences; empty: the upstream's own.
    pub audiences: Vec<String>,
    /// The time limit of one review.
    pub timeout: Duration,
    /// How long accepted tokens are cached; zero: not at all.
    pub cache_ttl: Duration,
    /// How long refused tokens are cached; zero: not at all.
    pub refusal_ttl: Duration,
}

/// Requests without a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnonymousConfig {
    /// All are refused.
    Refused,
    /// Allowed for exactly these decoded paths.
    Paths(Vec<String>),
    /// Allowed for all paths.
    Everywhere,
}

/// The API server behind the gateway.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// The URL of the upstream; of several servers that of the first.
    pub url: UpstreamUrl,
    /// Several servers; empty if there is only the one at `url`.
    pub servers: Vec<ServerConfig>,
    /// How requests are spread over several servers.
    pub spread: SpreadConfig,
    /// CA certificates that verify the upstream's certificate; always set with HTTPS.
    pub authorities: Option<Authorities>,
    /// The name for which the upstream's certificate must be valid, if not the host of the URL.
    pub tls_server_name: Option<String>,
    /// The gateway's own certificate.
    pub client_certificate: Option<CertificateAndKey>,
    /// The gateway's own bearer token.
    pub token: Option<BearerTokenFile>,
    /// How the client's identity is passed to the upstream.
    pub identity: UpstreamIdentityConfig,
    /// HTTP versions to use.
    pub protocol: ProtocolConfig,
    /// Concurrent streams of one HTTP/2 connection; at least 1.
    pub max_streams: u32,
    /// Concurrent HTTP/2 connections, for each kind of traffic.
    pub max_connections: u32,
}

/// One of several API servers.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its URL.
    pub url: UpstreamUrl,
    /// Its seats; `None` for an equal part of `flowControl.totalSeats`. Each address has them if `resolve` is set.
    pub seats: Option<u32>,
    /// Whether each address of its name is a server.
    pub resolve: bool,
    /// Whether it has CA certificates of its own, readable or not.
    pub has_authorities: bool,
    /// The CA certificates that verify its certificate, if not those of all servers.
    pub authorities: Option<Authorities>,
    /// The name for which its certificate must be valid, if not that of all servers, or the host of its URL.
    pub tls_server_name: Option<String>,
}

/// How requests are spread over several servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpreadConfig {
    /// The requests of a client's connection go to one server.
    #[default]
    Connection,
    /// Each request goes to the least loaded server.
    Request,
}

/// How the client's identity is passed to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamIdentityConfig {
    /// By `Impersonate-*` headers; RBAC limits which users the gateway can impersonate.
    Impersonate,
    /// As a front proxy; the holder of the gateway's certificate can act as any user.
    RequestHeader {
        /// The gateway's user name for requests in its own name; never empty.
        gateway_user: String,
        /// The header of the user.
        username: http::HeaderName,
        /// The header of the uid.
        uid: http::HeaderName,
        /// The header of each group.
        group: http::HeaderName,
        /// The prefix of headers with extra attributes.
        extra_prefix: String,
    },
}

/// HTTP versions used with the upstream.
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
    /// Whether decisions are enforced.
    pub enforcement: EnforcementConfig,
    /// Whether to fix or to reproduce known defects of kube-apiserver.
    pub semantics: Semantics,
    /// The server concurrency limit; at least 1.
    pub total_seats: Seats,
    /// What the flows of one tenant weigh together at most, where a flow weighs 1; at least 1.
    pub tenant_weight: u32,
    /// Key of the flow hash; `None`: drawn at random by the process.
    pub hash_key: Option<Secret<[u8; 16]>>,
    /// Which objects are built in.
    pub bootstrap: Bootstrap,
    /// A directory of policy objects; `None`: the bootstrap objects alone.
    pub policies: Option<PathBuf>,
    /// How often the limits of the priority levels are adjusted; not zero.
    pub borrowing_period: Duration,
}

/// Whether the decisions of flow control are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnforcementConfig {
    /// Requests wait and are rejected as decided.
    #[default]
    Enforce,
    /// Decisions are made and counted; no request waits.
    Observe,
    /// No decisions are made.
    Off,
}

/// Evictions of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionConfig {
    /// Who decides about evictions.
    pub mode: EvictionMode,
    /// Whether the gateway computes the status of budgets.
    pub controller: DisruptionControllerMode,
    /// How many requirements and values the selectors of the budgets of a namespace may have together.
    pub selector_terms: u32,
    /// Which evictions wait for their budgets.
    pub wait: EvictionWaitConfig,
}

/// Which evictions wait for their budgets instead of being refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionWaitConfig {
    /// The longest wait; zero: none.
    pub limit: Duration,
    /// Users whose evictions wait.
    pub users: Vec<String>,
    /// Groups whose members' evictions wait.
    pub groups: Vec<String>,
    /// Users whose evictions never wait.
    pub exempt_users: Vec<String>,
    /// The maximum number of evictions that wait for one budget.
    pub per_budget: u32,
    /// The maximum number of evictions that wait in total.
    pub total: u32,
    /// Whether an event on their budget says that evictions wait.
    pub events: bool,
}

/// Whether the gateway runs the disruption controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisruptionControllerMode {
    /// Somebody else computes the status of budgets.
    Off,
    /// This gateway does, or another one that has the lease.
    On,
}

/// The admin port: metrics, health checks and dumps in plain HTTP.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The address and port to bind.
    pub address: SocketAddr,
    /// Names by which clients may address it, besides `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// The same with TLS, authentication and authorization; `None`: not served.
    pub secure: Option<SecureAdminConfig>,
    /// The maximum number of flows of each priority level whose waiting requests and seats are metrics of their own.
    pub top_flows: u32,
}

/// The secure admin port: metrics, health checks and dumps for authenticated and authorized users.
#[derive(Clone, Debug)]
pub struct SecureAdminConfig {
    /// The address and port to bind.
    pub address: SocketAddr,
    /// The serving certificate; `None`: that of `listen.tls`.
    pub tls: Option<CertificateAndKey>,
}

/// What is logged, and how; to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The format of a line.
    pub format: LogFormat,
    /// The lowest severity that is logged.
    pub level: LogLevel,
    /// Whether there is a line for every request.
    pub access: bool,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The lowest severity that is logged.
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
    /// The time from becoming unready to closing the listener; may be zero.
    pub delay: Duration,
    /// How long requests in progress may continue after that; may be zero. The ends of watches are
    /// spread over its first half, at most 30 s.
    pub grace: Duration,
}
