//! The composition root: the only module that knows all others, and connects them.
//!
//! [`start`] turns a configuration into a running gateway; [`serve`] runs one until a signal stops the
//! process. [`runtimes`] starts the threads; `settings` translates the configuration for each module;
//! `hosting` opens the hosted API; `settings::identity` writes the user's identity and the gateway's credential into
//! requests to the upstream; `access_reviews` requests authorization decisions from it; `evictions` sets up what
//! decides about evictions, and `evictions::disruption` what computes their budgets; `control` starts the background tasks,
//! which follow `policies`, rebalance borrowed seats, handle `reload`, and serve the admin port.

mod access_reviews;
mod admission;
mod client_rules;
mod control;
pub(crate) mod data_directory;
pub mod demo_gateway;
mod event_metrics;
mod evictions;
mod fleet;
mod fleet_engine;
mod followed_files;
mod hosted_api;
mod hosting;
mod object_counts;
mod policies;
mod reload;
mod renewals;
pub mod runtimes;
mod secure_admin;
mod settings;
mod throttle;
mod upstream_access;

use std::{net::SocketAddr, path::PathBuf, rc::Rc, sync::Arc};

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Runtime};
use tower::{
    Layer, Service,
    layer::util::{Identity, Stack},
};

pub use admission::admission_log;
pub(crate) use fleet::{FleetSeats, no_seats};
pub use runtimes::{AppSettings, CoreContext, Gateway, Runtimes, StartError};

use admission::AdmissionPolicies;
use client_rules::ClientRules;
use control::{AdminAddresses, ControlTasks};
use evictions::disruption::Disruption;
use fairgate_admission_layer::{
    AdmissionLayer, AdmissionService, AdmissionWaitLayer, AdmissionWaitService, AnsweredHere,
    RequestEvaluator,
};
use fairgate_apiserver::{Hosted, HostedLayer, HostedService as Served, Ownership};
use fairgate_base::{account::ByteBudget, clock::Clock};
use fairgate_call::{Call, Refusal, Reply, ResponseMemory, handle_refusal::HandleRefusal};
use fairgate_config::{Config, GatewayMode};
use fairgate_core::{apf::Policy, finding::Finding};
use fairgate_eviction_layer::{
    EvictionLayer, EvictionService, EvictionWaitLayer, EvictionWaitService, Evictor,
};
use fairgate_observe::{Dumps, DumpsLayer, GatewayMetrics, Telemetry, Traced, log};
use fairgate_proxy::{
    auth::{
        TokenReviews,
        layer::{Auth, AuthLayer, AuthRules},
    },
    fairness::{FairnessLayer, FlowControl, Gate, layer::Fairness},
    forward::{Forward, UpstreamSettings},
    serve::{BindError, ServeSettings, tls::ServingCertificate},
    stack::{AdmissionLayers, EvictionLayers, stack},
};
use fairgate_store::{Store, StoreError};
use fairgate_upstream::{endpoint::Endpoint, servers::UpstreamServers};
use hosted_api::HostedApi;
use policies::{ObjectsFrom, Policies};
use renewals::{Renewals, ServingCertificates};
use secure_admin::SecureAdmin;
use settings::UpstreamClients;
use settings::identity::{IdentityWriter, UpstreamCredential};
use upstream_access::{ServersInUse, UpstreamAccess};

