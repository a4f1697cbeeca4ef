//! For each of the original's defects a pair that shows both semantics, and changes from one to the other.

use super::*;

/// Fills both queues of [`two_queues`] while `holder` keeps all seats; then frees some.
fn blocked_head(mut set: QueueSet<&'static str>) -> Stage {
    set.limit = 50;
    let mut stage = Stage::new(set);
    stage.arrive(at(0), "holder", 0, Work::seats(26));
    stage.arrive(at(0), "other", 1, Work::seats(24));
    stage.arrive(at(1), "wide", 1, Work::seats(25));
    stage.arrive(at(2), "narrow", 0, Work::seats(10));
    stage.finish(at(100), "other");
    stage
}

#[test]
fn a_wide_head_blocks_the_level_and_in_improved_may_be_overtaken() {
    let compatible = blocked_head(set(two_queues(), 50));
    assert_eq!(
        compatible.started,
        ["holder", "other"],
        "24 seats stay free"
    );
    assert_eq!(compatible.blocked, 1);
    let mut compatible = compatible;
    compatible.finish(at(200), "holder");
    assert_eq!(compatible.started[2..], ["narrow", "wide"]);

    let mut improved = blocked_head(improved(two_queues(), 50));
    assert_eq!(
        improved.started,
        ["holder", "other"],
        "the head has not waited long enough"
    );
    // A request of the narrow flow is assumed to take 3 ms.
    improved.tick(at(30_098));
    assert_eq!(improved.started, ["holder", "other"]);
    // After exactly 30 ms that is a tenth of the head's wait.
    improved.tick(at(30_100));
    assert_eq!(improved.started, ["holder", "other", "narrow"]);
}

#[test]
fn a_request_longer_than_a_tenth_of_the_heads_wait_does_not_overtake_it() {
    let mut stage = blocked_head(improved(two_queues(), 50));
    stage.tick(at(40_100));
    assert!(stage.started.contains(&"narrow"));
    // The request took 20 ms; averaged with the assumed 3 ms that makes 11.5 ms.
    stage.finish(at(60_100), "narrow");
    stage.arrive(at(70_000), "next", 0, Work::seats(10));
    assert!(!stage.started.contains(&"next"));
    stage.tick(at(116_000));
    assert!(stage.started.contains(&"next"));
    stage.finish(at(117_000), "holder");
    assert!(stage.started.contains(&"wide"), "{:?}", stage.started);
}

#[test]
fn only_improved_enforces_the_queue_limit_while_seats_are_free() {
    let refused = |mut set: QueueSet<&'static str>| {
        set.limit = 10;
        let mut stage = Stage::new(set);
        stage.arrive(at(0), "busy", 0, Work::seats(9));
        stage.arrive(at(1), "head", 1, Work::seats(2));
        let refused = (2..102).filter(|i| {
            matches!(
                stage.arrive(at(*i), "more", 1, Work::seats(2)),
                Admission::Reject(_)
            )
        });
        refused.count()
    };
    assert_eq!(
        refused(set(queues(2, 3, 1), 10)),
        0,
        "101 requests wait in a queue of 3"
    );
    assert_eq!(refused(improved(queues(2, 3, 1), 10)), 98);
}

#[test]
fn only_compatible_leaks_demand_when_it_narrows_the_final_phase() {
    let demand = |set| {
        let mut stage = Stage::new(set);
        let wide = Work {
            initial_seats: 1,
            final_seats: 10,
            additional_latency: Duration::from_millis(10),
        };
        for i in 0..5 {
            stage.arrive(at(i * 100_000), "r", 0, wide);
            stage.finish(at(i * 100_000 + 1), "r");
            stage.tick(at(i * 100_000 + 90_000));
        }
        let summary = stage.set.summary();
        assert_eq!((summary.seats_in_use, summary.waiting), (0, 0));
        summary.waiting_seats
    };
    assert_eq!(demand(set(two_queues(), 5)), 25);
    assert_eq!(demand(improved(two_queues(), 5)), 0);
}

