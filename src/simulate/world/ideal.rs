//! What a perfectly fair and infinitely divisible server would give.
//!
//! Seats are shared max-min: everybody gets what he asks for, or as much as anybody else who does
//! not. A request wider than the level counts as the level.

use super::{Arrivals, World};
use crate::simulate::clients::max_min_fair;

/// What the ideal gives one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ideal {
    /// Seats in use by it, on average.
    pub seats: f64,
    /// Seconds that its requests wait, on average; 0 for a flow that gets all it asks for.
    pub wait_seconds: f64,
    /// Whether it wants more than it gets.
    pub saturated: bool,
}

/// The ideal of all flows of `world`, in their order.
pub fn ideal(world: &World) -> Vec<Ideal> {
    let limit = world.level.seats;
    let demands: Vec<f64> = world.flows.iter().map(|f| f.demand(limit)).collect();
    let given = max_min_fair(&demands, f64::from(limit));
    let flows = world.flows.iter().zip(demands.iter().zip(given));
    flows
        .map(|(flow, (&demand, seats))| Ideal {
            seats,
            wait_seconds: fluid_wait(flow.arrivals, flow, seats, limit),
            saturated: demand > seats * 1.001,
        })
        .collect()
}

/// Little's law: a closed loop of threads goes round as often as its seats allow.
fn fluid_wait(arrivals: Arrivals, flow: &super::FlowSpec, seats: f64, limit: u32) -> f64 {
    let Arrivals::Closed {
        threads,
        think_seconds,
    } = arrivals
    else {
        return 0.0;
    };
    let cycle = f64::from(threads) * flow.mean_work(limit) / seats;
    (cycle - flow.service.mean_seconds - think_seconds).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{FlowSpec, LevelShape, Service, Shape},
        *,
    };

    fn flow(threads: u32, think_seconds: f64, width: u32) -> FlowSpec {
        FlowSpec {
            name: "a".into(),
            arrivals: Arrivals::Closed {
                threads,
                think_seconds,
            },
            service: Service {
                mean_seconds: 0.1,
                shape: Shape::Constant,
            },
            width: (width, width),
            final_seats: 0,
            additional_latency_seconds: 0.0,
            starts_seconds: 0.0,
        }
    }

    #[test]
    fn a_modest_flow_gets_all_and_the_others_equal_parts_of_the_rest() {
        let world = World {
            name: "mixed".into(),
            seed: 1,
            level: LevelShape {
                seats: 10,
                queues: 64,
                hand_size: 6,
                queue_length_limit: 50,
            },
            // Asks for 1 seat, for 40, and for 60, as it counts as ten seats wide.
            flows: vec![flow(1, 0.1, 2), flow(40, 0.0, 1), flow(6, 0.0, 17)],
            warm_up_seconds: 0.0,
            seconds: 1.0,
        };
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
}
