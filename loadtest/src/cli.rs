//! The command line.
//!
//! Exit codes: 0 all expectations hold, 1 one fails, 2 wrong usage or a mistake in the scenario, 3 the target does not
//! answer. Results go to standard output, everything else to standard error.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    report::{RunReport, VariantReport, write_text},
    scenario::{self, Scenario, ScenarioReading},
    simulate,
    verdict::{self, Evidence},
};

/// Load tests of API servers and of proxies in front of them.
#[derive(Debug, Parser)]
#[command(name = "fairgate-loadtest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(CheckArgs),
    Simulate(SimulateArgs),
}

/// Check scenarios: report all mistakes in them.
#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Scenario files.
    #[arg(value_name = "SCENARIO", required = true)]
    scenarios: Vec<PathBuf>,
}

/// Play a scenario in virtual time. Names the keys that have no effect there.
#[derive(Debug, clap::Args)]
struct SimulateArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// How results are written.
#[derive(Clone, Debug, clap::Args)]
struct OutputArgs {
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    output: ReportFormat,
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// A failure with its exit code.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self {
            code: 1,
            message: format!("cannot write: {error}"),
        }
    }
}

/// Runs the command of this process's arguments.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version arrive here, too. A failure to print them cannot be reported.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(&cli.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failure { code, message }) => {
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::from(code)
        }
    }
}

/// Whether all expectations hold.
fn run(command: &Command) -> Result<bool, Failure> {
    match command {
        Command::Check(args) => check(args),
        Command::Simulate(args) => simulated(args),
    }
}

fn check(args: &CheckArgs) -> Result<bool, Failure> {
    let mut mistakes = Vec::new();
    for path in &args.scenarios {
        let ScenarioReading {
            scenario, findings, ..
        } = scenario::read(path);
        if findings.is_empty() {
            writeln!(io::stdout(), "{}: {}", path.display(), scenario.title)?;
        }
        mistakes.extend(findings.iter().map(ToString::to_string));
    }
    if mistakes.is_empty() {
        Ok(true)
    } else {
        Err(Failure::usage(mistakes.join("\n")))
    }
}

/// Reads a scenario, and the keys that its file has.
fn load(path: &Path) -> Result<(Scenario, ScenarioReading), Failure> {
    let reading = scenario::read(path);
    if reading.findings.is_empty() {
        return Ok((reading.scenario.clone(), reading));
    }
    let lines: Vec<String> = reading.findings.iter().map(ToString::to_string).collect();
    Err(Failure::usage(lines.join("\n")))
}

fn simulated(args: &SimulateArgs) -> Result<bool, Failure> {
    let (scenario, reading) = load(&args.scenario)?;
    let played = simulate::play(&scenario).map_err(|findings| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        Failure::usage(lines.join("\n"))
    })?;
    let ignored = simulate::ignored_keys(&reading.keys);
    let mut remarks = played.remarks;
    if !ignored.is_empty() {
        remarks.push(format!(
            "in virtual time these keys have no effect: {}",
            ignored.join(", ")
        ));
    }
    let report = report(&scenario, &played.evidence, remarks, "simulated");
    print(&report, args.output.output)?;
    Ok(report.passed)
}

/// The report of `evidence`.
fn report(scenario: &Scenario, evidence: &Evidence, remarks: Vec<String>, name: &str) -> RunReport {
    let expectations = verdict::judge(&scenario.expect, evidence);
    let mut variants = vec![VariantReport {
        name: name.to_owned(),
        clients: evidence.clients.clone(),
    }];
    if let Some(without) = &evidence.without {
        variants.push(VariantReport {
            name: "without fairness".to_owned(),
            clients: without.clone(),
        });
    }
    for (client, figures) in &evidence.alone {
        variants.push(VariantReport {
            name: format!("{client} alone"),
            clients: figures.clone(),
        });
    }
    RunReport {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        about: scenario.about.clone(),
        passed: verdict::holds(&expectations),
        headline: None,
        expectations,
        variants,
        remarks,
        seconds: Duration::as_secs_f64(&scenario.duration),
        rounds: 1,
    }
}

fn print(report: &RunReport, format: ReportFormat) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        ReportFormat::Text => write_text(report, &mut out),
        ReportFormat::Json => {
            serde_json::to_writer_pretty(&mut out, report)?;
            writeln!(out)
        }
    }
}
