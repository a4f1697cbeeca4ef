//! `fairgate serve`: the gateway itself.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{Outcome, Streams};
use crate::config::Config;

/// Serve: authenticate, classify and queue requests, and pass them to the API server.
///
/// Runs until SIGTERM or SIGINT, then drains. SIGHUP reads the configuration and policies again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fairgate serve --config /etc/fairgate/fairgate.yaml
  kubectl proxy & fairgate serve

Exit codes: 0 drained, 1 not started or ended by a failure, 2 wrong usage.")]
pub(super) struct Args {
    /// The configuration; without it the built-in defaults apply, and nothing is picked up from the
    /// working directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> io::Result<Outcome> {
    let (config, warnings) = match Config::read(args.config.as_deref()).usable() {
        Ok(usable) => usable,
        Err(error) => {
            writeln!(streams.err, "fairgate: {error}")?;
            return Ok(Outcome::Wrong);
        }
    };
    for warning in warnings {
        writeln!(streams.err, "fairgate: {warning}")?;
    }
    match serve(config, args.config.as_deref()) {
        Ok(()) => Ok(Outcome::Fine),
        Err(error) => {
            writeln!(streams.err, "fairgate: {error:#}")?;
            Ok(Outcome::Wrong)
        }
    }
}

/// Runs the gateway to its end. `path` is what SIGHUP reads again.
fn serve(config: Config, path: Option<&Path>) -> anyhow::Result<()> {
    Ok(crate::app::serve(config, path.map(Path::to_owned))?)
}
