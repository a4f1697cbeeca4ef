//! A gateway in a fleet: what connects flow control, the upstream's leases and the task of `fairgate-fleet-engine`.
//!
//! Not here: the protocol (`fairgate-fleet`), and how limits keep within a grant (`fairgate-core`'s dispatcher).

use std::{env, fs, sync::Arc, time::Duration};

use serde_json::json;

use super::{
    fleet_engine::{ConfiguredEngine, report_interval},
    followed_files::FollowedFiles,
    policies::Applier,
    runtimes::Gateway,
    settings::{self, UpstreamClients, settings_error::SettingsError},
};
use fairgate_base::{clock::Clock, tasks};
use fairgate_config::{Config, FleetConfig, FleetReclaim};
use fairgate_core::{
    apf::{
        Seats,
        borrowing::LevelLimits,
        dispatcher::SharedSeats,
        policy::{LevelKind, Policy},
        seat_lease::SeatLease,
    },
    sync::{AtomicBool, Mutex, Ordering, lock},
    time::Time,
};
use fairgate_fleet::{
    division::{FleetDivision, FleetLevel},
    gateway::Load,
    identity::GatewayRun,
    received::ReceivedWork,
    remote::Elsewhere,
    settings::{Reclaim, Settings},
};
use fairgate_fleet_engine::{
    engine::FleetEngine as _,
    member::{FleetMember, MemberSettings, SeatUser},
    status::{FleetStatus, FleetView, LEDGER_LOST, state_name},
};
use fairgate_observe::{HealthChecks, Telemetry, catalogue};
use fairgate_proxy::{fairness::FlowControl, serve::DrainPhase};
use fairgate_upstream::servers::UpstreamServers;

/// The pause between two attempts to get the fleet's hash key.
const KEY_RETRY: Duration = Duration::from_secs(2);
/// A ledger that is not read for so long is stale: a third of what a grant outlives.
const STALE: Duration = Duration::from_secs(4);

/// Reads a counter.
type ReadCounter = fn(&FleetView) -> u64;

/// A gateway's place in its fleet.
pub(super) struct Fleet {
    config: FleetConfig,
    gateway: String,
    /// Whether the configuration has the hash key.
    has_hash_key: bool,
    started: Time,
    clock: Clock,
    status: Arc<FleetStatus>,
    engine: Arc<ConfiguredEngine>,
    /// The files whose renewed contents the engine uses.
    pub(super) files: Option<FollowedFiles>,
}

impl Fleet {
    /// The fleet of the configuration, if there is one. Flow control has no seat before it gives some. Must be called within
    /// the control runtime.
    pub(super) fn new(
        config: &Config,
        clients: &UpstreamClients,
        clock: &Clock,
    ) -> Result<Option<Self>, SettingsError> {
        let fleet = &config.fleet;
        let Some((engine, files)) = ConfiguredEngine::new(fleet, clients, clock)? else {
            return Ok(None);
        };
        let gateway = fleet.gateway.clone().unwrap_or_else(host_name);
        if !fleet.accepts(&gateway) {
            return Err(SettingsError::FleetMember(gateway));
        }
        Ok(Some(Self {
            config: fleet.clone(),
            gateway,
            has_hash_key: config.flow_control.hash_key.is_some(),
            started: clock.now(),
            clock: clock.clone(),
            status: Arc::default(),
            engine: Arc::new(engine),
            files,
        }))
    }

