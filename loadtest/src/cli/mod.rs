//! The command line.
//!
//! Exit codes: 0 all expectations hold, 1 one fails, 2 wrong usage or a mistake in the scenario, 3 the target does not
//! answer, or something cannot be started or written, 130 and 143 interrupted. Results go to standard output, everything else to standard error.

mod arguments;
mod compare;
mod idle;
mod interrupt;
mod serve;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    gateway, left_out,
    load::{LoadBounds, progress::ProgressLine},
    measure::{Contender, ContenderPlace, MeasurePlan, Measurement, measure, medians},
    report::{RunReport, VariantReport, write_text},
    requirements::Requirements,
    scenario::{self, Scenario, ScenarioReading},
    simulate,
    transport::target::{LoadTarget, TargetError},
    verdict::Evidence,
};
use arguments::{
    CheckScenariosArgs, Cli, Command, JudgedVariant, LocalArgs, MeasureArgs, OutputArgs,
    ReportFormat, RunArgs, TargetArgs,
};
use fairgate_base::descriptor_limit::raise_descriptor_limit;
use fairgate_core::finding::Finding;
use interrupt::until_signal;

/// The names of the two measurements in headlines.
const NAMES: [&str; 2] = ["with fairness", "without"];

/// A failure with its exit code.
#[derive(Debug)]
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
            code: 3,
            message: format!("cannot write: {error}"),
        }
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let code = if matches!(error, TargetError::Down { .. }) {
            3
        } else {
            2
        };
        Self {
            code,
            message: error.to_string(),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            code: 3,
            message: format!("{error:#}"),
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
            // The progress of a measurement that has ended early is still there.
            ProgressLine::new().clear();
            let _ = writeln!(io::stderr(), "fairgate-loadtest: {message}");
            ExitCode::from(code)
        }
    }
}

/// Runs a command; returns whether all expectations hold.
fn run(command: &Command) -> Result<bool, Failure> {
    match command {
        Command::Check(args) => check(args),
        Command::Run(args) if args.simulate => simulated(args),
        Command::Run(args) => run_against(args),
        Command::Compare(args) => compare::run(args),
        Command::Local(args) => local(args),
        Command::Upstream(args) => serve::upstream(args),
        Command::Gateway(args) => serve::gateway(args),
        Command::Idle(args) => idle::run(args),
        Command::Objects(args) => {
            let (scenario, _) = read(&args.scenario)?;
            let needed = Requirements::of(&scenario, args.lists);
            for path in &needed.unknown {
                writeln!(
                    io::stderr(),
                    "{path} must be there, but its kind is not known: create it, or add object: to the request"
                )?;
            }
            let objects = needed.into_objects(&scenario, args.policy);
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            writeln!(io::stdout(), "{list:#}")?;
            Ok(true)
        }
        Command::Tokens(args) => {
            let (scenario, _) = read(&args.scenario)?;
            write!(io::stdout(), "{}", gateway::tokens(&scenario))?;
            Ok(true)
        }
    }
}

