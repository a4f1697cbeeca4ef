//! How the upstream is reached: one API server, or several of them.

use std::sync::Arc;

use tokio::runtime::{Handle, Runtime};

use super::{
    ServeError,
    policies::Applier,
    settings::{self, UpstreamClients, identity::UpstreamCredential},
};
use fairgate_base::{clock::Clock, tasks};
use fairgate_config::{Authorities, Config};
use fairgate_core::apf::Seats;
use fairgate_observe::{HealthChecks, Telemetry, catalogue};
use fairgate_upstream::{
    endpoint::Endpoint,
    server_monitor::{self, ServerMonitor},
    servers::UpstreamServers,
    target::UpstreamTarget,
    tls::UpstreamTls,
};

/// How the upstream is reached.
pub(super) struct UpstreamAccess {
    pub(super) credential: UpstreamCredential,
    /// TLS towards it, or towards each of several servers, with the CA certificates that verify it.
    pub(super) tls: Vec<(UpstreamTls, Option<Authorities>)>,
    /// The upstream, or the first of several servers.
    pub(super) endpoint: Endpoint,
    /// The servers, if there are several.
    pub(super) servers: Option<Arc<UpstreamServers>>,
    pub(super) clients: UpstreamClients,
}

impl UpstreamAccess {
    /// What the configuration says. Resolves the names of servers once, on `runtime`.
    pub(super) fn new(
        config: &Config,
        clock: &Clock,
        runtime: &Runtime,
    ) -> Result<Self, ServeError> {
        let credential = UpstreamCredential::new(config.upstream.token.as_ref());
        let settings::UpstreamEndpoints { servers, tls } = settings::upstream_endpoints(config)?;
        let endpoint = servers[0].endpoint.clone();
        let servers = (!config.upstream.servers.is_empty()).then(|| {
            let (seats, spread) = (config.flow_control.total_seats, settings::spread(config));
            UpstreamServers::new(servers, seats, spread, clock.clone())
        });
        let target = match &servers {
            Some(servers) => UpstreamTarget::Any(endpoint.clone(), Arc::clone(servers)),
            None => UpstreamTarget::One(endpoint.clone()),
        };
        if let Some(servers) = &servers {
            runtime.block_on(server_monitor::resolve_first(servers));
        }
        Ok(Self {
            clients: settings::upstream_clients(config, &target, &credential),
            credential,
            tls,
            endpoint,
            servers,
        })
    }
}

/// Several servers behind the gateway: what has to run, and what operators see.
pub(super) struct ServersInUse {
    servers: Arc<UpstreamServers>,
    credential: UpstreamCredential,
    clock: Clock,
}

impl ServersInUse {
    /// These servers, if there are several. The gateway's own credential is for probes.
    pub(super) fn of(
        servers: Option<&Arc<UpstreamServers>>,
        credential: &UpstreamCredential,
        clock: &Clock,
    ) -> Option<Self> {
        servers.map(|servers| Self {
            servers: Arc::clone(servers),
            credential: credential.clone(),
            clock: clock.clone(),
        })
    }

    /// The servers.
    pub(super) fn servers(&self) -> &Arc<UpstreamServers> {
        &self.servers
    }

    /// Starts to watch over the servers, and to follow their seats.
    pub(super) fn start(&self, config: &Config, applier: Applier, control: &Handle) {
        let credentials = settings::own_headers(config, &self.credential);
        let monitor = ServerMonitor::new(Arc::clone(&self.servers), credentials);
        tasks::spawn(control, monitor.run());
        tasks::spawn(control, follow_seats(Arc::clone(&self.servers), applier));
    }

    /// Adds what is wrong with servers to the health checks. With one server left the gateway stays ready.
    pub(super) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        let (servers, clock) = (Arc::clone(&self.servers), self.clock.clone());
        checks.note("servers", move || {
            let list = servers.list();
            let problems = list.iter().filter_map(|server| {
                let condition = server.condition();
                let seconds = clock.now().since(condition.since).as_secs();
                let problem = condition.problem()?;
                Some(format!("{} {problem}, for {seconds} s", server.name()))
            });
            let problems: Vec<_> = problems.collect();
            (!problems.is_empty()).then(|| problems.join("; "))
        })
    }

    /// Exposes the metrics and the dump of the servers. The upstream is up while one of them takes requests.
    pub(super) fn expose(&self, telemetry: &Telemetry) {
        telemetry.set_servers(Arc::clone(&self.servers));
        let servers = Arc::clone(&self.servers);
        let metrics = telemetry.metrics();
        metrics.observe_gauge(&catalogue::UPSTREAM_UP, move || {
            f64::from(u8::from(servers.is_any_open()))
        });
    }
}

/// Distributes the seats that the servers have together, as they change.
async fn follow_seats(servers: Arc<UpstreamServers>, applier: Applier) {
    let mut total = servers.total_seats();
    loop {
        let seats: Seats = *total.borrow_and_update();
        let applier = applier.clone();
        let applied = tokio::task::spawn_blocking(move || applier.set_total_seats(seats)).await;
        if let Ok(Some(before)) = applied {
            // A server that returns gets its seats step by step; the log says once that it is back.
            tracing::debug!(
                from = before,
                to = seats,
                "the seats of all API servers together changed"
            );
        }
        if total.changed().await.is_err() {
            return;
        }
    }
}
