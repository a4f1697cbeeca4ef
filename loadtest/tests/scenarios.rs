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

/// So many rounds, an expectation about a control needs at least to be judged by medians.
const JUDGED_ROUNDS: u32 = 3;

/// How many rounds to measure: what `FAIRGATE_ROUNDS` says, or one, which is enough to see that nothing fails.
fn rounds() -> u32 {
    std::env::var("FAIRGATE_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// Runs a scenario with fairness and without; returns its report. `FAIRGATE_LOADTEST_BIN` may name an optimized binary.
fn local(scenario: &Path) -> Value {
    let reports = std::env::temp_dir().join(format!("fairgate-scenarios-{}", std::process::id()));
    let program = std::env::var_os("FAIRGATE_LOADTEST_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_fairgate-loadtest").into());
    let output = Command::new(program)
        .arg("local")
        .arg(scenario)
        .args(["--rounds", &rounds().to_string()])
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

/// Writes a figure to the file that `FAIRGATE_MEASURED` names, if any. Of an expectation about a control that was measured in the
/// same rounds, that is whether it held by the medians; of any other, the value itself, which a person compares with the last one.
fn measured(scenario: &Path, judgement: &Value, clients: &Value) {
    let Some(path) = std::env::var_os("FAIRGATE_MEASURED") else {
        return;
    };
    let scenario = scenario.file_stem().unwrap().to_str().unwrap();
    let text = judgement["expectation"].as_str().unwrap();
    let detail = &judgement["detail"];
    let line = if has_control(text) {
        if rounds() < JUDGED_ROUNDS {
            return;
        }
        let held = u8::from(judgement["outcome"] == "holds");
        json!({"name": format!("scenario {scenario}: {text}"), "value": held, "unit": "held", "detail": detail})
    } else {
        let (subject, _) = text.split_once(' ').unwrap();
        let value = value_of(subject, clients);
        json!({"name": format!("scenario {scenario}: {subject}"), "value": value, "detail": detail})
    };
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    writeln!(file.unwrap(), "{line}").unwrap();
}

/// Whether an expectation compares a client with itself without fairness, or alone.
fn has_control(text: &str) -> bool {
    text.ends_with(" x without") || text.ends_with(" x alone")
}

/// The value of a measure such as `mouse.share` or `all.errors`: shares and rates are medians over the rounds, counts are sums.
fn value_of(subject: &str, clients: &Value) -> f64 {
    let (who, measure) = subject.split_once('.').unwrap();
    let clients = clients.as_array().unwrap().iter();
    let values = clients.filter(|client| who == "all" || client["name"] == who);
    values.map(|client| client[measure].as_f64().unwrap()).sum()
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
    assert!(scenarios.len() >= 14, "{scenarios:?}");
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
            measured(scenario, judgement, &report["variants"][0]["clients"]);
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
