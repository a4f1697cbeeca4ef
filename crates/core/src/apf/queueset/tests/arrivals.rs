//! What is left for the others when flows come and go, or requests differ, in closed loops and virtual time.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::*;

/// The names under which a client sends its requests.
#[derive(Clone, Copy)]
enum Names {
    One,
    /// A new one for each request.
    Each,
}

/// Threads that each send a request as soon as the last one has ended.
#[derive(Clone, Copy)]
struct Client {
    threads: u32,
    names: Names,
    /// Whether each name is a tenant of its own.
    is_many_tenants: bool,
    /// Service times in milliseconds: of every tenth request, and of the others.
    services: (u64, u64),
}

/// A client of one flow, whose requests take 20 ms.
const fn backlog(threads: u32) -> Client {
    Client {
        threads,
        names: Names::One,
        is_many_tenants: false,
        services: (20, 20),
    }
}

/// A client of 33 threads with a new name for each request.
const fn churn(is_many_tenants: bool) -> Client {
    Client {
        names: Names::Each,
        is_many_tenants,
        ..backlog(33)
    }
}

/// The mean seats that each client has of 32 in 20 seconds after the first second.
fn seats_of(clients: &[Client]) -> Vec<f64> {
    const BEGIN: u64 = 1_000;
    const END: u64 = 21_000;
    let mut set = improved(queues(64, 50, 8), 32);
    // (time in milliseconds, number, client); what ends then is under the number.
    let mut heap = BinaryHeap::new();
    let mut ends = std::collections::BTreeMap::new();
    let mut number = 0_u64;
    for (client, spec) in clients.iter().enumerate() {
        for _ in 0..spec.threads {
            number += 1;
            heap.push(Reverse((0, number, client)));
        }
    }
    let mut used = vec![0; clients.len()];
    let mut random = Random::seeded(1);
    while let Some(Reverse((now, ended, client))) = heap.pop() {
        if now >= END {
            break;
        }
        let time = Time::ZERO.plus(Duration::from_millis(now));
        let mut events = QueueSetEvents::default();
        if let Some(id) = ends.remove(&ended) {
            set.finish(time, id, &mut events);
        }
        number += 1;
        let spec = clients[client];
        let name = match spec.names {
            Names::One => client as u64,
            Names::Each => 1_000 + number,
        };
        let hash = Random::seeded(name).number();
        let tenant = if spec.is_many_tenants {
            hash
        } else {
            client as u64
        };
        let arriving = ArrivingRequest {
            waiter: client,
            schema: 0,
            hash,
            tenant,
            work: Work::ONE,
        };
        let admission = set.arrive(time, arriving, &mut events);
        let mut begun: Vec<_> = events.dispatched.into_iter().collect();
        match admission {
            Admission::Execute(id) => begun.push((client, id)),
            Admission::Wait(_) => {}
            Admission::Reject(reason) => panic!("{reason:?}"),
        }
        for (client, id) in begun {
            let (every_tenth, others) = clients[client].services;
            let takes = if random.within(0..10) == 0 {
                every_tenth
            } else {
                others
            };
            used[client] += (now + takes).min(END).saturating_sub(now.max(BEGIN));
            number += 1;
            ends.insert(number, id);
            heap.push(Reverse((now + takes, number, client)));
        }
    }
    set.check_invariants();
    let seats = |used: u64| f64::from(u32::try_from(used).unwrap()) / 20_000.0;
    used.into_iter().map(seats).collect()
}

#[test]
fn a_known_flow_gets_its_part_however_many_new_ones_come() {
    let [known, new] = seats_of(&[backlog(40), churn(true)])[..] else {
        unreachable!()
    };
    // One of at most 34 active flows.
    assert!(known >= 0.9 * 32.0 / 34.0, "{known} beside {new}");
    assert!(known + new > 31.9, "no seat is idle");
}

#[test]
fn the_invented_names_of_a_tenant_weigh_no_more_than_its_allowance() {
    let [known, new] = seats_of(&[backlog(40), churn(false)])[..] else {
        unreachable!()
    };
    let part = 32.0 / (1.0 + f64::from(super::super::DEFAULT_TENANT_WEIGHT));
    assert!(known >= 0.95 * part, "{known} beside {new}");
    assert!(known + new > 31.9, "no seat is idle");
}

