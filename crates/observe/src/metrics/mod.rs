//! What metrics there are, and how they are written: the catalogue, the text format, and what is counted rarely.

pub(crate) mod admission_metrics;
pub mod catalogue;
pub(crate) mod check_durations;
pub(crate) mod exposition;
pub(crate) mod gateway_metrics;
mod policy_warnings;
pub(crate) mod shared_histogram;
