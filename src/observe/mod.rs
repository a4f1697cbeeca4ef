//! Observability: metrics, health checks, debug dumps and logs.
//!
//! `Telemetry` joins them. Data cores count in [`fairgate_core::cells`] and in a table of their own
//! (`request_counts`), each written by one thread; `cell_metrics` reads them at a scrape, and `sampler`
//! what follows only from all cores together. What is counted rarely goes through the `metrics` facade
//! (`gateway_metrics`). Every metric is defined in [`catalogue`], and `exposition` writes them all.
//!
//! `recorder` is the outermost layer, which counts and logs each request at its end; `dumps_layer`
//! answers the debug dumps on the main port, `admin` everything on the admin port, and `secure_endpoints` the
//! same for authorized users.
//!
//! It reads what other modules keep, and never decides.

pub(crate) mod admin;
mod admin_connections;
mod admission_metrics;
mod aligned_table;
pub mod catalogue;
mod cell_metrics;
mod check_durations;
pub(crate) mod checks;
mod dumps;
pub(crate) mod dumps_layer;
mod encoded_reply;
pub(crate) mod endpoints;
mod exposition;
mod flow_metrics;
mod flow_shares;
mod flow_states;
mod gateway_metrics;
pub(crate) mod log;
pub(crate) mod recorder;
mod request_counts;
mod request_metrics;
mod rotated_file;
mod sampler;
pub(crate) mod secure_endpoints;
mod shared_histogram;
mod telemetry;
#[cfg(test)]
mod tests;
pub(crate) mod upstream_counts;

pub(crate) use admin::AdminServer;
pub(crate) use admission_metrics::AdmissionMetrics;
pub(crate) use checks::HealthChecks;
pub use dumps_layer::Dumps;
pub(crate) use endpoints::OperatorEndpoints;
pub use gateway_metrics::GatewayMetrics;
pub(crate) use gateway_metrics::{AbandonedStreamEnd, UpstreamFailure};
pub use log::LogError;
pub(crate) use rotated_file::RotatedFile;
pub(crate) use telemetry::Telemetry;
