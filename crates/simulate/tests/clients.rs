//! The scenarios of the original's own tests, in virtual time.

use std::time::Duration;

use fairgate_core::{
    apf::{
        Seats, Semantics, Work,
        policy::Queuing,
        queueset::{Counters, Discipline, QueueSet},
        shard::Dealer,
    },
    fairness::max_min_shares,
    rejection::RejectReason,
    time::Time,
};
use fairgate_simulate::clients::{Client, ClientRun, ClientShare};

const SECOND: Duration = Duration::from_secs(1);
const FIRST: u64 = 1_001_001_001;
const SECOND_FLOW: u64 = 2_002_002_002;

fn queues(queues: u32, queue_length_limit: u32, hand_size: u32) -> Discipline {
    Discipline::Queue {
        queuing: Queuing {
            queues,
            hand_size,
            queue_length_limit,
        },
        dealer: Dealer::new(queues, hand_size).expect("a hand is no larger than the deck"),
    }
}

fn set<W: Copy>(discipline: Discipline, limit: Seats) -> QueueSet<W> {
    QueueSet::new(Semantics::Compatible, discipline, limit, Time::ZERO)
}

fn improved<W: Copy>(discipline: Discipline, limit: Seats) -> QueueSet<W> {
    QueueSet::new(Semantics::Improved, discipline, limit, Time::ZERO)
}

fn client(hash: u64, threads: u32, calls: u32, execution: Duration, think_nanos: i64) -> Client {
    Client {
        hash,
        threads,
        calls,
        execution,
        think_nanos,
        work: Work::ONE,
        starts: Duration::ZERO,
        split: false,
    }
}

fn second_less_one_nanosecond() -> i64 {
    999_999_999
}

/// Runs the clients and checks that nothing is left and nothing was refused.
fn run(
    clients: &[Client],
    set: QueueSet<(u32, u32, u32)>,
    seconds: u64,
) -> (Vec<ClientShare>, Counters) {
    let (shares, set) = ClientRun::new(clients, set, Duration::from_secs(seconds)).finish();
    set.check_invariants();
    let summary = set.summary();
    assert_eq!(
        (summary.waiting, summary.executing, summary.seats_in_use),
        (0, 0, 0)
    );
    (shares, summary.counters)
}

fn nothing_refused(shares: &[ClientShare]) {
    assert!(
        shares.iter().all(|s| s.rejected.iter().all(|n| *n == 0)),
        "{shares:?}"
    );
}

#[track_caller]
fn fair(got: &[f64], expected: &[f64], margin: f64) {
    for (got, expected) in got.iter().zip(expected) {
        assert!(
            (got - expected).abs() / expected <= margin,
            "{got} is not {expected} within {margin}"
        );
    }
}

fn averages(shares: &[ClientShare]) -> Vec<f64> {
    shares.iter().map(ClientShare::average).collect()
}

#[test]
fn one_client_alone_uses_the_only_seat_all_the_time() {
    let (shares, _) = run(
        &[client(FIRST, 1, 21, SECOND, 0)],
        set(queues(9, 8, 3), 1),
        20,
    );
    nothing_refused(&shares);
    fair(&averages(&shares), &[1.0], 1e-6);
}

#[test]
fn an_exempt_level_gives_clients_what_they_demand_fair_or_not() {
    let clients = [
        client(FIRST, 5, 15, SECOND, 1_000_000_000),
        client(SECOND_FLOW, 2, 15, SECOND, 500_000_000),
    ];
    let demands = [2.5, 2.0 / 1.5];
    let (shares, _) = run(&clients, set(Discipline::Exempt, 10), 18);
    let got = averages(&shares);
    fair(&got, &max_min_shares(&demands, 10.0), 0.001);
    // If the limit of two seats were enforced, both would get much less.
    for (got, fair) in got.iter().zip(max_min_shares(&demands, 2.0)) {
        assert!((got - fair).abs() / fair > 0.25, "{got} beside {fair}");
    }
}

#[test]
fn an_exempt_level_never_queues_whatever_its_limit() {
    for limit in [0, 2] {
        let mut wide = client(FIRST, 5, 20, SECOND, 1_000_000_000);
        wide.work = Work::seats(3);
        let (shares, _) = run(&[wide], set(Discipline::Exempt, limit), 40);
        nothing_refused(&shares);
        fair(&averages(&shares), &[7.5], 1e-6);
    }
}

