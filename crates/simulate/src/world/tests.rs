//! What Compatible gives and Improved must give, in a few worlds; `table` covers many.

use super::*;
use fairgate_core::apf::policy::Semantics;

const MILLI: f64 = 0.001;

/// A closed loop of `threads` threads.
fn flow(name: &str, width: Seats, threads: u32, service: f64, think: f64) -> FlowSpec {
    FlowSpec {
        name: name.to_owned(),
        arrivals: Arrivals::Closed {
            threads,
            think_seconds: think,
        },
        service: Service {
            mean_seconds: service,
            shape: ServiceDistribution::Constant,
        },
        width: (width, width),
        final_seats: 0,
        additional_latency_seconds: 0.0,
        starts_seconds: 0.0,
    }
}

fn world(seats: Seats, flows: Vec<FlowSpec>) -> World {
    World {
        name: "by hand".to_owned(),
        seed: 3,
        level: LevelShape {
            seats,
            queues: 64,
            hand_size: 6,
            queue_length_limit: 1_000,
        },
        flows,
        warm_up_seconds: 1.0,
        seconds: 6.0,
    }
}

#[test]
fn a_wide_flow_within_its_share_gets_its_demand_beside_a_saturating_narrow_one() {
    for (seats, width, work) in [(10, 2, 20.0), (245, 2, 20.0), (245, 10, 100.0)] {
        let polite = flow("polite", width, 1, work * MILLI, 200.0 * MILLI);
        let narrow = flow("narrow", 1, 2 * seats, 20.0 * MILLI, 0.0);
        let world = world(seats, vec![polite, narrow]);
        let [original, ours] =
            [Semantics::Compatible, Semantics::Improved].map(|semantics| run(&world, semantics));
        let (original, ours) = (&original.flows[0], &ours.flows[0]);
        assert!(ours.seats >= 0.98 * original.seats, "{seats}: {ours:?}");
        assert!(ours.longest_wait <= 22.0 * MILLI, "{seats}: {ours:?}");
    }
}

#[test]
fn saturated_flows_get_equal_shares_whatever_their_widths() {
    let flows = vec![
        flow("wide", 4, 8, 20.0 * MILLI, 0.0),
        flow("narrow", 1, 30, 20.0 * MILLI, 0.0),
    ];
    let report = run(&world(10, flows), Semantics::Improved);
    assert!(report.worst_error() < 0.05, "{report:?}");
}

#[test]
fn saturated_flows_get_equal_shares_however_long_their_requests_take() {
    let flows = vec![
        flow("long", 1, 60, 100.0 * MILLI, 0.0),
        flow("short", 1, 60, 5.0 * MILLI, 0.0),
    ];
    let report = run(&world(30, flows), Semantics::Improved);
    assert!(report.worst_error() < 0.02, "{report:?}");
}

#[test]
fn the_same_world_gives_the_same_report_and_round_trips_as_json() {
    let flows = vec![
        flow("wide", 4, 8, 0.5, 0.25),
        flow("narrow", 1, 30, 0.125, 0.0),
    ];
    let world = world(10, flows);
    let written = serde_json::to_string(&world).unwrap();
    let read: World = serde_json::from_str(&written).unwrap();
    assert_eq!(read, world);
    let report = |semantics| format!("{:?}", run(&world, semantics));
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        assert_eq!(report(semantics), report(semantics));
    }
}

#[test]
fn without_fairness_a_light_flow_waits_behind_a_heavy_one() {
    let flows = vec![
        flow("mouse", 1, 1, 20.0 * MILLI, 200.0 * MILLI),
        flow("elephant", 1, 200, 20.0 * MILLI, 0.0),
    ];
    let world = world(10, flows);
    let median = |report: &WorldReport| {
        let latencies = &report.flows[0].latencies;
        latencies[latencies.len() / 2]
    };
    let (fair, fifo) = (run(&world, Semantics::Improved), run_fifo(&world));
    // 190 requests wait before it, and ten leave every 20 ms.
    assert!((0.3..0.5).contains(&median(&fifo)), "{}", median(&fifo));
    assert!(median(&fair) < 0.045, "{}", median(&fair));
    assert!(fair.flows[0].latencies.is_sorted());
}
