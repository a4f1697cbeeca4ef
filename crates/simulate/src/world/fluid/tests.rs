//! Figures computed by hand, and the server beside a slow one.

use super::{
    super::{
        Arrivals, FlowNames, FlowSpec, Seats, Service, Tenant, arrival_kinds::ArrivalKind, run,
        tests::world,
    },
    server::{EACH_NAME, FluidRequest, FluidServer},
    *,
};
use std::collections::BTreeSet;

use fairgate_core::{apf::policy::Semantics, fairness::weighted_max_min_shares, random::Random};

/// A request of flow and name `name`, the only name of its tenant.
fn request(name: usize, width: Seats, service: f64) -> FluidRequest {
    FluidRequest {
        flow: name,
        name: name as u64,
        tenant: EACH_NAME,
        width,
        service,
        left: service,
        final_seats: 0,
        final_seconds: 0.0,
        responded: false,
        has_left: false,
    }
}

/// When each request ends, in seconds, if all arrive at 0.
fn ends(server: &mut FluidServer, requests: Vec<FluidRequest>) -> Vec<f64> {
    let zeros = vec![0.0; requests.len()];
    ends_after(server, requests, &zeros)
}

/// When each request ends, in seconds, if they arrive at these, which ascend.
fn ends_after(server: &mut FluidServer, requests: Vec<FluidRequest>, arrivals: &[f64]) -> Vec<f64> {
    let mut ends = vec![f64::NAN; requests.len()];
    let mut now = 0.0;
    let mut coming = requests.into_iter().zip(arrivals).peekable();
    loop {
        let next = now + server.next_end();
        let arrival = coming.peek().map_or(f64::INFINITY, |(_, at)| **at);
        let at = next.min(arrival);
        if at.is_infinite() {
            return ends;
        }
        server.pass(at - now);
        now = at;
        for number in server.end() {
            ends[number as usize] = now;
        }
        if let Some((request, _)) = coming.next_if(|_| arrival <= now) {
            server.arrive(request);
        }
    }
}

fn assert_close(got: &[f64], expected: &[f64]) {
    let close = |(got, expected): (&f64, &f64)| (got - expected).abs() < 1e-6;
    let all = got.len() == expected.len() && got.iter().zip(expected).all(close);
    assert!(all, "{got:?} instead of {expected:?}");
}

fn server(seats: Seats) -> FluidServer {
    FluidServer::new(seats, 100, 3, 4.0)
}

#[test]
fn two_names_share_a_seat_equally_until_one_has_no_more_requests() {
    // Both have half a seat until the first has its second of work; the other has one of its two seconds left then.
    let got = ends(&mut server(1), vec![request(0, 1, 1.0), request(1, 1, 2.0)]);
    assert_close(&got, &[2.0, 3.0]);
}

#[test]
fn a_small_demand_is_met_and_the_others_share_the_rest() {
    // One of three seats is demanded by the first; the others have two requests of two seats: one seat each until 5 s.
    let requests = vec![
        request(0, 1, 5.0),
        request(1, 2, 2.5),
        request(2, 2, 4.0),
        request(1, 2, 1.0),
    ];
    // At 5 s: 1.5 s of request 2 are left, all of request 3, and 1.5 seats each. 3 takes 4/3 s. Then 2 has 0.5 s left and two seats.
    let got = ends(&mut server(3), requests);
    assert_close(&got, &[5.0, 5.0, 5.0 + 4.0 / 3.0 + 0.5, 5.0 + 4.0 / 3.0]);
}

#[test]
fn requests_of_a_name_are_served_in_their_order() {
    // Two and a half seats for three requests of one seat: the third has half a seat.
    let mut requests: Vec<FluidRequest> = (0..3).map(|_| request(0, 1, 1.0)).collect();
    requests.extend((0..5).map(|_| request(1, 1, 1.0)));
    let got = ends(&mut server(5), requests);
    // From 1 s on, the first name demands one seat, and the other has three requests with the four that are left.
    assert_close(&got, &[1.0, 1.0, 1.5, 1.0, 1.0, 1.5, 2.0, 2.0]);
}

#[test]
fn the_names_of_one_tenant_weigh_together_no_more_than_it_may() {
    // Eight names weigh a half each, two of other tenants 1: of six seats each of the latter has one.
    let mut requests: Vec<FluidRequest> = (0..8)
        .map(|name| FluidRequest {
            tenant: 1,
            ..request(name, 1, 1.0)
        })
        .collect();
    requests.push(request(8, 1, 1.0));
    requests.push(request(9, 1, 3.0));
    let got = ends(&mut server(6), requests);
    // From 1 s on, seven tenths of a seat for each name of the tenant; one seat for the other.
    let mut expected = vec![1.0 + 0.5 / (5.0 / 8.0); 8];
    expected.extend([1.0, 3.0]);
    assert_close(&got, &expected);
}