#[test]
fn execution_and_lingering_share_the_seats() {
    let second = 1_000_000_000;
    let half = second / 2;
    let one_client = [
        0.5,
        0.5,
        0.5,
        0.5,
        1.0,
        0.5,
        0.5,
        0.5,
        0.5,
        0.5,
        2.0 / 3.0,
        0.5,
    ];
    let two_clients = [
        0.5,
        0.5,
        0.5,
        0.25,
        0.5,
        0.25,
        1.0 / 3.0,
        0.5,
        1.0 / 3.0,
        0.25,
        0.5,
        0.25,
    ];
    let phases = [(second, 0), (0, second), (second, half), (half, second)];
    let shapes = [(1, 1), (1, 2), (2, 2)];
    for (clients, expected) in [(1usize, one_client), (2, two_clients)] {
        let cases = phases
            .iter()
            .flat_map(|phase| shapes.iter().map(move |shape| (phase, shape)));
        for (((think, pad), (final_seats, limit)), expected) in cases.zip(expected) {
            let clients: Vec<Client> = [FIRST, SECOND_FLOW][..clients]
                .iter()
                .map(|hash| Client {
                    work: Work {
                        initial_seats: 1,
                        final_seats: *final_seats,
                        additional_latency: Duration::from_nanos(u64::try_from(*pad).unwrap()),
                    },
                    ..client(*hash, 1, 25, SECOND, *think)
                })
                .collect();
            let (shares, _) = run(&clients, set(queues(9, 8, 3), *limit), 24);
            nothing_refused(&shares);
            fair(&averages(&shares), &vec![expected; clients.len()], 1e-6);
        }
    }
}

#[test]
fn uniform_flows_in_queues_of_their_own_get_equal_shares() {
    let clients =
        [FIRST, SECOND_FLOW].map(|h| client(h, 8, 20, SECOND, second_less_one_nanosecond()));
    let (shares, _) = run(&clients, set(queues(9, 8, 1), 4), 50);
    nothing_refused(&shares);
    fair(&averages(&shares), &[2.0, 2.0], 0.01);
}

#[test]
fn uniform_flows_with_hands_of_three_get_equal_shares() {
    let clients = [400_900_100_100, 300_900_200_200]
        .map(|h| client(h, 8, 30, SECOND, second_less_one_nanosecond()));
    let (shares, _) = run(&clients, set(queues(8, 16, 3), 4), 60);
    nothing_refused(&shares);
    fair(&averages(&shares), &[2.0, 2.0], 0.03);
}

#[test]
fn different_flows_that_both_want_more_get_equal_shares() {
    let clients = [
        client(FIRST, 8, 20, SECOND, 1_000_000_000),
        client(SECOND_FLOW, 7, 30, SECOND, 500_000_000),
    ];
    let (shares, _) = run(&clients, set(queues(9, 8, 1), 4), 40);
    nothing_refused(&shares);
    fair(&averages(&shares), &[2.0, 2.0], 0.01);
}

#[test]
fn new_epochs_of_virtual_time_do_not_change_the_shares() {
    let unit = 91 * 24 * 3600;
    let q = i64::from(unit) * 1_000_000_000;
    let long = Duration::from_secs(unit.try_into().unwrap());
    let clients = [
        client(FIRST, 8, 20, long, q),
        client(SECOND_FLOW, 7, 30, long, q / 2),
    ]
    .map(|c| Client {
        work: Work::seats(500),
        ..c
    });
    let (shares, counters) = run(
        &clients,
        set(queues(9, 8, 1), 2000),
        40 * u64::try_from(unit).unwrap(),
    );
    nothing_refused(&shares);
    fair(&averages(&shares), &[1000.0, 1000.0], 0.01);
    assert_eq!((counters.epochs, counters.epochs_failed), (8, 0));
}

#[test]
fn a_flow_that_wants_little_gets_it_and_the_other_gets_the_rest() {
    let clients = [(FIRST, 4), (SECOND_FLOW, 2)]
        .map(|(h, n)| client(h, n, 20, SECOND, second_less_one_nanosecond()));
    let (shares, _) = run(&clients, set(queues(9, 6, 1), 3), 20);
    nothing_refused(&shares);
    fair(&averages(&shares), &[2.0, 1.0], 0.01);
}

#[test]
fn flows_of_different_widths_share_the_seats() {
    let think = second_less_one_nanosecond();
    let clients = [
        client(10_010_010_010_010, 13, 10, SECOND, think),
        Client {
            work: Work::seats(2),
            ..client(20_020_020_020_020, 7, 10, SECOND, think)
        },
    ];
    let (shares, _) = run(&clients, set(queues(64, 13, 7), 6), 20);
    nothing_refused(&shares);
    fair(&averages(&shares), &[3.0, 3.0], 0.155);
    fair(&averages(&shares), &[2.75, 3.0], 0.01);
}

fn too_wide() -> Vec<Client> {
    let hashes = [
        40_040_040_040_040,
        50_050_050_050_050,
        60_060_060_060_060,
        70_070_070_070_070,
    ];
    let mut clients: Vec<Client> = hashes
        .map(|h| Client {
            work: Work::seats(2),
            ..client(h, 15, 21, SECOND, second_less_one_nanosecond())
        })
        .into();
    clients.push(Client {
        work: Work::seats(7),
        ..client(
            90_090_090_090_090,
            15,
            21,
            SECOND,
            second_less_one_nanosecond(),
        )
    });
    clients
}