fn check(args: &CheckScenariosArgs) -> Result<bool, Failure> {
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
fn read(path: &Path) -> Result<(Scenario, ScenarioReading), Failure> {
    let reading = scenario::read(path);
    if reading.findings.is_empty() {
        return Ok((reading.scenario.clone(), reading));
    }
    let lines: Vec<String> = reading.findings.iter().map(ToString::to_string).collect();
    Err(Failure::usage(format!(
        "the scenario has mistakes:\n{}",
        lines.join("\n")
    )))
}

/// Reads a scenario that is to be measured: shortened if that is asked for, and within the bounds.
fn read_for(path: &Path, args: &MeasureArgs) -> Result<Arc<Scenario>, Failure> {
    let (mut scenario, _) = read(path)?;
    if let Some(duration) = args.duration {
        scenario = scenario.shortened(duration);
    }
    let bounds = LoadBounds {
        threads: args.max_threads,
        rate: args.max_rate,
        duration: args.max_duration,
    };
    let wrong = bounds.check(&scenario);
    if wrong.is_empty() {
        Ok(Arc::new(scenario))
    } else {
        Err(Failure::usage(format!(
            "{}: {}",
            path.display(),
            wrong.join("; ")
        )))
    }
}

fn simulated(args: &RunArgs) -> Result<bool, Failure> {
    let (mut scenario, reading) = read(&args.scenario)?;
    if let Some(duration) = args.measure.duration {
        scenario = scenario.shortened(duration);
    }
    let wrong = |findings: Vec<Finding>| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        Failure::usage(lines.join("\n"))
    };
    prepare(&args.output)?;
    let evidence = simulate::play(&scenario).map_err(wrong)?;
    let remarks = left_out::remarks(&scenario, &reading.keys).map_err(wrong)?;
    let mut variants = vec![(
        "with fairness, simulated".to_owned(),
        evidence.clients.clone(),
    )];
    variants.extend(
        evidence
            .without
            .clone()
            .map(|clients| ("without fairness, simulated".to_owned(), clients)),
    );
    variants.extend(
        evidence
            .alone
            .iter()
            .map(|(name, clients)| (format!("{name} alone, simulated"), clients.clone())),
    );
    let variants = variants.into_iter().map(|(name, clients)| VariantReport {
        name,
        clients,
        ..VariantReport::default()
    });
    let report = RunReport::new(
        &scenario,
        &evidence,
        variants.collect(),
        (remarks, Vec::new()),
        1,
        NAMES,
    );
    finish(&report, &args.output)
}

/// The runtime of the clients.
fn runtime() -> Result<Runtime, Failure> {
    raise_descriptor_limit();
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    built.map_err(|error| Failure {
        code: 3,
        message: format!("cannot start threads: {error}"),
    })
}

/// A server that load is sent to, or whose metrics are read.
async fn resolve(url: &str, args: &TargetArgs) -> Result<Arc<LoadTarget>, Failure> {
    let mut target = LoadTarget::resolve(url, args.ca.as_deref(), args.allow_remote).await?;
    if let (Some(certificate), Some(key)) = (&args.client_certificate, &args.client_key) {
        target = target.with_client_certificate(certificate, key)?;
    }
    // Tokens after the certificate, which takes their place unless they are given, too.
    if let Some(tokens) = &args.tokens {
        target = target.with_tokens(tokens)?;
    }
    if let Some(token) = &args.token {
        target = target.with_token(token)?;
    }
    if args.anonymous {
        target = target.without_credential();
    }
    if args.impersonate {
        target = target.impersonating();
    }
    Ok(Arc::new(target))
}

/// A server that load is sent to, which is running.
async fn running(url: &str, args: &TargetArgs) -> Result<Arc<LoadTarget>, Failure> {
    let target = resolve(url, args).await?;
    if args.client_certificate.is_some() && !target.is_secure() {
        return Err(Failure::usage(format!(
            "{url} has no TLS, so that it cannot see --client-certificate; write https://, or use another credential"
        )));
    }
    target.check().await?;
    Ok(target)
}

fn run_against(args: &RunArgs) -> Result<bool, Failure> {
    let Some(url) = &args.target else {
        return Err(Failure::usage(
            "--target is missing: write --target http://127.0.0.1:8443, or --simulate",
        ));
    };
    let scenario = read_for(&args.scenario, &args.measure)?;
    prepare(&args.output)?;
    let runtime = runtime()?;
    let (measurements, rounds) = until_signal(&runtime, async {
        let target = running(url, &args.access).await?;
        let metrics = match &args.metrics {
            Some(url) => Some(resolve(url, &args.access).await?),
            None => None,
        };
        if let Some(metrics) = &metrics {
            metrics.check().await?;
        }
        let control = match &args.upstream_control {
            Some(url) => Some(resolve(url, &args.access).await?),
            None => None,
        };
        let place = ContenderPlace::Running {
            target,
            metrics,
            control,
            process: args.process,
        };
        let contender = Contender {
            name: url.clone(),
            place,
        };
        let rounds = args.measure.rounds;
        let measured = measure(
            &scenario,
            &[contender],
            MeasurePlan {
                rounds,
                pairs: false,
            },
            |_| true,
            &mut ProgressLine::new(),
        )
        .await?;
        Ok::<_, Failure>((measured, rounds))
    })?;
    let report = judged(&scenario, &measurements, 0, None, rounds, NAMES);
    finish(&report, &args.output)
}

