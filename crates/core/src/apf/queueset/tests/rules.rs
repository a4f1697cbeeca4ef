//! The rules of fair queuing one by one, each with a case that it alone decides.

use super::*;

/// A single queue that all flows share, for what does not depend on queues.
fn one_queue() -> Discipline {
    queues(1, 50, 1)
}

/// Flow 0 holds three of eight seats, which is less than its part, and has more wide requests waiting; flow 1 holds the
/// other five.
fn served_wide_flow(waiting: &[&'static str]) -> Stage {
    let mut stage = Stage::new(improved(two_queues(), 8));
    stage.arrive(at(0), "wide 0", 0, Work::seats(3));
    for name in ["narrow 0", "narrow 1", "narrow 2", "narrow 3", "narrow 4"] {
        stage.arrive(at(0), name, 1, Work::ONE);
    }
    for name in waiting {
        stage.arrive(at(1), name, 0, Work::seats(3));
    }
    stage.arrive(at(2), "narrow 5", 1, Work::ONE);
    stage.arrive(at(2), "narrow 6", 1, Work::ONE);
    assert_eq!(stage.started.len(), 6);
    stage
}

#[test]
fn no_seats_are_drained_for_a_flow_that_is_served_and_has_more_waiting() {
    let mut stage = served_wide_flow(&["wide 1", "wide 2"]);
    // The first narrow request has used a seat for 20 ms. That is more than the 9 ms that the wide flow is charged, so
    // the wide flow is next, but the lead is less than three requests of 9 ms.
    stage.finish(at(20_000), "narrow 0");
    assert_eq!(
        stage.started[6..],
        ["narrow 5"],
        "the seat is not kept free"
    );
    assert!(
        stage.blocked > 0,
        "the wide request was next and did not fit"
    );
    // With 100 ms the narrow ones are too far ahead.
    stage.finish(at(100_000), "narrow 1");
    assert_eq!(stage.started[6..], ["narrow 5"]);
}

#[test]
fn a_lead_is_not_taken_from_a_flow_that_has_used_no_more_than_its_share() {
    let mut stage = served_wide_flow(&["wide 1", "wide 2"]);
    // It comes when the wide flow has been charged 9 ms and virtual time is 20 ms, before the narrow flow pays for 50 ms.
    stage.arrive(at(5_000), "polite", 2, Work::seats(2));
    stage.finish(at(50_000), "narrow 0");
    assert_eq!(stage.started.len(), 6, "the seat is kept free");
    stage.finish(at(50_000), "narrow 1");
    assert_eq!(stage.started[6..], ["polite"]);
}

#[test]
fn seats_are_drained_for_a_flow_with_a_single_request_waiting() {
    let mut stage = served_wide_flow(&["wide 1"]);
    stage.finish(at(90_000), "narrow 0");
    assert_eq!(stage.started.len(), 6, "{:?}", stage.started);
}

#[test]
fn the_names_of_a_tenant_give_way_together() {
    const TENANT: u64 = 100;
    const OTHER: u64 = 1;
    let mut stage = Stage::new(improved(queues(8, 50, 1), 5));
    let work = Work::ONE;
    stage.arrive(at(0), "o0", OTHER, work);
    let names = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];
    for (hash, name) in (200..).zip(names) {
        stage.arrive_of(at(0), TENANT, name, hash, work);
    }
    // The other flow has used a seat for 100 ms, so what the names have waiting is due before what it sends now.
    stage.finish(at(100_000), "o0");
    stage.arrive(at(101_000), "o1", OTHER, work);
    assert_eq!(stage.started[1..], names[..5]);
    // They still hold four of five seats, which is their part.
    stage.finish(at(110_000), "t0");
    assert_eq!(stage.started.last(), Some(&"o1"));
    stage.finish(at(110_000), "t1");
    assert_eq!(stage.started.last(), Some(&"t5"));
}

#[test]
fn a_request_of_an_exempt_level_holds_its_whole_width() {
    let mut stage = Stage::new(improved(Discipline::Exempt, 2));
    stage.arrive(at(0), "wide", 0, Work::seats(10));
    assert_eq!(stage.set.summary().seats_in_use, 10);
}

#[test]
fn the_queue_of_a_hand_with_the_least_waiting_work_is_chosen() {
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        let mut stage = Stage::new(QueueSet::new(semantics, queues(2, 50, 2), 1, Time::ZERO));
        stage.arrive(at(0), "executes", 0, Work::ONE);
        stage.arrive(at(1), "light", 1, Work::ONE);
        stage.arrive(at(2), "heavy", 2, Work::seats(5));
        for (micros, name) in [(3, "third"), (4, "fourth"), (5, "fifth")] {
            stage.arrive(at(micros), name, 3, Work::ONE);
        }
        let reports = stage.set.requests();
        let queue_of = |name| {
            reports
                .iter()
                .find(|r| r.entry.waiter == name)
                .unwrap()
                .queue
        };
        for name in ["light", "third", "fourth", "fifth"] {
            assert_ne!(queue_of(name), queue_of("heavy"), "{semantics:?}: {name}");
        }
    }
}

