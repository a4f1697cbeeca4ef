//! What a flow saves by asking for less than its share, and what it gets for that.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::*;

fn ms(millis: u64) -> Time {
    at(1_000 * millis)
}

const HEAVY: u64 = 1;
const POLITE: u64 = 2;

/// The names of narrow requests.
const NARROW: [&str; 9] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];

/// A level of two seats in which a heavy flow has used both for 100 ms and has more requests waiting, while a polite flow
/// had one request of 10 ms.
fn after_a_polite_request() -> Stage {
    after_a_polite_request_of(POLITE)
}

/// Like [`after_a_polite_request`]; the polite flow belongs to `tenant`.
fn after_a_polite_request_of(tenant: u64) -> Stage {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 2));
    stage.arrive_of(ms(0), tenant, "polite 0", POLITE, Work::ONE);
    stage.arrive(ms(0), "h0", HEAVY, Work::ONE);
    for name in ["h1", "h2", "h3", "h4", "h5", "h6"] {
        stage.arrive(ms(0), name, HEAVY, Work::ONE);
    }
    stage.finish(ms(10), "polite 0");
    for (time, name) in [(20, "h0"), (30, "h1"), (40, "h2"), (50, "h3")] {
        stage.finish(ms(time), name);
    }
    assert_eq!(stage.started.last(), Some(&"h5"));
    stage
}

#[test]
fn who_was_polite_goes_before_whoever_is_new() {
    let mut stage = after_a_polite_request();
    stage.arrive(ms(60), "new", 3, Work::ONE);
    stage.arrive(ms(60), "polite 1", POLITE, Work::ONE);
    stage.finish(ms(60), "h4");
    assert_eq!(stage.started.last(), Some(&"polite 1"));
    stage.finish(ms(60), "h5");
    assert_eq!(stage.started.last(), Some(&"new"));
}

#[test]
fn a_flow_saves_what_another_of_its_tenant_does_not_if_that_has_few() {
    // So many other flows of the tenant are known.
    for (others, first) in [(0, "polite 1"), (2, "polite 1"), (3, "new")] {
        let mut stage = after_a_polite_request_of(HEAVY);
        for other in 0..others {
            stage.arrive_of(ms(50), HEAVY, "other", 10 + other, Work::ONE);
            stage.cancel(ms(50), "other");
        }
        stage.arrive(ms(60), "new", 3, Work::ONE);
        stage.arrive_of(ms(60), HEAVY, "polite 1", POLITE, Work::ONE);
        stage.finish(ms(60), "h4");
        assert_eq!(stage.started.last(), Some(&first), "{others} others");
    }
}

#[test]
fn who_sends_a_write_that_is_refused_has_received_what_it_took() {
    let received_after = |final_seats: Seats| {
        let mut stage = Stage::new(improved(queues(8, 50, 1), 2));
        let work = Work {
            final_seats,
            additional_latency: SECOND,
            ..Work::ONE
        };
        stage.arrive(ms(0), "write", POLITE, work);
        let number = stage.set.entries.at(stage.ids["write"].index).flow;
        stage.finish_refused(ms(10), "write");
        let flow = stage.set.flows.at(number);
        (flow.start, stage.set.flows.tenants().received(flow.owner))
    };
    assert_eq!(received_after(2), received_after(0));
}

#[test]
fn who_was_polite_gives_way_to_nobody_who_has_received_more() {
    let mut stage = after_a_polite_request();
    stage.arrive(ms(60), "polite 1", POLITE, Work::ONE);
    stage.arrive(ms(60), "polite 2", POLITE, Work::ONE);
    stage.finish(ms(60), "h4");
    // It holds its part now, one of two seats.
    stage.finish(ms(60), "h5");
    assert_eq!(stage.started[7..], ["polite 1", "polite 2"]);
}

