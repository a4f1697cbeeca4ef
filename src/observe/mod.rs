//! What the gateway tells of itself: metrics, dumps, logs.
//!
//! [`Sight`] joins it all. Data cores count in [`fairgate_core::cells`] and in a table of their own
//! ([`requests`]), each written by one thread; [`metrics`] reads them at a scrape, [`sampler`] what
//! only all cores together can tell. [`own`] are the gateway's own metrics, by the `metrics` facade.
//! [`recorder`] is the outermost layer, which counts and logs each request at its end;
//! [`dumps_layer`] answers the debug dumps on the main port, [`admin`] everything on its own.
//!
//! It reads, and never decides.

pub mod admin;
pub mod checks;
mod columns;
pub mod dumps;
pub mod dumps_layer;
pub mod go_duration;
pub mod log;
pub mod metrics;
pub mod names;
pub mod own;
pub mod places;
pub mod recorder;
pub mod requests;
pub mod sampler;
mod sight;
#[cfg(test)]
mod tests;
pub mod text;
pub mod upstream_counts;
mod view;

pub use admin::Admin;
pub use checks::Checks;
pub use dumps_layer::DumpsLayer;
pub use own::{Abandoned, AdminCut, Own, Reviewed, UpstreamError};
pub use recorder::TraceLayer;
pub use sight::Sight;
pub use view::{Seen, View};
