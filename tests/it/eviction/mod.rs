//! Evictions through the gateway: relayed, prechecked, or carried out in front of a server that enforces no
//! budgets.
//!
//! A prefix of a test's name, such as `e10`, identifies a scenario. Scenarios with the same prefix test the same rule:
//! here over HTTP, in `fairgate-disruption` without HTTP.

mod authoritative;
mod busy_controller;
pub(crate) mod cluster;
mod control_plane;
mod disruption;
mod faults;
mod full_disk;
pub(crate) mod gateway;
mod large_budgets;
mod namespaces;
mod precheck;
mod waiting;
mod waits_shown;
mod wire;

/// The response to a granted eviction.
const GRANTED: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\",\"code\":201}\n";