/// Why the gateway cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The policy objects are invalid.
    #[error("the policies are invalid:\n{}", lines(.0))]
    Policies(Vec<Finding>),
    /// A setting that passes validation, but cannot be used.
    #[error("{0}")]
    Settings(#[from] settings::settings_error::SettingsError),
    /// The store of the hosted API cannot be opened.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// It cannot listen, or the system refuses it a thread.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Logging cannot be set up.
    #[error(transparent)]
    Log(#[from] log::LogError),
    /// The audit log of admission policies cannot be set up.
    #[error(transparent)]
    AdmissionLog(#[from] admission_log::AdmissionLogError),
    /// An admin port cannot be opened.
    #[error("{field}: {error}")]
    Admin {
        /// The configuration key of the address.
        field: &'static str,
        /// The address, and why it cannot be used.
        error: BindError,
    },
    /// Signals or the runtime fail.
    #[error("the gateway cannot continue")]
    Io(#[from] std::io::Error),
}

fn lines(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| format!("  {finding}"))
        .collect();
    lines.join("\n")
}

/// Runs the gateway until a signal stops it. SIGHUP reloads `path`. Once the gateway serves, `serving` is
/// called with its address.
///
/// # Errors
///
/// [`ServeError`], when it cannot start; the error of `serving`, which stops it.
pub fn serve<E: From<ServeError>>(
    config: Config,
    path: Option<PathBuf>,
    serving: impl FnOnce(SocketAddr) -> Result<(), E>,
) -> Result<(), E> {
    let metrics = GatewayMetrics::new();
    // Dropped last, so that the lines of the shutdown are written.
    let _log = log::install(&settings::log(&config.log), &metrics).map_err(ServeError::from)?;
    metrics.install();
    metrics.install_panic_hook();
    let running = start(config, path, metrics)?;
    serving(running.address())?;
    let ended = running.gateway.run_until_signal();
    Ok(ended.map_err(ServeError::from)?)
}

/// Starts a gateway that counts in `metrics`. Sets up nothing that a process can have only once, such as a
/// logger, so a process can run several gateways.
///
/// # Errors
///
/// [`ServeError`]; nothing is left running then.
pub fn start(
    config: Config,
    path: Option<PathBuf>,
    metrics: Arc<GatewayMetrics>,
) -> Result<Running, ServeError> {
    start_with_layer(config, path, metrics, Identity::new())
}

/// Like [`start`], with an additional layer inside flow control: it handles each call that has a
/// seat, before the hosted API and the upstream do. Each data core builds its stack with it.
///
/// # Errors
///
/// [`ServeError`]; nothing is left running then.
pub fn start_with_layer<L>(
    config: Config,
    path: Option<PathBuf>,
    metrics: Arc<GatewayMetrics>,
    layer: L,
) -> Result<Running, ServeError>
where
    L: Layer<InnerService> + Send + Sync + 'static,
    L::Service: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
    <L::Service as Service<Call>>::Future: Unpin + 'static,
{
    let (clock, hash_key) = (Clock::system(), settings::hash_key(&config)?);
    let runtimes = Runtimes::new(evictions::has_budgets(&config))?;
    let (runtime, control) = runtimes.control();
    let upstream = UpstreamAccess::new(&config, &clock, runtime)?;
    let clients = upstream.clients;
    let (forwarded, hosting, memory, store_files) =
        hosting::open(&config, &clients, &clock, &metrics, runtime)?;
    let from = policies_from(&config, hosting.as_ref(), &clients, &clock);
    let (policies, policy) = load_policies(runtime, &config, hash_key, from, &clock, &metrics)?;
    let flow_control = new_flow_control(&config, policy, &clock);
    let telemetry = new_telemetry(&config, &flow_control, &clock, metrics);
    let access = ClientAccess::new(&config, &clients, &clock, &telemetry, control)?;
    let (hosted, metrics, state) = (hosting.as_ref(), telemetry.metrics(), &policies.state);
    let evictor = evictions::evictor(&config, hosted, &clients, &clock, metrics, control);
    let admission = AdmissionPolicies::new(&config, hosted, forwarded, &clients, &clock, state)?;
    let (servers, credential) = (upstream.servers.as_ref(), &upstream.credential);
    let parts = StackParts {
        telemetry: Arc::clone(&telemetry),
        responses: memory,
        auth: access.auth(),
        flow_control: Arc::clone(&flow_control),
        evaluator: admission.as_ref().map(AdmissionPolicies::evaluator),
        evictor: evictor.clone(),
        hosted: hosted.map(|hosting| Arc::clone(&hosting.hosted)),
        ownership: ownership(&config),
        forward: ForwardParts::new(&config, &upstream.endpoint, servers, credential, metrics)?,
    };
    let secure_admin = SecureAdmin::new(&config, &access, &clients, &clock, metrics, control)?;
    let app = app_settings(&config, access.serve);
    let mut gateway = Gateway::start(app, runtimes, build_stack(parts, layer))?;
    evictions::attach(evictor.as_ref(), &gateway, &telemetry);
    let shown = ServingCertificates::new(access.certificate, secure_admin.as_ref());
    let renewals = Renewals::new(&config, shown, upstream.tls, credential, &telemetry, &clock);
    let store = hosting.as_ref().map(|hosting| Arc::clone(&hosting.store));
    let control = ControlTasks {
        disruption: Disruption::new(&config, hosting.as_ref(), &clients, &clock, evictor),
        config,
        path,
        flow_control: Arc::clone(&flow_control),
        rules: access.rules.with(secure_admin.as_ref()),
        reviews: access.reviews,
        policies,
        hosting,
        admission,
        renewals: renewals.with(store_files),
        clients,
        telemetry,
        hash_key,
        secure_admin,
        servers: ServersInUse::of(servers, credential, &clock),
        clock,
    };
    Ok(Running {
        admin: control.start(&mut gateway)?,
        gateway,
        flow_control,
        store,
    })
}

/// Loads the first policy, and reports its findings.
fn load_policies(
    runtime: &Runtime,
    config: &Config,
    hash_key: [u8; 16],
    from: ObjectsFrom<'_>,
    clock: &Clock,
    metrics: &GatewayMetrics,
) -> Result<(Policies, Policy), ServeError> {
    let loaded = runtime.block_on(Policies::load(config, hash_key, from, clock));
    let (mut policies, compiled) = loaded.map_err(ServeError::Policies)?;
    if policies.is_refused() {
        metrics.policy_rejected();
    }
    metrics.policy_applied(clock.now(), &compiled.findings);
    runtime.block_on(policies.report_first(&compiled.findings));
    Ok((policies, compiled.policy))
}

/// How clients are served and authenticated.
struct ClientAccess {
    reviews: Option<TokenReviews>,
    rules: ClientRules,
    /// What requests may take whose tokens are being reviewed.
    waiting: Arc<ByteBudget>,
    certificate: Option<ServingCertificate>,
    serve: ServeSettings,
}

impl ClientAccess {
    fn new(
        config: &Config,
        clients: &UpstreamClients,
        clock: &Clock,
        telemetry: &Telemetry,
        control: &Handle,
    ) -> Result<Self, ServeError> {
        let events = event_metrics::token_reviews(telemetry.metrics());
        let reviews = settings::token_reviews(config, clients, clock, events, control)?;
        if let Some(reviews) = &reviews {
            event_metrics::pending_token_reviews(telemetry.metrics(), reviews);
        }
        let rules = settings::auth_rules(config, config, reviews.clone())?;
        let certificate = settings::serving_certificate("listen.tls", config.listen.tls.as_ref())?;
        let authorities = rules.authentication.authorities();
        let mut serve = settings::serve(config, certificate.as_ref(), authorities)?;
        serve.events = event_metrics::clients(telemetry.metrics());
        event_metrics::stream_windows(telemetry.metrics(), &serve.stream_windows);
        let waiting = settings::byte_budget(config.limits.token_review_bytes);
        event_metrics::token_review_bytes(telemetry.metrics(), &waiting);
        Ok(Self {
            reviews,
            rules: ClientRules::new(rules, serve.tls.clone()),
            waiting,
            certificate,
            serve,
        })
    }

    /// The rules of authentication, and what requests may take whose tokens are reviewed.
    fn auth(&self) -> (Arc<ArcSwap<AuthRules>>, Arc<ByteBudget>) {
        (Arc::clone(self.rules.shared()), Arc::clone(&self.waiting))
    }
}

/// A running gateway. Dropping it stops it immediately.
pub struct Running {
    gateway: Gateway,
    admin: AdminAddresses,
    flow_control: Arc<FlowControl>,
    store: Option<Arc<dyn Store>>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("gateway", &self.gateway)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}

impl Running {
    /// The address that serves clients, with the actual port if the configured one is 0.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// The address of the admin port.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.plain
    }

    /// The address of the secure admin port, if there is one.
    pub fn secure_admin_address(&self) -> Option<SocketAddr> {
        self.admin.secure
    }

    /// The state that its data cores share.
    pub fn flow_control(&self) -> &Arc<FlowControl> {
        &self.flow_control
    }

    /// The store of the hosted API, if there is one.
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.as_ref()
    }

    /// Drains connections and stops. Takes at most as long as the drain settings allow.
    pub fn shut_down(self) {
        self.gateway.shut_down();
    }
}

