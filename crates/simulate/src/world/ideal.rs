//! The results of a perfectly fair and infinitely divisible server.
//!
//! Seats are shared max-min: each flow gets what it demands, or the same as every other flow that does not.
//! A request wider than the level counts as wide as the level. Flows of the same tenant weigh together at most
//! [`TENANT_WEIGHT`].

use std::collections::BTreeMap;

use fairgate_core::apf::units::Seats;

use super::{Arrivals, DEFAULT_TENANT_WEIGHT, FlowNames, FlowSpec, Tenant, World};
use fairgate_core::fairness::weighted_max_min_shares;

/// The greatest weight of the flows of one tenant together, where a flow weighs 1.
pub const TENANT_WEIGHT: f64 = DEFAULT_TENANT_WEIGHT as f64;

/// The ideal result of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ideal {
    /// The seats that the flow uses, on average.
    pub seats: f64,
    /// Seconds that its requests wait, on average; 0 for open arrivals, and for a flow that gets all it demands.
    pub(crate) wait_seconds: f64,
    /// Whether it demands more than it gets, by over 0.1 %.
    pub(crate) saturated: bool,
    /// Whether it gets all it demands even while all others with bursts send theirs.
    pub(crate) within_share: bool,
}

/// The ideal of all flows of `world`, in their order.
pub(crate) fn ideal(world: &World) -> Vec<Ideal> {
    ideal_by_tenant(world, TENANT_WEIGHT)
}

/// As [`ideal`], where the flows of one tenant weigh together at most `tenant_weight`.
pub(crate) fn ideal_by_tenant(world: &World, tenant_weight: f64) -> Vec<Ideal> {
    let limit = world.level.seats;
    let (from, to) = (world.warm_up_seconds, world.warm_up_seconds + world.seconds);
    let capacity = world.level.mean_limit(from, to);
    let demands: Vec<f64> = world.flows.iter().map(|f| f.demand(limit)).collect();
    let mut weights = weights(world, tenant_weight, &vec![0.0; demands.len()]);
    let mut given = weighted_max_min_shares(&demands, &weights, capacity);
    if world.flows.iter().any(|flow| flow.names != FlowNames::One) {
        // How many names are active depends on how long requests wait, and that on the weights.
        for _ in 0..3 {
            let flows = world.flows.iter().zip(demands.iter().zip(&given));
            let waits = flows.map(|(flow, (demand, seats))| match flow.arrivals {
                Arrivals::Closed { .. } => fluid_wait(flow, *seats, limit),
                Arrivals::Open {
                    deadline_seconds, ..
                }
                | Arrivals::Poisson {
                    deadline_seconds, ..
                } if *demand > seats * 1.001 => deadline_seconds,
                Arrivals::Open { .. } | Arrivals::Poisson { .. } => 0.0,
            });
            weights = self::weights(world, tenant_weight, &waits.collect::<Vec<_>>());
            given = weighted_max_min_shares(&demands, &weights, capacity);
        }
    }
    let least = world.level.limits.iter().map(|(_, seats)| *seats);
    let least = f64::from(least.fold(limit, Seats::min));
    let peaks: Vec<f64> = world.flows.iter().map(|f| f.peak_demand(limit)).collect();
    let at_peak = weighted_max_min_shares(&peaks, &weights, least);
    let flows = world.flows.iter().zip(demands.iter().zip(given));
    flows
        .zip(peaks.iter().zip(at_peak))
        .map(|((flow, (&demand, seats)), (peak, at_peak))| Ideal {
            seats,
            wait_seconds: fluid_wait(flow, seats, limit),
            saturated: demand > seats * 1.001,
            within_share: *peak <= at_peak * 1.001,
        })
        .collect()
}

/// The weight of each flow, if its requests wait for so many seconds. A name weighs 1; those of a tenant who is
/// active under more names than `tenant_weight` weigh that together. Clients that share names have equal parts in them.
fn weights(world: &World, tenant_weight: f64, waits: &[f64]) -> Vec<f64> {
    let flows = || world.flows.iter().zip(waits);
    let names: Vec<f64> = flows()
        .map(|(flow, wait)| active_names(flow, *wait))
        .collect();
    let mut of_tenant: BTreeMap<&str, f64> = BTreeMap::new();
    let mut sharing: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, flow) in world.flows.iter().enumerate() {
        if let Some(tenant) = tenant(flow) {
            *of_tenant.entry(tenant).or_default() += names[number];
        }
        if let Some(name) = &flow.shared_name {
            sharing.entry(name).or_default().push(number);
        }
    }
    // What one tenant gives to the weight of each of its names.
    let given = |number: usize| {
        let active = tenant(&world.flows[number]).map_or(1.0, |tenant| of_tenant[tenant]);
        tenant_weight / active
    };
    let weight = |number: usize| match &world.flows[number].shared_name {
        None => names[number] * given(number).min(1.0),
        Some(name) => {
            let sharing = &sharing[name.as_str()];
            let all: f64 = sharing.iter().map(|other| given(*other)).sum();
            names[number] * all.min(1.0) / super::real(sharing.len())
        }
    };
    (0..names.len()).map(weight).collect()
}

