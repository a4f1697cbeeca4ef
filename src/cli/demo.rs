//! `fairgate demo`: the effect of fairness, shown on an embedded policy and upstream.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

use crate::app::demo_gateway::DemoGateways;
use fairgate_demo::{DemoComparison, DemoError, DemoReport, ProgressDisplay};
use fairgate_policy_cli::{CommandOutcome, CommandStreams, OutputFormat};

/// Show what fairgate does, with nothing else installed.
///
/// Runs a stand-in API server (10 concurrent requests of 50 ms each) behind a gateway, over real
/// sockets. One "elephant" floods it on 200 connections, while four "mice" send 2 requests a second
/// each. A second gateway without fairness gets the same load, side by side.
///
/// With --gateways each side has several gateways in front of one server. On one side they share its
/// seats as a fleet, on the other each has an equal part of them. The elephant's clients are at all
/// gateways, the mice at one, and each mouse asks for more than its share.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fairgate demo
  fairgate demo --gateways 3
  fairgate demo --seconds 60 --output json

With --output json the progress goes to standard error. Ctrl-C stops early and shows the results so far.
Exit codes: 0 the demonstration ran, 1 it could not run, 2 wrong usage.")]
pub(super) struct DemoArgs {
    /// How long to run.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How many gateways each side has.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(DemoComparison::MOST_GATEWAYS)))]
    gateways: u32,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

pub(super) fn run(args: &DemoArgs, streams: &mut CommandStreams<'_>) -> io::Result<CommandOutcome> {
    match demo(args, streams) {
        Ok(report) => {
            match args.output {
                OutputFormat::Text => write!(streams.out, "\n{report}")?,
                OutputFormat::Json => {
                    serde_json::to_writer_pretty(&mut streams.out, &report)?;
                    writeln!(streams.out)?;
                }
            }
            Ok(CommandOutcome::Success)
        }
        Err(DemoError::Write(error)) => Err(error),
        Err(error) => {
            writeln!(streams.err, "fairgate: {:#}", anyhow::Error::from(error))?;
            Ok(CommandOutcome::Failure)
        }
    }
}

/// Runs the demonstration. Progress goes to the stream that the result does not use.
fn demo(args: &DemoArgs, streams: &mut CommandStreams<'_>) -> Result<DemoReport, DemoError> {
    let (is_terminal, progress) = match args.output {
        OutputFormat::Text => (io::stdout().is_terminal(), &mut *streams.out),
        OutputFormat::Json => (io::stderr().is_terminal(), &mut *streams.err),
    };
    let display = if is_terminal {
        ProgressDisplay::Redrawn
    } else {
        ProgressDisplay::Lines
    };
    let length = Duration::from_secs(args.seconds.into());
    let comparison = DemoComparison::of_gateways(args.gateways);
    let gateways = DemoGateways::default();
    fairgate_demo::run(
        &|plan| gateways.start(&plan),
        comparison,
        length,
        display,
        stop_signal(),
        progress,
    )
}

/// Completes at SIGINT or SIGTERM. Without signal handlers the demonstration ends after its bounded time.
async fn stop_signal() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
