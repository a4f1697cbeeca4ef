//! Members on an engine in memory, in a runtime whose time is paused, and engines that must pass the conformance suite.

use std::{sync::Arc, time::Duration};

use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::{Seats, borrowing::LevelLimits, dispatcher::SharedSeats},
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_election::LeaseCallError;
use fairgate_fleet::{
    division::{FleetDivision, FleetLevel},
    gateway::{GatewayState, Load},
    identity::GatewayRun,
    records::{LevelLoad, TenantLoad},
    remote::Elsewhere,
    settings::{Reclaim, Settings},
};
use fairgate_testkit::leases::LeaseTable;
use http::Method;
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    conformance::check_engine,
    engine::FleetKey,
    kubernetes::{KubernetesEngine, ObjectApi},
    member::{FleetMember, MemberSettings, SeatUser},
    memory::MemoryEngine,
    status::FleetStatus,
};

/// L.
const LIMIT: Seats = 60;
/// f.
const FLOOR: Seats = 2;
/// D, seconds.
const DRAIN: u64 = 5;

/// The objects of a server in the process.
struct TableApi(LeaseTable);

impl ObjectApi for TableApi {
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        let (code, object) = self.0.call(method.as_str(), path, body);
        if code < 300 {
            return Ok(object);
        }
        Err(LeaseCallError {
            code: Some(code),
            why: object["message"].to_string(),
        })
    }
}

fn on_leases() -> KubernetesEngine<TableApi> {
    let api = TableApi(LeaseTable::default());
    KubernetesEngine::new(api, "fairgate".to_owned(), "front".to_owned())
}

#[tokio::test]
async fn the_engine_in_memory_conforms() {
    check_engine(&MemoryEngine::default()).await;
}

#[tokio::test]
async fn the_engine_on_leases_conforms() {
    check_engine(&on_leases()).await;
}

#[cfg(feature = "etcd")]
mod etcd;
mod records;

#[cfg(feature = "etcd")]
#[tokio::test]
async fn the_engine_on_etcd_conforms() {
    let server = fairgate_testkit::etcd::EtcdServer::start();
    server.client().await;
    check_engine(&etcd::on_etcd(server.endpoint(), None)).await;
}

#[tokio::test]
async fn an_engine_that_is_away_answers_with_errors() {
    let engine = MemoryEngine::default();
    engine.set_down(true);
    let read = crate::engine::FleetEngine::read_reports(&engine).await;
    assert!(read.is_err());
}

/// Flow control of one gateway: it uses what it may and wants, as fast as requests end.
struct Site {
    clock: Clock,
    wants: Mutex<Seats>,
    seats: Mutex<Option<SharedSeats>>,
    /// What executes, and until when the last of it does.
    executing: Mutex<Seats>,
    /// The flows that a tenant has here, and those that it has elsewhere as far as is known.
    flows: Mutex<u32>,
    flows_elsewhere: Mutex<u32>,
    hash_key_mark: Mutex<Option<u64>>,
}

impl Site {
    fn may_use(&self) -> Seats {
        let now = self.clock.now();
        let seats = lock(&self.seats);
        seats.as_ref().map_or(0, |seats| {
            if seats.lease.holds(now) {
                seats.seats
            } else {
                seats.floor
            }
        })
    }

    /// All requests that executed end, and as many begin as may.
    fn serve(&self) -> Seats {
        let seats = self.may_use().min(*lock(&self.wants));
        *lock(&self.executing) = seats;
        seats
    }
}

impl SeatUser for Site {
    fn load(&self) -> Load {
        let wants = *lock(&self.wants);
        let flows = *lock(&self.flows);
        let tenant = (flows > 0).then(|| TenantLoad {
            level: "all".to_owned(),
            tenant: 7,
            flows,
            demand: wants,
        });
        Load {
            executing: *lock(&self.executing),
            levels: vec![LevelLoad {
                level: "all".to_owned(),
                demand: wants,
                ..LevelLoad::default()
            }],
            tenants: tenant.into_iter().collect(),
            hash_key_mark: *lock(&self.hash_key_mark),
            ..Load::default()
        }
    }

    fn sample(&self) {}

    fn use_seats(&self, _: Time, seats: SharedSeats) {
        *lock(&self.seats) = Some(seats);
        self.serve();
    }