    /// Adds the place in the fleet to the health checks: a gateway without any seat is not ready, and one that is cut off says so.
    pub(super) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        let (status, noted) = (Arc::clone(&self.status), Arc::clone(&self.status));
        let checks = checks.ready("fleet-seats", move || {
            status.with(|view| {
                if view.seats > 0 {
                    return Ok(());
                }
                let state = state_name(view.state);
                Err(format!(
                    "this gateway has no seats of its fleet yet ({state})"
                ))
            })
        });
        checks.note("fleet", move || {
            noted.with(|view| {
                let lost = view.ledger_lost.then(|| LEDGER_LOST.to_owned());
                let problem = view.problem.clone().or(lost);
                problem.or_else(|| view.hash_keys_differ.clone())
            })
        })
    }

    /// Registers metrics and the dump, and starts the member. It runs until all connections are closed; then it says that its
    /// seats are free.
    pub(super) fn start(
        self,
        telemetry: &Telemetry,
        gateway: &mut Gateway,
        applier: Applier,
        servers: Option<Arc<UpstreamServers>>,
    ) {
        self.register_metrics(telemetry);
        self.provide_dump(telemetry);
        let control = gateway.control();
        let seats = Arc::new(FleetSeats::new(
            Arc::clone(applier.flow_control()),
            self.config.isolated_seats,
            self.clock.clone(),
            servers,
        ));
        if self.has_hash_key {
            seats.has_hash_key.store(true, Ordering::Relaxed);
        } else {
            let follow = follow_hash_key(Arc::clone(&self.engine), applier, Arc::clone(&seats));
            tasks::spawn(&control, follow);
        }
        let mut phases = gateway.drain().subscribe();
        let ends = async move {
            let over = |phase: &DrainPhase| matches!(phase, DrainPhase::Ended | DrainPhase::Over);
            let _ = phases.wait_for(over).await;
        };
        let identity = GatewayRun {
            name: self.gateway.clone(),
            incarnation: settings::random().max(1),
        };
        tracing::info!(
            fleet = self.config.name,
            gateway = self.gateway,
            engine = self.engine.name(),
            gateways = self.config.max_gateways,
            isolated_seats = self.config.isolated_seats,
            "this gateway is a member of a fleet"
        );
        let member = FleetMember::new(MemberSettings {
            seats,
            settings: protocol_settings(&self.config),
            identity,
            started: self.started,
            clock: self.clock,
            seed: settings::random(),
            status: self.status,
            engine: self.engine,
        });
        let running = tasks::spawn(&control, member.run(ends));
        gateway.wait_for(running);
    }

    fn register_metrics(&self, telemetry: &Telemetry) {
        let metrics = telemetry.metrics();
        let observe = |metric, read: fn(&FleetView, Moment) -> f64| {
            let (status, clock, started) =
                (Arc::clone(&self.status), self.clock.clone(), self.started);
            let label = ("fleet", self.config.name.clone());
            let read = move || {
                let now = clock.now();
                status.with(|view| read(view, Moment { started, now }))
            };
            metrics.observe_labelled_gauge(metric, label, read);
        };
        observe(&catalogue::FLEET_SEATS, |view, _| view.seats.into());
        observe(&catalogue::FLEET_HELD_SEATS, |view, _| view.held.into());
        observe(&catalogue::FLEET_ISOLATED, |view, _| {
            gauge_of(view.isolation_reason().is_some())
        });
        for reason in FleetView::isolation_reasons() {
            let status = Arc::clone(&self.status);
            let labels = [
                ("fleet", self.config.name.clone()),
                ("reason", reason.to_owned()),
            ];
            let is = move || {
                let found = status.with(FleetView::isolation_reason);
                gauge_of(found == Some(reason))
            };
            metrics.observe_gauge_of_two_labels(&catalogue::FLEET_ISOLATED_REASON, labels, is);
        }
        observe(&catalogue::FLEET_COORDINATOR, |view, _| {
            gauge_of(view.coordinates)
        });
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        observe(&catalogue::FLEET_EPOCH, |view, _| {
            view.ledger.epoch.0 as f64
        });
        observe(&catalogue::FLEET_LEDGER_AGE, |view, moment| {
            moment.age(view.ledger_read).as_secs_f64()
        });
        observe(&catalogue::FLEET_COORDINATOR_AGE, |view, moment| {
            moment.age(view.coordinator_renewed).as_secs_f64()
        });
        observe(&catalogue::FLEET_LEDGER_LOST, |view, _| {
            gauge_of(view.ledger_lost)
        });
        let counters: [(_, ReadCounter); 3] = [
            (&catalogue::FLEET_REPORTS, |view| view.reports_stored),
            (&catalogue::FLEET_LEDGERS, |view| view.ledgers_written),
            (&catalogue::FLEET_FAILED_CALLS, |view| view.failed_calls),
        ];
        for (metric, read) in counters {
            let status = Arc::clone(&self.status);
            let label = ("fleet", self.config.name.clone());
            metrics.observe_labelled_counter(metric, label, move || status.with(read));
        }
    }

    fn provide_dump(&self, telemetry: &Telemetry) {
        let (status, clock) = (Arc::clone(&self.status), self.clock.clone());
        let (name, gateway, started) =
            (self.config.name.clone(), self.gateway.clone(), self.started);
        let make = move || {
            let now = clock.now();
            dump(&name, &gateway, &status, Moment { started, now })
        };
        // Called once.
        let _ = telemetry.provided_dumps().fleet.set(Box::new(make));
    }
}

