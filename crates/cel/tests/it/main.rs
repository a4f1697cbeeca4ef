//! Tests of the crate through its public interface: comparisons with the originals, and hostile expressions.
//!
//! The corpora contain cel-spec's conformance cases, and the results of the pinned kube-apiserver's admission plugin
//! for thousands of expressions, and what Go's package `regexp` finds with a thousand patterns. `oracle/run` writes them. `known_differences.json` lists the known differences with
//! their reasons; an entry that no longer applies is an error, too.
//!
//! `FAIRGATE_CEL_CORPUS` is the path of another corpus for the differential test; `--nocapture` shows counts by group.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that calls them"
)]

mod absence;
mod allocations;
mod conformance;
mod differential;
mod environments;
mod interrupts;
mod known;
mod limits;
mod nesting;
mod patterns;
mod properties;
mod reads;
mod values;
mod variables;
mod within_cost;
mod work;
mod worlds;