    fn note_elsewhere(&self, _: Time, elsewhere: Elsewhere) {
        assert_eq!(elsewhere.charges, [], "no flow is reported");
        let tenants = elsewhere.tenants.iter();
        *lock(&self.flows_elsewhere) = tenants.map(|tenant| tenant.flows).sum();
    }

    fn division(&self, _reached: Seats) -> (FleetDivision, Seats) {
        let limits = LevelLimits {
            nominal: LIMIT,
            min: LIMIT,
            max: 2 * LIMIT,
        };
        let level = FleetLevel {
            name: "all".to_owned(),
            limits,
            exempt: false,
        };
        let division = FleetDivision {
            levels: vec![level],
            tenant_weight: 5,
            floor: FLOOR,
        };
        (division, LIMIT)
    }
}

struct Member {
    site: Arc<Site>,
    status: Arc<FleetStatus>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

struct Fleet {
    engine: MemoryEngine,
    members: Vec<Member>,
    runs: u64,
}

impl Fleet {
    fn new(members: usize) -> Self {
        let mut fleet = Self {
            engine: MemoryEngine::default(),
            members: Vec::new(),
            runs: 0,
        };
        for number in 0..members {
            fleet.start(&format!("gw-{number}"));
        }
        fleet
    }

    fn start(&mut self, name: &str) {
        let drain = Duration::from_secs(DRAIN);
        self.start_by(name, Settings::new(3, FLOOR, Reclaim::Strict { drain }));
    }

    /// Starts a gateway with these settings.
    fn start_by(&mut self, name: &str, settings: Settings) {
        let clock = Clock::runtime();
        self.runs += 1;
        let site = Arc::new(Site {
            clock: clock.clone(),
            wants: Mutex::new(LIMIT),
            seats: Mutex::default(),
            executing: Mutex::default(),
            flows: Mutex::default(),
            flows_elsewhere: Mutex::default(),
            hash_key_mark: Mutex::default(),
        });
        let status = Arc::new(FleetStatus::default());
        let member = FleetMember::new(MemberSettings {
            engine: Arc::new(self.engine.clone()),
            seats: Arc::clone(&site),
            settings,
            identity: GatewayRun {
                name: name.to_owned(),
                incarnation: self.runs,
            },
            started: clock.now(),
            clock,
            seed: self.runs,
            status: Arc::clone(&status),
        });
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(member.run(async {
            let _ = stopped.await;
        }));
        self.members.push(Member {
            site,
            status,
            stop: Some(stop),
            task,
        });
    }

    /// Lets time pass in steps of 50 ms; in each, all that may execute does. Returns what was used in the last step.
    async fn pass(&self, seconds: u64) -> Vec<Seats> {
        let mut used = Vec::new();
        for _ in 0..seconds * 20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            used = self
                .members
                .iter()
                .map(|member| member.site.serve())
                .collect();
            let sum: Seats = used.iter().sum();
            assert!(sum <= LIMIT, "{used:?}");
        }
        used
    }

