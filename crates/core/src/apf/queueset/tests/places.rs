//! Who is refused when a request finds its queue full.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A full level: one queue of `length` places, one seat that flow 0 has, and waiting requests of `lines`: flow, tenant, number.
/// Waiters are numbered in the order of arrival, from 0.
struct FullLevel {
    set: QueueSet<u32>,
    next: u32,
    executing: EntryId,
    /// The flows of those that wait.
    waiting: BTreeMap<u32, u64>,
}

/// What happened to an arriving request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Waits,
    /// It waits in the place of a request of this flow, with this number.
    Replaces(u64, u32),
    Refused,
}

impl FullLevel {
    fn new(semantics: Semantics, length: u32, lines: &[(u64, u64, u32)]) -> Self {
        let mut set = QueueSet::new(semantics, queues(1, length, 1), 1, Time::ZERO);
        let first = request(0, 0, 0);
        let events = &mut QueueSetEvents::default();
        let Admission::Execute(executing) = set.arrive(Time::ZERO, first, events) else {
            panic!("the seat is free");
        };
        let mut level = Self {
            set,
            next: 1,
            executing,
            waiting: BTreeMap::new(),
        };
        for &(flow, tenant, requests) in lines {
            for _ in 0..requests {
                assert_eq!(level.arrive(flow, tenant), Outcome::Waits);
            }
        }
        assert_eq!(level.set.summary().waiting, length, "the queue is full");
        level
    }

    fn arrive(&mut self, flow: u64, tenant: u64) -> Outcome {
        self.arrive_with_check(flow, tenant, || true)
    }

    fn arrive_with_check(
        &mut self,
        flow: u64,
        tenant: u64,
        may_wait: impl FnOnce() -> bool,
    ) -> Outcome {
        let number = self.next;
        self.next += 1;
        let mut events = QueueSetEvents::default();
        let arriving = request(number, flow, tenant);
        let admission = (self.set).arrive_with_check(Time::ZERO, arriving, may_wait, &mut events);
        self.set.check_invariants();
        assert!(events.dispatched.is_empty(), "the seat is taken");
        let replaced = events.replaced.map(|number| {
            let flow = self.waiting.remove(&number).expect("what waits is refused");
            (flow, number)
        });
        match admission {
            Admission::Wait(_) => {
                self.waiting.insert(number, flow);
                replaced.map_or(Outcome::Waits, |(flow, number)| {
                    Outcome::Replaces(flow, number)
                })
            }
            Admission::Reject(RejectReason::QueueFull) => {
                assert_eq!(replaced, None, "nobody is refused for nothing");
                Outcome::Refused
            }
            other => panic!("{other:?}"),
        }
    }

    /// How many requests of flows in this range wait.
    fn waiting(&self, flows: std::ops::Range<u64>) -> usize {
        let waiting = self.waiting.values();
        waiting.filter(|flow| flows.contains(*flow)).count()
    }
}

fn request(waiter: u32, hash: u64, tenant: u64) -> ArrivingRequest<u32> {
    ArrivingRequest {
        waiter,
        schema: 0,
        hash,
        tenant,
        work: Work::ONE,
    }
}

const ELEPHANT: u64 = 1;
const MOUSE: u64 = 2;

#[test]
fn a_flow_with_none_waiting_takes_the_place_of_the_newest_request_of_the_longest_line() {
    let mut level = FullLevel::new(Semantics::Improved, 9, &[(5, 5, 3), (ELEPHANT, 1, 6)]);
    let before = level.set.summary();
    assert_eq!(
        level.arrive(MOUSE, 2),
        Outcome::Replaces(ELEPHANT, 9),
        "the last that came"
    );
    let after = level.set.summary();
    assert_eq!(after.counters.rejected, before.counters.rejected + 1);
    assert_eq!(after.counters.cancelled, before.counters.cancelled);
    assert_eq!(
        (after.waiting, after.waiting_seats),
        (before.waiting, before.waiting_seats)
    );
    assert_eq!(
        level.arrive(MOUSE, 2),
        Outcome::Refused,
        "one waits already"
    );
    assert_eq!(level.arrive(ELEPHANT, 1), Outcome::Refused);
    let mut events = QueueSetEvents::default();
    level.set.finish(at(1), level.executing, &mut events);
    let dispatched: Vec<u32> = events.dispatched.iter().map(|(who, _)| *who).collect();
    assert_eq!(
        dispatched,
        [1],
        "who has waited longest of those without debt"
    );
}