/// The state of the fleet as this gateway sees it, as JSON.
fn dump(fleet: &str, gateway: &str, status: &FleetStatus, moment: Moment) -> String {
    let (view, now) = (status.view(), moment.now);
    let millis = |since: Option<Time>| since.map(|since| now.since(since).as_millis());
    let gateways = view.ledger.entries.iter().map(|entry| {
        json!({
            "name": entry.gateway.name,
            "standing": entry.standing,
            "grant": entry.grant,
            "reserved": entry.reserved(),
            "reported": entry.reported,
        })
    });
    json!({
        "fleet": fleet,
        "gateway": gateway,
        "state": state_name(view.state),
        "seats": view.seats,
        "held": view.held,
        "grantEndsInMilliseconds": view.lease_end.since(now).as_millis(),
        "coordinator": view.coordinates,
        "totalSeats": view.limit,
        "epoch": view.ledger.epoch,
        "fence": view.ledger.fence,
        "ledgerReadMillisecondsAgo": millis(view.ledger_read),
        "ledgerSeenMillisecondsAgo": millis(view.ledger_since),
        "isLost": view.ledger_lost,
        "isStale": moment.age(view.ledger_read) > STALE,
        "coordinatorSeenMillisecondsAgo": millis(view.coordinator_renewed),
        "problem": view.problem,
        "hashKeysDiffer": view.hash_keys_differ,
        "isolationReason": view.isolation_reason(),
        "gateways": gateways.collect::<Vec<_>>(),
    })
    .to_string()
}