#[test]
fn long_requests_among_short_ones_take_no_more_than_the_part_of_their_flow() {
    let mixed = Client {
        services: (400, 1),
        ..backlog(60)
    };
    let [even, mixed] = seats_of(&[backlog(60), mixed])[..] else {
        unreachable!()
    };
    assert!((even - 16.0).abs() < 0.5, "{even} beside {mixed}");
}

#[test]
fn clients_of_one_long_request_at_a_time_do_not_take_the_part_of_a_backlog() {
    // They owe little when they come back, but what they receive advances virtual time.
    let long = Client {
        services: (100, 100),
        ..backlog(1)
    };
    let clients: Vec<Client> = std::iter::once(backlog(40)).chain([long; 60]).collect();
    let seats = seats_of(&clients);
    assert!(seats[0] >= 0.95 * 32.0 / 61.0, "{seats:?}");
}

/// How many milliseconds a request of flow 0 waits beside 40 flows that always have three requests of 20 ms, after
/// flow 0 alone had 32 seats for 100 ms.
fn wait_after_a_burst() -> u64 {
    let mut set = improved(queues(64, 50, 8), 32);
    let come = |set: &mut QueueSet<u64>, now: u64, flow: u64, begun: &mut Vec<(u64, EntryId)>| {
        let hash = Random::seeded(flow).number();
        let arriving = ArrivingRequest {
            waiter: flow,
            schema: 0,
            hash,
            tenant: hash,
            work: Work::ONE,
        };
        let mut events = QueueSetEvents::default();
        let admission = set.arrive(at(1_000 * now), arriving, &mut events);
        begun.extend(events.dispatched);
        match admission {
            Admission::Execute(id) => begun.push((flow, id)),
            Admission::Wait(_) => {}
            Admission::Reject(reason) => panic!("{reason:?}"),
        }
    };
    let mut executing = Vec::new();
    (0..32).for_each(|_| come(&mut set, 0, 0, &mut executing));
    let mut now = 100;
    for (_, id) in std::mem::take(&mut executing) {
        set.finish(at(1_000 * now), id, &mut QueueSetEvents::default());
    }
    for flow in (1..=40).flat_map(|flow| [flow; 3]) {
        come(&mut set, now, flow, &mut executing);
    }
    come(&mut set, now, 0, &mut executing);
    while !executing.iter().any(|(flow, _)| *flow == 0) {
        now += 20;
        for (flow, id) in std::mem::take(&mut executing) {
            let mut events = QueueSetEvents::default();
            set.finish(at(1_000 * now), id, &mut events);
            executing.extend(events.dispatched);
            come(&mut set, now, flow, &mut executing);
        }
    }
    now - 100
}

#[test]
fn a_flow_that_used_free_seats_and_comes_back_owes_no_more_than_it_receives_in_100_ms() {
    // It received 3.2 seat-seconds. Each of the 40 flows receives 0.8 a second, so to pay it all takes 4 seconds.
    let wait = wait_after_a_burst();
    assert!(wait <= 200, "{wait} ms");
}

/// A set in which flow 0 holds the only seat and has requests of the tenants waiting, one each in this order.
fn shared_flow(tenants: &[u64]) -> QueueSet<u64> {
    let mut set = improved(queues(1, 50, 1), 1);
    for tenant in [0].iter().chain(tenants) {
        join(&mut set, 0, *tenant);
    }
    set
}

fn join(set: &mut QueueSet<u64>, hash: u64, tenant: u64) -> EntryId {
    join_at(set, at(0), hash, tenant)
}

fn join_at(set: &mut QueueSet<u64>, now: Time, hash: u64, tenant: u64) -> EntryId {
    let arriving = ArrivingRequest {
        waiter: tenant,
        schema: 0,
        hash,
        tenant,
        work: Work::ONE,
    };
    match set.arrive(now, arriving, &mut QueueSetEvents::default()) {
        Admission::Execute(id) | Admission::Wait(id) => {
            set.check_invariants();
            id
        }
        Admission::Reject(reason) => panic!("{reason:?}"),
    }
}

#[test]
fn a_flow_that_tenants_share_weighs_as_any_other() {
    let set = shared_flow(&[1, 2, 3, 4]);
    assert_eq!(set.flows.times_weight(1), 1);
}

