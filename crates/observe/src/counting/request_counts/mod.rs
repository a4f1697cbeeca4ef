//! Counts of requests by their attributes and outcomes, with bounded labels.
//!
//! Group, version, resource and subresource come from the path, where a client can write anything. So
//! they become labels only once a response shows that they exist (success, a redirect, 409 or 422), which only
//! the upstream decides, and at most [`MAX_KINDS`](registry::MAX_KINDS) combinations are distinguished; all others
//! are counted under [`OTHER`]. Paths that are no resources share [`NON_RESOURCE`]. Every other label has few values.
//!
//! Histograms take fifty times the memory of a count, so only
//! [`MAX_TIMED`](registry::MAX_TIMED) combinations have their own; the durations and sizes of all others
//! are in the histograms of [`OTHER`]. A combination that was not seen for an hour is removed with its
//! counts, so that it is not exposed for ever; if it returns it starts at 0.
//!
//! Each core counts in rows of its own ([`RequestTable`]), found by one lookup in a small table; the key
//! is a hash that no client can predict. The [`RequestRegistry`] knows the rows of all cores, for the
//! scrape.

mod registry;
mod request_labels;
mod status_counts;
mod table;
#[cfg(test)]
mod tests;
mod timings;

pub(crate) use registry::{RequestRegistry, RequestTotals, SWEEP_PERIOD};
pub(crate) use request_labels::{DryRun, FinishedRequest, RequestLabels};
pub(crate) use status_counts::StatusTotals;
pub(crate) use table::RequestTable;

/// The value of labels that are not distinguished.
pub(crate) const OTHER: &str = "other";
/// The `subresource` label of paths that are no resources.
pub(crate) const NON_RESOURCE: &str = "non-resource";
