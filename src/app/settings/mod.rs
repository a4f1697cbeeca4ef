//! Translates the configuration into the settings of each module.

#[cfg(feature = "etcd")]
pub(super) mod etcd;
pub(super) mod identity;
pub(super) mod settings_error;

use std::{num::NonZero, sync::Arc, time::Duration};

use http::{HeaderMap, header::AUTHORIZATION, uri::Authority};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::{ClientConfig, DistinguishedName, pki_types::ServerName};
use tokio::runtime;
use tracing::level_filters::LevelFilter;

use self::{identity::UpstreamCredential, settings_error::SettingsError};
use fairgate_base::{account::ByteBudget, clock::Clock, events::EventSink};
use fairgate_call::{ResetLimits, SpoolLimits};
use fairgate_config::{self as config, Config};
use fairgate_core::apf::{PolicySettings, work::EstimatorSettings};
use fairgate_observe::log::LogSettings;
use fairgate_proxy::{
    auth::{
        AnonymousAccess, AuthSettings, Authenticator, CaBundle, ConfiguredNames,
        FrontProxySettings, NoRandomness, RequestHeaderNames, TokenKey, TokenReviews, TokenTable,
        UpstreamIdentity, layer::AuthRules,
    },
    fairness::{BodyLimits, Caps, Enforcement, FlowControlSettings},
    forward::{ConnectionLimit, ReservedHeaders, UpstreamProtocol, UpstreamSettings},
    serve::{
        DrainSettings, ServeSettings,
        tls::{ServingCertificate, ServingTls},
    },
};
use fairgate_upstream::{
    client::{ApiClient, ConnectionReuse, HeaderSource},
    endpoint::Endpoint,
    lookup::LookupOutcome,
    review::ReviewClient,
    servers::{ConfiguredServer, Spread},
    target::UpstreamTarget,
    tls::{self, UpstreamTls},
    token_review::TokenReviewSettings,
};

/// The key of the flow hash: as configured, or drawn at random.
pub(super) fn hash_key(config: &Config) -> Result<[u8; 16], SettingsError> {
    if let Some(key) = &config.flow_control.hash_key {
        return Ok(**key);
    }
    let mut key = [0; 16];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| NoRandomness)?;
    Ok(key)
}

/// The error of an etcd in a build without; validation of the configuration refuses it earlier.
#[cfg(not(feature = "etcd"))]
pub(super) fn without_etcd() -> fairgate_store::StoreError {
    fairgate_store::StoreError::Failed("this fairgate was built without etcd".to_owned())
}

/// A random number, from the random keys of the standard library's hasher.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish()
}

pub(super) fn cores(config: &Config) -> NonZero<usize> {
    let configured = config
        .data_cores
        .and_then(|n| NonZero::new(n.get() as usize));
    configured
        .or_else(|| std::thread::available_parallelism().ok())
        .unwrap_or(NonZero::<usize>::MIN)
}

/// What is logged, and how.
pub(super) fn log(config: &config::LogConfig) -> LogSettings {
    LogSettings {
        level: match config.level {
            config::LogLevel::Error => LevelFilter::ERROR,
            config::LogLevel::Warn => LevelFilter::WARN,
            config::LogLevel::Info => LevelFilter::INFO,
            config::LogLevel::Debug => LevelFilter::DEBUG,
            config::LogLevel::Trace => LevelFilter::TRACE,
        },
        json: config.format == config::LogFormat::Json,
        access: config.access,
    }
}

pub(super) fn policy(config: &Config, hash_key: [u8; 16]) -> PolicySettings {
    PolicySettings {
        total_seats: config.flow_control.total_seats,
        semantics: config.flow_control.semantics,
        hash_key,
        tenant_weight: config.flow_control.tenant_weight,
    }
}

