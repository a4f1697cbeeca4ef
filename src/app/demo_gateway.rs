//! A gateway of the demonstration, configured in memory: static tokens, one embedded policy, seats of its own, plain
//! HTTP on a port that the system chooses. Or it shares the seats of a fleet, whose engine is in memory, too.
//!
//! Not here: reloading, the admin port and token reviews, which the demonstration does not need.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZero,
    rc::Rc,
    sync::Arc,
    thread,
    time::Duration,
};

use arc_swap::ArcSwap;
use http::uri::Authority;
use tokio::runtime::Runtime;
use tower::layer::util::Identity;

use super::{
    AppSettings, CoreContext, FleetSeats, Gateway, StartError, no_seats, runtimes::control_runtime,
};
use fairgate_base::{account::ByteBudget, clock::Clock, tasks};
use fairgate_call::{Call, HeaderLines, Refusal, ResetLimits, SpoolLimits};
use fairgate_core::{
    apf::{
        Compiled, ObjectSet, Policy, PolicySettings, Seats, Semantics, objects::Bootstrap,
        work::EstimatorSettings,
    },
    finding::Finding,
};
use fairgate_demo::{
    DemoGateway, DemoUser, FleetPlace, GatewayLoad, GatewayPlan, LEVEL, SeatSource, StartFailure,
};
use fairgate_fleet::{
    identity::GatewayRun,
    settings::{Reclaim, Settings},
};
use fairgate_fleet_engine::{
    member::{FleetMember, MemberSettings},
    memory::MemoryEngine,
};
use fairgate_manifest::yaml;
use fairgate_proxy::{
    auth::{
        AuthSettings, Authenticator, ConfiguredNames, NoRandomness, TokenKey, TokenTable,
        UpstreamIdentity,
        layer::{AuthLayer, AuthRules},
        upstream,
    },
    fairness::{
        BodyLimits, Caps, Enforcement, FairnessLayer, FlowControl, FlowControlSettings, Gate,
    },
    forward::{Forward, UpstreamSettings},
    serve::ServeSettings,
    stack::{AdmissionLayers, EvictionLayers, stack},
};

/// The key of the flow hash: fixed, so that every run deals the same queues.
const HASH_KEY: [u8; 16] = *b"fairgate demo v1";
/// Data cores, unless the machine has fewer. With more than one, decisions are passed between cores.
const CORES: usize = 2;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a gateway of the demonstration cannot start.
#[derive(Debug, thiserror::Error)]
enum DemoStartError {
    /// No socket, or no runtime.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The operating system provides no random numbers.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The embedded policy is invalid.
    #[error("the built-in policy is invalid: {0}")]
    Embedded(String),
}

/// Starts the gateways of a demonstration. Those of its fleet are of one fleet.
#[derive(Debug, Default)]
pub struct DemoGateways {
    /// Where reports and the ledger of the fleet are.
    engine: MemoryEngine,
}

/// A running gateway.
#[derive(Debug)]
struct RunningGateway {
    gateway: Gateway,
    flow_control: Arc<FlowControl>,
    clock: Clock,
}

/// What each gateway of a fleet keeps while it is cut off, which never happens here.
const FLOOR: Seats = 1;

impl DemoGateways {
    /// Starts a gateway. Not to be called on a runtime.
    ///
    /// # Errors
    ///
    /// When the operating system refuses a socket, a thread or random numbers.
    pub fn start(&self, plan: &GatewayPlan) -> Result<Box<dyn DemoGateway>, StartFailure> {
        Ok(Box::new(RunningGateway::start(plan, &self.engine)?))
    }
}