#[test]
fn flows_that_are_due_have_turns_and_the_one_furthest_behind_does_not_go_first_until_it_has_caught_up()
 {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    let [elephant, early, late] = [1, 2, 3];
    for name in ["e0", "e1", "e2", "e3"] {
        stage.arrive(ms(0), name, elephant, Work::ONE);
    }
    for name in ["early 0", "early 1", "early 2"] {
        stage.arrive(ms(0), name, early, Work::ONE);
    }
    stage.arrive(ms(40), "late", late, Work::ONE);
    // Both are more than two requests of 3 ms behind, the early one by 90 ms.
    for (time, limit) in [(50, 5), (51, 6), (52, 7)] {
        let mut events = QueueSetEvents::default();
        stage.set.set_limit(ms(time), limit, limit, &mut events);
        stage.note(&events);
    }
    assert_eq!(stage.started[4..], ["early 0", "late", "early 1"]);
}

#[test]
fn the_new_names_of_a_tenant_have_saved_no_more_than_the_tenant() {
    let mut stage = after_a_polite_request();
    let mut events = QueueSetEvents::default();
    // The heavy tenant under a new name, and then a new tenant.
    for (name, hash, tenant) in [
        ("heavy, new name", 4, HEAVY),
        ("polite, new name", 5, POLITE),
    ] {
        let arriving = ArrivingRequest {
            tenant,
            ..arriving(name, hash, Work::ONE)
        };
        let admission = stage.set.arrive(ms(60), arriving, &mut events);
        assert!(matches!(admission, Admission::Wait(_)), "{name}");
    }
    stage.finish(ms(60), "h4");
    assert_eq!(stage.started.last(), Some(&"polite, new name"));
}

#[test]
fn what_a_flow_did_not_ask_for_gives_it_no_more_than_its_part_of_the_seats() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 2));
    // Its requests are expected to take half a second, and it is soon far behind a flow of short ones.
    stage.arrive(ms(0), "long 0", HEAVY, Work::ONE);
    stage.finish(ms(1_000), "long 0");
    for time in (1_000..2_500).step_by(3) {
        stage.arrive(ms(time), "short", POLITE, Work::ONE);
        stage.finish(ms(time + 3), "short");
    }
    stage.arrive(ms(2_500), "short 0", POLITE, Work::ONE);
    stage.arrive(ms(2_500), "long 1", HEAVY, Work::ONE);
    stage.arrive(ms(2_500), "long 2", HEAVY, Work::ONE);
    stage.arrive(ms(2_500), "short 1", POLITE, Work::ONE);
    stage.finish(ms(2_503), "short 0");
    assert_eq!(stage.started.last(), Some(&"short 1"));
}

/// How many requests start while a client waits for its second request, which it sends when its first one has ended after so
/// many milliseconds. Beside it 100 requests of 20 ms wait at any time for four seats, each of a new tenant.
fn requests_before_a_client_that_comes_back(millis: u64) -> usize {
    const CLIENT: u64 = 1_000;
    let mut set = improved(queues(64, 50, 8), 4);
    let mut ids = BTreeMap::new();
    let mut ends = BinaryHeap::new();
    // At first as if so many requests had ended.
    (0..104).for_each(|name| ends.push(Reverse((0, name))));
    let mut before = None;
    for next in 104.. {
        let Reverse((now, ended)) = ends.pop().expect("something executes");
        let mut events = QueueSetEvents::default();
        if let Some(id) = ids.remove(&ended) {
            set.finish(ms(now), id, &mut events);
        }
        let name = match (next, ended) {
            // The level has learnt how long requests take.
            (200, _) | (_, CLIENT) => CLIENT,
            _ => next,
        };
        let hash = Random::seeded(name).number();
        let arriving = ArrivingRequest {
            waiter: name,
            schema: 0,
            hash,
            tenant: hash,
            work: Work::ONE,
        };
        let admission = set.arrive(ms(now), arriving, &mut events);
        let mut begun: Vec<_> = events.dispatched.into_iter().collect();
        match admission {
            Admission::Execute(id) => begun.push((name, id)),
            Admission::Wait(_) => {}
            Admission::Reject(reason) => panic!("{reason:?}"),
        }
        if ended == CLIENT {
            before = Some(0);
        }
        for (name, id) in begun {
            ids.insert(name, id);
            let takes = if name == CLIENT { millis } else { 20 };
            ends.push(Reverse((now + takes, name)));
            match (&mut before, name) {
                (Some(before), CLIENT) => return *before,
                (Some(before), _) => *before += 1,
                (None, _) => {}
            }
        }
    }
    unreachable!("the client is served")
}