/// 1 or 0.
fn gauge_of(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// When the gateway started, and now.
#[derive(Clone, Copy)]
struct Moment {
    started: Time,
    now: Time,
}

impl Moment {
    /// How long ago something was, or the start if it never was.
    fn age(self, at: Option<Time>) -> Duration {
        self.now.since(at.unwrap_or(self.started))
    }
}

/// What flow control has before the fleet gives it seats.
pub(crate) fn no_seats() -> SharedSeats {
    SharedSeats {
        seats: 0,
        levels: Vec::new(),
        floor: 0,
        lease: Arc::new(SeatLease::new(Time::NEVER)),
    }
}

/// The name of the host; empty if the system does not tell it.
fn host_name() -> String {
    let variable = env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let file = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = variable.or_else(file).unwrap_or_default();
    name.trim().to_ascii_lowercase()
}

fn protocol_settings(config: &FleetConfig) -> Settings {
    let reclaim = match config.reclaim {
        FleetReclaim::Strict => Reclaim::Strict {
            drain: config.request_limit,
        },
        FleetReclaim::Prompt => Reclaim::Prompt,
    };
    let mut settings = Settings::new(config.max_gateways, config.isolated_seats, reclaim);
    settings.report_interval = report_interval(config);
    settings.ledger_interval = settings.report_interval;
    settings
}

/// Flow control, as the fleet uses it.
pub(crate) struct FleetSeats {
    flow_control: Arc<FlowControl>,
    /// The servers behind the gateway, if there are several.
    servers: Option<Arc<UpstreamServers>>,
    floor: Seats,
    clock: Clock,
    received: Mutex<ReceivedWork>,
    /// Whether flows are hashed with the key that they keep: a configured one, or that of the fleet.
    has_hash_key: AtomicBool,
}

impl FleetSeats {
    /// Flow control of a gateway whose `isolatedSeats` are `floor`, and the servers behind it, if there are several.
    pub(crate) fn new(
        flow_control: Arc<FlowControl>,
        floor: Seats,
        clock: Clock,
        servers: Option<Arc<UpstreamServers>>,
    ) -> Self {
        Self {
            flow_control,
            servers,
            floor,
            clock,
            received: Mutex::default(),
            has_hash_key: AtomicBool::default(),
        }
    }

    /// [`Load::hash_key_mark`].
    fn hash_key_mark(&self) -> Option<u64> {
        let view = self.flow_control.dispatcher().view();
        let is_known = self.has_hash_key.load(Ordering::Relaxed);
        is_known.then(|| view.policy().settings().hash_key_mark())
    }

    /// The seats of the servers that can be reached, 0 if none can; `None` with one server behind the gateway.
    fn reach(&self) -> Option<Seats> {
        let servers = self.servers.as_ref()?;
        let view = self.flow_control.dispatcher().view();
        // While none can be reached all are tried, so the policy divides what all have.
        let reached = servers
            .is_any_open()
            .then(|| view.policy().settings().total_seats);
        Some(reached.unwrap_or(0))
    }
}

impl SeatUser for FleetSeats {
    fn load(&self) -> Load {
        let load = lock(&self.received).load(self.flow_control.dispatcher());
        Load {
            reach: self.reach(),
            hash_key_mark: self.hash_key_mark(),
            ..load
        }
    }

    fn sample(&self) {
        let now = self.clock.now();
        lock(&self.received).sample(now, self.flow_control.dispatcher());
    }

    fn use_seats(&self, now: Time, seats: SharedSeats) {
        if let Some(servers) = &self.servers {
            servers.places().set_granted(Some(seats.seats));
        }
        self.flow_control.share_seats(now, seats);
    }

    fn note_elsewhere(&self, now: Time, elsewhere: Elsewhere) {
        let of_level = |name: &str| elsewhere.of_level(name);
        self.flow_control.note_elsewhere(now, of_level);
    }

    fn division(&self, reached: Seats) -> (FleetDivision, Seats) {
        let view = self.flow_control.dispatcher().view();
        let policy = view.policy();
        let own = policy.settings().total_seats;
        // Not more than all servers have that this gateway knows of: another one may have been configured with more.
        let known = self.servers.as_ref().map(|servers| servers.all_seats());
        let reached = known.map_or(0, |known| reached.min(known));
        let total = if reached > 0 && self.reach() == Some(0) {
            // Its own total is what all servers have that it knows of, of which others know better which can be reached.
            reached
        } else {
            own.max(reached)
        };
        let division = FleetDivision {
            levels: levels(policy, total),
            tenant_weight: policy.settings().tenant_weight,
            floor: self.floor,
        };
        (division, total)
    }
}

fn levels(policy: &Policy, total: Seats) -> Vec<FleetLevel> {
    let share_sum = LevelLimits::share_sum(policy.levels());
    let level = |spec| FleetLevel {
        limits: LevelLimits::of(spec, total, share_sum),
        name: spec.name.to_string(),
        exempt: spec.kind == LevelKind::Exempt,
    };
    policy.levels().iter().map(level).collect()
}

/// Gets the fleet's hash key, and uses it from then on: until then, flows are told apart by another key.
async fn follow_hash_key(engine: Arc<ConfiguredEngine>, applier: Applier, seats: Arc<FleetSeats>) {
    let own = applier.hash_key();
    let mut failure = String::new();
    loop {
        match engine.hash_key(own).await {
            Ok(key) if key == own => return seats.has_hash_key.store(true, Ordering::Relaxed),
            Ok(key) => {
                let applied = tokio::task::spawn_blocking(move || {
                    applier.apply(|compiling| compiling.settings.hash_key = key)
                });
                if applied.await.is_ok_and(|(applied, _)| applied) {
                    seats.has_hash_key.store(true, Ordering::Relaxed);
                    tracing::info!("fleet: flows are hashed with the key of the fleet");
                } else {
                    tracing::error!(
                        "fleet: the policy could not be compiled with the fleet's hash key"
                    );
                }
                return;
            }
            Err(error) => {
                if failure != error.why {
                    tracing::warn!(why = %error, "fleet: the hash key cannot be read; trying again");
                    failure = error.why;
                }
                tokio::time::sleep(KEY_RETRY).await;
            }
        }
    }
}
