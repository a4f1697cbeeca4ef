//! The command line: arguments in, text or JSON and an exit code out.
//!
//! Each command is a file here with its arguments, what it finds out, and how it is written. The
//! commands write to what they are given, so that tests read what a person would.
//!
//! Exit codes: 0 all is well, 1 something is wrong with what was looked at, 2 the command itself was
//! given wrongly. What a person must act on goes to standard error, what a program wants to
//! standard output.

mod check;
mod demo;
mod explain;
mod policy;
mod serve;
mod table;

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand, ValueEnum};

/// API Priority and Fairness in front of Kubernetes API servers.
///
/// fairgate is a reverse proxy: it authenticates a request, finds its FlowSchema and priority level,
/// lets it wait its turn in a fair queue, and passes it on. One flooding client cannot starve another.
#[derive(Debug, Parser)]
#[command(name = "fairgate", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  See what it is for, with nothing else installed:
    fairgate demo
  Try a configuration and its policies, then serve with them:
    fairgate check --config fairgate.yaml
    fairgate serve --config fairgate.yaml
  See where a request would wait, and why there:
    fairgate explain --as alice --as-group system:authenticated GET /api/v1/pods

Exit codes: 0 all is well, 1 something is wrong, 2 wrong usage.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    Demo(demo::DemoArgs),
}

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Where policy objects are read from instead of where the configuration says.
#[derive(Clone, Debug, clap::Args)]
struct PolicyArgs {
    /// Read policy objects from the files in DIR, or from standard input with `-`.
    ///
    /// In the form kubectl prints them: YAML or JSON, also lists. Without it, those of
    /// flowControl.policies.directory count.
    #[arg(long, value_name = "DIR|-")]
    policies: Option<PathBuf>,
}

/// The streams a command uses.
struct Streams<'a> {
    input: &'a mut dyn Read,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All is well.
    Success,
    /// Something is wrong with what was looked at; it has been said.
    Failure,
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. With nobody to read them there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let streams = Streams {
        input: &mut io::stdin(),
        out: &mut io::BufWriter::new(io::stdout().lock()),
        err: &mut io::stderr(),
    };
    match run(&cli.command, streams) {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Failure) => ExitCode::FAILURE,
        // The reader has seen enough: `fairgate … | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "fairgate: cannot write the result: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, mut streams: Streams<'_>) -> io::Result<Outcome> {
    let outcome = match command {
        Command::Serve(args) => serve::run(args, &mut streams),
        Command::Check(args) => check::run(args, &mut streams),
        Command::Explain(args) => explain::run(args, &mut streams),
        Command::Demo(args) => demo::run(args, &mut streams),
    }?;
    streams.out.flush()?;
    Ok(outcome)
}

#[cfg(test)]
mod tests;
