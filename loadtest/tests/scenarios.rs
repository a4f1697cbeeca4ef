//! Every shipped scenario: in virtual time it passes with fairness and would fail without; over real sockets, shortened, it is
//! served without an error.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// How long a scenario runs. Some expectations are averages over this time, and a shared machine may stand still for more
/// than half a second of it.
const DURATION: &str = "6s";

/// The files in `config/scenarios`.
fn shipped() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let entries = fs::read_dir(root.join("config/scenarios")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs a scenario with fairness and without; returns its report. `FAIRGATE_LOADTEST_BIN` may name an optimized binary.
fn local(scenario: &Path) -> Value {
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
    let _ = fs::remove_dir_all(&reports);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(
        output.status.success(),
        report["passed"] == true,
        "the exit code is the verdict"
    );
    report
}

/// Writes to the file that `FAIRGATE_MEASURED` names, if any, whether an expectation held.
fn measured(scenario: &Path, judgement: &Value) {
    let Some(path) = std::env::var_os("FAIRGATE_MEASURED") else {
        return;
    };
    let name = scenario.file_stem().unwrap().to_str().unwrap();
    let name = format!(
        "scenario {name}: {}",
        judgement["expectation"].as_str().unwrap()
    );
    let held = judgement["outcome"] == "holds";
    let line = json!({"name": name, "value": u8::from(held), "unit": "held", "detail": judgement["detail"]});
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    writeln!(file.unwrap(), "{line}").unwrap();
}

/// Whether an expectation is that nothing fails or is refused, which no slow machine changes. Latencies, shares and rates over
/// sockets are decided by whatever else the machine does; virtual time decides about those.
fn is_counted(judgement: &Value) -> bool {
    let text = judgement["expectation"].as_str().unwrap();
    text.ends_with(".errors == 0") || text.ends_with(".refused == 0")
}

#[test]
#[ignore = "takes minutes, and needs optimized code: .ci/run scenarios"]
fn every_shipped_scenario_is_served_over_sockets_without_an_error() {
    let mut wrong = Vec::new();
    let scenarios = shipped();
    assert!(scenarios.len() >= 13, "{scenarios:?}");
    // One after the other: concurrent runs would compete for the CPU.
    for scenario in &scenarios {
        let report = local(scenario);
        let judgements = report["expectations"].as_array().unwrap();
        let failures = report["failures"].as_array().unwrap();
        wrong.extend(
            failures
                .iter()
                .map(|failure| format!("{}: {failure}", scenario.display())),
        );
        for judgement in judgements {
            measured(scenario, judgement);
            if is_counted(judgement) && judgement["outcome"] != "holds" {
                wrong.push(format!("{}: {}", scenario.display(), judgement["detail"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_shipped_scenario_passes_in_virtual_time_and_would_fail_without_fairness() {
    let mut wrong = Vec::new();
    for scenario in shipped() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate-loadtest"));
        let command = command.arg("run").arg(&scenario);
        let output = command.args(["--simulate", "--output", "json"]).output();
        let output = output.unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if report["passed"] != true || report["holdsWithoutFairness"] != false {
            let said = [output.stdout, output.stderr].concat();
            wrong.push(String::from_utf8_lossy(&said).into_owned());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_documentation_lists_every_shipped_scenario() {
    let readme =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for scenario in shipped() {
        let name = scenario.file_stem().unwrap().to_str().unwrap();
        assert!(
            readme.contains(&format!("`{name}`")),
            "loadtest/README.md: no line for {name}"
        );
    }
}
