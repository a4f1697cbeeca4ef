//! Every shipped scenario: shortened, over real sockets, it passes with fairness and would fail without; and it passes in
//! virtual time.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// How long a scenario runs. Some expectations are averages over this time, and a shared machine may stand still for more
/// than half a second of it.
const DURATION: &str = "6s";

/// The files in `config/scenarios`.
fn shipped() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let entries = std::fs::read_dir(root.join("config/scenarios")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs a scenario with fairness and without; returns its report. `FAIRGATE_LOADTEST_BIN` may name an optimized binary.
fn local(scenario: &Path) -> serde_json::Value {
    let reports = std::env::temp_dir().join(format!("fairgate-scenarios-{}", std::process::id()));
    let program = std::env::var_os("FAIRGATE_LOADTEST_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_fairgate-loadtest").into());
    let output = Command::new(program)
        .arg("local")
        .arg(scenario)
        .args(["--duration", DURATION, "--output", "json", "--report"])
        .arg(&reports)
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&reports);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(
        output.status.success(),
        report["passed"] == true,
        "the exit code is the verdict"
    );
    report
}

/// The outcomes of the expectations, and other failures.
fn explained(report: &serde_json::Value) -> String {
    format!("{:#}\n{:#}", report["expectations"], report["failures"])
}

#[test]
#[ignore = "measures in real time, so it needs optimized code and an idle machine: .ci/run loadtest"]
fn every_shipped_scenario_passes_with_fairness_and_would_fail_without() {
    let mut wrong = Vec::new();
    let scenarios = shipped();
    assert!(scenarios.len() >= 13, "{scenarios:?}");
    // One after the other: concurrent runs would compete for the CPU.
    for scenario in &scenarios {
        let report = local(scenario);
        if report["passed"] != true {
            wrong.push(format!("{}: {}", scenario.display(), explained(&report)));
        }
        if report["holdsWithoutFairness"] != false {
            wrong.push(format!(
                "{}: it does not fail without fairness",
                scenario.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_shipped_scenario_passes_in_virtual_time() {
    let mut wrong = Vec::new();
    for scenario in shipped() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate-loadtest"));
        let output = command.arg("run").arg(&scenario).arg("--simulate").output();
        let output = output.unwrap();
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            wrong.push(String::from_utf8_lossy(&said).into_owned());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_documentation_lists_every_shipped_scenario() {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for scenario in shipped() {
        let name = scenario.file_stem().unwrap().to_str().unwrap();
        assert!(
            readme.contains(&format!("`{name}`")),
            "loadtest/README.md: no line for {name}"
        );
    }
}
