//! `fairgate demo`: the main job on an embedded default, with and without fairness.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

use super::{Outcome, Output, Streams};
use crate::demo::{self, DemoError, Display, Report};

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
pub(super) struct Args {
    /// How long to run.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How the result is written.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> io::Result<Outcome> {
    match demo(args, streams) {
        Ok(report) => {
            match args.output {
                Output::Text => write!(streams.out, "\n{report}")?,
                Output::Json => {
                    serde_json::to_writer_pretty(&mut streams.out, &report)?;
                    writeln!(streams.out)?;
                }
            }
            Ok(Outcome::Fine)
        }
        Err(DemoError::Write(error)) => Err(error),
        Err(error) => {
            writeln!(streams.err, "fairgate: {:#}", anyhow::Error::from(error))?;
            Ok(Outcome::Wrong)
        }
    }
}

/// Runs the demonstration; progress goes where the result is not in its way.
fn demo(args: &Args, streams: &mut Streams<'_>) -> Result<Report, DemoError> {
    let (is_terminal, progress) = match args.output {
        Output::Text => (io::stdout().is_terminal(), &mut *streams.out),
        Output::Json => (io::stderr().is_terminal(), &mut *streams.err),
    };
    let display = if is_terminal {
        Display::Redrawn
    } else {
        Display::Lines
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
