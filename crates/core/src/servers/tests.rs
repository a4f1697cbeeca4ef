//! The choice of servers, their health, and waiting, in any order of events.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use proptest::prelude::*;

use super::{
    health::{EjectionReason, Health, ServerProbe, ServerState},
    load::{
        Choice, HasLoad, Preference, ServerCharge, ServerDemand, ServerLoad, choose, total_seats,
    },
    places::Places,
    waiting::WaitingForServer,
};
use crate::{apf::Seats, time::Time};

#[derive(Debug)]
struct Server(ServerLoad);

impl HasLoad for Server {
    fn load(&self) -> &ServerLoad {
        &self.0
    }
}

fn servers(seats: &[u32]) -> (Vec<Arc<Server>>, Arc<Places>) {
    let places = Arc::<Places>::default();
    let server = |seats: &u32| Arc::new(Server(ServerLoad::new(*seats, Arc::clone(&places))));
    (seats.iter().map(server).collect(), places)
}

fn wide(width: u32) -> ServerDemand {
    ServerDemand {
        width,
        is_limited: true,
        is_long_running: false,
    }
}

fn charged(choice: Choice<Server>) -> ServerCharge<Server> {
    match choice {
        Choice::Charged(charge) => charge,
        other => panic!("{other:?}"),
    }
}

/// The indices of the servers that were charged for so many requests of one seat.
fn placed(servers: &[Arc<Server>], requests: usize) -> (Vec<usize>, Vec<ServerCharge<Server>>) {
    let charges: Vec<_> = (0..requests)
        .map(|_| charged(choose(servers, wide(1), Preference::default())))
        .collect();
    let index = |charge: &ServerCharge<Server>| {
        let is_it = |server: &Arc<Server>| Arc::ptr_eq(server, charge.server());
        servers.iter().position(is_it).unwrap()
    };
    (charges.iter().map(index).collect(), charges)
}

#[test]
fn requests_go_to_the_server_with_the_fewest_seats_in_use_for_its_capacity() {
    let (servers, _) = servers(&[10, 20, 10]);
    let (mut at, held) = placed(&servers, 40);
    let in_use: Vec<_> = servers.iter().map(|server| server.0.charged()).collect();
    assert_eq!(in_use, [10, 20, 10], "each is full, none is charged more");
    at.truncate(4);
    at.sort_unstable();
    assert_eq!(
        at,
        [0, 1, 1, 2],
        "one each, and the next where most are free"
    );
    assert!(matches!(
        choose(&servers, wide(1), Preference::default()),
        Choice::Full
    ));
    drop(held);
    assert!(servers.iter().all(|server| server.0.charged() == 0));
}

#[test]
fn requests_that_nothing_limits_count_for_the_choice_but_take_no_room() {
    let (servers, _) = servers(&[2, 2]);
    let unlimited = ServerDemand {
        is_limited: false,
        ..wide(3)
    };
    let _held: Vec<_> = (0..4)
        .map(|_| charged(choose(&servers, unlimited, Preference::default())))
        .collect();
    assert_eq!(servers[0].0.in_use(), 6);
    let (_, held) = placed(&servers, 4);
    assert_eq!(held.len(), 4);
}

#[test]
fn a_preferred_server_is_taken_while_it_has_room_and_takes_requests() {
    let (servers, _) = servers(&[2, 2]);
    let preferring = || {
        let preference = Preference {
            first: Some(1),
            ..Preference::default()
        };
        charged(choose(&servers, wide(1), preference))
    };
    let held: Vec<_> = (0..3).map(|_| preferring()).collect();
    assert_eq!((servers[0].0.charged(), servers[1].0.charged()), (1, 2));
    drop(held);
    servers[1].0.close();
    let _held = preferring();
    assert_eq!((servers[0].0.charged(), servers[1].0.charged()), (1, 0));
}

#[test]
fn when_no_server_takes_requests_all_are_tried_but_those_that_were_tried() {
    let (servers, _) = servers(&[2, 2]);
    servers[0].0.close();
    servers[1].0.close();
    assert_eq!(total_seats(&servers), 4);
    let excluded = |excluded| Preference {
        excluded,
        ..Preference::default()
    };
    let _held = charged(choose(&servers, wide(1), excluded(&[0])));
    assert_eq!(servers[1].0.charged(), 1);
    assert!(matches!(
        choose(&servers, wide(1), excluded(&[0, 1])),
        Choice::None
    ));
    assert!(matches!(
        choose::<Server>(&[], wide(1), excluded(&[])),
        Choice::None
    ));
}