#[test]
fn nobody_is_harmed_by_a_tenant_of_many_flows_who_joins_his_flow() {
    let mut set = shared_flow(&[]);
    for hash in 1..=20 {
        join(&mut set, hash, 9);
    }
    join(&mut set, 0, 9);
    assert_eq!(
        set.flows.times_weight(1),
        1 + 4,
        "flow 0 is still that of tenant 0"
    );
    // Nor by one who was there before.
    let alone = join(&mut set, 1, 7);
    assert_eq!(
        set.flows.times_weight(1),
        1 + 1 + 4,
        "flow 1 is now that of tenant 7"
    );
    set.cancel(at(1), alone, &mut QueueSetEvents::default());
    set.check_invariants();
    assert_eq!(set.flows.times_weight(1), 1 + 4, "and tenant 9's again");
}

#[test]
fn a_request_costs_what_its_flow_weighed_when_it_started_whatever_names_come_meanwhile() {
    let start_after = |names: u64| {
        let mut set = shared_flow(&[]);
        let (flow, id) = (set.entries.at(0).flow, set.entries.id(0));
        for hash in 1..=names {
            join(&mut set, hash, 0);
        }
        set.finish(at(1_000_000), id, &mut QueueSetEvents::default());
        set.check_invariants();
        set.flows.at(flow).start
    };
    assert_eq!(start_after(0), SeatSeconds::product(1, SECOND));
    assert_eq!(start_after(40), start_after(0));
}

#[test]
fn what_a_request_takes_longer_than_others_costs_what_its_flow_weighs_at_its_end_if_that_is_less() {
    let mut set = shared_flow(&[]);
    let first = set.entries.id(0);
    let names: Vec<EntryId> = (1..=40).map(|hash| join(&mut set, hash, 9)).collect();
    let mut events = QueueSetEvents::default();
    set.finish(at(3_000), first, &mut events);
    let id = events.dispatched[0].1;
    let flow = set.entries.at(id.index).flow;
    assert!(set.flows.weight_of(flow).divide(4) > 4, "40 names weigh 4");
    for name in names.into_iter().filter(|name| *name != id) {
        set.cancel(at(4_000), name, &mut events);
    }
    let before = set.flows.at(flow).start;
    set.finish(at(10_003_000), id, &mut events);
    let paid = set.flows.at(flow).start.minus(before);
    assert!(paid <= SeatSeconds::product(1, 10 * SECOND), "{paid:?}");
}

#[test]
fn a_flow_that_another_tenant_joins_has_its_place_by_the_weight_of_that_tenant() {
    let mut set = shared_flow(&[]);
    let mut executing = set.entries.id(0);
    for hash in 1..=20 {
        join(&mut set, hash, 9);
    }
    let head = join(&mut set, 50, 9);
    join(&mut set, 50, 7);
    let mut before = 0;
    while executing != head {
        let mut events = QueueSetEvents::default();
        set.finish(at(1_000 * (before + 1)), executing, &mut events);
        executing = events.dispatched[0].1;
        before += 1;
    }
    // The first names of tenant 9 came when it had few; each of the others waits for its weight.
    assert!(before <= 1 + 4, "{before} requests start before it");
}

#[test]
fn a_flow_whose_owner_has_left_is_that_of_who_is_still_there() {
    let mut set = improved(queues(64, 50, 8), 64);
    let names = 1..=20;
    let mut executing: Vec<_> = names.clone().map(|hash| join(&mut set, hash, 9)).collect();
    let mut events = QueueSetEvents::default();
    for round in 0..3 {
        // Somebody comes to each of its namespaces, and goes.
        for hash in names.clone() {
            let visit = join(&mut set, hash, 7);
            set.finish(at(round), visit, &mut events);
            set.check_invariants();
        }
        assert_eq!(set.flows.times_weight(1), 4, "round {round}");
        // It always has another request there before its last one ends.
        for (hash, executing) in names.clone().zip(&mut executing) {
            let next = join(&mut set, hash, 9);
            set.finish(at(round), std::mem::replace(executing, next), &mut events);
            set.check_invariants();
        }
    }
    join(&mut set, 1, 7);
    let own = set.flows.find(1).unwrap();
    let weight = set.flows.weight_of(own);
    assert_eq!(weight.divide(100), 100, "tenant 7 has one flow");
}

