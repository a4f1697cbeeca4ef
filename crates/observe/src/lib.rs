//! Observability: metrics, health checks, debug dumps and logs.
//!
//! [`Telemetry`] joins them. Data cores count in [`fairgate_core::cells`] and in a table of their own
//! (`request_counts`), each written by one thread; `cell_metrics` reads them at a scrape, and `sampler`
//! what follows only from all cores together. What is counted rarely goes through the `metrics` facade
//! (`gateway_metrics`). Every metric is defined in [`catalogue`], and `exposition` writes them all.
//!
//! `recorder` is the outermost layer, which counts and logs each request at its end; `dumps_layer`
//! answers the debug dumps on the main port, `admin` everything on the admin port, and `secure_endpoints` the
//! same for authorized users.
//!
//! It reads what the layers and other crates keep, and never decides.

mod admin;
mod admin_connections;
mod admission_metrics;
mod aligned_table;
mod bystander_waits;
pub mod catalogue;
mod cell_metrics;
mod check_durations;
mod checks;
mod described_requests;
mod dumps;
mod dumps_layer;
mod encoded_reply;
mod endpoints;
mod exposition;
mod flow_metrics;
mod flow_shares;
mod flow_states;
mod gateway_metrics;
pub mod log;
mod memory_limit;
mod recorder;
mod request_counts;
mod request_metrics;
mod request_phases;
mod rotated_file;
mod sampler;
mod sanitized;
mod secure_endpoints;
mod shared_histogram;
mod telemetry;
mod tenant_dump;
#[cfg(test)]
mod tests;
pub mod upstream_counts;
mod user_counts;
mod user_metrics;
mod watch_counts;

pub use admin::{AdminHosts, AdminServer};
pub use admission_metrics::AdmissionMetrics;
pub use aligned_table::AlignedTable;
pub use checks::HealthChecks;
pub use dumps::{MakeDump, ProvidedDumps};
pub use dumps_layer::{Dumps, DumpsLayer};
pub use endpoints::{EndpointResponse, OperatorEndpoints};
pub use gateway_metrics::{AbandonedStreamEnd, GatewayMetrics, UpstreamFailure};
pub use recorder::{TraceLayer, Traced};
pub use rotated_file::RotatedFile;
pub use secure_endpoints::SecureEndpoints;
pub use shared_histogram::SharedHistogram;
pub use telemetry::Telemetry;