#[test]
fn a_server_that_is_no_longer_listed_is_not_tried_when_no_server_takes_requests() {
    let (servers, _) = servers(&[2, 4]);
    let (_, mut held) = placed(&servers, 3);
    let is_at_second = |charge: &ServerCharge<Server>| Arc::ptr_eq(charge.server(), &servers[1]);
    held.retain(is_at_second);
    let running = Seats::try_from(held.len()).unwrap();
    assert!(running > 0);
    servers[1].0.set_listed(false);
    servers[1].0.close();
    let excluded = Preference {
        excluded: &[0],
        ..Preference::default()
    };
    let unlimited = ServerDemand {
        is_limited: false,
        ..wide(1)
    };
    for demand in [wide(1), unlimited] {
        assert!(matches!(choose(&servers, demand, excluded), Choice::None));
    }
    servers[0].0.close();
    assert_eq!(total_seats(&servers), 2 + running, "what still runs there");
    drop(held);
    assert_eq!(total_seats(&servers), 2);
    let (at, _held) = placed(&servers, 2);
    assert_eq!(at, [0, 0]);
    // Its name has the address again.
    servers[1].0.set_listed(true);
    assert_eq!(total_seats(&servers), 6);
}

#[test]
fn seats_are_shared_in_equal_parts_of_at_least_one() {
    for (seats, parts, each) in [
        (600, 3, vec![200, 200, 200]),
        (8, 3, vec![3, 3, 2]),
        (1, 2, vec![1, 1]),
        (5, 0, vec![5]),
    ] {
        assert_eq!(super::equal_parts(seats, parts).collect::<Vec<_>>(), each);
    }
}

#[test]
fn a_request_wider_than_a_server_has_it_for_itself() {
    let (servers, _) = servers(&[4]);
    let (_, held) = placed(&servers, 1);
    assert!(matches!(
        choose(&servers, wide(9), Preference::default()),
        Choice::Full
    ));
    drop(held);
    let _wide = charged(choose(&servers, wide(9), Preference::default()));
    assert!(matches!(
        choose(&servers, wide(1), Preference::default()),
        Choice::Full
    ));
}

#[test]
fn what_runs_on_a_server_that_is_closed_does_not_take_seats_from_the_others() {
    let (servers, _) = servers(&[10, 10, 10]);
    let (_, held) = placed(&servers, 12);
    servers[2].0.close();
    assert_eq!(total_seats(&servers), 24, "20, and 4 that still run");
    // It is back, with a part of its seats and all that runs there.
    servers[2].0.set_capacity(1);
    assert_eq!(total_seats(&servers), 24);
    drop(held);
    assert_eq!(total_seats(&servers), 21);
}

#[test]
fn who_waits_for_a_server_that_is_closed_waits_for_another() {
    let (servers, places) = servers(&[4, 4]);
    let (_, mut held) = placed(&servers, 8);
    let mut waiting = WaitingForServer::new(Arc::clone(&places));
    assert!(poll(&mut waiting, &servers, 4).is_none());
    let of_first = |charge: &ServerCharge<Server>| Arc::ptr_eq(charge.server(), &servers[0]);
    for closed in [0, 1] {
        // Whichever it has claimed.
        servers[closed].0.close();
        assert!(poll(&mut waiting, &servers, 4).is_none());
        servers[closed].0.set_capacity(4);
    }
    servers[1].0.close();
    assert!(poll(&mut waiting, &servers, 4).is_none());
    while let Some(index) = held.iter().position(of_first) {
        held.remove(index);
        // Nobody else takes the room.
        assert!(matches!(
            choose(&servers, wide(1), Preference::default()),
            Choice::Full
        ));
    }
    assert!(poll(&mut waiting, &servers, 4).is_some_and(|charge| of_first(&charge)));
}

fn poll(
    waiting: &mut WaitingForServer<Server>,
    servers: &[Arc<Server>],
    width: u32,
) -> Option<ServerCharge<Server>> {
    let mut cx = Context::from_waker(Waker::noop());
    match waiting.poll(&mut cx, servers, wide(width), Preference::default()) {
        Poll::Ready(choice) => Some(charged(choice)),
        Poll::Pending => None,
    }
}