/// A level of so many seats with one queue, and what happens to requests of a flow and of so many seats that arrive, all at a time.
struct WideLevel {
    set: QueueSet<u32>,
    next: u32,
    /// Requests that were refused for others.
    replaced: Vec<u32>,
}

impl WideLevel {
    fn new(seats: Seats, length: u32) -> Self {
        let queues = queues(1, length, 1);
        Self {
            set: QueueSet::new(Semantics::Improved, queues, seats, Time::ZERO),
            next: 0,
            replaced: Vec::new(),
        }
    }

    fn arrive(&mut self, flow: u64, seats: Seats) -> Admission {
        let request = ArrivingRequest {
            work: Work::seats(seats),
            ..request(self.next, flow, flow)
        };
        self.next += 1;
        let mut events = QueueSetEvents::default();
        let admission = self.set.arrive(at(1), request, &mut events);
        self.replaced.extend(events.replaced);
        self.set.check_invariants();
        admission
    }
}

#[test]
fn a_request_that_fits_into_free_seats_is_not_refused_because_wider_ones_fill_its_queue() {
    let mut level = WideLevel::new(4, 1);
    assert!(matches!(level.arrive(ELEPHANT, 3), Admission::Execute(_)));
    assert!(matches!(level.arrive(ELEPHANT, 3), Admission::Wait(_)));
    assert!(matches!(level.arrive(MOUSE, 1), Admission::Execute(_)));
    // The next one does not fit, and takes the place of the elephant's, which holds more than its part.
    assert!(matches!(level.arrive(3, 1), Admission::Wait(_)));
    assert_eq!(level.replaced.len(), 1);
    let refused = Admission::Reject(RejectReason::QueueFull);
    assert_eq!(level.arrive(4, 1), refused, "no seat is free");
    let summary = level.set.summary();
    assert_eq!((summary.waiting, summary.counters.rejected), (1, 2));
}

#[test]
fn nobody_gives_up_a_place_for_a_request_that_starts_at_once() {
    let mut level = WideLevel::new(4, 2);
    assert!(matches!(level.arrive(ELEPHANT, 3), Admission::Execute(_)));
    for _ in 0..2 {
        assert!(matches!(level.arrive(ELEPHANT, 3), Admission::Wait(_)));
    }
    assert!(matches!(level.arrive(MOUSE, 1), Admission::Execute(_)));
    assert!(level.replaced.is_empty());
}

#[test]
fn a_request_that_fits_but_is_not_next_and_has_no_place_leaves_nothing_behind() {
    let mut level = WideLevel::new(8, 1);
    assert!(matches!(level.arrive(ELEPHANT, 3), Admission::Execute(_)));
    for _ in 0..4 {
        assert!(matches!(level.arrive(MOUSE, 1), Admission::Execute(_)));
    }
    assert!(matches!(level.arrive(ELEPHANT, 3), Admission::Wait(_)));
    let before = level.set.summary();
    let refused = Admission::Reject(RejectReason::QueueFull);
    assert_eq!(level.arrive(MOUSE, 1), refused, "the seat is kept");
    let after = level.set.summary();
    assert_eq!(after.counters.rejected, before.counters.rejected + 1);
    assert_eq!(
        (after.waiting, after.waiting_seats, after.seats_in_use),
        (before.waiting, before.waiting_seats, before.seats_in_use)
    );
    assert!(!level.set.blocked.keeps_idle(), "nobody could use the seat");
}

#[test]
fn in_compatible_a_full_queue_refuses_whoever_comes() {
    let mut level = FullLevel::new(Semantics::Compatible, 6, &[(ELEPHANT, 1, 6)]);
    assert_eq!(level.arrive(MOUSE, 2), Outcome::Refused);
}

#[test]
fn a_refused_request_cannot_be_cancelled_and_is_counted_once() {
    let mut level = FullLevel::new(Semantics::Improved, 2, &[(ELEPHANT, 1, 2)]);
    let newest = level.set.entries.id_of(2);
    assert_eq!(level.arrive(MOUSE, 2), Outcome::Replaces(ELEPHANT, 2));
    let counters = level.set.summary().counters;
    let mut events = QueueSetEvents::default();
    assert!(!level.set.cancel(at(1), newest, &mut events));
    assert_eq!(level.set.summary().counters, counters);
    assert!(events.dispatched.is_empty());
}

