//! The examples of `algorithm.md`.

use super::*;

#[test]
fn compatible_follows_the_documented_example() {
    let ss = |millis: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let units = (millis * 1e8).round() as u64;
        units
    };
    let mut stage = Stage::new(set(two_queues(), 1));
    for (waiter, hash, micros) in [("A0", 0, 0), ("A1", 0, 1), ("A2", 0, 2)] {
        stage.arrive(at(micros), waiter, hash, Work::ONE);
    }
    for (waiter, nanos) in [("B0", 1_000_000), ("B1", 1_001_000), ("B2", 1_002_000)] {
        stage.arrive(Time::from_nanos(nanos), waiter, 1, Work::ONE);
    }
    assert_eq!(stage.started, ["A0"]);
    let steps = [
        (10_000, "A0", "B0", 0.0055, 0.010, 0.004),
        (12_000, "B0", "B1", 0.0065, 0.010, 0.006),
        (14_000, "B1", "B2", 0.0075, 0.010, 0.008),
        (16_000, "B2", "A1", 0.0085, 0.013, 0.007),
        (26_000, "A1", "A2", 0.0185, 0.023, 0.007),
    ];
    for (micros, done, next, r, s0, s1) in steps {
        stage.finish(at(micros), done);
        assert_eq!(stage.started.last(), Some(&next));
        assert_eq!(
            (stage.set.virtual_time.r().units(), stage.s(0), stage.s(1)),
            (ss(r), ss(s0), ss(s1)),
            "{done}"
        );
    }
    stage.finish(at(36_000), "A2");
    assert_eq!(
        (stage.set.virtual_time.r().units(), stage.s(0)),
        (ss(0.0285), ss(0.030))
    );
    assert!(stage.set.is_idle());
}

#[test]
fn improved_follows_the_documented_example() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    for (waiter, hash, micros) in [("A0", 0, 0), ("A1", 0, 0), ("A2", 0, 0)] {
        stage.arrive(at(micros), waiter, hash, Work::ONE);
    }
    for waiter in ["B0", "B1", "B2"] {
        stage.arrive(at(1_000), waiter, 1, Work::ONE);
    }
    assert_eq!(stage.started, ["A0"]);
    // Starts and virtual time in tenths of a millisecond of one seat.
    let steps = [
        (10_000, "A0", 100, 10, "B0", 55),
        (12_000, "B0", 100, 30, "B1", 65),
        (14_000, "B1", 100, 50, "B2", 75),
        (16_000, "B2", 100, 70, "A1", 100),
        (26_000, "A1", 200, 70, "A2", 200),
    ];
    for (micros, ended, a, b, next, r) in steps {
        stage.finish(at(micros), ended);
        assert_eq!(stage.started.last(), Some(&next));
        let start = |flow| stage.set.flows.at(flow).certain_start();
        let found = [start(0), start(1), stage.set.virtual_time.r()];
        let expected =
            [a, b, r].map(|tenths| SeatSeconds::product(1, Duration::from_micros(100 * tenths)));
        assert_eq!(found, expected, "{ended}");
    }
}

/// The turns of a flow of requests as wide as the level of so many `seats`, W, and one of narrow ones, n, that begin 10 ms after one
/// another and end so many microseconds `apart`: the name of the first request that executes in each turn.
fn turns_of_wide_and_narrow(seats: Seats, apart: u64, turns: u64) -> String {
    let mut stage = Stage::new(improved(queues(2, 2_000, 1), seats));
    for _ in 0..2_000 {
        stage.arrive(at(0), "W", 0, Work::seats(seats));
        stage.arrive(at(0), "n", 1, Work::ONE);
    }
    let mut names = String::new();
    for turn in 1..=turns {
        let mut executing = Vec::new();
        stage.set.visit(|entry| {
            if entry.phase == Phase::Executing {
                executing.push((entry.waiter, entry.number));
            }
        });
        names.push_str(executing[0].0);
        for ((_, number), place) in executing.into_iter().zip(0..) {
            let id = stage.set.entries.id_of(number);
            let mut events = QueueSetEvents::default();
            let ends = at(turn * 10_000 + place * apart);
            stage.set.finish(ends, id, &mut events);
            stage.note(&events);
        }
    }
    names
}

#[test]
fn a_flow_of_wide_requests_keeps_its_seats_for_several_requests_and_then_yields() {
    assert_eq!(turns_of_wide_and_narrow(4, 0, 20), "WnnnnWWWWWnnnnnnWWWW");
}

#[test]
fn the_more_drains_keep_idle_the_more_requests_a_wide_flow_keeps_its_seats_for() {
    let longest = |apart| {
        let names = turns_of_wide_and_narrow(16, apart, 200);
        names.split('n').map(str::len).max()
    };
    assert_eq!(longest(0), Some(6), "what ends together is drained at once");
    assert_eq!(longest(600), Some(7));
}