pub(super) fn flow_control(config: &Config) -> FlowControlSettings {
    FlowControlSettings {
        enforcement: match config.flow_control.enforcement {
            config::EnforcementConfig::Enforce => Enforcement::Enforce,
            config::EnforcementConfig::Observe => Enforcement::Observe,
            config::EnforcementConfig::Off => Enforcement::Off,
        },
        request_timeout: config.timeouts.request,
        max_queued: config.limits.queued_requests,
        borrowing_period: config.flow_control.borrowing_period,
        estimator: EstimatorSettings {
            semantics: config.flow_control.semantics,
            ..EstimatorSettings::default()
        },
        long_running: Caps {
            per_user: config.limits.long_running_per_user,
            total: config.limits.long_running_total,
        },
        watches: Caps {
            per_user: config.limits.watches_per_user,
            total: config.limits.watches_total,
        },
        resets: ResetLimits::PER_USER,
        spool: SpoolLimits {
            per_answer: config.limits.spool_per_answer,
            total: config.limits.spool_total,
            min_read_bytes: config.limits.min_read_rate,
        },
        bodies: BodyLimits {
            unfinished_bytes: usize::try_from(config.limits.unfinished_body_bytes)
                .unwrap_or(usize::MAX),
            min_send_rate: config.limits.min_send_rate,
        },
        long_head_bytes: usize::try_from(config.limits.long_header_bytes).unwrap_or(usize::MAX),
    }
}

/// The certificate under the key `field` that clients are shown, unless they connect without TLS.
pub(super) fn serving_certificate(
    field: &'static str,
    own: Option<&config::CertificateAndKey>,
) -> Result<Option<ServingCertificate>, SettingsError> {
    let own = own.map(|own| ServingCertificate::new(own.chain.clone(), own.key.clone_key()));
    own.transpose()
        .map_err(|source| SettingsError::Tls { field, source })
}

/// TLS with a certificate that was configured under the key `field`.
pub(super) fn serving_tls(
    field: &'static str,
    certificate: &ServingCertificate,
    authorities: Vec<DistinguishedName>,
) -> Result<ServingTls, SettingsError> {
    ServingTls::new(certificate, authorities).map_err(|source| SettingsError::Tls { field, source })
}

/// A budget of as many bytes as were configured.
pub(super) fn byte_budget(bytes: u64) -> Arc<ByteBudget> {
    ByteBudget::new(usize::try_from(bytes).unwrap_or(usize::MAX))
}

pub(super) fn serve(
    config: &Config,
    certificate: Option<&ServingCertificate>,
    authorities: Vec<DistinguishedName>,
) -> Result<ServeSettings, SettingsError> {
    let tls = certificate.map(|certificate| serving_tls("listen.tls", certificate, authorities));
    let tls = tls.transpose()?;
    let (limits, timeouts) = (&config.limits, &config.timeouts);
    Ok(ServeSettings {
        listen: config.listen.address,
        tls,
        connections: limits.connections as usize,
        streams_per_connection: limits.streams_per_connection,
        head_bytes: limits.header_bytes as usize,
        unfinished_head_bytes: limits.unfinished_header_bytes as usize,
        stream_windows: byte_budget(limits.queued_body_bytes),
        handshake_timeout: timeouts.handshake,
        head_timeout: timeouts.header_read,
        idle_timeout: timeouts.idle,
        stall_timeout: timeouts.body_idle,
        pause_timeout: timeouts.tunnel_idle.max(timeouts.body_idle),
        drain: DrainSettings {
            delay: config.drain.delay,
            limit: config.drain.grace,
            watch_spread: config.drain.grace.mul_f64(0.5).min(Duration::from_secs(30)),
            ..DrainSettings::default()
        },
        ..ServeSettings::default()
    })
}

