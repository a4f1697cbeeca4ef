//! Every interleaving of what several threads do to one level.

use loom::thread;

use super::*;
use crate::apf::{changes::ChangeList, shard::Dealer, spec::Queuing, work::Work};

const NOW: Time = Time::from_nanos(1);

fn level(limit: Seats) -> Level<u32> {
    level_of(2, 5, limit)
}

fn level_of(queues: u32, queue_length_limit: u32, limit: Seats) -> Level<u32> {
    let queuing = Queuing {
        queues,
        hand_size: 1,
        queue_length_limit,
    };
    let dealer = Dealer::new(queues, 1).expect("the queues can be dealt");
    Level::new(
        Semantics::Improved,
        Discipline::Queue { queuing, dealer },
        limit,
        Time::ZERO,
    )
}

fn arrive(level: &Level<u32>, waiter: u32, out: &mut Decisions<u32>) -> Arrival<u32> {
    arrive_in_flow(level, waiter, waiter.into(), out)
}

fn arrive_in_flow(
    level: &Level<u32>,
    waiter: u32,
    hash: u64,
    out: &mut Decisions<u32>,
) -> Arrival<u32> {
    level.arrive(
        NOW,
        ArrivingRequest {
            waiter,
            schema: 0,
            hash,
            tenant: hash,
            work: Work::ONE,
        },
        out,
    )
}

/// Finishes the dispatched requests, those that are dispatched in turn, and so on; returns their number.
fn finish_all(out: Decisions<u32>) -> usize {
    let mut count = 0;
    let mut tickets: Vec<_> = out
        .dispatched
        .into_iter()
        .map(|(_, ticket)| ticket)
        .collect();
    while let Some(ticket) = tickets.pop() {
        count += 1;
        let mut out = Decisions::default();
        ticket.finish(NOW, &mut out);
        tickets.extend(out.dispatched.into_iter().map(|(_, ticket)| ticket));
    }
    count
}

fn assert_empty(level: &Level<u32>) {
    level.inspect(|set| {
        set.check_invariants();
        assert!(set.is_idle() && set.summary().seats_in_use == 0);
    });
}

#[test]
fn each_request_of_two_threads_executes_once() {
    loom::model(|| {
        let level = level(1);
        let request = |waiter: u32| {
            let level = level.clone();
            move || {
                let mut out = Decisions::default();
                let executed = match arrive(&level, waiter, &mut out) {
                    Arrival::Execute(ticket) => {
                        ticket.finish(NOW, &mut out);
                        1
                    }
                    // The other thread, which has the seat, gets the decision and carries it out.
                    Arrival::Wait(_) => 0,
                    Arrival::Reject(_) => panic!("there is room to wait"),
                };
                executed + finish_all(out)
            }
        };
        let other = thread::spawn(request(1));
        let executed = request(0)();
        assert_eq!(executed + other.join().expect("the other thread ends"), 2);
        assert_empty(&level);
    });
}

#[test]
fn a_request_cancelled_while_a_seat_becomes_free_either_leaves_or_executes() {
    loom::model(|| {
        let level = level(1);
        let mut out = Decisions::default();
        let Arrival::Execute(ticket) = arrive(&level, 0, &mut out) else {
            panic!("the level is empty");
        };
        let Arrival::Wait(place) = arrive(&level, 1, &mut out) else {
            panic!("the level is full");
        };
        let finishing = thread::spawn(move || {
            let mut out = Decisions::default();
            ticket.finish(NOW, &mut out);
            finish_all(out)
        });
        let mut out = Decisions::default();
        let left = place.cancel(NOW, &mut out);
        let ran = finishing.join().expect("the other thread ends");
        assert_eq!(usize::from(left) + ran, 1, "either cancelled or executed");
        assert_empty(&level);
    });
}

#[test]
fn a_rebalancing_has_seen_the_last_event_or_finds_the_level_in_the_list() {
    loom::model(|| {
        let list = Arc::new(ChangeList::new(1, Time::ZERO));
        let notice = |list: &Arc<ChangeList>| ChangeNotice::new(Arc::clone(list), 0);
        let level = level(1);
        level.look(|_| ((), Some(notice(&list))));
        let shared = level.clone();
        let requests = thread::spawn(move || {
            let mut out = Decisions::default();
            let Arrival::Execute(ticket) = arrive(&shared, 0, &mut out) else {
                panic!("the level is empty");
            };
            ticket.finish(NOW, &mut out);
        });
        let mut seen = 0;
        let mut changed = Vec::new();
        list.read(NOW, &mut changed);
        if !changed.is_empty() {
            seen = level.look(|set| (set.summary().seats_in_use, Some(notice(&list))));
        }
        requests.join().expect("the other thread ends");
        let mut later = Vec::new();
        list.read(NOW, &mut later);
        let is_listed = changed.is_empty() || seen > 0;
        assert!(!is_listed || later == [0], "{changed:?}, {seen}, {later:?}");
    });
}

