//! The demonstration: it runs, ends in time, and reports the expected figures.

use std::{
    future::{Future, pending, ready},
    process::{Command, Stdio},
    time::Duration,
};

use fairgate::{
    app::demo_gateway::DemoGateways,
    demo::{self, DemoComparison, DemoReport, ProgressDisplay, SideFigures},
};
use serde_json::Value;

fn run_for(
    comparison: DemoComparison,
    length: Duration,
    interrupt: impl Future<Output = ()>,
) -> (DemoReport, String) {
    let mut shown = Vec::new();
    let display = ProgressDisplay::Lines;
    let gateways = DemoGateways::default();
    let start = |plan| gateways.start(&plan);
    let report = demo::run(&start, comparison, length, display, interrupt, &mut shown).unwrap();
    (report, String::from_utf8(shown).unwrap())
}

/// The greatest median latency among the mice, in milliseconds.
fn slowest_mouse_ms(side: &SideFigures) -> f64 {
    let mice = side.flows[1..].iter().filter_map(|flow| flow.p50_ms);
    mice.fold(0.0, f64::max)
}

fn keys(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

fn check_side(side: &Value) {
    assert_eq!(keys(side), ["flows", "jain"]);
    let jain = side["jain"].as_f64().unwrap();
    assert!((0.2..=1.0).contains(&jain), "{jain}");
    let flows = side["flows"].as_array().unwrap();
    let names: Vec<&str> = flows
        .iter()
        .filter_map(|flow| flow["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["elephant", "mouse-1", "mouse-2", "mouse-3", "mouse-4"]
    );
    for flow in flows {
        let mut keys = keys(flow);
        keys.sort_unstable();
        assert_eq!(
            keys,
            ["name", "ok", "p50_ms", "p99_ms", "rejected", "requests"]
        );
        assert!(flow["ok"].as_u64().unwrap() > 0, "{flow}");
        assert!(flow["p50_ms"].as_f64().unwrap() >= 40.0, "{flow}");
        assert!(flow["p99_ms"].as_f64() >= flow["p50_ms"].as_f64(), "{flow}");
    }
}

#[test]
fn the_mice_are_served_and_wait_less_with_fairness_than_without() {
    let (report, shown) = run_for(DemoComparison::Fairness, Duration::from_secs(3), pending());

    for side in [&report.with, &report.without] {
        assert!(side.most_upstream <= 10, "{side:?}");
        assert!(side.flows.iter().all(|flow| flow.failed == 0), "{side:?}");
        assert!(side.flows.iter().all(|flow| flow.ok > 0), "{side:?}");
    }
    let (with, without) = (
        slowest_mouse_ms(&report.with),
        slowest_mouse_ms(&report.without),
    );
    assert!(with < without, "{report}");
    assert!(!report.interrupted);
    assert!(
        shown.lines().count() >= 3,
        "a header line and a line each second: {shown}"
    );
}

#[test]
fn the_elephant_gets_one_share_of_a_fleet_and_more_of_gateways_with_seats_of_their_own() {
    let comparison = DemoComparison::Fleet { gateways: 3 };
    let (report, _) = run_for(comparison, Duration::from_secs(4), pending());

    for side in [&report.with, &report.without] {
        assert!(side.most_upstream <= 30, "{side:?}");
        assert!(side.flows.iter().all(|flow| flow.failed == 0), "{side:?}");
    }
    let part_of_elephant = |side: &SideFigures| {
        let all: u64 = side.flows.iter().map(|flow| flow.ok).sum();
        100 * side.flows[0].ok / all
    };
    // A fifth, and 22 of 30 seats.
    let (with, without) = (
        part_of_elephant(&report.with),
        part_of_elephant(&report.without),
    );
    assert!((12..=30).contains(&with), "{with} %: {report}");
    assert!((62..=82).contains(&without), "{without} %: {report}");
    assert!(report.with.jain > report.without.jain, "{report}");
}

#[test]
fn the_command_writes_one_json_object_to_stdout_and_progress_to_stderr() {
    let output = Command::new(env!("CARGO_BIN_EXE_fairgate"))
        .args(["demo", "--seconds", "3", "--output", "json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();

    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{progress}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(keys(&json), ["with", "without"]);
    check_side(&json["with"]);
    check_side(&json["without"]);
    assert!(progress.contains("without: "), "{progress}");
}

#[test]
fn an_interrupted_run_ends_soon_with_the_results_so_far() {
    let (report, _) = run_for(
        DemoComparison::Fairness,
        Duration::from_secs(3600),
        ready(()),
    );

    assert!(report.interrupted);
    assert_eq!(report.measured, Duration::ZERO);
    assert!(report.to_string().contains("Interrupted"), "{report}");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["with"]["flows"][0]["p99_ms"].is_null());
}
