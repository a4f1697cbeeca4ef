//! What Compatible gives and Improved must give, in a few worlds; `table` covers many.

use super::*;
use fairgate_core::apf::policy::Semantics;

const MILLI: f64 = 0.001;

/// A closed loop of `threads` threads.
fn flow(name: &str, width: Seats, threads: u32, service: f64, think: f64) -> FlowSpec {
    FlowSpec {
        width: (width, width),
        ..FlowSpec::closed(name, threads, Service::constant(service), think)
    }
}

pub(super) fn world(seats: Seats, flows: Vec<FlowSpec>) -> World {
    World {
        name: "by hand".to_owned(),
        seed: 3,
        level: LevelShape {
            seats,
            queues: 64,
            hand_size: 6,
            queue_length_limit: 1_000,
            limits: Vec::new(),
            tenant_weight: DEFAULT_TENANT_WEIGHT,
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

/// A world in JSON as it was written before clients had names, tenants, patience and bursts.
const OLD_WORLD: &str = r#"{
    "name": "old", "seed": 1, "warmUpSeconds": 1, "seconds": 6,
    "level": { "seats": 4, "queues": 64, "handSize": 6, "queueLengthLimit": 50 },
    "flows": [{
        "name": "one", "arrivals": { "closed": { "threads": 8, "thinkSeconds": 0 } },
        "service": { "meanSeconds": 0.5, "shape": "constant" }, "width": [1, 1]
    }]
}"#;

#[test]
fn worlds_are_read_without_the_options_that_came_later_and_with_them() {
    let mut world: World = serde_json::from_str(OLD_WORLD).unwrap();
    let expected = FlowSpec::closed("one", 8, Service::constant(0.5), 0.0);
    assert_eq!(world.flows, [expected]);
    world.level.limits = vec![(2.0, 3)];
    world.flows[0] = FlowSpec {
        names: FlowNames::Of(3),
        shared_name: Some("namespace".to_owned()),
        tenant: Tenant::Named("somebody".to_owned()),
        patience_seconds: Some(1.0),
        bursts: Some(Bursts {
            on_seconds: 1.0,
            off_seconds: 2.0,
            phase_seconds: 0.5,
        }),
        service: Service::two_mode(0.5, 0.25, 1.5),
        ..world.flows[0].clone()
    };
    let written = serde_json::to_string(&world).unwrap();
    assert_eq!(serde_json::from_str::<World>(&written).unwrap(), world);
}

#[test]
fn a_limit_that_moves_bounds_the_seats_in_use() {
    let mut world = world(8, vec![flow("all", 1, 20, 20.0 * MILLI, 0.0)]);
    // Of the six seconds that are measured, the first three have 8 seats and the others 2.
    world.level.limits = vec![(4.0, 2)];
    for semantics in [Semantics::Compatible, Semantics::Improved] {
        let report = run(&world, semantics);
        let seats = report.flows[0].seats;
        assert!((seats - 5.0).abs() < 0.05, "{seats}");
        assert!((report.flows[0].ideal.seats - 5.0).abs() < 1e-9);
    }
}

#[test]
fn impatient_threads_cancel_and_call_again() {
    let mut impatient = flow("impatient", 1, 4, 100.0 * MILLI, 0.0);
    impatient.patience_seconds = Some(30.0 * MILLI);
    let report = run(&world(1, vec![impatient]), Semantics::Improved);
    let flow = &report.flows[0];
    assert!(flow.seats > 0.99, "{flow:?}");
    // Three threads wait at a time, each for 30 ms, and six seconds are measured.
    assert!((500..=600).contains(&flow.lost), "{}", flow.lost);
    assert_eq!(flow.refused, 0);
    assert!(flow.tail_wait <= 30.0 * MILLI + 1e-9, "{}", flow.tail_wait);
}

#[test]
fn bursts_come_in_step() {
    let mut bursts = flow("bursts", 1, 8, 100.0 * MILLI, 0.0);
    bursts.bursts = Some(Bursts {
        on_seconds: 0.1,
        off_seconds: 0.9,
        phase_seconds: 0.25,
    });
    let report = run(&world(2, vec![bursts]), Semantics::Improved);
    let flow = &report.flows[0];
    // Eight requests a second; the last of them wait while three times two execute.
    assert_eq!(flow.executed, 6 * 8);
    assert!((flow.longest_wait - 0.3).abs() < 1e-6, "{flow:?}");
    assert!((flow.ideal.seats - 0.8).abs() < 1e-9, "{flow:?}");
}

#[test]
fn requests_that_never_execute_count_in_the_tail_of_the_waits() {
    let starving = flow("wide", 2, 1, 20.0 * MILLI, 0.0);
    let mut forever = flow("narrow", 1, 1, 100.0, 0.0);
    forever.arrivals = Arrivals::Open {
        rate: 100.0,
        deadline_seconds: 1.0,
    };
    let report = run(&world(2, vec![forever, starving]), Semantics::Improved);
    let flow = &report.flows[1];
    assert!(flow.p99_wait < 1e-9 && flow.tail_wait > 6.0, "{flow:?}");
}

#[test]
fn requests_that_never_execute_count_in_the_wait_of_a_polite_flow() {
    const SERVICE: f64 = 200.0;
    // It waits until the end, or gives up again and again.
    for (patience_seconds, longest) in [(None, 6.0), (Some(0.5), 0.5)] {
        let starving = FlowSpec {
            patience_seconds,
            starts_seconds: SERVICE,
            ..flow("wide", 2, 1, 20.0 * MILLI, 0.0)
        };
        // Threads begin within one service time. From then on these have both seats, until after the end.
        let narrow = flow("narrow", 1, 2, SERVICE, 0.0);
        let mut world = world(2, vec![narrow, starving]);
        world.warm_up_seconds = SERVICE;
        let report = run(&world, Semantics::Improved);
        let flow = &report.flows[1];
        assert_eq!(flow.executed, 0, "{flow:?}");
        let bound = SERVICE + flow.ideal.wait_seconds;
        assert!(flow.wait_ratio > 0.9 * longest / bound, "{flow:?}");
    }
}