#[test]
fn only_improved_learns_nothing_of_a_refused_request_and_gives_it_no_final_seats() {
    let write = Work {
        initial_seats: 1,
        final_seats: 4,
        additional_latency: Duration::from_millis(10),
    };
    let mut compatible = Stage::new(set(two_queues(), 5));
    compatible.arrive(at(0), "refused", 0, write);
    let until = compatible.finish_refused(at(1000), "refused");
    assert_eq!(until, Some(at(11_000)), "as any request");
    assert_eq!(compatible.set.summary().seats_in_use, 4);

    let mut improved = Stage::new(improved(two_queues(), 5));
    improved.arrive(at(0), "learnt", 0, write);
    let until = improved.finish(at(7000), "learnt").unwrap();
    improved.tick(until);
    let flow = |stage: &Stage| {
        let flows = stage
            .set
            .flows
            .iter()
            .filter(|flow| flow.service_time.learnt > 0);
        let [flow] = flows.collect::<Vec<_>>()[..] else {
            panic!("one flow has finished requests");
        };
        (
            flow.service_time.mean,
            flow.service_time.learnt,
            flow.start.units(),
        )
    };
    let (service_time, learnt, paid) = flow(&improved);
    let assumed = improved.set.assumed;
    improved.arrive(at(100_000), "refused", 0, write);
    assert_eq!(improved.finish_refused(at(140_000), "refused"), None);
    assert_eq!(improved.set.summary().seats_in_use, 0);
    let (still, count, charged) = flow(&improved);
    assert_eq!((still, count), (service_time, learnt), "nothing is learnt");
    assert_eq!(improved.set.assumed, assumed);
    let used = SeatSeconds::product(1, Duration::from_millis(40));
    assert_eq!(charged, paid + used.units(), "only its own time is charged");
}

#[test]
fn only_compatible_charges_final_seats_while_the_request_executes() {
    let wide_end = Work {
        initial_seats: 1,
        final_seats: 10,
        additional_latency: Duration::from_millis(10),
    };
    let mut compatible = Stage::new(set(two_queues(), 10));
    compatible.arrive(at(0), "writes", 0, wide_end);
    assert!(!compatible.executes(at(1), "reads", 1, Work::ONE));

    let mut improved = Stage::new(improved(two_queues(), 10));
    improved.arrive(at(0), "writes", 0, wide_end);
    assert!(improved.executes(at(1), "reads", 1, Work::ONE));
    // Nine seats are left for the final phase: 10 seats x 10 ms become 9 seats x 11.1 ms.
    let until = improved.finish(at(2), "writes").unwrap();
    assert_eq!(improved.set.summary().seats_in_use, 10);
    assert_eq!(until.since(at(2)).as_micros(), 11_111);
}

#[test]
fn only_improved_dispatches_when_a_blocking_head_is_cancelled() {
    let after_cancel = |set| {
        let mut stage = Stage::new(set);
        stage.set.limit = 10;
        stage.arrive(at(0), "busy", 0, Work::seats(9));
        stage.arrive(at(1), "wide", 1, Work::seats(2));
        stage.arrive(at(2), "narrow", 1, Work::seats(1));
        stage.cancel(at(3), "wide");
        stage.started.contains(&"narrow")
    };
    assert!(!after_cancel(set(two_queues(), 10)));
    assert!(after_cancel(improved(two_queues(), 10)));
}

#[test]
fn only_compatible_executes_a_request_at_a_level_without_seats() {
    let mut compatible = Stage::new(set(Discipline::Reject, 0));
    assert!(compatible.executes(at(0), "one", 0, Work::ONE));
    let mut improved = Stage::new(improved(Discipline::Reject, 0));
    assert!(!improved.executes(at(0), "one", 0, Work::ONE));
}

#[test]
fn only_compatible_runs_a_request_wider_than_the_level_beside_lingering_seats() {
    let mut compatible = Stage::new(set(two_queues(), 4));
    let lingers = Work {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: SECOND,
    };
    compatible.arrive(at(0), "first", 0, lingers);
    compatible.finish(at(1), "first");
    assert!(compatible.executes(at(2), "oversize", 1, Work::seats(6)));
    assert_eq!(
        compatible.set.summary().seats_in_use,
        7,
        "over the limit of 4"
    );

    let mut improved = Stage::new(improved(two_queues(), 4));
    improved.arrive(at(0), "first", 0, lingers);
    improved.finish(at(1), "first");
    assert!(!improved.executes(at(2), "oversize", 1, Work::seats(6)));
    improved.tick(at(1_000_001));
    assert_eq!(
        (improved.started.last(), improved.set.summary().seats_in_use),
        (Some(&"oversize"), 4)
    );
}

