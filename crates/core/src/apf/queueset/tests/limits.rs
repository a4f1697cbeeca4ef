//! What happens when the limit of a level changes while seats linger.

use super::*;

const SEMANTICS: [Semantics; 2] = [Semantics::Compatible, Semantics::Improved];

/// A level of two seats, of which one lingers for a second.
fn while_a_write_lingers(semantics: Semantics) -> Stage {
    let write = Work {
        final_seats: 1,
        additional_latency: SECOND,
        ..Work::ONE
    };
    let set = QueueSet::new(semantics, queues(8, 50, 1), 2, Time::ZERO);
    let mut stage = Stage::new(set);
    assert!(stage.executes(at(0), "write", 1, write));
    assert_eq!(stage.finish(at(10_000), "write"), Some(at(1_010_000)));
    stage
}

fn set_limit(stage: &mut Stage, micros: u64, limit: Seats) {
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(at(micros), limit, limit, &mut events);
    stage.note(&events);
}

#[test]
fn at_a_limit_of_zero_nothing_starts_in_the_place_of_seats_that_linger() {
    for semantics in SEMANTICS {
        let mut stage = while_a_write_lingers(semantics);
        set_limit(&mut stage, 20_000, 0);
        for (name, hash) in [("a", 2), ("b", 3), ("c", 4)] {
            assert!(!stage.executes(at(30_000), name, hash, Work::ONE), "{name}");
        }
        // The ideal would have finished them by now; then the seat ends that lingers.
        for millis in [500, 1_010, 2_000] {
            stage.tick(at(1_000 * millis));
            assert_eq!(stage.started, ["write"], "{semantics:?}, {millis} ms");
        }
        set_limit(&mut stage, 2_000_000, 3);
        assert_eq!(stage.started.len(), 4, "{semantics:?}");
    }
}

#[test]
fn what_waited_before_the_limit_became_zero_starts_when_it_returns_and_not_before() {
    let mut stage = while_a_write_lingers(Semantics::Improved);
    for (name, hash) in [("a", 3), ("b", 4), ("c", 5), ("d", 6)] {
        stage.arrive(at(20_000), name, hash, Work::ONE);
    }
    assert_eq!(stage.started, ["write", "a", "b"], "one displaces a seat");
    stage.set.cut_limit(at(30_000), 0);
    for name in ["a", "b"] {
        stage.finish(at(400_000), name);
    }
    assert_eq!(stage.started.len(), 3);
    set_limit(&mut stage, 500_000, 9);
    assert_eq!(stage.started.len(), 5);
}

#[test]
fn a_level_of_type_reject_refuses_what_comes_at_a_limit_of_zero() {
    let mut stage = Stage::new(improved(Discipline::Reject, 0));
    let refused = Admission::Reject(RejectReason::ConcurrencyLimit);
    assert_eq!(stage.arrive(at(0), "a", 1, Work::ONE), refused);
    // In Compatible one request runs alone, as in kube-apiserver.
    let mut stage = Stage::new(set(Discipline::Reject, 0));
    assert!(stage.executes(at(0), "a", 1, Work::ONE));
    assert!(!stage.executes(at(0), "b", 2, Work::ONE));
}