#[test]
fn the_ratio_of_waiting_requests_is_relative_to_the_places_in_all_queues() {
    let mut stage = Stage::new(improved(queues(4, 5, 1), 1));
    for micros in 0..3 {
        stage.arrive(at(micros), "r", 0, Work::ONE);
    }
    let ratio = |stage: &Stage, from: u64, to: u64| {
        let sum = |micros| stage.set.ratios(at(micros)).waiting.sum;
        sum(to) - sum(from)
    };
    // Two requests wait: over one second in 20 places, then over one in 10.
    let before = ratio(&stage, 2, 1_000_002);
    stage.tick(at(1_000_002));
    stage.reshape(at(1_000_002), queues(2, 5, 1));
    let after = ratio(&stage, 1_000_002, 2_000_002);
    assert!((after / before - 2.0).abs() < 1e-9, "{before} {after}");
}

#[test]
fn the_ratios_of_seats_are_relative_to_the_new_limit_once_it_changes() {
    let mut stage = Stage::new(improved(queues(4, 5, 1), 4));
    for _ in 0..2 {
        stage.arrive(at(0), "r", 0, Work::ONE);
    }
    let sums = |stage: &Stage, micros: u64| {
        let ratios = stage.set.ratios(at(micros));
        [ratios.seats.sum, ratios.executing.sum, ratios.demand.sum]
    };
    // Two of four seats are in use for a second, then two of eight.
    let [first, second] = [0, 1_000_000].map(|micros| sums(&stage, micros));
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(at(1_000_000), 8, 8, &mut events);
    let third = sums(&stage, 2_000_000);
    for (at, ((first, second), third)) in first.into_iter().zip(second).zip(third).enumerate() {
        let (before, after) = (second - first, third - second);
        assert!((before / 5e8 - 1.0).abs() < 1e-9, "{at}: {before}");
        assert!((after / 2.5e8 - 1.0).abs() < 1e-9, "{at}: {after}");
    }
}

#[test]
fn the_bounds_of_virtual_starts_span_the_flows_that_wait() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    assert_eq!(stage.set.next_s_bounds(), None);
    stage.arrive(at(0), "A0", 0, Work::ONE);
    stage.arrive(at(0), "A1", 0, Work::ONE);
    let [least, most, ..] = stage.set.next_s_bounds().expect("a flow waits");
    assert!((least - 0.003).abs() < 1e-9 && (most - 0.003).abs() < 1e-9);
    // A new flow starts at virtual time: what the one active flow has received in a microsecond.
    stage.arrive(at(1), "B0", 1, Work::ONE);
    let [least, most, ..] = stage.set.next_s_bounds().expect("two flows wait");
    assert!((least - 1e-6).abs() < 1e-9 && (most - 0.003).abs() < 1e-9);
}

#[test]
fn an_epoch_that_begins_too_early_is_counted_as_failed() {
    let mut stage = Stage::new(set(one_queue(), 1));
    stage.set.next_epoch();
    let counters = stage.set.summary().counters;
    assert_eq!((counters.epochs, counters.epochs_failed), (0, 1));
    stage.set.virtual_time.catch_up(SeatSeconds::MAX);
    stage.set.next_epoch();
    let counters = stage.set.summary().counters;
    assert_eq!((counters.epochs, counters.epochs_failed), (1, 1));
}

#[test]
fn an_epoch_sets_back_the_queues_in_use_and_resets_the_others_to_zero() {
    let mut stage = Stage::new(set(two_queues(), 1));
    let late = SeatSeconds::from_units(SeatSeconds::MAX.units() / 8 * 5);
    stage.set.virtual_time.catch_up(late);
    stage.arrive(at(0), "B", 1, Work::ONE);
    stage.finish(at(1000), "B");
    stage.arrive(at(1000), "A0", 0, Work::ONE);
    stage.arrive(at(1000), "A1", 0, Work::ONE);
    let before = [stage.s(0), stage.s(1)];
    assert!(before.iter().all(|&s| s >= late.units()), "{before:?}");
    let virtual_time = stage.set.virtual_time.r();
    stage.set.next_epoch();
    let back = virtual_time.units() - stage.set.virtual_time.r().units();
    assert!(back > late.units() / 2, "virtual time was set back");
    assert_eq!([stage.s(0), stage.s(1)], [before[0] - back, 0]);
    stage.set.check_invariants();
}