/// How clients' requests are forwarded to the upstream at `endpoint`.
pub(super) fn upstream(config: &Config, endpoint: Endpoint) -> UpstreamSettings {
    let (upstream, timeouts) = (&config.upstream, &config.timeouts);
    let mut settings = UpstreamSettings::at(endpoint);
    settings.protocol = match upstream.protocol {
        config::ProtocolConfig::Auto => UpstreamProtocol::Auto,
        config::ProtocolConfig::Http1 => UpstreamProtocol::Http1,
        config::ProtocolConfig::Http2 => UpstreamProtocol::Http2,
    };
    settings.silence = timeouts.body_idle;
    settings.tunnel_idle = timeouts.tunnel_idle;
    settings.idle_timeout = timeouts.upstream_idle;
    settings.streams_per_connection = upstream.max_streams as usize;
    settings.connection_limit = ConnectionLimit::new(
        upstream.max_connections as usize,
        upstream.max_streams as usize,
    );
    if let config::UpstreamIdentityConfig::RequestHeader {
        username,
        uid,
        group,
        extra_prefix,
        ..
    } = &upstream.identity
    {
        let names = [username, uid, group].map(http::HeaderName::as_str);
        settings.reserved_headers = ReservedHeaders::new(names, [extra_prefix.as_str()]);
    }
    settings
}

/// Where the upstream is: one server, or several.
pub(super) struct UpstreamEndpoints {
    /// At least one.
    pub(super) servers: Vec<ConfiguredServer>,
    /// TLS towards each of them, unless their URLs are `http`, with the CA certificates that verify it.
    pub(super) tls: Vec<(UpstreamTls, Option<config::Authorities>)>,
}

/// Where the upstream is.
pub(super) fn upstream_endpoints(config: &Config) -> Result<UpstreamEndpoints, SettingsError> {
    let upstream = &config.upstream;
    let one = config::ServerConfig {
        url: upstream.url.clone(),
        seats: None,
        resolve: false,
        has_authorities: false,
        authorities: None,
        tls_server_name: None,
    };
    let configured = match &*upstream.servers {
        [] => std::slice::from_ref(&one),
        servers => servers,
    };
    let mut found = UpstreamEndpoints {
        servers: Vec::with_capacity(configured.len()),
        tls: Vec::new(),
    };
    for server in configured {
        let own = server.authorities.as_ref();
        let authorities = own.or(upstream.authorities.as_ref()).cloned();
        let tls = upstream_tls(config, server, authorities.as_ref())?;
        found.tls.extend(tls.clone().map(|tls| (tls, authorities)));
        let endpoint = Endpoint::new(authority(&server.url)?, tls);
        found.servers.push(ConfiguredServer {
            endpoint: endpoint.with_connect_timeout(config.timeouts.upstream_connect),
            seats: server.seats,
            is_resolved: server.resolve,
        });
    }
    Ok(found)
}

/// The name of the upstream in logs and messages: `host:port`, of several servers separated by commas.
pub(super) fn upstream_name(config: &Config) -> String {
    let servers = config.upstream.servers.iter();
    let names: Vec<_> = servers.map(|server| server.url.authority()).collect();
    if names.is_empty() {
        return config.upstream.url.authority();
    }
    names.join(",")
}

/// How requests are spread over several servers.
pub(super) fn spread(config: &Config) -> Spread {
    match config.upstream.spread {
        config::SpreadConfig::Connection => Spread::Connection,
        config::SpreadConfig::Request => Spread::Request,
    }
}

/// TLS towards a server; `None` if its URL is `http`.
fn upstream_tls(
    config: &Config,
    server: &config::ServerConfig,
    authorities: Option<&config::Authorities>,
) -> Result<Option<UpstreamTls>, SettingsError> {
    if !server.url.tls {
        return Ok(None);
    }
    let own = config.upstream.client_certificate.as_ref();
    let made = client_tls(authorities, own).map_err(|source| SettingsError::Tls {
        field: "upstream.clientCertificate",
        source,
    })?;
    Ok(Some(UpstreamTls::new(made, server_name(config, server)?)))
}