#[test]
fn the_only_waiting_request_of_a_flow_that_holds_nothing_is_not_refused_for_another() {
    // The elephant's line has its part of all that waits, but the other flows have none to give.
    let lines: Vec<_> = (10..18).map(|flow| (flow, flow, 1)).collect();
    let mut level = FullLevel::new(Semantics::Improved, 8, &lines);
    for name in 100..1_000 {
        assert_eq!(level.arrive(name, name), Outcome::Refused);
    }
}

#[test]
fn a_flow_that_holds_its_part_gives_up_its_only_waiting_request_for_one_that_does_not() {
    // Flow 0 has the only seat, and the only place.
    let mut level = FullLevel::new(Semantics::Improved, 1, &[(0, 0, 1)]);
    assert_eq!(level.arrive(MOUSE, 2), Outcome::Replaces(0, 1));
    // It gives up none for those that hold its part, or no more than it does.
    assert_eq!(level.arrive(0, 0), Outcome::Refused);
    assert_eq!(level.arrive(ELEPHANT, 1), Outcome::Refused);
    // Nor does who holds its part for the names of a tenant that has many.
    let names: Vec<_> = (10..20).map(|name| (name, 7, 1)).collect();
    let lines: Vec<_> = names.into_iter().chain([(0, 0, 1)]).collect();
    let mut level = FullLevel::new(Semantics::Improved, 11, &lines);
    for name in 20..100 {
        assert_eq!(level.arrive(name, 7), Outcome::Refused);
    }
}

#[test]
fn a_flow_takes_the_last_place_of_another_once_until_one_of_its_requests_has_started() {
    let mut level = WideLevel::new(1, 1);
    let mut arrive = |flow, seats| level.arrive(flow, seats);
    assert!(matches!(arrive(ELEPHANT, 1), Admission::Execute(_)));
    assert!(matches!(arrive(ELEPHANT, 1), Admission::Wait(_)));
    let Admission::Wait(mouse) = arrive(MOUSE, 1) else {
        panic!("it takes the elephant's place");
    };
    // It gives up at once, and comes again.
    let mut events = QueueSetEvents::default();
    assert!(level.set.cancel(at(0), mouse, &mut events));
    assert!(matches!(level.arrive(ELEPHANT, 1), Admission::Wait(_)));
    let refused = Admission::Reject(RejectReason::QueueFull);
    assert_eq!(level.arrive(MOUSE, 1), refused);
}

#[test]
fn nobody_gives_up_his_last_place_for_a_flow_that_would_hold_more_than_he_does() {
    let mut level = WideLevel::new(4, 1);
    for flow in [ELEPHANT, 3] {
        assert!(matches!(level.arrive(flow, 2), Admission::Execute(_)));
    }
    assert!(matches!(level.arrive(ELEPHANT, 2), Admission::Wait(_)));
    let refused = Admission::Reject(RejectReason::QueueFull);
    assert_eq!(level.arrive(MOUSE, 3), refused);
    assert!(matches!(level.arrive(MOUSE, 2), Admission::Wait(_)));
}

#[test]
fn new_names_take_no_more_places_of_a_known_flow_than_their_tenant_may_have() {
    let mut level = FullLevel::new(
        Semantics::Improved,
        100,
        &[(ELEPHANT, 1, 99), (MOUSE, 2, 1)],
    );
    for name in 1_000..3_000 {
        level.arrive(name, 7);
    }
    // The tenant's names weigh 4, and the other two flows 1 each.
    let names = level.waiting(1_000..3_000);
    assert!(names <= 100 * 4 / 6, "{names} of 100 places");
    assert_eq!(level.waiting(MOUSE..MOUSE + 1), 1, "it has only this one");
    assert!(level.waiting(ELEPHANT..ELEPHANT + 1) >= 100 / 6);
    // The same places are not taken again and again.
    let before = level.waiting.clone();
    for name in 3_000..4_000 {
        level.arrive(name, 7);
    }
    assert_eq!(level.waiting, before);
}

#[test]
fn a_flow_finds_a_place_where_the_names_of_another_tenant_have_filled_all() {
    let names: Vec<_> = (1_000..1_100).map(|name| (name, 7, 1)).collect();
    let mut level = FullLevel::new(Semantics::Improved, 100, &names);
    for flow in 10..30 {
        let outcome = level.arrive(flow, flow);
        assert!(
            matches!(outcome, Outcome::Replaces(1_000.., _)),
            "{outcome:?}"
        );
    }
}