#[test]
fn setting_virtual_time_back_keeps_the_order_of_flows() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 1));
    let late = SeatSeconds::from_units(1 << 40);
    stage.set.virtual_time.catch_up(late);
    stage.arrive(at(0), "executes", 0, Work::ONE);
    for (name, hash) in [("a", 3), ("b", 1), ("c", 2)] {
        stage.arrive(at(0), name, hash, Work::ONE);
    }
    let starts = |stage: &Stage| -> Vec<u64> {
        let waiting = stage.set.flows.iter().filter(|flow| flow.waiting > 0);
        waiting.map(|flow| flow.start.units()).collect()
    };
    assert!(starts(&stage).iter().all(|&start| start >= late.units()));
    stage.set.set_back();
    assert!(starts(&stage).iter().all(|&start| start < late.units()));
    assert_eq!(stage.set.summary().counters.epochs, 1);
    for name in ["executes", "a", "b"] {
        stage.finish(at(0), name);
    }
    assert_eq!(stage.started, ["executes", "a", "b", "c"]);
}

#[test]
fn the_bounds_of_virtual_starts_leave_out_queues_without_waiting_requests() {
    let mut stage = Stage::new(set(two_queues(), 2));
    stage.arrive(at(0), "A0", 0, Work::ONE);
    stage.arrive(at(0), "B0", 1, Work::ONE);
    assert_eq!(stage.set.next_s_bounds(), None, "both execute");
    stage.arrive(at(1), "A1", 0, Work::ONE);
    let [least, most, ..] = stage
        .set
        .next_s_bounds()
        .expect("a queue has a waiting request");
    assert!(
        (least - most).abs() < 1e-12,
        "both bounds are those of a single queue: {least} {most}"
    );
}

#[test]
fn no_request_overtakes_a_head_that_waits_only_because_of_overtaking() {
    let mut stage = Stage::new(improved(two_queues(), 50));
    stage.arrive(at(0), "holder", 0, Work::seats(26));
    stage.arrive(at(0), "other", 1, Work::seats(24));
    stage.arrive(at(1), "wide", 1, Work::seats(35));
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        stage.arrive(at(2), name, 2, Work::seats(5));
    }
    stage.finish(at(100), "other");
    assert_eq!(
        stage.started[2..],
        ["n1"],
        "its turn comes before the wide one's"
    );
    stage.tick(at(30_200));
    assert_eq!(
        stage.started[3..],
        ["n2", "n3", "n4"],
        "the head has waited ten times as long"
    );
    // Of 20 seats in use, 15 are held by requests that overtook the head; without them it would fit.
    stage.finish(at(31_000), "holder");
    assert_eq!(stage.started.len(), 6, "{:?}", stage.started);
}

#[test]
fn a_flow_with_a_single_request_that_fits_goes_before_a_wide_flow_that_keeps_its_seats() {
    let mut stage = Stage::new(improved(two_queues(), 4));
    stage.arrive(at(0), "n0", 1, Work::ONE);
    stage.arrive(at(0), "W0", 0, Work::seats(4));
    stage.arrive(at(0), "W1", 0, Work::seats(4));
    stage.finish(at(3_000), "n0");
    stage.arrive(at(4_000), "n1", 1, Work::ONE);
    stage.finish(at(6_000), "W0");
    assert_eq!(stage.started, ["n0", "W0", "n1"]);
}

#[test]
fn a_cancelled_request_takes_back_its_demand_for_seats() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    stage.arrive(at(0), "executes", 0, Work::ONE);
    stage.arrive(at(1), "wide", 0, Work::seats(5));
    stage.arrive(at(2), "gives up", 1, Work::seats(3));
    assert!(stage.cancel(at(3), "gives up"));
    assert_eq!(stage.set.summary().waiting_seats, 5);
}

#[test]
fn seats_that_are_displaced_above_a_lower_limit_are_in_the_demand_no_longer() {
    let lingering = Work {
        final_seats: 2,
        additional_latency: Duration::from_millis(200),
        ..Work::ONE
    };
    let mut stage = Stage::new(improved(two_queues(), 2));
    stage.arrive(at(0), "a", 0, lingering);
    stage.finish(at(10), "a");
    stage
        .set
        .set_limit(at(20), 1, 2, &mut QueueSetEvents::default());
    stage.set.displace_above_limit(at(20));
    stage.set.check_invariants();
}

