//! `fairgate demo`: the main job on an embedded default, with and without fairness.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

use super::{Outcome, OutputFormat, Streams};
use crate::demo::{self, DemoError, DemoReport, ProgressDisplay};

/// Show what fairgate does, with nothing else installed.
///
/// A stand-in API server of 10 seats and 50 ms, the gateway in front of it over real sockets, one
/// elephant of 200 connections and four mice of 2 requests a second: with fairness and, side by
/// side, without.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fairgate demo
  fairgate demo --seconds 60 --output json

With --output json the progress goes to standard error. Ctrl-C ends it early, with the figures so far.
Exit codes: 0 it ran, whatever came of it; 1 it could not run; 2 wrong usage.")]
pub(super) struct DemoArgs {
    /// How long to run.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How the result is written.
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

pub(super) fn run(args: &DemoArgs, streams: &mut Streams<'_>) -> io::Result<Outcome> {
    match demo(args, streams) {
        Ok(report) => {
            match args.output {
                OutputFormat::Text => write!(streams.out, "\n{report}")?,
                OutputFormat::Json => {
                    serde_json::to_writer_pretty(&mut streams.out, &report)?;
                    writeln!(streams.out)?;
                }
            }
            Ok(Outcome::Success)
        }
        Err(DemoError::Write(error)) => Err(error),
        Err(error) => {
            writeln!(streams.err, "fairgate: {:#}", anyhow::Error::from(error))?;
            Ok(Outcome::Failure)
        }
    }
}

/// Runs the demonstration; progress goes where the result is not in its way.
fn demo(args: &DemoArgs, streams: &mut Streams<'_>) -> Result<DemoReport, DemoError> {
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
    demo::run(length, display, told_to_end(), progress)
}

/// Ready when the process is told to end. Without signals it runs its time, which is bounded.
async fn told_to_end() {
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
