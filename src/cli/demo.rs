//! `fairgate demo`: the main job on an embedded default, with and without fairness.

use std::{io, time::Duration};

use super::{Outcome, Output, Streams};

/// Show what fairgate does, with nothing else installed.
///
/// A stand-in API server of 10 seats and 50 ms, the gateway in front of it over real sockets, one
/// elephant of 200 connections and four mice of 2 requests a second: with fairness and, side by
/// side, without.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fairgate demo
  fairgate demo --seconds 60 --output json")]
pub(super) struct Args {
    /// How long to run.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How the result is written.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> io::Result<Outcome> {
    let length = Duration::from_secs(args.seconds.into());
    match demo(length, args.output, streams) {
        Ok(()) => Ok(Outcome::Fine),
        Err(error) => {
            writeln!(streams.err, "fairgate: {error:#}")?;
            Ok(Outcome::Wrong)
        }
    }
}

/// Runs the demonstration for `length` and writes what came of it to `streams.out`.
fn demo(_length: Duration, _output: Output, _streams: &mut Streams<'_>) -> anyhow::Result<()> {
    anyhow::bail!("this build has no demonstration yet")
}
