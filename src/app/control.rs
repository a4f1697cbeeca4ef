//! Starts the background tasks on the control runtime: following policies, rebalancing, reloading, the admin port.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};

use super::{
    ServeError,
    admission::{AdmissionPolicies, type_checks},
    client_rules::ClientRules,
    event_metrics,
    evictions::disruption::Disruption,
    fleet::Fleet,
    followed_files,
    hosted_api::HostedApi,
    object_counts,
    policies::{Applier, ConfiguredSource, Policies, following::follow},
    reload::Reload,
    renewals::{Renewals, followed_certificate},
    runtimes::Gateway,
    secure_admin::SecureAdmin,
    settings::{self, UpstreamClients},
    upstream_access::ServersInUse,
};
use fairgate_base::{clock::Clock, tasks, turns};
use fairgate_config::Config;
use fairgate_observe::{
    AdminHosts, AdminServer, HealthChecks, OperatorEndpoints, Telemetry, catalogue,
};
use fairgate_policy_sources::PolicyArea;
use fairgate_proxy::{
    auth::TokenReviews,
    fairness::FlowControl,
    serve::{BindError, DrainPhase, Offence},
};

/// What the control tasks need.
pub(super) struct ControlTasks {
    pub(super) config: Config,
    pub(super) path: Option<PathBuf>,
    pub(super) flow_control: Arc<FlowControl>,
    pub(super) rules: ClientRules,
    pub(super) reviews: Option<TokenReviews>,
    pub(super) policies: Policies,
    pub(super) hosting: Option<HostedApi>,
    pub(super) admission: Option<AdmissionPolicies>,
    pub(super) disruption: Option<Disruption>,
    pub(super) renewals: Renewals,
    pub(super) clock: Clock,
    pub(super) clients: UpstreamClients,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) hash_key: [u8; 16],
    pub(super) secure_admin: Option<SecureAdmin>,
    /// The servers behind the gateway, if there are several.
    pub(super) servers: Option<ServersInUse>,
}

/// Where the admin ports are.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminAddresses {
    pub(super) plain: SocketAddr,
    pub(super) secure: Option<SocketAddr>,
}

impl ControlTasks {
    /// Starts the tasks on the gateway's control runtime. Returns the addresses of the admin ports.
    pub(super) fn start(mut self, gateway: &mut Gateway) -> Result<AdminAddresses, ServeError> {
        let control = gateway.control();
        let _inside = control.enter();
        let mut fleet = Fleet::new(&self.config, &self.clients, &self.clock)?;
        let of_fleet = fleet.as_mut().and_then(|fleet| fleet.files.take());
        self.renewals = self.renewals.with(of_fleet);
        // Before anything is announced: until a handler is installed, SIGHUP ends the process.
        let hangup = signal(SignalKind::hangup())?;
        let mut checks = self.checks_of_policies(gateway);
        if let Some(hosting) = &self.hosting {
            checks = hosting.add_health_check(checks);
            tasks::spawn(&control, hosting.register_metrics(&self.telemetry).run());
            hosting.start(&control, &self.clients.streams);
            type_checks::start(hosting, &control);
        }
        let certificates = std::mem::take(&mut self.renewals.certificates);
        checks = followed_certificate::add_health_check(certificates, checks);
        checks = self.add_checks_of_followers(checks);
        if let Some(fleet) = &fleet {
            checks = fleet.add_health_check(checks);
        }
        let view = OperatorEndpoints::new(Arc::clone(&self.telemetry), checks);
        if let Some(hosting) = &self.hosting {
            hosting.serve_on_main_port(&view);
        }
        let applier = self.applier(&control);
        let admin = self.start_admin_ports(gateway, view)?;
        let upstream = settings::upstream_name(&self.config);
        tracing::info!(
            address = %gateway.address(),
            admin = %admin.plain,
            secure_admin = admin.secure.map(tracing::field::display),
            upstream = self.config.has_upstream.then_some(upstream),
            "serving"
        );
        register_load_metrics(gateway, &self.telemetry);
        register_defence_metrics(gateway, &self.telemetry);
        tasks::spawn(&control, Arc::clone(&self.telemetry).run());
        self.start_flow_control(&control, &applier);
        tasks::spawn(&control, followed_files::follow(self.renewals.files));
        if let Some(admission) = self.admission {
            admission.start(&control, &self.policies.state);
        }
        if let Some(disruption) = self.disruption {
            disruption.start(&self.telemetry, gateway);
        }
        let servers = self.servers.as_ref().map(ServersInUse::servers).cloned();
        if let Some(fleet) = fleet {
            fleet.start(&self.telemetry, gateway, applier.clone(), servers.clone());
        }
        let source = self.policies.source.as_ref();
        let nudge = source.and_then(ConfiguredSource::nudge);
        let (source, name) = (self.policies.source, self.policies.source_name);
        let following =
            source.map(|source| tasks::spawn(&control, follow(source, name, applier.clone())));
        let reload = Reload {
            started_with: self.config.clone(),
            config: self.config,
            path: self.path,
            rules: self.rules,
            reviews: self.reviews,
            servers,
            applier,
            nudge,
            following,
            hash_key: self.hash_key,
        };
        tasks::spawn(&control, reload.run(hangup));
        Ok(admin)
    }