/// The metrics and dumps of the gateway.
fn new_telemetry(
    config: &Config,
    flow_control: &Arc<FlowControl>,
    clock: &Clock,
    metrics: Arc<GatewayMetrics>,
) -> Arc<Telemetry> {
    let top_flows = config.admin.top_flows as usize;
    Telemetry::new(
        Arc::clone(flow_control),
        clock.clone(),
        &config.apiserver,
        metrics,
        top_flows,
    )
}

/// How the data cores serve clients.
fn app_settings(config: &Config, serve: ServeSettings) -> AppSettings {
    let cores = settings::cores(config);
    AppSettings { serve, cores }
}

/// The state that all data cores share, with `policy` in force.
fn new_flow_control(config: &Config, policy: Policy, clock: &Clock) -> Arc<FlowControl> {
    let cores = settings::cores(config);
    let flow_control = FlowControl::new(
        u16::try_from(cores.get()).unwrap_or(u16::MAX),
        Arc::new(policy),
        settings::flow_control(config),
        clock.now(),
    );
    if config.fleet.engine.is_some() {
        // A member of a fleet starts nothing before it has a grant.
        flow_control.share_seats(clock.now(), no_seats());
    }
    flow_control
}

/// Where the policy objects come from.
fn policies_from<'a>(
    config: &Config,
    hosting: Option<&'a HostedApi>,
    clients: &UpstreamClients,
    clock: &Clock,
) -> ObjectsFrom<'a> {
    match hosting {
        Some(hosting) => ObjectsFrom::Store(hosting),
        None if config.mode == GatewayMode::Sidecar => {
            ObjectsFrom::Upstream(clients.streams.clone(), clock.clone())
        }
        None => ObjectsFrom::Files,
    }
}