/// TLS that trusts these authorities, and presents the gateway's own certificate.
pub(super) fn client_tls(
    authorities: Option<&config::Authorities>,
    own: Option<&config::CertificateAndKey>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let roots = authorities
        .into_iter()
        .flat_map(|bundle| bundle.certificates.iter().cloned());
    tls::client_config(
        roots,
        own.map(|own| (own.chain.clone(), own.key.clone_key())),
    )
}

fn authority(url: &config::UpstreamUrl) -> Result<Authority, SettingsError> {
    let authority = url.authority();
    authority
        .parse()
        .map_err(|_| SettingsError::Authority(authority))
}

fn server_name(
    config: &Config,
    server: &config::ServerConfig,
) -> Result<ServerName<'static>, SettingsError> {
    let own = server.tls_server_name.as_ref();
    let name = own
        .or(config.upstream.tls_server_name.as_ref())
        .unwrap_or(&server.url.host);
    ServerName::try_from(name.clone()).map_err(|_| SettingsError::ServerName(name.clone()))
}

/// How the client's identity is passed to the upstream.
pub(super) fn upstream_identity(config: &Config) -> Result<UpstreamIdentity, SettingsError> {
    Ok(match &config.upstream.identity {
        config::UpstreamIdentityConfig::Impersonate => UpstreamIdentity::Impersonate,
        config::UpstreamIdentityConfig::RequestHeader {
            username,
            uid,
            group,
            extra_prefix,
            ..
        } => UpstreamIdentity::RequestHeader(Arc::new(
            RequestHeaderNames::new(
                &[username.to_string()],
                &[uid.to_string()],
                &[group.to_string()],
                std::slice::from_ref(extra_prefix),
            )
            .map_err(SettingsError::HeaderNames)?,
        )),
    })
}

/// The API clients for requests that the gateway sends in its own name.
#[derive(Clone, Debug)]
pub(super) struct UpstreamClients {
    /// For reviews: short responses, on pooled connections.
    pub(super) reviews: ApiClient,
    /// For long or endless responses, each on a connection of its own.
    pub(super) streams: ApiClient,
    /// For evictions and the disruption controller, on pooled connections that are driven where these run.
    pub(super) budgets: ApiClient,
}

pub(super) fn upstream_clients(
    config: &Config,
    target: &UpstreamTarget,
    credential: &UpstreamCredential,
) -> UpstreamClients {
    let headers = own_headers(config, credential);
    let client = |reuse| ApiClient::new(target.clone(), Arc::clone(&headers), reuse);
    UpstreamClients {
        reviews: client(ConnectionReuse::Pooled),
        streams: client(ConnectionReuse::PerRequest),
        budgets: client(ConnectionReuse::Pooled),
    }
}

/// The headers by which the gateway authenticates itself to the upstream.
pub(super) fn own_headers(config: &Config, credential: &UpstreamCredential) -> HeaderSource {
    let credential = credential.clone();
    let own_name = match &config.upstream.identity {
        config::UpstreamIdentityConfig::Impersonate => None,
        config::UpstreamIdentityConfig::RequestHeader {
            gateway_user,
            username,
            ..
        } => {
            let value = http::HeaderValue::from_str(gateway_user).ok();
            value.map(|value| (username.clone(), value))
        }
    };
    Arc::new(move || {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = &own_name {
            headers.insert(name.clone(), value.clone());
        }
        // Asked for each request: the token is renewed while the gateway runs.
        if let Some(token) = credential.header() {
            headers.insert(AUTHORIZATION, token);
        }
        headers
    })
}

