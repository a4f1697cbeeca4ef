//! How an elephant (a flow with many clients) and a mouse (one with few) share seats over time, in virtual time, under
//! both semantics. `tests/it/fairness/isolation.rs` tests over real sockets which requests are dispatched.

use std::time::Duration;

use fairgate_core::{
    apf::{
        Seats, Semantics, Work, policy::Queuing, queueset::Discipline, queueset::QueueSet,
        shard::Dealer,
    },
    time::Time,
};
use fairgate_simulate::clients::{CallId, Client, ClientRun, ClientShare};

const BOTH_SEMANTICS: [Semantics; 2] = [Semantics::Improved, Semantics::Compatible];
const ELEPHANT: u64 = 1_001_001_001;
const MOUSE: u64 = 2_002_002_002;

/// Clients that send their next request as soon as they have the response.
fn saturating(hash: u64, threads: u32, execution: Duration) -> Client {
    Client {
        hash,
        threads,
        calls: u32::MAX,
        execution,
        think_nanos: 0,
        work: Work::ONE,
        starts: Duration::ZERO,
        split: false,
    }
}

fn level(semantics: Semantics, seats: Seats, queues: u32, hand_size: u32) -> QueueSet<CallId> {
    let queuing = Queuing {
        queues,
        hand_size,
        queue_length_limit: 50,
    };
    let dealer = Dealer::new(queues, hand_size).expect("a hand is no larger than the deck");
    let discipline = Discipline::Queue { queuing, dealer };
    QueueSet::new(semantics, discipline, seats, Time::ZERO)
}

/// What each client gets in ten seconds; no request may be refused.
fn ten_seconds(clients: &[Client], level: QueueSet<CallId>) -> Vec<ClientShare> {
    let period = Duration::from_secs(10);
    let run = ClientRun::new(clients, level, period);
    let (shares, level) = run.until(Time::ZERO.plus(period));
    level.check_invariants();
    let refused = |share: &ClientShare| share.rejected.iter().any(|number| *number > 0);
    assert!(!shares.iter().any(refused), "{shares:?}");
    shares
}

#[test]
fn an_elephant_and_a_mouse_get_equal_shares_of_one_level() {
    let service = Duration::from_millis(10);
    // Each flow is entitled to two of the four seats. Compatible is fair to queues instead of flows, and a mouse's four
    // requests do not keep its four queues busy all the time.
    for (semantics, margin) in [(Semantics::Improved, 0.05), (Semantics::Compatible, 0.4)] {
        let clients = [
            saturating(ELEPHANT, 40, service),
            saturating(MOUSE, 4, service),
        ];
        let shares = ten_seconds(&clients, level(semantics, 4, 64, 4));
        for share in &shares {
            let error = (share.average() - 2.0).abs();
            assert!(error <= margin, "{semantics:?}: {shares:?}");
        }
    }
}

#[test]
fn many_clients_use_all_seats_of_their_level_and_few_get_their_demand() {
    let service = Duration::from_millis(200);
    for semantics in BOTH_SEMANTICS {
        for (threads, seats) in [(55, 10.0), (3, 3.0)] {
            let clients = [saturating(ELEPHANT, threads, service)];
            let shares = ten_seconds(&clients, level(semantics, 10, 100, 1));
            let used = shares[0].average();
            assert!((used / seats - 1.0).abs() < 0.05, "{semantics:?}: {used}");
        }
    }
}