    /// Lets time pass until a gateway uses so many seats. Returns how long that took.
    async fn until_used(&self, member: usize, seats: Seats) -> Duration {
        let clock = &self.members[member].site.clock;
        let began = clock.now();
        loop {
            let used: Vec<_> = self
                .members
                .iter()
                .map(|member| member.site.serve())
                .collect();
            assert!(used.iter().sum::<Seats>() <= LIMIT, "{used:?}");
            let took = clock.now().since(began);
            if used[member] >= seats {
                return took;
            }
            assert!(took < Duration::from_secs(60), "{used:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn states(&self) -> Vec<Option<GatewayState>> {
        let members = self.members.iter();
        members.map(|member| member.status.view().state).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn gateways_that_ask_for_as_much_get_equal_parts_and_all_seats_are_used() {
    let fleet = Fleet::new(3);
    let used = fleet.pass(20).await;
    assert_eq!(used, [20, 20, 20]);
    assert_eq!(fleet.states(), [Some(GatewayState::Granted); 3]);
    let coordinators = fleet.members.iter();
    let coordinators = coordinators.filter(|member| member.status.view().coordinates);
    assert_eq!(coordinators.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn seats_follow_demand_within_a_second() {
    let fleet = Fleet::new(3);
    fleet.pass(20).await;
    for quiet in [0, 1] {
        *lock(&fleet.members[quiet].site.wants) = 0;
    }
    let used = fleet.pass(1).await;
    assert_eq!(used[..2], [0, 0]);
    assert!(used[2] >= LIMIT - 2 * FLOOR - 2, "{used:?}");
    *lock(&fleet.members[0].site.wants) = LIMIT;
    let used = fleet.pass(1).await;
    assert!(used[0] >= 25 && used[2] >= 25, "{used:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_leaves_gives_its_seats_back_at_once() {
    let mut fleet = Fleet::new(3);
    fleet.pass(20).await;
    let mut gone = fleet.members.remove(0);
    *lock(&gone.site.wants) = 0;
    gone.site.serve();
    gone.stop.take().unwrap().send(()).unwrap();
    gone.task.await.unwrap();
    assert_eq!(gone.site.may_use(), 0);
    let used = fleet.pass(3).await;
    assert!(used.iter().sum::<Seats>() >= LIMIT - FLOOR - 1, "{used:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_leaves_does_not_displace_its_successor() {
    let mut fleet = Fleet::new(2);
    fleet.pass(20).await;
    let mut leaving = fleet.members.remove(0);
    *lock(&leaving.site.wants) = 1;
    assert_eq!(leaving.site.serve(), 1, "one request goes on");
    leaving.stop.take().unwrap().send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    fleet.start("gw-0");
    fleet.pass(20).await;
    assert_eq!(fleet.states(), [Some(GatewayState::Granted); 2]);
    leaving.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_seats_of_a_gateway_that_died_come_back_after_its_silence_but_for_its_floor() {
    for coordinates in [false, true] {
        let mut fleet = Fleet::new(3);
        fleet.pass(20).await;
        let members = fleet.members.iter();
        let coordinator = |member: &Member| member.status.view().coordinates == coordinates;
        let number = members.clone().position(coordinator).unwrap();
        let dead = fleet.members.remove(number);
        dead.task.abort();
        let used = fleet.pass(9).await;
        assert_eq!(used, [20, 20], "its requests may still execute");
        // A successor of the coordinator is elected within 19 s, and then waits for the silence from its own beginning.
        let used = fleet.pass(if coordinates { 30 } else { 10 }).await;
        let sum: Seats = used.iter().sum();
        assert_eq!(sum, LIMIT - FLOOR, "{coordinates}: {used:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_engine_each_gateway_falls_back_to_its_floor_and_comes_back() {
    let fleet = Fleet::new(3);
    fleet.pass(20).await;
    fleet.engine.set_down(true);
    assert_eq!(
        fleet.pass(7).await,
        [20, 20, 20],
        "a short outage costs nothing"
    );
    assert_eq!(fleet.pass(5).await, [FLOOR; 3]);
    assert_eq!(fleet.states(), [Some(GatewayState::Isolated); 3]);
    let view = fleet.members[0].status.view();
    assert!(view.problem.is_some());
    assert_eq!(view.isolation_reason(), Some("engine-no-answer"));
    fleet.engine.set_down(false);
    assert_eq!(fleet.pass(20).await, [20, 20, 20]);
    assert_eq!(fleet.states(), [Some(GatewayState::Granted); 3]);
    let view = fleet.members[0].status.view();
    assert_eq!(
        (view.problem.as_ref(), view.isolation_reason()),
        (None, None)
    );
}

/// So a coordinator whose metrics alone are not there is told from none.
#[tokio::test(start_paused = true)]
async fn all_gateways_see_whether_some_gateway_coordinates() {
    let fleet = Fleet::new(3);
    let unseen = |fleet: &Fleet| {
        let now = fleet.members[0].site.clock.now();
        let age = |member: &Member| {
            let seen = member.status.view().coordinator_renewed;
            now.since(seen.expect("the lease was seen")).as_secs()
        };
        fleet.members.iter().map(age).collect::<Vec<_>>()
    };
    for _ in 0..30 {
        fleet.pass(2).await;
        assert!(
            unseen(&fleet).iter().all(|age| *age <= 6),
            "{:?}",
            unseen(&fleet)
        );
    }
    fleet.engine.set_down(true);
    fleet.pass(30).await;
    assert!(
        unseen(&fleet).iter().all(|age| *age >= 29),
        "{:?}",
        unseen(&fleet)
    );
    fleet.engine.set_down(false);
    fleet.pass(20).await;
    assert!(
        unseen(&fleet).iter().all(|age| *age <= 6),
        "{:?}",
        unseen(&fleet)
    );
}

/// Otherwise tenants would weigh too little at a gateway that does not know what they have elsewhere by now.
#[tokio::test(start_paused = true)]
async fn who_has_no_grant_takes_no_account_of_other_gateways() {
    let mut fleet = Fleet::new(3);
    for member in &fleet.members {
        *lock(&member.site.flows) = 3;
    }
    let elsewhere = |fleet: &Fleet| {
        let members = fleet.members.iter();
        members
            .map(|member| *lock(&member.site.flows_elsewhere))
            .collect::<Vec<_>>()
    };
    fleet.pass(20).await;
    assert_eq!(elsewhere(&fleet), [6; 3]);
    fleet.engine.set_down(true);
    fleet.pass(15).await;
    assert_eq!(elsewhere(&fleet), [0; 3]);
    fleet.engine.set_down(false);
    fleet.pass(20).await;
    assert_eq!(elsewhere(&fleet), [6; 3]);
    // One that is gone does not count, although its last report is still there.
    let gone = fleet.members.pop().expect("there are three");
    gone.task.abort();
    fleet.pass(60 + DRAIN).await;
    assert_eq!(elsewhere(&fleet), [3; 2]);
}

#[tokio::test(start_paused = true)]
async fn each_gateway_has_read_the_ledger_within_a_second_the_coordinator_too() {
    let fleet = Fleet::new(3);
    fleet.pass(60).await;
    for member in &fleet.members {
        let view = member.status.view();
        let age = member.site.clock.now().since(view.ledger_read.unwrap());
        assert!(age <= Duration::from_secs(1), "{age:?}");
        assert!(!view.ledger_lost);
    }
}

/// How long it takes until a gateway has nine tenths of the seats that it can get, over many changes of demand at random moments, for
/// gateways that act so often and an engine that takes so long to answer: sorted.
async fn times_to_follow(interval: Duration, latency: Duration) -> Vec<Duration> {
    // Always the same, as bounds on a median of random moments are no bounds of each seed.
    let seed = fairgate_testkit::random::given_seed().unwrap_or(1);
    let mut random = fairgate_testkit::random::Random::seeded(seed);
    let mut times = Vec::new();
    for _ in 0..8 {
        let mut fleet = Fleet::new(0);
        fleet.engine.set_latency(latency);
        for name in ["gw-0", "gw-1", "gw-2"] {
            let drain = Duration::from_secs(DRAIN);
            let mut settings = Settings::new(3, FLOOR, Reclaim::Strict { drain });
            settings.report_interval = interval;
            settings.ledger_interval = interval;
            fleet.start_by(name, settings);
            tokio::time::sleep(Duration::from_millis(random.within(0..1000))).await;
        }
        fleet.pass(30).await;
        for step in 0..12 {
            let busy = step % 3;
            for (number, member) in fleet.members.iter().enumerate() {
                *lock(&member.site.wants) = if number == busy { LIMIT } else { 0 };
            }
            times.push(fleet.until_used(busy, (LIMIT - 2 * FLOOR) * 9 / 10).await);
            tokio::time::sleep(Duration::from_millis(2000 + random.within(0..1000))).await;
        }
    }
    times.sort_unstable();
    times
}

#[tokio::test(start_paused = true)]
async fn seats_follow_demand_within_the_time_that_the_engine_allows() {
    for (engine, interval, latency, median, longest) in [
        ("etcd", 100, 10, 500, 1000),
        ("kubernetes", 500, 20, 1500, 3000),
    ] {
        let [interval, latency, median, longest] =
            [interval, latency, median, longest].map(Duration::from_millis);
        let times = times_to_follow(interval, latency).await;
        let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
        println!("SEATS FOLLOW DEMAND on {engine}: median {middle:?}, longest {last:?}");
        assert!(middle <= median && last <= longest, "{engine}: {times:?}");
    }
}