#[test]
fn who_comes_back_for_one_seat_owes_no_more_than_it_receives_in_100_ms() {
    // 100 wait, and in 100 ms 20 new ones come.
    for millis in [40, 200, 1_000] {
        let before = requests_before_a_client_that_comes_back(millis);
        assert!(before <= 125, "{before} before one that took {millis} ms");
    }
}

#[test]
fn whose_request_was_short_has_saved_the_rest_of_a_usual_one() {
    // While it waited for its first one, each other one received 20 ms.
    let before = requests_before_a_client_that_comes_back(5);
    assert!(before <= 35, "{before}");
    let as_long_as_the_others = requests_before_a_client_that_comes_back(20);
    assert!(before + 50 <= as_long_as_the_others);
    assert!(as_long_as_the_others <= 105, "{as_long_as_the_others}");
}

#[test]
fn nothing_is_owed_for_a_time_in_which_nothing_waited() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 2));
    // One flow uses a seat for a second while the other is free, but for one short request.
    stage.arrive(ms(0), "long", HEAVY, Work::ONE);
    stage.arrive(ms(0), "short", 3, Work::ONE);
    stage.finish(ms(3), "short");
    stage.finish(ms(1_000), "long");
    for name in ["a0", "a1"] {
        stage.arrive(ms(1_000), name, 3, Work::ONE);
    }
    stage.arrive(ms(1_000), "heavy", HEAVY, Work::ONE);
    stage.arrive(ms(1_000), "a2", 3, Work::ONE);
    stage.finish(ms(1_003), "a0");
    assert_eq!(stage.started.last(), Some(&"heavy"));
}

#[test]
fn a_request_that_the_ideal_would_have_finished_displaces_seats_that_linger() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 2));
    let write = Work {
        initial_seats: 1,
        final_seats: 10,
        additional_latency: Duration::from_millis(20),
    };
    stage.arrive(ms(0), "polite 0", POLITE, Work::ONE);
    stage.finish(ms(3), "polite 0");
    for name in ["w0", "w1", "w2"] {
        stage.arrive(ms(3), name, HEAVY, write);
    }
    // Both seats linger for 200 ms.
    for name in ["w0", "w1"] {
        assert_eq!(stage.finish(ms(13), name), Some(ms(213)), "{name}");
    }
    let polite_starts = stage.executes(ms(100), "polite 1", POLITE, Work::ONE);
    assert!(polite_starts, "in the place of a seat that lingers");
    assert_eq!(stage.set.summary().seats_in_use, 2, "the limit is kept");
    assert_eq!(stage.started.len(), 4, "the third write has to wait");
    stage.finish(ms(110), "polite 1");
    // For 10 ms one of two seats was displaced, so both linger for 5 ms longer.
    stage.tick(ms(213));
    assert_eq!(stage.started.len(), 4);
    stage.tick(ms(218));
    assert_eq!(stage.started.last(), Some(&"w2"));
}

#[test]
fn a_narrower_request_of_the_same_flow_goes_before_a_head_that_does_not_fit_eight_times() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    stage.arrive(ms(0), "other", HEAVY, Work::seats(3));
    stage.arrive(ms(0), "wide", POLITE, Work::seats(4));
    for name in NARROW {
        stage.arrive(ms(0), name, POLITE, Work::ONE);
    }
    for name in NARROW {
        if stage.started.contains(&name) {
            stage.finish(ms(1), name);
        }
    }
    assert_eq!(stage.started[1..], NARROW[..8]);
    stage.finish(ms(2), "other");
    assert_eq!(stage.started.last(), Some(&"wide"));
}

