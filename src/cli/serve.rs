//! `fairgate serve`: the gateway itself.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::app::{ServeError, data_directory::DataDirectory};
use fairgate_base::clock::Clock;
use fairgate_check_cli::check::errors_of_policies;
use fairgate_config::{Config, ConfigError};
use fairgate_core::finding::Finding;
use fairgate_policy_cli::{CommandOutcome, CommandStreams};

/// Serve: authenticate, classify and queue requests, and pass them to the API server.
///
/// Runs until SIGTERM or SIGINT, then drains connections. SIGHUP reloads the configuration and the policies of flow
/// control and admission.
///
/// Without --config it hosts the API of flow control and admission policies, on port 8443 of this machine. Its
/// certificates, store and kubeconfigs are kept in .fairgate/.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Try it, with nothing else installed but kubectl:
    fairgate serve
    kubectl --kubeconfig .fairgate/admin.kubeconfig get flowschemas
  In front of an API server:
    fairgate serve --config /etc/fairgate/fairgate.yaml

Exit codes: 0 drained and stopped, 1 failed to start or stopped by an error, 2 wrong usage.")]
pub(super) struct ServeArgs {
    /// The configuration file. The default is .fairgate/fairgate.yaml, which is created if it does not exist.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Where a gateway without a configuration keeps what it needs.
const HOME: &str = ".fairgate";

pub(super) fn run(
    args: &ServeArgs,
    streams: &mut CommandStreams<'_>,
) -> io::Result<CommandOutcome> {
    match start(args, streams) {
        Ok(()) => Ok(CommandOutcome::Success),
        Err(error) => {
            writeln!(streams.err, "fairgate: {error:#}")?;
            if let Some(path) = &args.config {
                for finding in untold(&error, path) {
                    writeln!(streams.err, "  {finding}")?;
                }
            }
            Ok(CommandOutcome::Failure)
        }
    }
}

/// The errors of policies that an invalid configuration, or an invalid policy of flow control, kept from being found.
fn untold(error: &anyhow::Error, config: &Path) -> Vec<Finding> {
    let is_admission = |finding: &Finding| finding.kind.starts_with("Validating");
    let told: &[Finding] = match error.downcast_ref::<ServeError>() {
        // Those of admission are read last.
        Some(ServeError::Policies(told)) if told.iter().any(is_admission) => return Vec::new(),
        Some(ServeError::Policies(told)) => told,
        _ if error.is::<ConfigError>() => &[],
        _ => return Vec::new(),
    };
    let mut found = errors_of_policies(config);
    found.retain(|finding| !told.contains(finding) && (told.is_empty() || is_admission(finding)));
    found
}

/// Runs the gateway to its end.
fn start(args: &ServeArgs, streams: &mut CommandStreams<'_>) -> anyhow::Result<()> {
    let home = match &args.config {
        Some(_) => None,
        None => Some(DataDirectory::prepare(Path::new(HOME), &Clock::system())?),
    };
    let path = match (&args.config, &home) {
        (Some(path), _) => path.clone(),
        (None, Some(home)) => home.config(),
        (None, None) => PathBuf::new(),
    };
    let (config, warnings) = Config::read(Some(&path)).usable()?;
    for warning in warnings {
        writeln!(streams.err, "fairgate: {warning}")?;
    }
    // The path is what SIGHUP reads again.
    crate::app::serve(config, Some(path), |address| {
        let Some(home) = &home else { return Ok(()) };
        let admin = home.write_kubeconfigs(address)?;
        writeln!(
            streams.out,
            "Try: kubectl --kubeconfig {} get flowschemas",
            admin.display()
        )?;
        streams.out.flush()?;
        Ok(())
    })
}
