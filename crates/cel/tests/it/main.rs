//! Tests of the crate through its public interface: beside the originals, and against hostile expressions.
//!
//! The corpora hold cel-spec's conformance cases, and what the admission plugin of the pinned kube-apiserver makes of
//! thousands of expressions; `oracle/run` writes them. Differences that are known stand in `known_differences.json`
//! with their reasons; an entry that no longer occurs is an error, too.
//!
//! `FAIRGATE_CEL_CORPUS` names another corpus for the differential test; `--nocapture` shows counts by group.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that calls them"
)]

mod conformance;
mod differential;
mod environments;
mod known;
mod limits;
mod properties;
mod values;
mod variables;
mod worlds;
