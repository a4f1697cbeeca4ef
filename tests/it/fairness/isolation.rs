//! A flow with many clients (the elephant) does not starve a flow with few (the mouse), whether each
//! has its own level or both share one.
//! The upstream responds when the test says so, and the tests compare which requests reach it, so timing does not
//! matter; where requests are charged for the time that they take, a manual clock shows it. How seats are shared over time is tested in virtual time (`crates/simulate/tests/isolation.rs`).

use std::collections::{BTreeMap, VecDeque};

use fairgate_core::{
    apf::{Semantics, ratio::RatioSnapshot},
    cells::HistogramTotal,
};
use tokio::task::JoinSet;

use super::*;
use crate::{
    client::body,
    rules::{Full, Rules},
};

const BOTH_SEMANTICS: [Semantics; 2] = [Semantics::Improved, Semantics::Compatible];
const ELEPHANT: &str = "elephant";
const MOUSE: &str = "mouse";

/// Clients of one user. Each sends one request after the other until the crowd is dropped.
struct Crowd(JoinSet<()>);

impl Crowd {
    fn start(gate: &Arc<Gate>, user: &'static str, clients: usize) -> Self {
        let mut crowd = JoinSet::new();
        for _ in 0..clients {
            let gate = Arc::clone(gate);
            crowd.spawn(async move {
                let mut client = TestClient::http1(gate.address()).await;
                loop {
                    let request = of(&client, user, Method::GET, PODS);
                    let response = client.send(request).await.unwrap();
                    assert_eq!(response.status(), StatusCode::OK, "{user} was refused");
                    body(response).await;
                }
            });
        }
        Self(crowd)
    }

    /// Asserts that no client has been refused or disconnected.
    fn all_served(mut self) {
        if let Some(failed) = self.0.try_join_next() {
            failed.unwrap();
        }
    }
}

/// The next `number` requests that reach the upstream.
async fn next(held: &mut mpsc::UnboundedReceiver<HeldRequest>, number: usize) -> Vec<HeldRequest> {
    let mut requests = Vec::new();
    for _ in 0..number {
        requests.push(soon(held.recv()).await.unwrap());
    }
    requests
}

/// How many of these requests each user has sent.
fn by_user(requests: &[HeldRequest]) -> BTreeMap<&str, usize> {
    let mut users = BTreeMap::new();
    for request in requests {
        *users.entry(&*request.user).or_default() += 1;
    }
    users
}

/// Waits until a level executes and queues exactly these numbers of requests.
async fn until_busy(gate: &Gate, level: &str, executing: u32, waiting: u32) {
    until(|| {
        let level = gate.level(level);
        (level.executing, level.waiting) == (executing, waiting)
    })
    .await;
}

/// A level of `seats` seats for the elephant, and one for the mouse.
fn two_levels(seats: u32, semantics: Semantics) -> Rules {
    let full = Full::Queue {
        queues: 100,
        hand: 1,
        length: 50,
    };
    Rules::new()
        .level(ELEPHANT, seats, full)
        .level(MOUSE, seats, full)
        .schema(ELEPHANT, ELEPHANT, &[ELEPHANT])
        .schema(MOUSE, MOUSE, &[MOUSE])
        .semantics(semantics)
}

#[tokio::test]
async fn levels_of_one_seat_serve_an_elephant_and_a_mouse_alike() {
    for semantics in BOTH_SEMANTICS {
        let (upstream, mut held) = manual_upstream(Speaks::Http1);
        let gate = Arc::new(Gate::governed(&upstream, &two_levels(1, semantics)));
        let elephant = Crowd::start(&gate, ELEPHANT, 51);
        let mouse = Crowd::start(&gate, MOUSE, 3);
        for round in 0..100 {
            until_busy(&gate, ELEPHANT, 1, 50).await;
            until_busy(&gate, MOUSE, 1, 2).await;
            let executing = next(&mut held, 2).await;
            let expected = BTreeMap::from([(ELEPHANT, 1), (MOUSE, 1)]);
            assert_eq!(by_user(&executing), expected, "round {round}");
            for request in executing {
                request.respond("");
            }
        }
        elephant.all_served();
        mouse.all_served();
    }
}