impl RunningGateway {
    fn start(plan: &GatewayPlan, engine: &MemoryEngine) -> Result<Self, DemoStartError> {
        let clock = Clock::system();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let app = AppSettings {
            serve: ServeSettings {
                listen: (Ipv4Addr::LOCALHOST, 0).into(),
                ..ServeSettings::default()
            },
            cores: NonZero::new(cores.min(CORES)).unwrap_or(NonZero::<usize>::MIN),
        };
        let flow_control = FlowControl::new(
            u16::try_from(app.cores.get()).unwrap_or(u16::MAX),
            Arc::new(compile(plan.policy, plan.seats.total())?),
            flow_control_settings(),
            clock.now(),
        );
        let rules = Arc::new(ArcSwap::from_pointee(rules(&plan.users)?));
        let upstream = Arc::new(UpstreamSettings::new(authority(plan.upstream)?, None));
        let control = control_runtime()?;
        tasks::spawn(
            control.handle(),
            rebalance(Arc::clone(&flow_control), clock.clone()),
        );
        if let SeatSource::Fleet(place) = &plan.seats {
            join(place, engine.clone(), &control, &flow_control, &clock);
        }
        let shared = Arc::clone(&flow_control);
        let gateway = Gateway::start(app, control, move |context: CoreContext| {
            let core = u16::try_from(context.index).unwrap_or(u16::MAX);
            let gate = Gate::new(
                Arc::clone(&shared),
                core,
                context.clock.clone(),
                core.into(),
            );
            fairgate_base::turns::spawn_local_boxed(Rc::clone(&gate).run());
            let auth = AuthLayer::new(
                Arc::clone(&rules),
                ByteBudget::new(64 << 20),
                context.clock.clone(),
            );
            let forward = Forward::new(Arc::clone(&upstream), Rc::new(impersonate), context.clock);
            let (trace, dumps) = (Identity::new(), Identity::new());
            stack(
                &trace,
                &auth,
                &FairnessLayer::new(gate),
                &dumps,
                &AdmissionLayers::none(),
                &EvictionLayers::none(),
                &Identity::new(),
                forward,
            )
        })?;
        Ok(Self {
            gateway,
            flow_control,
            clock,
        })
    }
}

impl DemoGateway for RunningGateway {
    fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// O(queues), under the level's lock.
    fn load(&self) -> GatewayLoad {
        let dispatcher = self.flow_control.dispatcher();
        let levels = dispatcher.report(self.clock.now());
        let Some(report) = levels.iter().find(|level| &*level.spec.name == LEVEL) else {
            return GatewayLoad::default();
        };
        let mut load = GatewayLoad {
            seats: report.current,
            in_use: report.summary.seats_in_use,
            queues: Vec::new(),
        };
        for (name, level) in dispatcher.levels() {
            if &*name == LEVEL {
                let waiting = |set: &fairgate_core::apf::queueset::QueueSet<_>| {
                    let queues = set.queues().map(|queue| queue.waiting);
                    queues.filter(|waiting| *waiting > 0).collect()
                };
                load.queues = level.inspect(waiting);
            }
        }
        load
    }
}

/// The gateway has no seats until its fleet gives it some, which takes less than a second.
fn join(
    place: &FleetPlace,
    engine: MemoryEngine,
    control: &Runtime,
    flow_control: &Arc<FlowControl>,
    clock: &Clock,
) {
    flow_control.share_seats(clock.now(), no_seats());
    let seats = FleetSeats::new(Arc::clone(flow_control), FLOOR, clock.clone(), None);
    let member = FleetMember::new(MemberSettings {
        engine: Arc::new(engine),
        seats: Arc::new(seats),
        // The server ends a request when its gateway is gone.
        settings: Settings::new(place.gateways, FLOOR, Reclaim::Prompt),
        identity: GatewayRun {
            name: format!("gateway-{}", place.number),
            incarnation: 1,
        },
        started: clock.now(),
        clock: clock.clone(),
        seed: place.number.into(),
        status: Arc::default(),
    });
    tasks::spawn(control.handle(), member.run(std::future::pending()));
}

/// Rebalances limits until it is dropped.
async fn rebalance(flow_control: Arc<FlowControl>, clock: Clock) {
    loop {
        flow_control.borrowing_due().await;
        flow_control.rebalance(clock.now());
    }
}

fn flow_control_settings() -> FlowControlSettings {
    FlowControlSettings {
        enforcement: Enforcement::Enforce,
        request_timeout: REQUEST_TIMEOUT,
        max_queued: 20_000,
        borrowing_period: Duration::from_secs(1),
        estimator: EstimatorSettings::default(),
        long_running: Caps {
            per_user: 1,
            total: 1,
        },
        watches: Caps::NONE,
        resets: ResetLimits::PER_USER,
        spool: SpoolLimits::NONE,
        bodies: BodyLimits::NONE,
        long_head_bytes: usize::MAX,
    }
}