#[test]
fn among_flows_without_tenants_in_common_a_backlog_gives_up_all_but_one_place_at_most() {
    let mut level = FullLevel::new(Semantics::Improved, 50, &[(ELEPHANT, 1, 50)]);
    for name in 1_000..3_000 {
        level.arrive(name, name);
    }
    assert_eq!(level.waiting(ELEPHANT..ELEPHANT + 1), 1);
}

/// The weight of each flow, times `UNITS`, and its waiting requests, last one first, by the requests that are present; and the seats of
/// each flow, and of each tenant.
struct Lines {
    flows: BTreeMap<u64, (u64, Vec<(u64, u64)>)>,
    seats: BTreeMap<u64, u64>,
    tenants_seats: BTreeMap<u64, u64>,
}

/// A multiple of all numbers up to 8.
const UNITS: u64 = 840;

impl Lines {
    fn of(set: &QueueSet<u64>) -> Self {
        let mut flows: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        let mut tenants: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let (mut seats, mut tenants_seats) = (BTreeMap::new(), BTreeMap::new());
        set.visit(|entry| {
            let line = flows.entry(entry.hash).or_default();
            if entry.phase == Phase::Waiting {
                line.push((entry.number, entry.waiter));
            } else {
                *seats.entry(entry.hash).or_default() += 1;
                *tenants_seats.entry(entry.tenant).or_default() += 1;
            }
            tenants.entry(entry.tenant).or_default().insert(entry.hash);
        });
        let weighed = flows.into_iter().map(|(flow, mut line)| {
            line.sort_unstable_by(|a, b| b.cmp(a));
            let active = tenants[&tenant_of(flow)].len() as u64;
            let weight = (UNITS * u64::from(DEFAULT_TENANT_WEIGHT) / active).min(UNITS);
            (flow, (weight, line))
        });
        Self {
            flows: weighed.collect(),
            seats,
            tenants_seats,
        }
    }

    /// Whether a flow, or its tenant if that has many, holds its part of two seats.
    fn holds_part(&self, flow: u64) -> bool {
        let all: u64 = self.flows.values().map(|(weight, _)| weight).sum();
        let (held, weight) = match self.flows.get(&flow) {
            None => (None, UNITS),
            Some((UNITS, _)) => (self.seats.get(&flow), UNITS),
            Some(_) => {
                let tenants = self.tenants_seats.get(&tenant_of(flow));
                (tenants, UNITS * u64::from(DEFAULT_TENANT_WEIGHT))
            }
        };
        held.is_some_and(|held| held * all >= 2 * weight)
    }

    /// Whether a line gives up its newest request for one of `flow`, which arrives.
    fn gives_up(&self, flow: u64, replaced: u64) -> bool {
        let of_tenant = |other: &&u64| tenant_of(**other) == tenant_of(flow);
        let others = self.flows.keys().filter(|other| **other != flow);
        let active = others.filter(of_tenant).count() as u64 + 1;
        let own = (UNITS * u64::from(DEFAULT_TENANT_WEIGHT) / active).min(UNITS);
        let lines = self.flows.values();
        let all: u64 = lines.clone().map(|(_, line)| line.len() as u64).sum();
        let weight: u64 = lines.map(|(weight, _)| weight).sum();
        let line = self.flows.iter().find(|(_, (_, line))| {
            let newest = line.first().map(|(_, waiter)| *waiter);
            newest == Some(replaced)
        });
        line.is_some_and(|(other, (its, line))| {
            let length = line.len() as u64;
            let is_long = length * own >= 2 * its;
            let holds_more = own == UNITS && self.holds_part(*other) && !self.holds_part(flow);
            (is_long || holds_more && length * own >= *its) && length * weight >= all * its
        })
    }
}

/// Flows 0 to 4 have tenants of their own, and all others one.
fn tenant_of(flow: u64) -> u64 {
    flow.min(5)
}