/// How requests are forwarded to the upstream.
struct ForwardParts {
    settings: Arc<UpstreamSettings>,
    identity: IdentityWriter,
}

impl ForwardParts {
    /// Registers the metrics of the connections that it uses.
    fn new(
        config: &Config,
        endpoint: &Endpoint,
        servers: Option<&Arc<UpstreamServers>>,
        credential: &UpstreamCredential,
        metrics: &Arc<GatewayMetrics>,
    ) -> Result<Self, ServeError> {
        let mut settings = settings::upstream(config, endpoint.clone());
        settings.servers = servers.map(Arc::clone);
        settings.events = event_metrics::connections(metrics);
        if config.has_upstream {
            event_metrics::streams(metrics, &settings.connection_limit);
        }
        let identity = settings::upstream_identity(config)?;
        Ok(Self {
            settings: Arc::new(settings),
            identity: IdentityWriter::new(identity, credential.clone()),
        })
    }
}

/// What the stacks of all cores share.
struct StackParts {
    telemetry: Arc<Telemetry>,
    responses: Arc<ResponseMemory>,
    /// The rules of authentication, and what requests may take whose tokens are reviewed.
    auth: (Arc<ArcSwap<AuthRules>>, Arc<ByteBudget>),
    flow_control: Arc<FlowControl>,
    evaluator: Option<Arc<RequestEvaluator>>,
    evictor: Option<Arc<Evictor>>,
    hosted: Option<Arc<Hosted>>,
    ownership: Ownership,
    forward: ForwardParts,
}

