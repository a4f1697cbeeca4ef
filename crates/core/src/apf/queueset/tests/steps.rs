//! What happens to each request, with the figures that the original's tests expect.

use super::*;

#[test]
fn the_first_tie_of_a_level_goes_to_the_second_queue() {
    let mut stage = Stage::new(set(queues(3, 50, 1), 0));
    for (waiter, hash) in [("q0", 0), ("q1", 1), ("q2", 2)] {
        assert!(!stage.executes(at(0), waiter, hash, Work::ONE));
    }
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(at(1), 3, 3, &mut events);
    stage.note(&events);
    assert_eq!(stage.started, ["q1", "q2", "q0"]);
}

#[test]
fn an_unsuccessful_search_after_the_first_queue_was_removed_ends_at_the_last_queue() {
    let mut stage = Stage::new(set(two_queues(), 10));
    stage.arrive(at(0), "q1", 1, Work::seats(8));
    stage.arrive(at(0), "q0", 0, Work::ONE);
    stage.arrive(at(0), "narrow", 1, Work::seats(3));
    stage.reshape(at(0), queues(1, 50, 1));
    stage.finish(at(0), "q0");
    stage.reshape(at(0), two_queues());
    // Both would finish at 3.3 million units; the wide one's queue is new and stands behind the other.
    stage.arrive(at(0), "wide", 1, Work::seats(11));
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(at(0), 30, 30, &mut events);
    stage.note(&events);
    assert_eq!(stage.started, ["q1", "q0", "wide", "narrow"]);
}

#[test]
fn the_refund_of_an_overcharge_is_rounded_once() {
    let mut stage = Stage::new(set(two_queues(), 1));
    stage.arrive(at(0), "short", 0, Work::ONE);
    stage.finish(Time::from_nanos(5), "short");
    assert_eq!(stage.s(0), 0, "299 999.5 units of the charge are refunded");
}

#[test]
fn a_cancelled_request_leaves_at_once_and_never_executes() {
    let mut stage = Stage::new(set(queues(11, 11, 1), 1));
    assert!(stage.executes(at(0), "first", FIRST, Work::ONE));
    assert!(!stage.executes(at(1), "second", SECOND_FLOW, Work::ONE));
    assert!(stage.cancel(at(1_000_001), "second"));
    assert!(!stage.set.is_idle());
    stage.finish(at(2_000_000), "first");
    assert!(stage.set.is_idle());
    assert_eq!(stage.started, ["first"]);
    let counters = stage.set.summary().counters;
    assert_eq!(
        (counters.dispatched, counters.rejected, counters.cancelled),
        (1, 1, 1)
    );
}

#[test]
fn a_dispatched_request_cannot_be_cancelled() {
    let mut stage = Stage::new(set(two_queues(), 1));
    stage.arrive(at(0), "a", 0, Work::ONE);
    stage.arrive(at(0), "b", 0, Work::ONE);
    stage.finish(at(5), "a");
    assert!(!stage.cancel(at(5), "b"));
    stage.finish(at(9), "b");
    assert!(stage.set.is_idle());
}

#[test]
fn a_finished_request_stops_executing_at_once_and_its_seats_linger() {
    let mut stage = Stage::new(set(queues(9, 50, 1), 300));
    let lingering = Work {
        initial_seats: 1,
        final_seats: 10,
        additional_latency: Duration::from_secs(60),
    };
    stage.arrive(at(0), "lingers", FIRST, lingering);
    stage.arrive(at(0), "plain", FIRST, Work::seats(10));
    assert_eq!(stage.set.summary().seats_in_use, 20);
    assert_eq!(stage.finish(at(0), "lingers"), Some(at(60_000_000)));
    assert_eq!(
        (
            stage.set.summary().executing,
            stage.set.summary().seats_in_use
        ),
        (1, 20)
    );
    assert_eq!(stage.finish(at(10), "plain"), None);
    assert_eq!(
        (
            stage.set.summary().executing,
            stage.set.summary().seats_in_use
        ),
        (0, 10)
    );
    assert!(stage.set.is_idle());
    stage.tick(at(60_000_000));
    assert_eq!(stage.set.summary().seats_in_use, 0);
}

#[test]
fn a_level_that_becomes_exempt_dispatches_a_head_that_did_not_fit() {
    let mut stage = Stage::new(set(two_queues(), 2));
    assert!(stage.executes(at(0), "busy", 0, Work::ONE));
    assert!(!stage.executes(at(1), "wide", 1, Work::seats(28)));
    stage.reshape(at(2), Discipline::Exempt);
    assert_eq!(stage.started, ["busy", "wide"]);
}

