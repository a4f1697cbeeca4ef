//! The secure admin port: what the admin port serves, with TLS, authentication and authorization.
//!
//! It is served on a thread of its own, so that scrapes delay no request, by the same code as the main port, with
//! the same authentication. Its limits are lower, and one address gets only a part of the connections, so that strangers
//! cannot keep Prometheus out.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::runtime;
use tower::Layer as _;

use super::{
    ClientAccess, ServeError, access_reviews,
    hosted_api::hosted_kinds,
    runtimes::Gateway,
    settings::{self, UpstreamClients, settings_error::SettingsError},
};
use fairgate_apihttp::authorize::{Authorizer, BuiltInRules};
use fairgate_base::{account::ByteBudget, clock::Clock};
use fairgate_call::handle_refusal::HandleRefusalLayer;
use fairgate_config::{Config, GatewayMode};
use fairgate_observe::{GatewayMetrics, OperatorEndpoints, SecureEndpoints, catalogue};
use fairgate_proxy::{
    auth::layer::{AuthLayer, AuthRules},
    serve::{
        Acceptor, BindError, ClientConnections, ServeSettings,
        tls::{ServingCertificate, ServingTls},
    },
};

/// Concurrent connections.
const MAX_CONNECTIONS: usize = 256;
/// One address may have so small a part of the connections: a replicated Prometheus needs a few, and strangers need eight
/// addresses to take all.
const ADDRESS_PART: usize = 8;
/// Time for the TLS handshake, before which nothing is known of a client.
const MAX_HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Time to send a request head.
const MAX_HEAD_TIME: Duration = Duration::from_secs(5);
/// Concurrent requests of one HTTP/2 connection.
const MAX_STREAMS: u32 = 4;
/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Bytes that the unfinished heads of all connections may take, beyond the first 8 KiB of each.
const MAX_UNFINISHED_HEAD_BYTES: usize = 4 << 20;

const TLS: &str = "admin.secure.tls";

/// The secure admin port, before it serves.
pub(super) struct SecureAdmin {
    address: SocketAddr,
    /// Its certificate, if it has one of its own.
    pub(super) certificate: Option<ServingCertificate>,
    serve: ServeSettings,
    rules: Arc<ArcSwap<AuthRules>>,
    /// What requests may take whose tokens are reviewed; that of the main port.
    waiting: Arc<ByteBudget>,
    authorizer: Authorizer,
    metrics: Arc<GatewayMetrics>,
}

impl SecureAdmin {
    /// The port that `config` asks for, if any; otherwise as the main port, with the users that `main` authenticates.
    pub(super) fn new(
        config: &Config,
        main: &ClientAccess,
        clients: &UpstreamClients,
        clock: &Clock,
        metrics: &Arc<GatewayMetrics>,
        control: &runtime::Handle,
    ) -> Result<Option<Self>, SettingsError> {
        let Some(secure) = &config.admin.secure else {
            return Ok(None);
        };
        let own = settings::serving_certificate(TLS, secure.tls.as_ref())?;
        // Validation requires one of them.
        let Some(certificate) = own.as_ref().or(main.certificate.as_ref()) else {
            return Ok(None);
        };
        let authorities = main.rules.shared().load().authentication.authorities();
        let tls = settings::serving_tls(TLS, certificate, authorities)?;
        let (rules, waiting) = (Arc::clone(main.rules.shared()), Arc::clone(&main.waiting));
        let main = &main.serve;
        let connections = main.connections.min(MAX_CONNECTIONS);
        Ok(Some(Self {
            address: secure.address,
            certificate: own,
            serve: ServeSettings {
                listen: secure.address,
                tls: Some(tls),
                connections,
                connections_per_address: Some(connections.div_ceil(ADDRESS_PART)),
                streams_per_connection: main.streams_per_connection.min(MAX_STREAMS),
                head_bytes: main.head_bytes.min(MAX_HEAD_BYTES),
                unfinished_head_bytes: main.unfinished_head_bytes.min(MAX_UNFINISHED_HEAD_BYTES),
                handshake_timeout: main.handshake_timeout.min(MAX_HANDSHAKE_TIME),
                head_timeout: main.head_timeout.min(MAX_HEAD_TIME),
                // Its responses are in memory, profiles among them.
                pause_timeout: main.stall_timeout,
                ..main.clone()
            },
            rules,
            waiting,
            authorizer: authorizer(config, clients, clock, metrics, control),
            metrics: Arc::clone(metrics),
        }))
    }

    /// How its clients are served by TLS.
    pub(super) fn tls(&self) -> Option<ServingTls> {
        self.serve.tls.clone()
    }

    /// Starts to serve `endpoints`. Returns the address, with the actual port if the configured one is 0.
    pub(super) fn start(
        self,
        gateway: &mut Gateway,
        endpoints: Arc<OperatorEndpoints>,
    ) -> Result<SocketAddr, ServeError> {
        let failed = |error| ServeError::Admin {
            field: "admin.secure.address",
            error,
        };
        let listener = Acceptor::bind(self.address).map_err(failed)?;
        let address = listener.local_addr();
        let address = address
            .map_err(BindError::at(self.address))
            .map_err(failed)?;
        let service = SecureEndpoints::new(endpoints, self.authorizer, gateway.control());
        let (rules, waiting) = (self.rules, self.waiting);
        let connections = gateway.serve_more(listener, self.serve, move |clock| {
            let auth = AuthLayer::new(rules, waiting, clock.clone());
            HandleRefusalLayer.layer(auth.layer(service))
        })?;
        show(&connections, &self.metrics);
        Ok(address)
    }
}

/// Shows how many connections there are.
fn show(connections: &Arc<ClientConnections>, metrics: &GatewayMetrics) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |count: usize| count as f64;
    let of = Arc::clone(connections);
    metrics.observe_gauge(&catalogue::SECURE_ADMIN, move || number(of.open()));
    let of = Arc::clone(connections);
    metrics.observe_gauge(&catalogue::SECURE_ADMIN_PEAK, move || {
        number(of.most_open())
    });
}

/// Authorization of the secure admin port: by the upstream, or by the gateway itself where the API is its own.
fn authorizer(
    config: &Config,
    clients: &UpstreamClients,
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
    control: &runtime::Handle,
) -> Authorizer {
    if config.mode == GatewayMode::Standalone {
        let readers = config.hosted_api.reader_groups.clone();
        return Authorizer::BuiltIn(BuiltInRules {
            readers,
            kinds: hosted_kinds(config),
        });
    }
    let reviews = access_reviews::reviews(config, clients, clock, metrics, control);
    Authorizer::Upstream(reviews)
}