#[test]
fn waiting_requests_are_reported_with_their_place_and_executing_ones_without() {
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        let mut stage = Stage::new(QueueSet::new(semantics, two_queues(), 1, Time::ZERO));
        for (name, hash) in [("executes", 0), ("a0", 0), ("b0", 1), ("a1", 0)] {
            stage.arrive(at(0), name, hash, Work::ONE);
        }
        let reports = stage.set.requests();
        let places: Vec<_> = reports
            .iter()
            .map(|report| (report.entry.waiter, report.queue, report.place))
            .collect();
        let expected = [
            ("a0", Some(0), Some(0)),
            ("a1", Some(0), Some(1)),
            ("b0", Some(1), Some(0)),
            ("executes", Some(0), None),
        ];
        assert_eq!(places, expected, "{semantics:?}");
    }
}

#[test]
fn lingering_seats_come_free_when_the_end_of_their_request_said() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    let lingering = Work {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: Duration::from_millis(5),
    };
    stage.arrive(at(0), "a", 0, lingering);
    assert_eq!(stage.set.lingering.next_release(at(0)), None);
    assert_eq!(stage.finish(at(10), "a"), Some(at(5_010)));
    assert_eq!(stage.set.lingering.next_release(at(10)), Some(at(5_010)));
}

#[test]
fn idle_flows_are_forgotten_beyond_a_bound() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    for hash in 0..3_000 {
        stage.arrive(at(hash), "a", hash, Work::ONE);
        // Also checks the invariant that idle flows are bounded.
        stage.finish(at(hash), "a");
    }
    assert!(stage.set.flows.len() < 1_100, "{}", stage.set.flows.len());
}

#[test]
fn slots_of_queues_that_left_the_deck_are_reused() {
    let mut stage = Stage::new(set(queues(3, 50, 1), 9));
    for round in 0..20 {
        let now = at(round * 10);
        for (name, hash) in [("q0", 0), ("q1", 1), ("q2", 2)] {
            stage.arrive(now, name, hash, Work::ONE);
        }
        stage.reshape(now, queues(1, 50, 1));
        for name in ["q2", "q1", "q0"] {
            stage.finish(now, name);
        }
        stage.reshape(now, queues(3, 50, 1));
    }
    assert!(stage.set.slots.len() <= 6, "{}", stage.set.slots.len());
}

#[test]
fn the_round_robin_position_moves_down_when_a_queue_before_it_is_removed() {
    let mut stage = Stage::new(set(queues(3, 50, 1), 9));
    stage.arrive(at(0), "q0", 0, Work::ONE);
    stage.arrive(at(0), "q2", 2, Work::ONE);
    assert_eq!(stage.set.after_robin, 3, "after the last queue");
    stage.reshape(at(1), queues(2, 50, 1));
    // Compatible removes the queue whose request ends, although it is not the last one.
    stage.finish(at(2), "q0");
    assert_eq!(stage.set.after_robin, 2);
}

#[test]
fn a_deck_of_the_right_size_keeps_its_queues() {
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        let mut stage = Stage::new(QueueSet::new(semantics, queues(3, 50, 1), 10, Time::ZERO));
        for (hash, name) in ["a", "b", "c"].into_iter().enumerate() {
            stage.arrive(at(0), name, hash as u64, Work::ONE);
        }
        for name in ["a", "b", "c"] {
            stage.finish(at(10), name);
        }
        assert_eq!(stage.set.deck.len(), 3, "{semantics:?}");
    }
}

#[test]
fn an_arrival_reports_the_length_of_its_queue_itself_included() {
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        let mut set = QueueSet::new(semantics, two_queues(), 1, Time::ZERO);
        let mut lengths = Vec::new();
        for (waiter, hash) in [("executes", 0), ("first", 0), ("second", 0), ("other", 1)] {
            let mut events = QueueSetEvents::default();
            set.arrive(at(1), arriving(waiter, hash, Work::ONE), &mut events);
            lengths.push(events.queue_length);
        }
        assert_eq!(lengths, [1, 1, 2, 1].map(Some), "{semantics:?}");
    }
}

#[test]
fn of_flows_with_equal_virtual_starts_the_one_that_waited_first_is_served_first() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 3));
    for (name, hash) in [("a", 1), ("b", 2), ("c", 3)] {
        assert!(stage.executes(at(0), name, hash, Work::ONE));
    }
    for name in ["a", "b", "c"] {
        stage.finish(at(10), name);
    }
    for name in ["x", "y", "z"] {
        assert!(stage.executes(at(10), name, 4, Work::ONE));
    }
    // Known flows, in another order than they were first seen in.
    for (name, hash) in [("third", 3), ("first", 1), ("second", 2)] {
        stage.arrive(at(10), name, hash, Work::ONE);
    }
    for name in ["x", "y", "z"] {
        stage.finish(at(10), name);
    }
    assert_eq!(stage.started[6..], ["third", "first", "second"]);
}