/// The tenant of the flow, unless each of its names is one.
pub(super) fn tenant(flow: &FlowSpec) -> Option<&str> {
    match &flow.tenant {
        Tenant::Own => Some(&flow.name),
        Tenant::Named(name) => Some(name),
        Tenant::EachName => None,
    }
}

/// Under how many names a flow has requests at a time, on average and at least 1, if they wait for `wait` seconds.
fn active_names(flow: &FlowSpec, wait: f64) -> f64 {
    let present = flow.service.mean_seconds + wait;
    let requests = match flow.arrivals {
        Arrivals::Closed {
            threads,
            think_seconds,
        } => f64::from(threads) * present / (present + think_seconds),
        Arrivals::Open { rate, .. } | Arrivals::Poisson { rate, .. } => rate * present,
    };
    let names = match flow.names {
        FlowNames::One => 1.0,
        FlowNames::Each => requests,
        FlowNames::Of(names) => {
            let names = f64::from(names.max(1));
            names * (1.0 - (1.0 - 1.0 / names).powf(requests))
        }
    };
    names.max(1.0)
}

/// The worst share error that no policy can avoid, because a request executes with all its seats or not at all.
///
/// Over time a level executes one set of requests after another, each of at most `limit` seats, so the seats of
/// the flows are an average of such sets. For any prices of the flows' seats, no average is worth more than the
/// most valuable set; the prices that make this least are searched for, and the bound holds for whichever are
/// found. A closed loop of threads has no more requests at a time than threads. Only saturated flows of one
/// width are considered.
pub(crate) fn unavoidable_error(world: &World) -> f64 {
    let limit = world.level.seats;
    let flows = world.flows.iter().zip(ideal(world));
    let wants: Vec<Want> = flows
        .filter(|(flow, ideal)| {
            ideal.saturated && flow.final_seats == 0 && flow.width.0 == flow.width.1
        })
        .map(|(flow, ideal)| Want::new(flow, ideal.seats, limit))
        .collect();
    if wants.is_empty() || wants.iter().any(|want| want.width == 1) {
        // Requests of one seat fill the rest.
        return 0.0;
    }
    (1.0 - best_part(wants, limit as usize)).max(0.0)
}

/// A saturated flow, as [`best_part`] needs it.
struct Want {
    /// The seats of one request.
    width: usize,
    /// The maximum number of requests at a time.
    requests: usize,
    /// The seats that the flow ideally uses, on average.
    ideal: f64,
    /// The price of all its ideal seats together.
    price: f64,
}

impl Want {
    fn new(flow: &FlowSpec, ideal: f64, limit: u32) -> Self {
        let width = flow.width.0.min(limit);
        let fit = limit / width;
        let requests = match flow.arrivals {
            Arrivals::Closed { threads, .. } => threads.min(fit),
            Arrivals::Open { .. } | Arrivals::Poisson { .. } => fit,
        };
        Self {
            width: width as usize,
            requests: requests as usize,
            ideal,
            price: 1.0,
        }
    }
}

/// An upper bound for the part of its ideal that every flow can get.
fn best_part(mut wants: Vec<Want>, limit: usize) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..300 {
        let prices: f64 = wants.iter().map(|want| want.price).sum();
        let seats = most_valuable(&wants, limit);
        let parts = wants
            .iter()
            .zip(&seats)
            .map(|(want, seats)| seats / want.ideal);
        let parts: Vec<f64> = parts.collect();
        let value: f64 = wants
            .iter()
            .zip(&parts)
            .map(|(want, part)| want.price * part)
            .sum();
        best = best.min(value / prices);
        // Flows that got much become cheaper, so that others are in the most valuable set next time.
        for (want, part) in wants.iter_mut().zip(parts) {
            want.price *= (-0.05 * part).exp();
        }
    }
    best
}

/// The seats of each flow in the set of requests with the greatest value.
fn most_valuable(wants: &[Want], limit: usize) -> Vec<f64> {
    let requests: Vec<usize> = wants
        .iter()
        .enumerate()
        .flat_map(|(flow, want)| std::iter::repeat_n(flow, want.requests))
        .collect();
    // The greatest value for each number of seats, and for each request whether it belongs to that set.
    let mut values = vec![0.0; limit + 1];
    let mut taken = vec![vec![false; limit + 1]; requests.len()];
    for (flow, taken) in requests.iter().zip(&mut taken) {
        let want = &wants[*flow];
        let worth = want.price * super::real(want.width) / want.ideal;
        for seats in (want.width..=limit).rev() {
            let value = values[seats - want.width] + worth;
            if value > values[seats] {
                values[seats] = value;
                taken[seats] = true;
            }
        }
    }
    let mut seats = vec![0.0; wants.len()];
    let mut left = limit;
    for (flow, taken) in requests.iter().zip(&taken).rev() {
        if taken[left] {
            left -= wants[*flow].width;
            seats[*flow] += super::real(wants[*flow].width);
        }
    }
    seats
}