#[test]
fn narrow_requests_do_not_take_the_room_of_a_wide_one_that_waits() {
    let (servers, places) = servers(&[4, 4]);
    let (_, mut held) = placed(&servers, 8);
    let mut waiting = WaitingForServer::new(Arc::clone(&places));
    assert!(poll(&mut waiting, &servers, 4).is_none());
    // One ends and another arrives, always: after as many as there are seats, a server has been emptied for the wide one.
    let rounds = (1..=8).find(|_| {
        held.remove(0);
        let is_placed = poll(&mut waiting, &servers, 4).is_some();
        if let Choice::Charged(charge) = choose(&servers, wide(1), Preference::default()) {
            held.push(charge);
        }
        is_placed
    });
    assert!(rounds.is_some());
    assert!(places.is_empty());
}

proptest! {
    #[test]
    fn no_server_is_charged_too_much_and_nobody_waits_while_there_is_room(
        seats in prop::collection::vec(1_u32..12, 1..5),
        steps in prop::collection::vec((0_u8..8, 1_u32..8, any::<u16>()), 1..300),
    ) {
        let (servers, places) = servers(&seats);
        let mut held: Vec<ServerCharge<Server>> = Vec::new();
        let mut waiting: Vec<(WaitingForServer<Server>, u32)> = Vec::new();
        for (step, width, which) in steps {
            let at = |length: usize| usize::from(which) % length.max(1);
            match step {
                0..=2 => match choose(&servers, wide(width), Preference::default()) {
                    Choice::Charged(charge) => held.push(charge),
                    Choice::Full | Choice::None => {
                        waiting.push((WaitingForServer::new(Arc::clone(&places)), width));
                    }
                },
                3 | 4 if !held.is_empty() => drop(held.swap_remove(at(held.len()))),
                5 if !waiting.is_empty() => drop(waiting.remove(at(waiting.len()))),
                6 => servers[at(servers.len())].0.close(),
                _ => {
                    let server = &servers[at(servers.len())].0;
                    server.set_capacity(server.seats());
                }
            }
            // Those that wait look again, each twice, as the first one's claim wakes it.
            for _ in 0..2 {
                let mut still = Vec::new();
                for (mut one, width) in waiting.drain(..) {
                    match poll(&mut one, &servers, width) {
                        Some(charge) => held.push(charge),
                        None => still.push((one, width)),
                    }
                }
                waiting = still;
            }
            for server in &servers {
                let of_it = held.iter().filter(|charge| Arc::ptr_eq(charge.server(), server));
                let load = &server.0;
                prop_assert!(load.charged() <= load.seats() || of_it.count() == 1);
            }
            let is_any_open = servers.iter().any(|server| server.0.capacity() > 0);
            if let Some((_, first)) = waiting.first().filter(|_| is_any_open) {
                let fits = |load: &ServerLoad| {
                    load.charged() + first <= load.capacity() || (load.charged() == 0 && load.capacity() > 0)
                };
                prop_assert!(!servers.iter().any(|server| fits(&server.0)), "the first would fit");
            }
            prop_assert_eq!(places.len(), waiting.len());
        }
        drop(waiting);
        drop(held);
        prop_assert!(places.is_empty());
        for server in &servers {
            prop_assert_eq!(server.0.charged(), 0);
            server.0.set_capacity(server.0.seats());
            // No claim is left behind.
            prop_assert!(matches!(choose(&servers, wide(1), Preference::default()), Choice::Charged(_)));
        }
    }
}

fn at(millis: u64) -> Time {
    Time::ZERO.plus(Duration::from_millis(millis))
}

#[test]
fn a_server_that_cannot_be_reached_is_ejected_and_comes_back_step_by_step() {
    let mut health = Health::new(at(0));
    assert_eq!(health.capacity(at(0), 100), 100);
    assert!(health.not_connected(at(10)));
    assert!(!health.not_connected(at(11)));
    assert_eq!(health.reason(), Some(EjectionReason::NotConnected));
    assert_eq!(health.capacity(at(500), 100), 0);
    assert!(!health.probed(at(1_000), ServerProbe::NotConnected));
    assert!(health.probed(at(2_000), ServerProbe::Ready));
    let steps =
        [2_000, 3_000, 4_500, 7_000, 12_000, 60_000].map(|at_ms| health.capacity(at(at_ms), 100));
    assert_eq!(steps, [10, 10, 25, 50, 100, 100]);
    assert_eq!(
        health.capacity(at(2_000), 1),
        1,
        "never nothing while it is ready"
    );
}

