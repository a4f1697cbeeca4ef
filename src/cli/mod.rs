//! The command line: arguments in, text or JSON and an exit code out.
//!
//! Each command has a file with its arguments, its work, and its output; those that need no gateway are in crates of their
//! own ([`fairgate_check_cli`], [`fairgate_policy_cli`]). Commands write to streams that are passed to them, so that tests can
//! read the output.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong usage. Errors and warnings go to standard error, results to
//! standard output.

mod demo;
mod serve;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use fairgate_check_cli::{check, explain};
use fairgate_policy_cli::{CommandOutcome, CommandStreams, PolicyCommand};

/// API Priority and Fairness in front of Kubernetes API servers.
///
/// fairgate is a reverse proxy: it authenticates a request, finds its FlowSchema and priority level,
/// queues it fairly, and forwards it. A client that floods the server cannot starve the others.
#[derive(Debug, Parser)]
#[command(name = "fairgate", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  See what it does, with nothing else installed:
    fairgate demo
  Check a configuration and its flow control policy, then serve with them:
    fairgate check --config fairgate.yaml
    fairgate serve --config fairgate.yaml
  See how a request would be classified, and why:
    fairgate explain --as alice GET /api/v1/pods
  See what admission policies would say about objects:
    fairgate policy test -f policies/ -f deployment.yaml

Exit codes: 0 success, 1 failure, 2 wrong usage.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    Demo(demo::DemoArgs),
    Policy(PolicyCommand),
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version arrive here, too. A failure to print them cannot be reported.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let streams = CommandStreams {
        input: &mut io::stdin(),
        out: &mut io::BufWriter::new(io::stdout().lock()),
        err: &mut io::stderr(),
    };
    match run(&cli.command, streams) {
        Ok(CommandOutcome::Success) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Failure) => ExitCode::FAILURE,
        Ok(CommandOutcome::Unusable) => ExitCode::from(2),
        // The reader has closed the pipe: `fairgate … | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "fairgate: cannot write the result: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, mut streams: CommandStreams<'_>) -> io::Result<CommandOutcome> {
    let outcome = match command {
        Command::Serve(args) => serve::run(args, &mut streams),
        Command::Check(args) => check::run(args, &mut streams),
        Command::Explain(args) => explain::run(args, &mut streams),
        Command::Demo(args) => demo::run(args, &mut streams),
        Command::Policy(command) => fairgate_policy_cli::run(command, &mut streams),
    }?;
    streams.out.flush()?;
    Ok(outcome)
}

#[cfg(test)]
mod tests;