#[tokio::test]
async fn a_mouse_gets_its_share_of_the_next_seats_although_an_elephant_waits_in_a_long_queue() {
    for semantics in BOTH_SEMANTICS {
        let (upstream, mut held) = manual_upstream(Speaks::Http1);
        let full = Full::Queue {
            queues: 64,
            hand: 4,
            length: 50,
        };
        let rules = Rules::small(4, full).semantics(semantics);
        // Improved charges for the time that requests take, so that is not left to the machine.
        let clock = Clock::manual(now());
        let gate = Arc::new(Gate::governed_by_clock(&upstream, &rules, &clock));
        let elephant = Crowd::start(&gate, ELEPHANT, 40);
        let executing = next(&mut held, 4).await;
        assert_eq!(by_user(&executing), BTreeMap::from([(ELEPHANT, 4)]));
        until_busy(&gate, "small", 4, 36).await;
        let mouse = Crowd::start(&gate, MOUSE, 4);
        until_busy(&gate, "small", 4, 40).await;

        let mut executing = VecDeque::from(executing);
        let mut mice = 0;
        for _ in 0..8 {
            clock.advance(ms(10));
            executing.pop_front().unwrap().respond("");
            executing.extend(next(&mut held, 1).await);
            mice += usize::from(executing.back().unwrap().user == MOUSE);
        }

        // Its share is four. Served in order of arrival, the mouse would get none of the first 36.
        assert!(mice >= 3, "{semantics:?}: {mice} of 8");
        elephant.all_served();
        mouse.all_served();
    }
}

/// The mean ratio over the time between two readings.
#[expect(clippy::cast_precision_loss, reason = "a few seconds")]
fn average(from: &RatioSnapshot, to: &RatioSnapshot) -> f64 {
    (to.sum - from.sum) / (to.count - from.count) as f64
}

/// The seats in use over the limit of a level, from its creation until now.
fn utilization(gate: &Gate, name: &str) -> RatioSnapshot {
    let levels = gate.flow_control().dispatcher().report(now());
    let level = levels.iter().find(|level| &*level.spec.name == name);
    level.unwrap().ratios.seats
}

/// How many requests of a schema have ended, as the gateway counted them.
fn executed(gate: &Gate, name: &str) -> u64 {
    let mut executed = HistogramTotal::default();
    gate.flow_control().visit_cells(|_, schema, cells| {
        if schema == name {
            for core in cells {
                core.execution.add_to(&mut executed);
            }
        }
    });
    executed.count()
}

#[tokio::test]
async fn each_flow_uses_only_the_seats_of_its_level() {
    const SEATS: u32 = 10;
    const ROUNDS: u32 = 20;
    for semantics in BOTH_SEMANTICS {
        let (upstream, mut held) = manual_upstream(Speaks::Http1);
        let gate = Arc::new(Gate::governed(&upstream, &two_levels(SEATS, semantics)));
        let elephant = Crowd::start(&gate, ELEPHANT, 55);
        let mouse = Crowd::start(&gate, MOUSE, 3);
        let until_executed = async |rounds: u32| {
            let expected = [10, 3].map(|clients| u64::from(clients * rounds));
            until(|| [ELEPHANT, MOUSE].map(|name| executed(&gate, name)) == expected).await;
        };
        for round in 0..ROUNDS {
            until_executed(round).await;
            until_busy(&gate, ELEPHANT, SEATS, 45).await;
            until_busy(&gate, MOUSE, 3, 0).await;
            // Nothing changes until the upstream responds, so the mean is exact over any time.
            for (level, expected) in [(ELEPHANT, 1.0), (MOUSE, 0.3)] {
                let from = utilization(&gate, level);
                until(|| utilization(&gate, level).count > from.count + 1_000_000).await;
                let used = average(&from, &utilization(&gate, level));
                assert!((used - expected).abs() < 1e-3, "{level}: {used}");
            }
            let executing = next(&mut held, 13).await;
            let expected = BTreeMap::from([(ELEPHANT, 10), (MOUSE, 3)]);
            assert_eq!(by_user(&executing), expected, "round {round}");
            for request in executing {
                request.respond("");
            }
        }
        until_executed(ROUNDS).await;
        elephant.all_served();
        mouse.all_served();
    }
}