    /// What applies policies, and shows the one in force.
    fn applier(&self, control: &Handle) -> Applier {
        let applier = Applier::new(
            &self.policies,
            Arc::clone(&self.flow_control),
            self.clock.clone(),
            Arc::clone(&self.telemetry),
            self.hosting.clone(),
            self.policies.state.keeper(PolicyArea::FlowControl, control),
        );
        let following = self.policies.following.clone();
        applier.report_in_force(following);
        applier
    }

    /// The health checks of the gateway and of its policies, whose metrics are registered.
    fn checks_of_policies(&self, gateway: &Gateway) -> HealthChecks {
        let checks = self.policies.sync.add_health_check(checks(gateway));
        self.policies.sync.register_metrics(&self.telemetry);
        self.policies.state.add_health_check(checks)
    }

    /// Adds the health checks of what follows the upstream, and registers its metrics.
    fn add_checks_of_followers(&self, mut checks: HealthChecks) -> HealthChecks {
        if self.config.has_upstream {
            let target = self.clients.reviews.target().clone();
            if self.servers.is_none() {
                event_metrics::upstream_up(self.telemetry.metrics(), target.clone());
            }
            checks = checks.note("upstream", move || {
                target.problem().map(|problem| problem.to_string())
            });
        }
        if let Some(servers) = &self.servers {
            checks = servers.add_health_check(checks);
        }
        if let Some(following) = &self.policies.following {
            checks = following.add_health_check(checks);
            following.register_metrics(&self.telemetry);
        }
        if let Some(disruption) = &self.disruption {
            checks = disruption.add_health_check(checks);
        }
        if let Some(admission) = &self.admission {
            checks = admission.add_health_check(checks);
            admission.register_metrics(&self.telemetry);
        }
        checks
    }

    /// Serves `endpoints` on the admin ports.
    fn start_admin_ports(
        &mut self,
        gateway: &mut Gateway,
        endpoints: Arc<OperatorEndpoints>,
    ) -> Result<AdminAddresses, ServeError> {
        let (control, address) = (gateway.control(), self.config.admin.address);
        let secure = self.secure_admin.take();
        let secure = secure.map(|port| port.start(gateway, Arc::clone(&endpoints)));
        let hosts = AdminHosts::new(self.config.admin.hosts.iter().cloned());
        let plain = control
            .block_on(AdminServer::bind(address, hosts, endpoints))
            .map_err(BindError::at(address))
            .map_err(|error| ServeError::Admin {
                field: "admin.address",
                error,
            })?;
        let addresses = AdminAddresses {
            plain: plain.address()?,
            secure: secure.transpose()?,
        };
        tasks::spawn(&control, plain.run());
        Ok(addresses)
    }