/// Little's law: the cycle time of a closed loop of threads follows from its seats.
fn fluid_wait(flow: &FlowSpec, seats: f64, limit: Seats) -> f64 {
    let Arrivals::Closed {
        threads,
        think_seconds,
    } = flow.arrivals
    else {
        return 0.0;
    };
    if flow.bursts.is_some() && flow.demand(limit) <= seats * 1.001 {
        return 0.0;
    }
    let cycle = f64::from(threads) * flow.mean_work(limit) / seats;
    (cycle - flow.service.mean_seconds - think_seconds).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{LevelShape, Service},
        *,
    };

    fn flow(threads: u32, think_seconds: f64, width: u32) -> FlowSpec {
        FlowSpec {
            width: (width, width),
            ..FlowSpec::closed("a", threads, Service::constant(0.1), think_seconds)
        }
    }

    fn world(seats: u32, flows: Vec<FlowSpec>) -> World {
        World {
            name: "mixed".into(),
            seed: 1,
            level: LevelShape {
                seats,
                queues: 64,
                hand_size: 6,
                queue_length_limit: 50,
                limits: Vec::new(),
                tenant_weight: DEFAULT_TENANT_WEIGHT,
            },
            flows,
            warm_up_seconds: 0.0,
            seconds: 1.0,
        }
    }

    #[test]
    fn widths_that_do_not_fit_together_make_an_error_unavoidable() {
        let with_threads = |seats, threads, widths: &[u32]| {
            let flows = widths.iter().map(|width| flow(threads, 0.0, *width));
            unavoidable_error(&world(seats, flows.collect()))
        };
        let error = |seats, widths: &[u32]| with_threads(seats, 50, widths);
        assert!((error(342, &[100, 100]) - 42.0 / 342.0).abs() < 1e-9);
        assert!(error(342, &[100, 1]).abs() < 1e-9);
        // The level is fuller with two requests of 17 seats, or with three of 10, than with one of each. For equal
        // shares it spends 34/30 as much time on the three as on the two.
        let both = error(34, &[17, 10]);
        assert!(
            (both - (1.0 - 2.0 / (1.0 + 34.0 / 30.0))).abs() < 0.01,
            "{both}"
        );
        // Seven of 10 with one of 30, then four of 10 with two of 30; with six threads, six of 10 at most.
        assert!(error(100, &[10, 30]) < 0.01);
        let six = with_threads(100, 6, &[10, 30]);
        assert!((six - 0.04).abs() < 0.01, "{six}");
    }

    #[test]
    fn a_small_demand_is_met_and_the_other_flows_share_the_rest_equally() {
        // The demands are 1 seat, 40, and 60, because a request wider than the level counts as ten seats.
        let flows = vec![flow(1, 0.1, 2), flow(40, 0.0, 1), flow(6, 0.0, 17)];
        let world = world(10, flows);
        let ideal = ideal(&world);
        assert_eq!(
            ideal.iter().map(|i| i.seats).collect::<Vec<_>>(),
            [1.0, 4.5, 4.5]
        );
        assert!(!ideal[0].saturated && ideal[1].saturated && ideal[2].saturated);
        assert!(ideal[0].wait_seconds.abs() < 1e-9);
        // Forty threads at 45 requests a second go round in 0.889 s.
        assert!((ideal[1].wait_seconds - 0.789).abs() < 0.001, "{ideal:?}");
    }

    #[test]
    fn the_names_of_one_tenant_weigh_no_more_than_a_tenant_may() {
        let many = |tenant| FlowSpec {
            names: FlowNames::Of(1_000),
            tenant,
            ..flow(1_000, 0.0, 1)
        };
        let share = |tenant| ideal(&world(32, vec![many(tenant), flow(40, 0.0, 1)]))[1].seats;
        let one = share(Tenant::Named("b".to_owned()));
        assert!((one - 32.0 / 5.0).abs() < 1e-6, "{one}");
        let each = share(Tenant::EachName);
        assert!((0.03..0.06).contains(&each), "{each}");
    }

    #[test]
    fn clients_that_share_a_name_share_its_part() {
        let shares = || FlowSpec {
            shared_name: Some("namespace".to_owned()),
            ..flow(40, 0.0, 1)
        };
        let named = |name: &str, flow| FlowSpec {
            name: name.to_owned(),
            ..flow
        };
        let flows = vec![
            named("a", shares()),
            named("b", shares()),
            named("c", flow(40, 0.0, 1)),
        ];
        let given: Vec<f64> = ideal(&world(32, flows)).iter().map(|i| i.seats).collect();
        assert_eq!(given, [8.0, 8.0, 16.0]);
    }
}