#[test]
fn a_server_that_does_not_answer_is_ejected_after_three_probes_and_one_that_is_not_ready_at_once() {
    let mut health = Health::new(at(0));
    for n in 1..3 {
        assert!(!health.probed(at(n), ServerProbe::NoAnswer));
    }
    assert!(!health.probed(at(3), ServerProbe::Ready));
    for n in 4..6 {
        assert!(!health.probed(at(n), ServerProbe::NoAnswer));
    }
    assert!(health.probed(at(6), ServerProbe::NoAnswer));
    assert_eq!(health.state(), ServerState::Ejected);
    // It starts again, says that it is not ready, and is.
    assert!(health.probed(at(7), ServerProbe::NotReady));
    assert_eq!(
        (health.state(), health.reason()),
        (ServerState::NotReady, None)
    );
    assert!(health.probed(at(8), ServerProbe::Ready));
    assert!(health.probed(at(9), ServerProbe::NotReady));
}

#[test]
fn a_server_that_answers_probes_and_fails_requests_stays_away_longer_each_time() {
    let mut health = Health::new(at(0));
    let mut now = 0;
    let mut away = Vec::new();
    for _ in 0..7 {
        assert!(health.requests_fail(at(now), EjectionReason::Failing));
        let since = now;
        loop {
            now += 1_000;
            if health.probed(at(now), ServerProbe::Ready) {
                break;
            }
        }
        away.push((now - since) / 1_000);
        // That no other server was there when it returned does not make a relapse a first failure.
        if away.len() == 3 {
            assert!(health.skip_slow_start(at(now)));
        }
        now += 500;
    }
    assert_eq!(away, [2, 4, 8, 16, 32, 64, 64]);
    // After five minutes without a failure it begins anew.
    now += 300_000;
    assert!(health.requests_fail(at(now), EjectionReason::OnlyErrors));
    assert!(!health.probed(at(now + 1_000), ServerProbe::Ready));
    assert!(health.probed(at(now + 2_000), ServerProbe::Ready));
    assert_eq!(health.capacity(at(now + 2_000), 100), 10);
    assert!(health.skip_slow_start(at(now + 2_000)));
    assert_eq!(health.capacity(at(now + 2_000), 100), 100);
    assert!(!health.skip_slow_start(at(now + 2_000)), "nothing changes");
}

#[test]
fn a_server_that_let_requests_hang_gets_one_at_a_time_until_it_answers_one() {
    let mut health = Health::new(at(0));
    assert!(health.requests_fail(at(0), EjectionReason::Hanging));
    assert!(!health.answered(at(1_000)), "one that was sent before");
    assert!(health.probed(at(2_000), ServerProbe::Ready));
    assert!(health.is_on_trial());
    assert_eq!(health.capacity(at(60_000), 100), 1, "however long it takes");
    assert!(health.answered(at(60_000)));
    assert_eq!(health.capacity(at(60_000), 100), 10);
    assert_eq!(health.capacity(at(70_000), 100), 100);
    assert!(!health.answered(at(70_000)), "nothing changes");
    // What happens to it later has nothing to do with that.
    assert!(health.probed(at(80_000), ServerProbe::NotReady));
    assert!(health.probed(at(81_000), ServerProbe::Ready));
    assert!(!health.is_on_trial());
    assert_eq!(health.capacity(at(91_000), 100), 100);
}

#[test]
fn a_server_that_shuts_down_does_not_fail_the_requests_that_wait_there() {
    for reason in [EjectionReason::Hanging, EjectionReason::Failing] {
        let mut health = Health::new(at(0));
        assert!(health.probed(at(0), ServerProbe::NotReady));
        assert!(!health.requests_fail(at(1_000), reason));
        assert_eq!(health.state(), ServerState::NotReady);
        assert!(health.probed(at(1_001), ServerProbe::Ready));
        assert!(!health.is_on_trial());
    }
}

#[test]
fn a_server_is_lost_after_ten_seconds_without_any_answer() {
    let mut health = Health::new(at(0));
    assert!(health.not_connected(at(0)));
    assert!(!health.is_lost(at(9_999)) && health.is_lost(at(10_000)));
    // It answers, if with errors only, or that it is not ready.
    assert!(health.probed(at(10_000), ServerProbe::NotReady));
    assert!(!health.is_lost(at(60_000)));
    assert!(health.probed(at(60_000), ServerProbe::Ready));
    assert!(health.requests_fail(at(60_000), EjectionReason::OnlyErrors));
    assert!(!health.is_lost(at(90_000)));
}