    /// Starts the rebalancing of seats, counting the upstream's objects, and watching over several servers.
    fn start_flow_control(&self, control: &Handle, applier: &Applier) {
        if let Some(servers) = &self.servers {
            servers.start(&self.config, applier.clone(), control);
            servers.expose(&self.telemetry);
        }
        let flow_control = || Arc::clone(&self.flow_control);
        if self.config.has_upstream {
            let client = self.clients.streams.clone();
            let counts = object_counts::follow(flow_control(), self.clock.clone(), client);
            tasks::spawn(control, counts);
        }
        tasks::spawn(control, rebalance(flow_control(), self.clock.clone()));
    }
}

/// Registers the metrics of connections and requests.
fn register_load_metrics(gateway: &Gateway, telemetry: &Telemetry) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |count: usize| count as f64;
    let (connections, streams) = gateway.gauges();
    let metrics = telemetry.metrics();
    metrics.observe_gauge(&catalogue::CONNECTIONS, move || number(connections()));
    metrics.observe_gauge(&catalogue::STREAMS, move || number(streams()));
    let held = gateway.read_ahead();
    metrics.observe_gauge(&catalogue::READ_AHEAD, move || number(held().now));
    let held = gateway.read_ahead();
    metrics.observe_gauge(&catalogue::READ_AHEAD_PEAK, move || number(held().most));
}

/// Registers the metrics of protection against misbehaving clients.
fn register_defence_metrics(gateway: &Gateway, telemetry: &Telemetry) {
    let metrics = telemetry.metrics();
    for offence in Offence::ALL {
        let of = Arc::clone(gateway.defence());
        let count = move || of.count(offence);
        let (metric, label) = match offence.frames() {
            Some(frames) => (&catalogue::HTTP2_FLOODS, ("frame", frames)),
            None => (&catalogue::REFUSED_HEADS, ("reason", offence.as_str())),
        };
        metrics.observe_labelled_counter(metric, label, count);
    }
    let heads = Arc::clone(&gateway.defence().heads);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics.observe_gauge(&catalogue::UNFINISHED_HEADS, move || heads.used() as f64);
    let heads = Arc::clone(&gateway.defence().heads);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics.observe_gauge(&catalogue::UNFINISHED_HEADS_PEAK, move || {
        heads.most_used() as f64
    });
    metrics.observe_counter(&catalogue::TURNS, || turns::counts().turns);
    metrics.observe_counter(&catalogue::LONG_TURNS, || turns::counts().long);
    metrics.observe_gauge(&catalogue::LONGEST_TURN, || {
        turns::counts().longest.as_secs_f64()
    });
    metrics.observe_counter(&catalogue::CONTROL_LONG_TURNS, || {
        turns::control_counts().long
    });
    metrics.observe_gauge(&catalogue::CONTROL_LONGEST_TURN, || {
        turns::control_counts().longest.as_secs_f64()
    });
    metrics.observe_counter(
        &catalogue::CONNECTIONS_REJECTED,
        gateway.rejected_connections(),
    );
}

/// The health checks of the gateway.
fn checks(gateway: &Gateway) -> HealthChecks {
    let phases = gateway.drain().subscribe();
    HealthChecks::new().ready("shutdown", move || match *phases.borrow() {
        DrainPhase::Serving => Ok(()),
        _ => Err("the gateway is draining".to_owned()),
    })
}

/// Rebalances the limits of the priority levels, until it is dropped.
async fn rebalance(flow_control: Arc<FlowControl>, clock: Clock) {
    loop {
        flow_control.borrowing_due().await;
        for change in flow_control.rebalance(clock.now()) {
            tracing::debug!(level = %change.level, from = change.from, to = change.to, "current limit");
        }
    }
}