/// Random arrivals at short queues, ends and cancels. Each request must have one outcome, and each that is refused for another must
/// be one that the rule allows.
fn play(seed: u64) -> u32 {
    let mut random = Random::seeded(seed);
    let mut set: QueueSet<u64> = improved(queues(3, 4, 2), 2);
    let mut waiting: BTreeMap<u64, EntryId> = BTreeMap::new();
    let mut executing: Vec<EntryId> = Vec::new();
    let (mut now, mut replacements) = (0, 0);
    for number in 0..400 {
        now += random.within(0..2_000);
        let mut events = QueueSetEvents::default();
        match random.within(0..20) {
            0..14 => {
                // The tenant of many flows has at most 8.
                let flow = match random.within(0..3) {
                    0 => random.within(0..2),
                    _ => random.within(0..13),
                };
                let lines = Lines::of(&set);
                let arriving = ArrivingRequest {
                    waiter: number,
                    schema: 0,
                    hash: flow,
                    tenant: tenant_of(flow),
                    work: Work::ONE,
                };
                let admission = set.arrive(at(now), arriving, &mut events);
                if let Some(replaced) = events.replaced {
                    replacements += 1;
                    assert!(lines.gives_up(flow, replaced), "seed {seed}, {number}");
                    assert!(waiting.remove(&replaced).is_some(), "it waited");
                    assert!(!matches!(admission, Admission::Reject(_)));
                }
                match admission {
                    Admission::Execute(id) => executing.push(id),
                    Admission::Wait(id) => drop(waiting.insert(number, id)),
                    Admission::Reject(_) => {}
                }
            }
            14..17 if !executing.is_empty() => {
                let place = random.within(0..executing.len() as u64);
                let id = executing.swap_remove(usize::try_from(place).unwrap());
                set.finish(at(now), id, &mut events);
            }
            _ => {
                let ids: Vec<_> = waiting.iter().collect();
                if !ids.is_empty() {
                    let (&number, &id) = *random.pick(&ids);
                    assert!(set.cancel(at(now), id, &mut events), "it waits");
                    waiting.remove(&number);
                }
            }
        }
        for (number, id) in events.dispatched {
            assert!(waiting.remove(&number).is_some(), "it waited");
            executing.push(id);
        }
        set.check_invariants();
        assert_eq!(set.summary().waiting as usize, waiting.len());
        assert!(set.queues().all(|queue| queue.waiting <= 4), "seed {seed}");
    }
    replacements
}

#[test]
fn whatever_happens_only_long_lines_give_up_places_and_queues_keep_their_bounds() {
    let replacements: u32 = (0..200).map(play).sum();
    assert!(replacements > 2_000, "{replacements}");
}

/// A flow that weighs less than 1 because its tenant has others elsewhere has the whole level here, however its weight is rounded.
#[test]
fn a_flow_that_is_alone_gives_up_a_place_however_many_its_tenant_has_elsewhere() {
    for elsewhere in 0..200 {
        let mut level = FullLevel::new(Semantics::Improved, 7, &[(0, 0, 7)]);
        let tenants = LevelElsewhere {
            received: Vec::new(),
            tenants: vec![(0, elsewhere)],
        };
        let mut events = QueueSetEvents::default();
        level.set.note_elsewhere(Time::ZERO, &tenants, &mut events);
        assert_eq!(
            level.arrive(1, 1),
            Outcome::Replaces(0, 7),
            "{elsewhere} elsewhere"
        );
    }
}

#[test]
fn nobody_is_refused_for_a_request_that_may_not_wait_and_only_then_it_is_asked() {
    let mut level = FullLevel::new(Semantics::Improved, 4, &[(1, 1, 4)]);
    assert_eq!(level.arrive_with_check(2, 2, || false), Outcome::Refused);
    assert_eq!(level.set.summary().waiting, 4);
    // It would be refused in any case.
    let never = || -> bool { panic!("nobody would be refused for it") };
    assert_eq!(level.arrive_with_check(1, 1, never), Outcome::Refused);
    assert!(matches!(level.arrive(2, 2), Outcome::Replaces(1, _)));
    let mut level = FullLevel::new(Semantics::Compatible, 4, &[(1, 1, 4)]);
    assert_eq!(level.arrive_with_check(2, 2, never), Outcome::Refused);
    // Where there is a place, or a seat, too.
    let mut set = QueueSet::new(Semantics::Improved, queues(1, 1, 1), 1, Time::ZERO);
    for (number, executes) in [(0, true), (1, false)] {
        let mut events = QueueSetEvents::default();
        let arriving = request(number, number.into(), number.into());
        let admission = set.arrive_with_check(Time::ZERO, arriving, never, &mut events);
        assert_eq!(matches!(admission, Admission::Execute(_)), executes);
    }
}