#[test]
fn tenants_that_share_a_name_give_it_weight_together() {
    // Eight names of each of two tenants, one of which is the same. It weighs a half and a half.
    let of = |tenant, name| FluidRequest {
        tenant,
        ..request(name, 1, 1.0)
    };
    let mut requests: Vec<FluidRequest> = (0..8).map(|name| of(1, name)).collect();
    requests.extend((7..15).map(|name| of(2, name)));
    let mut server = server(1);
    for request in requests {
        server.arrive(request);
    }
    server.next_end();
    server.pass(0.8);
    let received = server.received().to_vec();
    assert_close(&received[..15], &{
        let mut expected = [0.05; 15];
        expected[7] = 0.1;
        expected
    });
}

#[test]
fn a_limit_that_moves_changes_widths_and_rates() {
    let mut server = server(2);
    server.arrive(request(0, 4, 3.0));
    server.next_end();
    // With two seats it has all that it can have.
    server.pass(1.0);
    server.arrive(request(1, 1, 3.0));
    server.set_limit(1);
    assert_close(&[server.next_end()], &[4.0]);
    server.pass(2.0);
    server.set_limit(8);
    // One second of the first is left, and two of the other.
    assert_close(&[server.next_end()], &[1.0]);
    server.pass(1.0);
    assert_eq!(server.end(), [0]);
    assert_close(&[server.next_end()], &[1.0]);
    // Seat-seconds: 2 + 2 / 2 + 4, and 2 / 2 + 1.
    assert_close(&server.received()[..2], &[7.0, 2.0]);
}

#[test]
fn a_request_leaves_only_if_it_has_received_nothing() {
    let mut server = server(1);
    for name in [0, 0, 1] {
        server.arrive(request(name, 1, 1.0));
    }
    server.next_end();
    server.pass(0.5);
    assert_eq!(
        [0, 1, 2].map(|number| server.leave(number)),
        [false, true, false]
    );
    assert_close(&[server.next_end()], &[1.5]);
}

#[test]
fn final_seats_are_served_after_the_response() {
    let first = FluidRequest {
        final_seats: 2,
        final_seconds: 1.0,
        ..request(0, 1, 1.0)
    };
    let got = ends(&mut server(2), vec![first, request(0, 2, 1.0)]);
    // Half of the second is done when the final seats of the first take both.
    assert_close(&got, &[1.0, 2.5]);
}

/// As [`ends_after`], with the shares of all names computed anew each time.
fn slow_ends(seats: Seats, requests: &[FluidRequest], arrivals: &[f64]) -> Vec<f64> {
    let mut left: Vec<f64> = requests.iter().map(|r| r.service).collect();
    let mut ends = vec![f64::NAN; requests.len()];
    let mut now = 0.0;
    while ends.iter().any(|end| end.is_nan()) {
        let arrived = arrivals.iter().filter(|at| **at <= now).count();
        let rates = slow_rates(seats, &requests[..arrived], &ends);
        let times = left.iter().zip(&rates).filter(|(_, rate)| **rate > 0.0);
        let times = times.map(|(left, rate)| left / rate);
        let next = now + times.fold(f64::INFINITY, f64::min);
        let next = arrivals.get(arrived).map_or(next, |at| at.min(next));
        for (number, rate) in rates.iter().enumerate() {
            left[number] -= rate * (next - now);
            if left[number] <= 1e-9 && ends[number].is_nan() {
                ends[number] = next;
            }
        }
        now = next;
    }
    ends
}

/// Seconds of service in a second that each request gets, if those with an end are gone.
fn slow_rates(seats: Seats, requests: &[FluidRequest], ends: &[f64]) -> Vec<f64> {
    let there = || requests.iter().zip(ends).filter(|(_, end)| end.is_nan());
    let mut demands: BTreeMap<u64, f64> = BTreeMap::new();
    let mut tenants: BTreeSet<(u64, usize)> = BTreeSet::new();
    for (request, _) in there() {
        *demands.entry(request.name).or_default() += f64::from(request.width.min(seats));
        tenants.insert((request.name, request.tenant));
    }
    let weight = |name: &u64| {
        let of_name = tenants.iter().filter(|(other, _)| other == name);
        let given = of_name.map(|(_, tenant)| match *tenant {
            EACH_NAME => 4.0,
            tenant => 4.0 / real(tenants.iter().filter(|(_, t)| *t == tenant).count()),
        });
        given.sum::<f64>().min(1.0)
    };
    let weights: Vec<f64> = demands.keys().map(weight).collect();
    let wanted: Vec<f64> = demands.values().copied().collect();
    let shares = weighted_max_min_shares(&wanted, &weights, seats.into());
    let mut shares: BTreeMap<u64, f64> = demands.keys().copied().zip(shares).collect();
    let rates = requests.iter().zip(ends).map(|(request, end)| {
        if !end.is_nan() {
            return 0.0;
        }
        let share = shares.get_mut(&request.name).unwrap();
        let width = f64::from(request.width.min(seats));
        let given = share.min(width);
        *share -= given;
        given / width
    });
    rates.collect()
}