/// Three queues shrink to one while queue 1 lingers twice and queue 2 has a waiting request.
fn shrinking(set: QueueSet<&'static str>) -> Stage {
    let mut stage = Stage::new(set);
    let lingers = |millis| Work {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: Duration::from_millis(millis),
    };
    stage.arrive(at(0), "one", 1, lingers(10));
    stage.arrive(at(0), "another", 1, lingers(20));
    stage.arrive(at(0), "busy", 0, Work::seats(8));
    stage.arrive(at(1), "waits", 2, Work::seats(9));
    let mut events = QueueSetEvents::default();
    stage
        .set
        .configure(at(2), stage.set.semantics, queues(1, 50, 1), &mut events);
    stage.finish(at(3), "one");
    stage.finish(at(3), "another");
    stage.tick(at(30_000));
    stage.finish(at(40_000), "busy");
    stage
}

#[test]
fn only_compatible_removes_a_queue_in_use_when_the_deck_shrinks() {
    let compatible = shrinking(set(queues(3, 50, 1), 10));
    assert!(
        !compatible.started.contains(&"waits"),
        "its queue was removed under it"
    );
    assert_eq!(compatible.set.summary().waiting, 1);

    let improved = shrinking(improved(queues(3, 50, 1), 10));
    assert!(improved.started.contains(&"waits"));
    let mut improved = improved;
    improved.finish(at(50_000), "waits");
    assert_eq!(improved.set.deck.len(), 1);
}

impl Stage {
    fn switch(&mut self, now: Time, semantics: Semantics) {
        let mut events = QueueSetEvents::default();
        let discipline = self.set.discipline;
        self.set.configure(now, semantics, discipline, &mut events);
        self.note(&events);
    }
}

#[test]
fn requests_that_wait_while_the_semantics_change_are_counted_by_the_new_ones() {
    let wide_end = Work {
        initial_seats: 1,
        final_seats: 3,
        additional_latency: Duration::from_millis(10),
    };
    let cases = [
        (set(two_queues(), 3), Semantics::Improved, 1),
        (improved(two_queues(), 3), Semantics::Compatible, 3),
    ];
    for (set, semantics, wanted) in cases {
        let mut stage = Stage::new(set);
        stage.arrive(at(0), "busy", 0, Work::seats(3));
        stage.arrive(at(1), "waits", 1, wide_end);
        stage.switch(at(2), semantics);
        assert_eq!(stage.set.summary().waiting_seats, wanted, "{semantics:?}");
        stage.finish(at(3), "busy");
        assert_eq!(stage.started, ["busy", "waits"]);
        assert_eq!(stage.set.summary().waiting_seats, 0, "{semantics:?}");
        stage.finish(at(4), "waits");
        stage.tick(at(1_000_000));
        let demand = stage.set.take_demand(at(1_000_001));
        assert!(demand.max <= 6, "{semantics:?}: {demand:?}");
    }
}

#[test]
fn the_leak_of_the_original_semantics_ends_with_them() {
    let mut stage = Stage::new(set(two_queues(), 5));
    let wide = Work {
        initial_seats: 1,
        final_seats: 10,
        additional_latency: Duration::from_millis(10),
    };
    stage.arrive(at(0), "r", 0, wide);
    stage.finish(at(1), "r");
    stage.tick(at(90_000));
    assert_eq!(stage.set.summary().waiting_seats, 5);
    stage.switch(at(90_001), Semantics::Improved);
    assert_eq!(stage.set.summary().waiting_seats, 0);
}

#[test]
fn the_original_semantics_assume_three_milliseconds_whatever_was_learnt_before() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    stage.arrive(at(0), "slow", 0, Work::ONE);
    stage.finish(at(10_000_000), "slow");
    stage.switch(at(10_000_001), Semantics::Compatible);
    stage.arrive(at(10_000_002), "next", 0, Work::ONE);
    let entry = stage.set.entries.get(stage.ids["next"]).unwrap();
    assert_eq!(entry.assumed, Work::ASSUMED_SERVICE_TIME.into());
}