#[test]
fn a_deck_that_grows_and_shrinks_keeps_waiting_requests() {
    let mut stage = Stage::new(improved(queues(4, 50, 1), 1));
    stage.arrive(at(0), "busy", 0, Work::ONE);
    stage.arrive(at(1), "waits", 3, Work::ONE);
    for (i, shape) in [
        (2, queues(1, 50, 1)),
        (3, Discipline::Reject),
        (4, queues(64, 50, 6)),
    ] {
        let mut events = QueueSetEvents::default();
        stage
            .set
            .configure(at(i), Semantics::Improved, shape, &mut events);
        stage.note(&events);
    }
    stage.finish(at(10), "busy");
    assert_eq!(stage.started, ["busy", "waits"]);
    stage.finish(at(20), "waits");
    assert_eq!(stage.set.deck.len(), 64);
}

#[test]
fn time_that_goes_back_is_clamped() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    stage.arrive(at(1000), "a", 0, Work::ONE);
    stage.arrive(at(500), "b", 1, Work::ONE);
    stage.finish(at(400), "a");
    assert_eq!(stage.set.now, at(1000));
    assert_eq!(stage.started, ["a", "b"]);
}

#[test]
fn a_smaller_limit_revokes_no_seat_in_use() {
    let mut stage = Stage::new(improved(two_queues(), 4));
    for name in ["a", "b", "c", "d"] {
        stage.arrive(at(0), name, 0, Work::ONE);
    }
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(at(1), 2, 2, &mut events);
    stage.arrive(at(2), "e", 1, Work::ONE);
    stage.finish(at(3), "a");
    stage.finish(at(3), "b");
    assert!(!stage.started.contains(&"e"));
    stage.finish(at(4), "c");
    assert!(stage.started.contains(&"e"));
}

/// A queue set with one request of each width at the head of its own queue, whose virtual start is
/// given in seat-seconds.
fn heads(
    set: QueueSet<&'static str>,
    limit: Seats,
    in_use: Seats,
    heads: &[(u64, Seats)],
) -> Stage {
    let mut stage = Stage {
        set,
        ids: std::collections::BTreeMap::default(),
        started: Vec::new(),
        blocked: 0,
    };
    stage.set.limit = 1000;
    if in_use > 0 {
        // Seats that linger belong to no queue with work.
        stage.arrive(at(0), "in use", 0, Work::seats(in_use));
    }
    stage.set.limit = in_use;
    for ((start, width), (name, hash)) in heads.iter().zip([("q0", 0), ("q1", 1)]) {
        assert!(!stage.executes(at(0), name, hash, Work::seats(*width)));
        let slot = usize::try_from(hash).unwrap();
        stage.set.slots[slot].next_dispatch_r = SeatSeconds::from_units(start * 100_000_000);
        stage.set.settle(u32::try_from(hash).unwrap());
    }
    stage.set.after_robin = 0;
    stage.set.limit = limit;
    stage.started.clear();
    stage
}

impl Stage {
    /// One attempt to dispatch; who got the seats, and which queue was chosen last.
    fn attempt(&mut self) -> (Vec<&'static str>, u32) {
        let before = self.started.len();
        let mut events = QueueSetEvents::default();
        self.set.dispatch(None, &mut events);
        self.started
            .extend(events.dispatched.iter().map(|(waiter, _)| waiter));
        (self.started[before..].to_vec(), self.set.after_robin)
    }
}

#[test]
fn the_head_with_the_least_virtual_finish_is_chosen_if_it_fits() {
    let compatible = || set(two_queues(), 0);
    let mut free = heads(compatible(), 1, 0, &[(200, 1), (100, 1)]);
    assert_eq!(
        free.attempt(),
        (vec!["q1"], 2),
        "the smaller virtual time wins"
    );
    let mut full = heads(compatible(), 1, 1, &[(200, 1)]);
    assert_eq!(full.attempt(), (vec![], 0), "no seat is free");
    let mut exact = heads(compatible(), 50, 25, &[(200, 50), (100, 25)]);
    assert_eq!(exact.attempt(), (vec!["q1"], 2), "it fits exactly");
    let mut wide = heads(compatible(), 50, 26, &[(200, 10), (100, 25)]);
    for _ in 0..2 {
        assert_eq!(
            wide.attempt(),
            (vec![], 2),
            "the best does not fit, though the other would"
        );
    }
    wide.set.limit = 51;
    assert_eq!(wide.attempt(), (vec!["q1"], 2), "until seats appear");
}
