//! `fairgate policy`: admission policies without a server, and what they said about live traffic.

mod bundle;
mod cases;
mod documents;
mod expectation;
mod expression_cost;
mod fields;
mod judged;
mod junit;
mod report;
mod requests;
mod resources;
mod results;
pub(super) mod review;
mod test;
pub(super) mod text;
mod vital;
mod world;

use std::io;

use clap::Subcommand;

use super::{Outcome, Streams};

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
    fairgate policy test -f policies/ --cases cases.yaml --output junit > report.xml
  What did they find on live traffic, before they deny anybody?
    fairgate policy report /var/log/fairgate/admission.jsonl")]
pub(super) struct PolicyCommand {
    #[command(subcommand)]
    action: PolicyAction,
}

#[derive(Debug, Subcommand)]
enum PolicyAction {
    Test(Box<test::TestArgs>),
    Report(report::ReportArgs),
}

pub(super) fn run(command: &PolicyCommand, streams: &mut Streams<'_>) -> io::Result<Outcome> {
    match &command.action {
        PolicyAction::Test(args) => test::run(args, streams),
        PolicyAction::Report(args) => report::run(args, streams),
    }
}