#[test]
fn a_flow_wider_than_the_level_gets_its_share_too() {
    let (shares, _) = run(&too_wide(), set(queues(64, 35, 7), 6), 400);
    nothing_refused(&shares);
    fair(&averages(&shares), &[1.2; 5], 0.35);
    fair(
        &averages(&shares),
        &[1.375, 0.855, 1.395, 1.01, 1.4525],
        0.02,
    );
}

#[test]
fn a_flow_that_used_less_than_its_share_is_favoured_for_a_while() {
    let windup = |set| {
        let clients = [
            client(FIRST, 2, 40, SECOND, -1),
            Client {
                split: true,
                ..client(SECOND_FLOW, 2, 40, SECOND, -1)
            },
        ];
        let (shares, _) = run(&clients, set, 40);
        nothing_refused(&shares);
        shares
    };
    let shares = windup(set(queues(9, 6, 1), 3));
    fair(
        &[shares[0].halves[0], shares[1].halves[0]],
        &[2.0, 1.0],
        0.01,
    );
    let second_half = [shares[0].halves[1], shares[1].halves[1]];
    fair(&second_half, &[1.5, 1.5], 0.26);
    assert!(
        second_half.iter().all(|got| (got - 1.5).abs() / 1.5 > 0.1),
        "{second_half:?}"
    );
}

#[test]
fn without_queues_the_greedier_flow_wins() {
    let clients = [
        client(FIRST, 6, 10, SECOND, 57_000_000),
        client(SECOND_FLOW, 4, 15, SECOND, 750_000_000),
    ];
    let (shares, _) = run(&clients, set(Discipline::Reject, 4), 13);
    let demands = [6.0 / 1.057, 4.0 / 1.75];
    let expected = max_min_shares(&demands, 4.0);
    for (share, expected) in shares.iter().zip(expected) {
        assert!(
            (share.average() - expected).abs() / expected > 0.20,
            "{share:?}"
        );
    }
    assert_eq!(
        [0, 1].map(|client| shares[client].rejected[RejectReason::ConcurrencyLimit as usize]),
        [4, 2]
    );
    assert_eq!([shares[0].executed, shares[1].executed], [20, 30]);
    fair(&averages(&shares), &[1.5385, 1.1923], 0.001);
}

/// Threads that call again as soon as they have the response, and light flows of two calls a second.
fn elephants_and_mice(elephants: &[(u64, u32, u64)]) -> Vec<Client> {
    let service = Duration::from_millis(50);
    let mouse = |i: u64| Client {
        starts: Duration::from_millis(61 * i),
        ..client(
            i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            1,
            10_000,
            service,
            450_000_000,
        )
    };
    let elephant = |(hash, threads, starts): &(u64, u32, u64)| Client {
        starts: Duration::from_secs(*starts),
        ..client(*hash, *threads, 100_000, service, 0)
    };
    (1..5)
        .map(mouse)
        .chain(elephants.iter().map(elephant))
        .collect()
}

/// Runs the clients for `seconds`, and ignores calls that have not ended by then.
fn run_for(clients: &[Client], set: QueueSet<(u32, u32, u32)>, seconds: u64) -> Vec<ClientShare> {
    let run = ClientRun::new(clients, set, Duration::from_secs(seconds));
    run.until(Time::from_nanos(seconds * 1_000_000_000)).0
}

#[test]
fn a_late_flow_starves_the_first_unless_semantics_are_improved() {
    let clients = elephants_and_mice(&[(FIRST, 40, 0), (SECOND_FLOW, 40, 100)]);
    let shape = || queues(64, 200, 1);
    let longest = |set| run_for(&clients, set, 120)[4].longest_wait;
    let (original, ours) = (longest(set(shape(), 10)), longest(improved(shape(), 10)));
    assert!(original > Duration::from_secs(5), "{original:?}");
    assert!(ours < Duration::from_secs(1), "{ours:?}");
}

#[test]
fn only_improved_semantics_keep_the_wait_of_a_light_flow_to_one_service_time() {
    let clients = elephants_and_mice(&[(FIRST, 200, 0)]);
    let shape = || queues(64, 200, 6);
    let longest = |set| {
        let shares = run_for(&clients, set, 30);
        shares[..4]
            .iter()
            .map(|share| share.longest_wait)
            .max()
            .unwrap()
    };
    let (original, ours) = (longest(set(shape(), 10)), longest(improved(shape(), 10)));
    assert!(original > Duration::from_millis(60), "{original:?}");
    // The threads begin some nanoseconds apart.
    assert!(ours <= Duration::from_millis(51), "{ours:?}");
}