/// Token reviews, if they are enabled.
pub(super) fn token_reviews(
    config: &Config,
    clients: &UpstreamClients,
    clock: &Clock,
    events: EventSink<LookupOutcome>,
    control: &runtime::Handle,
) -> Result<Option<TokenReviews>, SettingsError> {
    // Without an upstream there is nothing to review tokens.
    let review = config.authentication.token_review.as_ref();
    let Some(review) = review.filter(|_| config.has_upstream) else {
        return Ok(None);
    };
    let transport = ReviewClient::tokens(clients.reviews.clone());
    let mut settings = TokenReviewSettings {
        audiences: review.audiences.clone(),
        accepted_ttl: review.cache_ttl,
        refused_ttl: review.refusal_ttl,
        try_limit: review.timeout,
        ..TokenReviewSettings::default()
    };
    settings.lookups.events = events;
    let key = TokenKey::random()?;
    Ok(Some(TokenReviews::new(
        settings,
        transport,
        key,
        clock.clone(),
        control.clone(),
    )))
}

/// The settings of authentication. How requests are sent to the upstream does not change while the gateway runs, so what
/// depends on that is taken from the configuration that it was `started_with`: a client must not be able to send the identity
/// headers that the running gateway sends.
pub(super) fn auth_rules(
    config: &Config,
    started_with: &Config,
    reviews: Option<TokenReviews>,
) -> Result<AuthRules, SettingsError> {
    let authentication = &config.authentication;
    let front_proxy = match &authentication.request_header {
        None => None,
        Some(proxy) => {
            let names = |names: &[http::HeaderName]| {
                names.iter().map(ToString::to_string).collect::<Vec<_>>()
            };
            Some(FrontProxySettings {
                authorities: bundle("authentication.requestHeader.caFile", &proxy.authorities)?,
                allowed_names: proxy.allowed_names.clone(),
                headers: RequestHeaderNames::new(
                    &names(&proxy.username_headers),
                    &names(&proxy.uid_headers),
                    &names(&proxy.group_headers),
                    &proxy.extra_header_prefixes,
                )
                .map_err(SettingsError::HeaderNames)?,
            })
        }
    };
    let upstream_names = match upstream_identity(started_with)? {
        UpstreamIdentity::Impersonate => None,
        UpstreamIdentity::RequestHeader(names) => Some(names),
    };
    let accepted_names = front_proxy.as_ref().map(|proxy| &proxy.headers);
    let names = ConfiguredNames::new(accepted_names.into_iter().chain(upstream_names.as_deref()));
    let settings = AuthSettings {
        client_ca: match &authentication.client_certificate {
            None => None,
            Some(authorities) => Some(bundle(
                "authentication.clientCertificate.caFile",
                authorities,
            )?),
        },
        front_proxy,
        token_file: token_file(config, reviews.as_ref())?,
        token_reviews: reviews,
        anonymous: match &authentication.anonymous {
            config::AnonymousConfig::Refused => AnonymousAccess::Off,
            config::AnonymousConfig::Paths(paths) => AnonymousAccess::Paths(paths.clone()),
            config::AnonymousConfig::Everywhere => AnonymousAccess::Everywhere,
        },
    };
    let authentication = Authenticator::new(settings);
    Ok(AuthRules {
        authentication,
        names,
        impersonation: started_with.mode == config::GatewayMode::Standalone,
        request_timeout: config.timeouts.request,
    })
}

fn bundle(
    field: &'static str,
    authorities: &config::Authorities,
) -> Result<Arc<CaBundle>, SettingsError> {
    CaBundle::new(&authorities.certificates)
        .map(Arc::new)
        .map_err(|source| SettingsError::Authorities { field, source })
}

/// The static tokens, hashed with the key of the token reviews if there are any, so that a token is hashed
/// once for both.
fn token_file(
    config: &Config,
    reviews: Option<&TokenReviews>,
) -> Result<Option<TokenTable>, SettingsError> {
    let Some(file) = &config.authentication.token_file else {
        return Ok(None);
    };
    let key = match reviews {
        Some(reviews) => reviews.key().clone(),
        None => TokenKey::random()?,
    };
    let (tokens, warnings) =
        TokenTable::parse(&file.contents, &key).map_err(SettingsError::StaticTokens)?;
    for warning in warnings {
        tracing::warn!(%warning, "authentication.tokenFile");
    }
    Ok(Some(tokens))
}