/// A level of four seats in which the heavy flow has four writes, whose seats linger for 300 ms. It has saved something, and its
/// next write waits; there are others that take little.
fn after_four_writes() -> Stage {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    let write = Work {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: Duration::from_millis(300),
    };
    for time in (0..16_000).step_by(400) {
        stage.arrive(ms(time), "w", HEAVY, write);
        stage.finish(ms(time + 1), "w");
        stage.tick(ms(time + 301));
    }
    for time in (16_000..16_160).step_by(10) {
        stage.arrive(ms(time), "p", POLITE, Work::ONE);
        stage.finish(ms(time + 3), "p");
    }
    let writes = ["w0", "w1", "w2", "w3"];
    for name in writes {
        stage.arrive(ms(17_000), name, HEAVY, write);
    }
    for name in writes {
        stage.finish(ms(17_001), name);
    }
    stage
}

#[test]
fn a_flow_of_which_its_part_lingers_displaces_nothing() {
    let mut stage = after_four_writes();
    let starts = stage.executes(ms(17_002), "w4", HEAVY, Work::ONE);
    assert!(!starts, "in the place of its own seats that linger");
}

#[test]
fn who_is_next_and_displaces_nothing_keeps_nobody_else_from_it() {
    let mut stage = after_four_writes();
    stage.arrive(ms(17_002), "w4", HEAVY, Work::seats(4));
    assert!(stage.executes(ms(17_010), "polite", POLITE, Work::ONE));
    assert!(!stage.started.contains(&"w4"));
}

/// A write of one seat, whose seat lingers for so long.
fn write(millis: u64) -> Work {
    Work {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: Duration::from_millis(millis),
    }
}

/// A level of four seats of which one lingers; the next flow has a request of two seats waiting, which the ideal would finish
/// after 8 ms.
fn before_a_wide_request() -> Stage {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    stage.arrive(ms(0), "w", HEAVY, write(900));
    for name in ["a0", "a1", "a2"] {
        stage.arrive(ms(0), name, 3, Work::ONE);
    }
    stage.finish(ms(3), "w");
    let wide_starts = stage.executes(ms(3), "wide", 4, Work::seats(2));
    assert!(!wide_starts, "three seats execute");
    stage
}

#[test]
fn seats_that_linger_are_not_kept_for_a_wide_request_that_the_ideal_would_not_have_finished() {
    let mut stage = before_a_wide_request();
    assert!(stage.executes(ms(4), "polite", POLITE, Work::ONE));
    assert!(!stage.started.contains(&"wide"));
}

#[test]
fn seats_that_linger_are_kept_for_a_wide_request_that_the_ideal_would_have_finished() {
    let mut stage = before_a_wide_request();
    assert!(!stage.executes(ms(30), "polite", POLITE, Work::ONE));
    stage.finish(ms(31), "a0");
    assert_eq!(stage.started.last(), Some(&"wide"));
}

#[test]
fn who_leaves_no_final_work_displaces_seats_however_many_linger() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 2));
    for (time, names) in [
        (0, [(HEAVY, "a0"), (3, "a1")]),
        (500, [(4, "b0"), (5, "b1")]),
    ] {
        for (flow, name) in names {
            stage.arrive(ms(time), name, flow, write(100_000));
        }
        stage.tick(ms(time + 400));
        for (_, name) in names {
            stage.finish(ms(time + 400), name);
        }
    }
    // Twice as many linger as the level has seats, and none executes.
    assert!(stage.executes(ms(1_000), "polite", POLITE, Work::ONE));
    stage.finish(ms(1_003), "polite");
    for (flow, name) in [(6, "c0"), (7, "c1")] {
        assert!(stage.executes(ms(1_004), name, flow, write(100_000)));
        stage.finish(ms(1_005), name);
    }
    assert!(
        !stage.executes(ms(1_006), "d", 8, write(10)),
        "more than three times as many would linger"
    );
}