#[test]
fn requests_end_when_they_do_with_a_server_that_looks_at_all_names_each_time() {
    let mut random = Random::seeded(5);
    for (seats, names, gap) in [
        (5, 3, 0),
        (5, 40, 0),
        (2, 100, 0),
        (30, 100, 0),
        (3, 60, 40),
        (3, 60, 68),
    ] {
        let mut number = |end| usize::try_from(random.within(0..end)).unwrap();
        let requests = (0..150).map(|_| FluidRequest {
            tenant: number(4),
            ..request(
                number(names),
                1 + Seats::try_from(number(3)).unwrap(),
                real(1 + number(1_000)) / 100.0,
            )
        });
        let requests: Vec<FluidRequest> = requests.collect();
        let mut at = 0.0;
        let arrivals = requests.iter().map(|_| {
            at += real(number(10 * gap + 1)) / 100.0;
            at
        });
        let arrivals: Vec<f64> = arrivals.collect();
        let expected = slow_ends(seats, &requests, &arrivals);
        let got = ends_after(&mut server(seats), requests, &arrivals);
        assert_close(&got, &expected);
    }
}

#[test]
fn all_work_is_done_and_all_seats_are_in_use_while_requests_wait() {
    let requests: Vec<FluidRequest> = (0..100).map(|name| request(name, 1, 1.0)).collect();
    let mut server = server(8);
    let got = ends(&mut server, requests);
    assert_close(&got, &[12.5; 100]);
    assert_close(server.received(), &[1.0; 100]);
}

#[test]
fn nobody_waits_where_everything_fits() {
    let closed = |name: &str| FlowSpec::closed(name, 2, Service::exponential(0.02), 0.03);
    let wide = FlowSpec {
        width: (3, 3),
        ..closed("wide")
    };
    let names = FlowSpec {
        names: FlowNames::Each,
        ..closed("names")
    };
    let world = world(10, vec![closed("narrow"), wide, names]);
    let real = run(&world, Semantics::Improved);
    for (fluid, real) in run_fluid(&world, 4.0).iter().zip(&real.flows) {
        assert!(fluid.p99_wait.abs() < 1e-9, "{fluid:?}");
        assert!(
            (fluid.seats - real.seats).abs() < 1e-6,
            "{fluid:?} {real:?}"
        );
        // Of those that execute at the end it is not known yet.
        let missing = real.executed - fluid.executed;
        assert!(missing <= 2 && fluid.lost == 0, "{fluid:?} {real:?}");
    }
}

#[test]
fn saturated_flows_get_the_seats_of_the_ideal_on_average() {
    let elephant = |name: &str| FlowSpec::closed(name, 30, Service::exponential(0.02), 0.0);
    let tenant = FlowSpec {
        names: FlowNames::Of(40),
        tenant: Tenant::Named("many".to_owned()),
        ..elephant("names")
    };
    let flows = vec![elephant("one"), elephant("two"), tenant];
    let fluid = run_fluid(&world(12, flows), 4.0);
    let seats: Vec<f64> = fluid.iter().map(|flow| flow.seats).collect();
    // The last one weighs four.
    let expected = [2.0, 2.0, 8.0];
    let error = seats
        .iter()
        .zip(expected)
        .map(|(got, ideal)| (got - ideal).abs());
    assert!(error.fold(0.0, f64::max) < 0.01, "{seats:?}");
    // Thirty threads with two seats: a response each 10 ms, so a cycle of 300 ms, 20 of which are service.
    assert!((fluid[0].mean_wait - 0.28).abs() < 0.01, "{fluid:?}");
}

#[test]
fn a_waiting_time_of_one_server_with_poisson_arrivals_is_as_queueing_theory_says() {
    let arrivals = Arrivals::Poisson {
        rate: 50.0,
        deadline_seconds: 1_000.0,
    };
    let mut world = world(
        1,
        vec![FlowSpec::new("one", arrivals, Service::constant(0.01))],
    );
    world.seconds = 2_000.0;
    let [flow] = run_fluid(&world, 4.0)[..] else {
        panic!("one flow");
    };
    // M/D/1: ρ / (2 (1 - ρ)) service times.
    assert!((flow.mean_wait - 0.005).abs() < 0.000_2, "{flow:?}");
}

#[test]
fn seats_in_use_are_never_over_the_limit_and_none_are_idle_while_elephants_wait() {
    for kind in [
        ArrivalKind::Tenants,
        ArrivalKind::MovingLimit,
        ArrivalKind::WrongEstimates,
    ] {
        let mut world = kind.draw(1, 1);
        world.seconds = 10.0;
        let greedy = FlowSpec::closed("greedy", 200, Service::constant(0.01), 0.0);
        world.flows.push(greedy);
        let (from, to) = (world.warm_up_seconds, world.warm_up_seconds + world.seconds);
        let seats: f64 = run_fluid(&world, 4.0).iter().map(|flow| flow.seats).sum();
        let limit = world.level.mean_limit(from, to);
        assert!(
            (seats - limit).abs() < 1e-6,
            "{}: {seats} of {limit}",
            kind.name()
        );
    }
}