#[test]
fn a_concurrent_change_of_the_limit_loses_no_waiter() {
    loom::model(|| {
        let level = level(1);
        let mut out = Decisions::default();
        let Arrival::Execute(ticket) = arrive(&level, 0, &mut out) else {
            panic!("the level is empty");
        };
        let Arrival::Wait(_) = arrive(&level, 1, &mut out) else {
            panic!("the level is full");
        };
        let shared = level.clone();
        let control = thread::spawn(move || {
            let mut out = Decisions::default();
            shared.set_limit(NOW, 2, 2, &mut out);
            finish_all(out)
        });
        let mut out = Decisions::default();
        ticket.finish(NOW, &mut out);
        let ran = finish_all(out) + control.join().expect("the other thread ends");
        assert_eq!(ran, 1);
        assert_empty(&level);
    });
}

/// A level of one seat and one queue, which flow 0 has filled: one request of it executes, and two wait.
struct FullQueue {
    level: Level<u32>,
    executing: Ticket<u32>,
    waiting: [QueuePlace<u32>; 2],
}

impl FullQueue {
    fn new() -> Self {
        let level = level_of(1, 2, 1);
        let mut out = Decisions::default();
        let Arrival::Execute(executing) = arrive_in_flow(&level, 0, 0, &mut out) else {
            panic!("the level is empty");
        };
        let waiting = [1, 2].map(|waiter| match arrive_in_flow(&level, waiter, 0, &mut out) {
            Arrival::Wait(place) => place,
            _ => panic!("the seat is taken, and there is room to wait"),
        });
        Self {
            level,
            executing,
            waiting,
        }
    }
}

/// A request of flow 1 arrives at a level whose queue was full. Returns who was refused for it, and how many executed because of
/// what happened meanwhile.
fn arrive_at_full_queue(level: &Level<u32>) -> (Option<u32>, usize) {
    let mut out = Decisions::default();
    let executed = match arrive_in_flow(level, 9, 1, &mut out) {
        Arrival::Execute(ticket) => {
            ticket.finish(NOW, &mut out);
            1
        }
        Arrival::Wait(_) => 0,
        Arrival::Reject(_) => panic!("there is a place for the only request of a flow"),
    };
    (out.replaced.take(), executed + finish_all(out))
}

#[test]
fn a_request_that_is_dispatched_while_another_takes_its_place_is_not_refused() {
    loom::model(|| {
        let FullQueue {
            level, executing, ..
        } = FullQueue::new();
        let finishing = thread::spawn(move || {
            let mut out = Decisions::default();
            executing.finish(NOW, &mut out);
            assert_eq!(out.replaced, None, "only an arrival takes a place");
            finish_all(out)
        });
        let (replaced, executed) = arrive_at_full_queue(&level);
        let executed = executed + finishing.join().expect("the other thread ends");
        assert!(
            matches!(replaced, None | Some(2)),
            "the newest: {replaced:?}"
        );
        // The two that waited and the one that arrived: each has one outcome.
        assert_eq!(executed + usize::from(replaced.is_some()), 3);
        assert_empty(&level);
    });
}

#[test]
fn a_request_that_gives_up_while_another_takes_its_place_either_leaves_or_is_refused() {
    loom::model(|| {
        let FullQueue {
            level,
            executing,
            waiting: [_, newest],
        } = FullQueue::new();
        let leaving = thread::spawn(move || {
            let mut out = Decisions::default();
            let left = newest.cancel(NOW, &mut out);
            assert_eq!(finish_all(out), 0, "the seat is taken");
            left
        });
        let (replaced, _) = arrive_at_full_queue(&level);
        let left = leaving.join().expect("the other thread ends");
        assert_eq!(replaced.is_some(), !left, "{replaced:?}");
        let mut out = Decisions::default();
        executing.finish(NOW, &mut out);
        assert_eq!(
            finish_all(out),
            2,
            "the first of the flow, and the one that came"
        );
        assert_empty(&level);
    });
}