#[test]
fn virtual_time_advances_although_seats_of_a_flow_far_behind_it_are_displaced() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 1));
    stage.arrive(ms(0), "a0", 3, Work::ONE);
    stage.arrive(ms(0), "w", HEAVY, write(900));
    stage.arrive(ms(0), "a1", 3, Work::ONE);
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(ms(100), 2, 2, &mut events);
    stage.note(&events);
    assert_eq!(stage.started.last(), Some(&"w"), "it is far behind");
    stage.finish(ms(101), "w");
    assert!(stage.executes(ms(102), "polite", POLITE, Work::ONE));
    let before = stage.set.virtual_time.r();
    stage.tick(ms(112));
    let passed = stage.set.virtual_time.r().minus(before);
    // Two of three seats that are held are no savings that are used, and there are two seats for three flows.
    let least = SeatSeconds::product(4, Nanos::from_millis(10)).units() / 9;
    assert!(passed.units() + 1_000 >= least, "{passed} of {least}");
}

/// What virtual time passes in a second of so many steps, while 2 000 tenants wait for four seats, and requests execute in the place of
/// four others that linger.
fn passed_in_a_second_of(steps: u64) -> u64 {
    let mut set = improved(queues(64, 500, 8), 4);
    let mut events = QueueSetEvents::default();
    let writes = [0; 4].map(|_| {
        let arriving = arriving("w", HEAVY, write(1_000_000));
        match set.arrive(ms(0), arriving, &mut events) {
            Admission::Execute(id) => id,
            other => panic!("a seat is free: {other:?}"),
        }
    });
    for id in writes {
        set.finish(ms(10), id, &mut events);
    }
    for tenant in 0..2_000 {
        let hash = Random::seeded(tenant).number();
        set.arrive(ms(10), arriving("r", hash, Work::ONE), &mut events);
    }
    assert_eq!(set.lingering.displaced(), 4);
    let before = set.virtual_time.r();
    for step in 1..=steps {
        set.tick(at(10_000 + 1_000_000 * step / steps), &mut events);
    }
    set.check_invariants();
    set.virtual_time.r().minus(before).units()
}

#[test]
fn virtual_time_does_not_depend_on_how_often_it_is_looked_at_while_seats_are_displaced() {
    let [once, often] = [1, 100_000].map(passed_in_a_second_of);
    let least = SeatSeconds::product(4, SECOND).units() / 2_100;
    assert!(once >= least, "{once} of {least}");
    assert!(once.abs_diff(often) <= once / 100, "{often}, not {once}");
}

/// The requests of a client of long ones have made the usual request a long one. Then one comes back to what has become a full level that
/// it may use together with a client that has more waiting.
#[test]
fn who_comes_back_to_long_requests_has_turns_although_it_cannot_save_two_of_them() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    let [elephant, early, late] = [1, 2, 3];
    for time in 0..40 {
        stage.arrive(ms(time), "short", early, Work::ONE);
        stage.finish(ms(time + 1), "short");
    }
    for (time, names) in [
        (100, ["e0", "e1", "e2", "e3"]),
        (1_100, ["e4", "e5", "e6", "e7"]),
    ] {
        for name in names {
            stage.arrive(ms(time), name, elephant, Work::ONE);
        }
        if time == 100 {
            for name in names {
                stage.finish(ms(1_100), name);
            }
        }
    }
    for name in ["early 0", "early 1", "early 2"] {
        stage.arrive(ms(1_100), name, early, Work::ONE);
    }
    stage.arrive(ms(1_140), "late", late, Work::ONE);
    let started = stage.started.len();
    for (time, limit) in [(1_300, 5), (1_301, 6), (1_302, 7)] {
        let mut events = QueueSetEvents::default();
        stage.set.set_limit(ms(time), limit, limit, &mut events);
        stage.note(&events);
    }
    assert_eq!(stage.started[started..], ["early 0", "late", "early 1"]);
}