fn local(args: &LocalArgs) -> Result<bool, Failure> {
    let scenario = read_for(&args.scenario, &args.measure)?;
    let output = OutputArgs {
        report: Some(
            args.output
                .report
                .clone()
                .unwrap_or_else(|| Path::new("loadtest-report").join(&scenario.name)),
        ),
        ..args.output.clone()
    };
    prepare(&output)?;
    let contender = |name: &str, fairness| Contender {
        name: name.to_owned(),
        place: ContenderPlace::Local {
            file: args.scenario.clone(),
            gateway: args.gateway.clone(),
            fairness,
        },
    };
    let contenders = [
        contender("with fairness", true),
        contender("without fairness", false),
    ];
    let rounds = args.measure.rounds;
    let runtime = runtime()?;
    let mut progress = ProgressLine::new();
    let measuring = measure(
        &scenario,
        &contenders,
        MeasurePlan {
            rounds,
            pairs: false,
        },
        |index| index == 0,
        &mut progress,
    );
    let measurements = until_signal(&runtime, measuring)?;
    let judge = match args.judge {
        JudgedVariant::Fairness => 0,
        JudgedVariant::Without => 1,
    };
    let report = judged(&scenario, &measurements, judge, Some(1), rounds, NAMES);
    finish(&report, &output)
}

/// The report that judges one of the measurements.
fn judged(
    scenario: &Scenario,
    measurements: &[Measurement],
    judge: usize,
    without: Option<usize>,
    rounds: u32,
    names: [&str; 2],
) -> RunReport {
    let alone = measurements
        .iter()
        .flat_map(|measurement| &measurement.alone);
    let alone = alone.filter(|(_, slices)| !slices.is_empty());
    let alone_figures: BTreeMap<_, _> = alone
        .clone()
        .map(|(name, slices)| (name.clone(), medians(slices)))
        .collect();
    let evidence = Evidence {
        clients: measurements[judge].medians(),
        alone: alone_figures,
        without: without.map(|index| measurements[index].medians()),
    };
    let mut variants: Vec<VariantReport> = measurements
        .iter()
        .map(|measurement| {
            VariantReport::of(&measurement.name, &measurement.slices, measurement.peak)
        })
        .collect();
    // The one that is judged comes first.
    variants[..=judge].rotate_right(1);
    variants.extend(
        alone.map(|(name, slices)| VariantReport::of(format!("{name} alone"), slices, None)),
    );
    let failures = measurements
        .iter()
        .flat_map(|measurement| measurement.failures.iter().cloned());
    let remarks = measurements
        .iter()
        .flat_map(|measurement| measurement.remarks.iter().cloned());
    RunReport::new(
        scenario,
        &evidence,
        variants,
        (remarks.collect(), failures.collect()),
        rounds,
        names,
    )
}

/// Makes the directory of the report, so that a measurement is not for nothing.
fn prepare(output: &OutputArgs) -> Result<(), Failure> {
    let Some(directory) = &output.report else {
        return Ok(());
    };
    fs::create_dir_all(directory).map_err(|error| {
        Failure::usage(format!(
            "{}: cannot be created: {error}; name another directory with --report",
            directory.display()
        ))
    })
}

/// Writes the report to standard output and to the requested directory; returns whether all expectations hold.
fn finish(report: &RunReport, output: &OutputArgs) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match output.output {
        ReportFormat::Text => write_text(report, &mut out)?,
        ReportFormat::Json => {
            serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    if let Some(directory) = &output.report {
        report.write_to(directory).map_err(|error| Failure {
            code: 3,
            message: format!(
                "cannot write the report to {}: {error}",
                directory.display()
            ),
        })?;
        writeln!(
            io::stderr(),
            "The page with all figures and plots is {}",
            directory.join("report.html").display()
        )?;
    }
    Ok(report.passed)
}