/// One flow always has 4 requests executing and 40 waiting. Its first requests take ten seconds each, all
/// later ones ten milliseconds. After `before` requests have finished, a request of another flow arrives.
/// Returns how many requests of the first flow finish before that one is dispatched.
fn served_before_a_newcomer(newcomer: Work, before: u32) -> u32 {
    let mut stage = Stage::new(improved(two_queues(), 4));
    for i in 0..44 {
        stage.arrive(at(i), "elephant", 0, Work::ONE);
    }
    let mut running: VecDeque<_> = (0..4).map(|index| stage.set.entries.id(index)).collect();
    for served in 0..before + 2000 {
        let now = at(10_000_000 + u64::from(served) * 2_500);
        if served == before {
            stage.arrive(now, "mouse", 1, newcomer);
        }
        stage.arrive(now, "elephant", 0, Work::ONE);
        let mut events = QueueSetEvents::default();
        let ended = running.pop_front().unwrap();
        stage.set.finish(now, ended, &mut events);
        stage.note(&events);
        let Some(&(waiter, id)) = events.dispatched.first() else {
            continue; // Seats are kept free for the newcomer.
        };
        if waiter == "mouse" {
            return served - before;
        }
        running.push_back(id);
    }
    panic!("it is never served");
}

#[test]
fn requests_that_were_faster_than_assumed_give_a_flow_no_lasting_precedence() {
    for before in [1000, 2000] {
        let served = served_before_a_newcomer(Work::ONE, before);
        assert!(served <= 8, "{served} of 44 after {before}");
    }
}

#[test]
fn a_wide_head_that_arrived_while_requests_were_slow_is_not_held_back_when_they_are_fast() {
    for before in [1, 10, 50] {
        let served = served_before_a_newcomer(Work::seats(3), before);
        assert!(served <= 8, "{served} after {before}");
    }
}

#[test]
fn flows_have_no_turns_from_before_the_semantics_changed() {
    let mut stage = Stage::new(improved(two_queues(), 1));
    stage.arrive(at(0), "busy", 0, Work::ONE);
    stage.arrive(at(1), "a", 1, Work::ONE);
    stage.arrive(at(2), "b", 2, Work::ONE);
    stage.switch(at(3), Semantics::Compatible);
    stage.switch(at(4), Semantics::Improved);
    for (moment, ends) in [(5, "busy"), (6, "a"), (7, "b")] {
        stage.finish(at(moment), ends);
    }
    stage.arrive(at(8), "c", 3, Work::ONE);
    stage.arrive(at(9), "d", 4, Work::ONE);
    stage.finish(at(10), "c");
    stage.finish(at(11), "d");
    assert_eq!(stage.started, ["busy", "a", "b", "c", "d"]);
    assert_eq!(stage.set.summary().waiting, 0);
}

#[test]
fn nobody_pays_for_seats_that_were_drained_before_the_semantics_changed() {
    let mut stage = Stage::new(improved(two_queues(), 3));
    for (hash, name) in (0..).zip(["a", "b", "c"]) {
        stage.arrive(at(0), name, hash, Work::ONE);
    }
    stage.arrive(at(1), "wide", 3, Work::seats(2));
    stage.arrive(at(2), "narrow", 4, Work::ONE);
    stage.finish(at(10), "a");
    assert!(
        stage.blocked > 0,
        "a seat is kept free for the wide request"
    );
    stage.switch(at(20), Semantics::Compatible);
    stage.finish(at(30), "b");
    stage.finish(at(31), "c");
    stage.arrive(at(32), "other", 5, Work::seats(2));
    stage.finish(at(33), "narrow");
    assert_eq!(stage.started[3..], ["narrow", "wide"]);
    // A seat is free and kept for the other wide request. The one before it executes, and is no request of a flow any more.
    stage.switch(at(40), Semantics::Improved);
    stage.finish(at(41), "wide");
    assert_eq!(stage.started.last(), Some(&"other"));
}
