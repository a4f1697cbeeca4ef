//! What is counted and sampled of requests, users, watches and flows, and the metrics that are written of it.
//!
//! Not here: who reads it ([`crate::dumps`], [`crate::ports`]).

pub(crate) mod bystander_waits;
pub(crate) mod cell_metrics;
pub(crate) mod flow_shares;
pub(crate) mod flow_states;
pub(crate) mod recorder;
pub(crate) mod request_counts;
pub(crate) mod request_metrics;
pub(crate) mod request_phases;
pub(crate) mod sampler;
pub(crate) mod server_metrics;
pub(crate) mod user_counts;
pub(crate) mod user_metrics;
pub(crate) mod watch_counts;