/// Compiles an embedded policy.
fn compile(text: &str, total_seats: Seats) -> Result<Policy, DemoStartError> {
    let documents = yaml::documents(text.as_bytes())
        .map_err(|error| DemoStartError::Embedded(error.to_string()))?
        .into_iter()
        .map(|document| ("the embedded policy", document));
    let objects = ObjectSet::read(documents).with_bootstrap(Bootstrap::Mandatory);
    let settings = PolicySettings {
        total_seats,
        semantics: Semantics::Improved,
        hash_key: HASH_KEY,
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    match Policy::compile(&objects, &settings) {
        Ok(Compiled { policy, .. }) => Ok(policy),
        Err(findings) => {
            let findings: Vec<String> = findings.iter().map(Finding::to_string).collect();
            Err(DemoStartError::Embedded(findings.join("; ")))
        }
    }
}

/// Authentication by static tokens, one line for each user, from a token file in memory.
fn rules(users: &[DemoUser]) -> Result<AuthRules, DemoStartError> {
    let line = |user: &DemoUser| format!("{},{name},{name}\n", user.token, name = user.name);
    let file: String = users.iter().map(line).collect();
    let (tokens, _) =
        TokenTable::parse(file.as_bytes(), &TokenKey::random()?).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            DemoStartError::Embedded(errors.join("; "))
        })?;
    Ok(AuthRules {
        authentication: Authenticator::new(AuthSettings {
            token_file: Some(tokens),
            ..AuthSettings::default()
        }),
        names: ConfiguredNames::new([]),
        impersonation: false,
        request_timeout: REQUEST_TIMEOUT,
    })
}

fn authority(address: SocketAddr) -> Result<Authority, DemoStartError> {
    let text = address.to_string();
    text.parse()
        .map_err(|_| DemoStartError::Embedded(format!("{text} is no host and port")))
}

/// Sends the user to the stand-in in headers, as to an API server.
fn impersonate(call: &Call, lines: &mut dyn HeaderLines) -> Result<(), Refusal> {
    upstream::write(&UpstreamIdentity::Impersonate, &call.digest.user, lines)
        .map_err(|_| Refusal::IdentityNotRepresentable("the name fits in no header".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_core::apf::policy::{Distinguisher, LevelKind, LimitResponse, Queuing};
    use fairgate_demo::{ELEPHANT_CONNECTIONS, FAIR, FIFO, SEATS_OF_GATEWAY, users};

    /// The queuing and seats of the level of `policy`, and the flow distinguisher of its schema.
    fn shape(policy: &str) -> (Queuing, u32, Option<Distinguisher>) {
        let policy = Arc::new(compile(policy, SEATS_OF_GATEWAY).unwrap());
        let level = policy.level(policy.level_by_name(LEVEL).unwrap());
        let LevelKind::Limited {
            response: LimitResponse::Queue(queuing),
            ..
        } = level.kind
        else {
            panic!("it queues");
        };
        let schema = policy.schema(policy.schema_by_name(LEVEL).unwrap());
        let now = Clock::system().now();
        let flow_control = FlowControl::new(1, Arc::clone(&policy), flow_control_settings(), now);
        flow_control.rebalance(now);
        let levels = flow_control.dispatcher().report(now);
        let level = levels.iter().find(|level| &*level.spec.name == LEVEL);
        (queuing, level.unwrap().current, schema.distinguisher)
    }

    #[test]
    fn with_and_without_fairness_there_are_the_same_seats_and_room_for_the_elephant() {
        let (fair, fair_seats, by) = shape(FAIR);
        let (fifo, fifo_seats, by_nothing) = shape(FIFO);
        assert_eq!(
            (fair_seats, fifo_seats),
            (SEATS_OF_GATEWAY, SEATS_OF_GATEWAY)
        );
        assert_eq!((by, by_nothing), (Some(Distinguisher::ByUser), None));
        assert_eq!((fifo.queues, fifo.hand_size), (1, 1));
        assert_eq!(
            fair.hand_size * fair.queue_length_limit,
            fifo.queue_length_limit
        );
        assert!(fifo.queue_length_limit > ELEPHANT_CONNECTIONS);
    }

    #[test]
    fn every_user_has_a_token_of_its_own() {
        let users = users();
        rules(&users).unwrap();
        let tokens: std::collections::BTreeSet<_> = users.iter().map(|user| &user.token).collect();
        assert_eq!(tokens.len(), users.len());
    }
}
