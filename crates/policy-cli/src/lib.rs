//! Admission policies without a server: what `fairgate policy` does, and what `fairgate check` finds in policies.
//!
//! [`PolicyCommand`] has the arguments, and [`run`] carries it out: `test` evaluates objects of files as a server would evaluate
//! requests for them, and `report` counts what the audit log of a gateway has about live traffic. [`review()`] finds
//! mistakes in policies and bindings. Results are text, JSON or XML, written to streams that are passed in.
//!
//! A request of a test is evaluated by `fairgate-admission`, which also evaluates those of a gateway. Here are the files that
//! requests are made of (`documents`, `requests`, `cases`), the cluster that they imagine (`world`, `resources`), and what
//! is shown of a verdict (`evaluated`, `results`).
//!
//! Not here: the other commands, which read a configuration or serve.

mod absences;
mod bundle;
mod cases;
mod command;
mod documents;
mod evaluated;
mod expectation;
mod expression_cost;
mod fields;
mod flow_rules;
mod junit;
mod report;
mod requests;
mod resource_names;
mod resources;
mod results;
mod review;
mod rules;
mod set_fields;
mod test;
mod text;
mod vital;
mod world;

use std::io;

use clap::Subcommand;

pub use command::{CommandOutcome, CommandStreams, MisnamedArgs, OutputFormat};
pub use flow_rules::misspelt_rules;
pub use review::review;
pub use text::write_finding;

/// Test admission policies without a server, and count what they found on live traffic.
///
/// Admission policies are the validating admission policies of Kubernetes with their bindings. They are compiled, matched and
/// evaluated as kube-apiserver does it, to the message and to the cost of each expression.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  What do these policies say about these manifests?
    fairgate policy test -f policies/ -f manifests/
  Do they say what they should? For CI:
    fairgate policy test -f policies/ --cases cases.yaml \\
      --output junit > report.xml
  What did they find on live traffic, before they deny anybody?
    fairgate policy report /var/log/fairgate/admission.jsonl")]
pub struct PolicyCommand {
    #[command(subcommand)]
    action: PolicyAction,
}

#[derive(Debug, Subcommand)]
enum PolicyAction {
    Test(Box<test::TestArgs>),
    Report(report::ReportArgs),
}

/// Carries out a command.
///
/// # Errors
///
/// When a result cannot be written to its stream.
pub fn run(
    command: &PolicyCommand,
    streams: &mut CommandStreams<'_>,
) -> io::Result<CommandOutcome> {
    match &command.action {
        PolicyAction::Test(args) => test::run(args, streams),
        PolicyAction::Report(args) => report::run(args, streams),
    }
}
