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

mod aligned_table;
mod counting;
mod dumps;
mod flow_metrics;
pub mod log;
mod memory_limit;
mod metrics;
mod ports;
mod rotated_file;
mod sanitized;
mod telemetry;
#[cfg(test)]
mod tests;
pub mod upstream_counts;

pub use self::metrics::{
    admission_metrics::AdmissionMetrics,
    catalogue,
    catalogue::MetricDef,
    gateway_metrics::{AbandonedStreamEnd, GatewayMetrics, UpstreamFailure},
    shared_histogram::SharedHistogram,
};
pub use aligned_table::AlignedTable;
pub use counting::recorder::{TraceLayer, Traced};
pub use dumps::{MakeDump, ProvidedDumps};
pub use ports::{
    admin::{AdminHosts, AdminServer},
    checks::HealthChecks,
    dumps_layer::{Dumps, DumpsLayer},
    endpoints::{EndpointResponse, OperatorEndpoints},
    secure_endpoints::SecureEndpoints,
};
pub use rotated_file::RotatedFile;
pub use telemetry::Telemetry;
