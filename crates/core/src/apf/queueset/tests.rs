//! Step by step: what becomes of each request, and for each of the original's defects a pair that
//! shows both semantics.

use std::{collections::VecDeque, time::Duration};

use super::*;
use crate::random::Random;

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
        dealer: Dealer::new(queues, hand_size).unwrap(),
    }
}

fn set<W: Copy>(discipline: Discipline, limit: Seats) -> QueueSet<W> {
    QueueSet::new(Semantics::Compatible, discipline, limit, Time::ZERO)
}

fn improved<W: Copy>(discipline: Discipline, limit: Seats) -> QueueSet<W> {
    QueueSet::new(Semantics::Improved, discipline, limit, Time::ZERO)
}

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1000)
}

fn arriving(waiter: &'static str, hash: u64, work: Work) -> ArrivingRequest<&'static str> {
    ArrivingRequest {
        waiter,
        schema: 0,
        hash,
        work,
        until: Time::NEVER,
    }
}

/// A queue set and what is known of its requests by name.
struct Stage {
    set: QueueSet<&'static str>,
    ids: std::collections::BTreeMap<&'static str, EntryId>,
    running: Vec<&'static str>,
    blocked: usize,
}

impl Stage {
    fn new(set: QueueSet<&'static str>) -> Self {
        Self {
            set,
            ids: std::collections::BTreeMap::default(),
            running: Vec::new(),
            blocked: 0,
        }
    }

    fn arrive(&mut self, now: Time, waiter: &'static str, hash: u64, work: Work) -> Admission {
        let mut events = QueueSetEvents::default();
        let admission = self
            .set
            .arrive(now, arriving(waiter, hash, work), &mut events);
        if let Admission::Execute(id) | Admission::Wait(id) = admission {
            self.ids.insert(waiter, id);
        }
        if let Admission::Execute(_) = admission {
            self.running.push(waiter);
        }
        self.note(&events);
        admission
    }

    fn executes(&mut self, now: Time, waiter: &'static str, hash: u64, work: Work) -> bool {
        matches!(self.arrive(now, waiter, hash, work), Admission::Execute(_))
    }

    fn finish(&mut self, now: Time, waiter: &'static str) -> Option<Time> {
        let mut events = QueueSetEvents::default();
        let until = self.set.finish(now, self.ids[waiter], &mut events);
        self.note(&events);
        until
    }

    fn cancel(&mut self, now: Time, waiter: &'static str) -> bool {
        let mut events = QueueSetEvents::default();
        let gone = self.set.cancel(now, self.ids[waiter], &mut events);
        self.note(&events);
        gone
    }

    fn tick(&mut self, now: Time) {
        let mut events = QueueSetEvents::default();
        self.set.tick(now, &mut events);
        self.note(&events);
    }

    fn reshape(&mut self, now: Time, discipline: Discipline) {
        let mut events = QueueSetEvents::default();
        let semantics = self.set.semantics;
        self.set.configure(now, semantics, discipline, &mut events);
        self.note(&events);
    }

    fn note(&mut self, events: &QueueSetEvents<&'static str>) {
        self.running
            .extend(events.dispatched.iter().map(|(waiter, _)| waiter));
        self.blocked += events.blocked.len();
        self.set.check_invariants();
    }

    fn s(&self, slot: usize) -> u64 {
        self.set.slots[slot].next_dispatch_r.units()
    }
}

/// In hands of one out of two queues: even hashes go to queue 0, odd ones to queue 1.
fn two_queues() -> Discipline {
    queues(2, 50, 1)
}

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
    assert_eq!(stage.running, ["A0"]);
    let steps = [
        (10_000, "A0", "B0", 0.0055, 0.010, 0.004),
        (12_000, "B0", "B1", 0.0065, 0.010, 0.006),
        (14_000, "B1", "B2", 0.0075, 0.010, 0.008),
        (16_000, "B2", "A1", 0.0085, 0.013, 0.007),
        (26_000, "A1", "A2", 0.0185, 0.023, 0.007),
    ];
    for (micros, done, next, r, s0, s1) in steps {
        stage.finish(at(micros), done);
        assert_eq!(stage.running.last(), Some(&next));
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
    assert_eq!(stage.running, ["A0"]);
    // Starts and virtual time in milliseconds of one seat.
    let steps = [
        (10_000, "A0", 10, 0, "B0", 0),
        (12_000, "B0", 10, 2, "B1", 2),
        (14_000, "B1", 10, 4, "B2", 4),
        (16_000, "B2", 10, 6, "A1", 10),
        (26_000, "A1", 20, 6, "A2", 20),
    ];
    for (micros, ended, a, b, next, r) in steps {
        stage.finish(at(micros), ended);
        assert_eq!(stage.running.last(), Some(&next));
        let start = |flow| stage.set.flows.at(flow).certain_start();
        let found = [start(0), start(1), stage.set.virtual_time.r()];
        let millis = [a, b, r].map(|ms| SeatSeconds::product(1, Duration::from_millis(ms)));
        assert_eq!(found, millis, "{ended}");
    }
}

#[test]
fn the_first_tie_of_a_level_goes_to_the_second_queue() {
    let mut stage = Stage::new(set(queues(3, 50, 1), 0));
    for (waiter, hash) in [("q0", 0), ("q1", 1), ("q2", 2)] {
        assert!(!stage.executes(at(0), waiter, hash, Work::ONE));
    }
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(at(1), 3, 3, &mut events);
    stage.note(&events);
    assert_eq!(stage.running, ["q1", "q2", "q0"]);
}

#[test]
fn a_search_in_vain_after_the_first_queue_is_gone_ends_at_the_last() {
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
    assert_eq!(stage.running, ["q1", "q0", "wide", "narrow"]);
}

#[test]
fn what_was_charged_too_much_is_rounded_once() {
    let mut stage = Stage::new(set(two_queues(), 1));
    stage.arrive(at(0), "short", 0, Work::ONE);
    stage.finish(Time::from_nanos(5), "short");
    assert_eq!(stage.s(0), 0, "299 999.5 units of the charge come back");
}

#[test]
fn who_gives_up_leaves_at_once_and_never_runs() {
    let mut stage = Stage::new(set(queues(11, 11, 1), 1));
    assert!(stage.executes(at(0), "first", FIRST, Work::ONE));
    assert!(!stage.executes(at(1), "second", SECOND_FLOW, Work::ONE));
    assert!(stage.cancel(at(1_000_001), "second"));
    assert!(!stage.set.is_idle());
    stage.finish(at(2_000_000), "first");
    assert!(stage.set.is_idle());
    assert_eq!(stage.running, ["first"]);
    let counters = stage.set.summary().counters;
    assert_eq!(
        (counters.dispatched, counters.rejected, counters.cancelled),
        (1, 1, 1)
    );
}

#[test]
fn who_was_dispatched_cannot_give_up() {
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
fn a_wide_head_blocks_the_level_or_is_passed() {
    let compatible = blocked_head(set(two_queues(), 50));
    assert_eq!(
        compatible.running,
        ["holder", "other"],
        "24 seats stay free"
    );
    assert_eq!(compatible.blocked, 1);
    let mut compatible = compatible;
    compatible.finish(at(200), "holder");
    assert_eq!(compatible.running[2..], ["narrow", "wide"]);

    let mut improved = blocked_head(improved(two_queues(), 50));
    assert_eq!(
        improved.running,
        ["holder", "other"],
        "it has not waited yet"
    );
    // The flow of the narrow request takes 3 ms, as far as anybody knows.
    improved.tick(at(30_098));
    assert_eq!(improved.running, ["holder", "other"]);
    // After 30 ms, to the nanosecond, it is a tenth of the wait.
    improved.tick(at(30_100));
    assert_eq!(improved.running, ["holder", "other", "narrow"]);
}

#[test]
fn whoever_takes_longer_than_a_tenth_of_the_heads_wait_does_not_pass_it() {
    let mut stage = blocked_head(improved(two_queues(), 50));
    stage.tick(at(40_100));
    assert!(stage.running.contains(&"narrow"));
    // Such requests prove to take 20 ms; on average with what was assumed, 11.5 ms.
    stage.finish(at(60_100), "narrow");
    stage.arrive(at(70_000), "next", 0, Work::seats(10));
    assert!(!stage.running.contains(&"next"));
    stage.tick(at(116_000));
    assert!(stage.running.contains(&"next"));
    stage.finish(at(117_000), "holder");
    assert!(stage.running.contains(&"wide"), "{:?}", stage.running);
}

#[test]
fn a_wide_flow_keeps_the_seats_that_its_requests_give_back_for_a_while() {
    let mut stage = Stage::new(improved(two_queues(), 4));
    for _ in 0..50 {
        stage.arrive(at(0), "W", 0, Work::seats(4));
        stage.arrive(at(0), "n", 1, Work::ONE);
    }
    let mut turns = String::new();
    for round in 1..=20 {
        let mut executing = Vec::new();
        stage.set.visit(|entry| {
            if entry.phase == Phase::Executing {
                executing.push((entry.waiter, entry.number));
            }
        });
        turns.push_str(executing[0].0);
        for (_, number) in executing {
            let id = stage.set.entries.id_of(number);
            let mut events = QueueSetEvents::default();
            stage.set.finish(at(round * 3_000), id, &mut events);
            stage.note(&events);
        }
    }
    assert_eq!(turns, "WnnWWWWWWWWWnnnnnnnn");
}

#[test]
fn the_queue_limit_holds_only_without_free_seats_or_always() {
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
fn narrowing_the_final_phase_leaks_demand_or_does_not() {
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
fn the_seats_of_the_final_phase_are_charged_from_the_start_or_when_they_are_due() {
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
fn a_blocking_head_that_gives_up_leaves_the_level_stuck_or_not() {
    let after_cancel = |set| {
        let mut stage = Stage::new(set);
        stage.set.limit = 10;
        stage.arrive(at(0), "busy", 0, Work::seats(9));
        stage.arrive(at(1), "wide", 1, Work::seats(2));
        stage.arrive(at(2), "narrow", 1, Work::seats(1));
        stage.cancel(at(3), "wide");
        stage.running.contains(&"narrow")
    };
    assert!(!after_cancel(set(two_queues(), 10)));
    assert!(after_cancel(improved(two_queues(), 10)));
}

#[test]
fn a_level_that_becomes_exempt_lets_a_head_start_that_does_not_fit() {
    let mut stage = Stage::new(set(two_queues(), 2));
    assert!(stage.executes(at(0), "busy", 0, Work::ONE));
    assert!(!stage.executes(at(1), "wide", 1, Work::seats(28)));
    stage.reshape(at(2), Discipline::Exempt);
    assert_eq!(stage.running, ["busy", "wide"]);
}

#[test]
fn a_level_of_no_seats_lets_one_request_through_or_none() {
    let mut compatible = Stage::new(set(Discipline::Reject, 0));
    assert!(compatible.executes(at(0), "one", 0, Work::ONE));
    let mut improved = Stage::new(improved(Discipline::Reject, 0));
    assert!(!improved.executes(at(0), "one", 0, Work::ONE));
}

#[test]
fn a_request_wider_than_the_level_runs_beside_lingering_seats_or_alone() {
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
        (improved.running.last(), improved.set.summary().seats_in_use),
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
fn a_shrinking_deck_loses_a_queue_in_use_or_only_empty_ones() {
    let compatible = shrinking(set(queues(3, 50, 1), 10));
    assert!(
        !compatible.running.contains(&"waits"),
        "its queue was removed under it"
    );
    assert_eq!(compatible.set.summary().waiting, 1);

    let improved = shrinking(improved(queues(3, 50, 1), 10));
    assert!(improved.running.contains(&"waits"));
    let mut improved = improved;
    improved.finish(at(50_000), "waits");
    assert_eq!(improved.set.deck.len(), 1);
}

#[test]
fn a_deck_that_grows_and_shrinks_keeps_whoever_waits() {
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
    assert_eq!(stage.running, ["busy", "waits"]);
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
    assert_eq!(stage.running, ["a", "b"]);
}

#[test]
fn a_smaller_limit_takes_no_seat_away() {
    let mut stage = Stage::new(improved(two_queues(), 4));
    for name in ["a", "b", "c", "d"] {
        stage.arrive(at(0), name, 0, Work::ONE);
    }
    let mut events = QueueSetEvents::default();
    stage.set.set_limit(at(1), 2, 2, &mut events);
    stage.arrive(at(2), "e", 1, Work::ONE);
    stage.finish(at(3), "a");
    stage.finish(at(3), "b");
    assert!(!stage.running.contains(&"e"));
    stage.finish(at(4), "c");
    assert!(stage.running.contains(&"e"));
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
        running: Vec::new(),
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
    stage.running.clear();
    stage
}

impl Stage {
    /// One attempt to dispatch; who got the seats, and which queue was chosen last.
    fn attempt(&mut self) -> (Vec<&'static str>, u32) {
        let before = self.running.len();
        let mut events = QueueSetEvents::default();
        self.set.dispatch(None, &mut events);
        self.running
            .extend(events.dispatched.iter().map(|(waiter, _)| waiter));
        (self.running[before..].to_vec(), self.set.after_robin)
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

impl Stage {
    fn switch(&mut self, now: Time, semantics: Semantics) {
        let mut events = QueueSetEvents::default();
        let discipline = self.set.discipline;
        self.set.configure(now, semantics, discipline, &mut events);
        self.note(&events);
    }
}

#[test]
fn whoever_waits_while_the_semantics_change_is_counted_as_the_new_ones_count() {
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
        assert_eq!(stage.running, ["busy", "waits"]);
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
    assert_eq!(entry.assumed, Work::ASSUMED_SERVICE_TIME);
}

/// Of one flow 4 requests run and 40 more wait, all the time. Its first answers take ten seconds, all
/// later ones ten milliseconds. After `before` answers another flow's request comes; returns how many
/// of the first flow's are served before it.
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
fn answers_that_were_faster_than_assumed_give_a_flow_no_lasting_precedence() {
    for before in [1000, 2000] {
        let served = served_before_a_newcomer(Work::ONE, before);
        assert!(served <= 8, "{served} of 44 after {before}");
    }
}

#[test]
fn a_wide_head_that_came_while_answers_were_slow_is_not_held_back_when_they_are_fast() {
    for before in [1, 10, 50] {
        let served = served_before_a_newcomer(Work::seats(3), before);
        assert!(served <= 8, "{served} after {before}");
    }
}

/// One random trace with final seats, short queues, refusals, cancels and changed limits.
fn play_random_trace(seed: u64) {
    let mut random = Random::seeded(seed);
    let mut stage = Stage::new(improved(queues(4, 2, 2), 6));
    let mut present: Vec<EntryId> = Vec::new();
    let mut now = 0;
    for _ in 0..200 {
        now += random.within(0..4_000);
        let mut events = QueueSetEvents::default();
        match random.within(0..10) {
            0..5 => {
                let mut seats = |most| u32::try_from(random.within(1..most)).unwrap();
                let work = Work {
                    initial_seats: seats(8),
                    final_seats: seats(9) - 1,
                    additional_latency: Duration::from_millis(random.within(0..6)),
                };
                let arriving = arriving("r", random.within(0..5), work);
                match stage.set.arrive(at(now), arriving, &mut events) {
                    Admission::Execute(id) | Admission::Wait(id) => present.push(id),
                    Admission::Reject(_) => {}
                }
            }
            5..9 if !present.is_empty() => {
                let place = usize::try_from(random.within(0..present.len() as u64)).unwrap();
                let id = present.swap_remove(place);
                // What lingers leaves by itself, and while time passes one that waits may start.
                match stage.set.entries.get(id).map(|entry| entry.phase) {
                    Some(Phase::Executing) => drop(stage.set.finish(at(now), id, &mut events)),
                    Some(Phase::Waiting) if !stage.set.cancel(at(now), id, &mut events) => {
                        present.push(id);
                    }
                    _ => {}
                }
            }
            _ => {
                let limit = u32::try_from(random.within(1..9)).unwrap();
                stage.set.set_limit(at(now), limit, limit, &mut events);
            }
        }
        // Sweeps the invariants: no head that fits is left waiting.
        stage.note(&events);
    }
}

#[test]
fn after_whatever_happens_no_head_that_fits_is_left_waiting() {
    for seed in 0..300 {
        play_random_trace(seed);
    }
}
