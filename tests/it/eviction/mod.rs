//! Evictions through the gateway: relayed, checked before, or carried out in front of a server that enforces
//! no budgets.
//!
//! The scenarios have the numbers of the specification; those that are about decisions alone are tested in
//! `fairgate-eviction`.

mod authoritative;
mod cluster;
mod control_plane;
mod disruption;
mod faults;
mod gateway;
mod namespaces;
mod precheck;
mod waiting;
mod wire;

/// The response to a granted eviction.
const GRANTED: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\",\"code\":201}\n";