/// Returns the function that builds the stack of each core, on the core's own thread.
fn build_stack<E>(
    parts: StackParts,
    extra: E,
) -> impl Fn(CoreContext) -> CoreStack<E::Service> + Send + Sync + 'static
where
    E: Layer<InnerService> + Send + Sync + 'static,
{
    move |context: CoreContext| {
        let core = u16::try_from(context.index).unwrap_or(u16::MAX);
        let gate = Gate::new(
            Arc::clone(&parts.flow_control),
            core,
            context.clock.clone(),
            settings::random(),
        );
        fairgate_base::turns::spawn_local_boxed(Rc::clone(&gate).run());
        let (rules, waiting) = &parts.auth;
        let (rules, waiting) = (Arc::clone(rules), Arc::clone(waiting));
        let auth = AuthLayer::new(rules, waiting, context.clock.clone());
        let hosted = match &parts.hosted {
            None => HostedLayer::none(),
            Some(hosted) => HostedLayer::new(
                Arc::clone(hosted),
                context.control.clone(),
                context.clock.clone(),
                parts.ownership,
            ),
        };
        let eviction = match &parts.evictor {
            None => EvictionLayer::none(),
            Some(evictor) => EvictionLayer::new(
                Arc::clone(evictor),
                context.budgets.clone(),
                context.clock.clone(),
            ),
        };
        let admission = admission_layers(parts.evaluator.as_ref(), &hosted, &context.control);
        let forward = Forward::new(
            Arc::clone(&parts.forward.settings),
            Rc::new(parts.forward.identity.clone()),
            context.clock,
        );
        let fairness = FairnessLayer::new(gate);
        let trace = parts.telemetry.trace_layer(core);
        let (telemetry, responses) = (Arc::clone(&parts.telemetry), Arc::clone(&parts.responses));
        let dumps = DumpsLayer::new(telemetry, context.control, responses);
        let inside_fairness = Stack::new(dumps, &extra);
        let evictions = EvictionLayers {
            wait: EvictionWaitLayer::of(&eviction),
            decide: eviction,
        };
        stack(
            &trace,
            &auth,
            &fairness,
            &inside_fairness,
            &admission,
            &evictions,
            &hosted,
            forward,
        )
    }
}

/// The layers of admission policies for forwarded requests, of one core.
fn admission_layers(
    evaluator: Option<&Arc<RequestEvaluator>>,
    hosted: &HostedLayer,
    control: &Handle,
) -> AdmissionLayers<AdmissionWaitLayer, AdmissionLayer> {
    let evaluate = evaluator.map_or_else(AdmissionLayer::none, |evaluator| {
        let hosted = hosted.clone();
        let answered_here = AnsweredHere::by(move |call| hosted.answers(call));
        AdmissionLayer::new(Arc::clone(evaluator), answered_here, control.clone())
    });
    AdmissionLayers {
        wait: AdmissionWaitLayer::of(&evaluate),
        evaluate,
    }
}

/// Which requests the hosted API answers.
fn ownership(config: &Config) -> Ownership {
    match config.mode {
        GatewayMode::Overlay => Ownership::Overlay,
        _ if config.has_upstream => Ownership::Known,
        _ => Ownership::Everything,
    }
}

/// The service inside flow control: the debug dumps, admission policies, evictions, then the hosted API, then the upstream.
pub type InnerService = Dumps<AdmissionService<EvictionService<Served<Forward>>>>;

type CoreStack<S> =
    Traced<HandleRefusal<Auth<AdmissionWaitService<EvictionWaitService<Fairness<S>>>>>>;
