//! The figures of the original, in Go, from the same machine and the same minute.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

/// What the original takes for one round.
pub(crate) struct OriginalTiming {
    pub(crate) name: String,
    pub(crate) nanos: f64,
    pub(crate) allocations: f64,
}

/// Asks the Go program in `directory` how long the original takes to answer `question`.
///
/// # Errors
///
/// Why there are no figures, for the reader of the bench: Go or its modules are missing, or this is a smoke run.
pub(crate) fn timings(directory: &Path, question: &Value) -> Result<Vec<OriginalTiming>, String> {
    if super::is_quick() {
        return Err("this is a smoke run".to_owned());
    }
    let mut program = Command::new("go")
        .args(["run", ".", "timings"])
        .current_dir(directory)
        // No other toolchain is fetched, no C compiler asked for.
        .envs([
            ("GOTOOLCHAIN", "local"),
            ("CGO_ENABLED", "0"),
            ("GOWORK", "off"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("Go cannot be started: {error}"))?;
    let mut input = program.stdin.take().expect("it is piped");
    let sent = input.write_all(question.to_string().as_bytes());
    drop(input);
    let answer = program
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if !answer.status.success() {
        return Err(format!("the Go program failed: {}", answer.status));
    }
    sent.map_err(|error| error.to_string())?;
    String::from_utf8_lossy(&answer.stdout)
        .lines()
        .map(timing)
        .collect()
}

fn timing(line: &str) -> Result<OriginalTiming, String> {
    let line: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let number = |name: &str| line[name].as_f64().ok_or(format!("no {name} in {line}"));
    Ok(OriginalTiming {
        name: line["name"].as_str().unwrap_or_default().to_owned(),
        nanos: number("nanoseconds")?,
        allocations: number("allocations")?,
    })
}