#[test]
fn the_owner_of_a_flow_has_received_what_the_requests_of_others_in_it_took() {
    let mut set = improved(queues(64, 50, 8), 64);
    join(&mut set, 50, 9);
    let flow = set.flows.find(50).unwrap();
    let received = |set: &QueueSet<_>| {
        let owner = set.flows.at(flow).owner;
        let tenants = set.flows.tenants();
        (tenants.hash(owner), tenants.received(owner))
    };
    let before = received(&set);
    let guest = join(&mut set, 50, 7);
    assert!(
        received(&set).1 > before.1,
        "it is assumed to take some time"
    );
    set.finish(Time::ZERO, guest, &mut QueueSetEvents::default());
    assert_eq!(received(&set), before, "it took none");
}

#[test]
fn a_request_in_the_flow_of_a_tenant_that_has_many_since_is_not_harmed_by_them() {
    let mut set = shared_flow(&[]);
    join(&mut set, 50, 9);
    join(&mut set, 50, 9);
    let waits = join(&mut set, 50, 7);
    for hash in 1..=40 {
        join(&mut set, hash, 9);
    }
    let flow = set.entries.at(waits.index).flow;
    let tenants = set.flows.tenants();
    assert_eq!(tenants.hash(set.flows.at(flow).owner), 7);
}

/// How many requests start before one of a tenant that had 400 other names when it came, which have left since; beside 50 others that
/// always have a request waiting.
fn starts_before_the_first_of_a_crowd_that_left() -> u64 {
    let mut set = improved(queues(1_000, 50, 1), 1);
    let mut executing = join(&mut set, 0, 0);
    let mut events = QueueSetEvents::default();
    let crowd: Vec<_> = (1_000..1_400).map(|hash| join(&mut set, hash, 9)).collect();
    let last = join(&mut set, 500, 9);
    for name in crowd {
        set.cancel(at(0), name, &mut events);
    }
    for other in 1..=50 {
        join(&mut set, other, other);
    }
    let mut before = 0;
    loop {
        events = QueueSetEvents::default();
        set.finish(at(1_000 * (before + 1)), executing, &mut events);
        executing = events.dispatched[0].1;
        if executing == last {
            return before;
        }
        before += 1;
        let (name, tenant) = (events.dispatched[0].0, events.dispatched[0].0);
        join_at(&mut set, at(1_000 * before), name, tenant);
    }
}

#[test]
fn a_flow_does_not_wait_by_the_weight_that_it_had_beside_a_crowd_that_has_left() {
    let before = starts_before_the_first_of_a_crowd_that_left();
    assert!(before <= 60, "{before} requests start before it");
}

#[test]
fn what_flows_weigh_together_follows_a_changed_tenant_weight() {
    let mut set = shared_flow(&[]);
    for hash in 1..=20 {
        join(&mut set, hash, 9);
    }
    for (tenant_weight, all) in [(1, 1 + 1), (8, 1 + 8), (100, 1 + 20), (0, 1 + 1)] {
        set.set_tenant_weight(at(1), tenant_weight, &mut QueueSetEvents::default());
        set.check_invariants();
        assert_eq!(set.flows.times_weight(1), all);
        assert_eq!(set.tenant_weight(), tenant_weight.max(1));
        let mut tenants: Vec<_> = set.tenants().map(|t| (t.hash, t.flows, t.weight)).collect();
        tenants.sort_by_key(|tenant| tenant.0);
        let most = f64::from(tenant_weight.clamp(1, 20));
        assert_eq!(tenants, [(0, 1, 1.0), (9, 20, most)]);
    }
    set.configure(
        at(2),
        Semantics::Compatible,
        queues(1, 50, 1),
        &mut QueueSetEvents::default(),
    );
    assert_eq!(set.tenant_weight(), 1, "also when all flows are forgotten");
}

#[test]
fn a_changed_tenant_weight_reorders_the_flows_that_wait() {
    // The first flows of a tenant come when it has few.
    for (tenant_weight, next) in [(1, 5), (100, 9)] {
        let mut set = shared_flow(&[]);
        let only_seat = set.entries.id(0);
        for hash in 1..=20 {
            join(&mut set, hash, 9);
        }
        join(&mut set, 50, 5);
        let mut events = QueueSetEvents::default();
        set.set_tenant_weight(at(1), tenant_weight, &mut events);
        set.finish(at(1), only_seat, &mut events);
        set.check_invariants();
        let dispatched: Vec<u64> = events.dispatched.iter().map(|(who, _)| *who).collect();
        assert_eq!(dispatched, [next]);
    }
}
