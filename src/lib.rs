//! fairgate: API Priority and Fairness in front of API servers.
//!
//! A request enters, is authenticated, parsed as Kubernetes parses it, classified by a FlowSchema,
//! dealt into a fair queue of its priority level, given seats, forwarded, and answered.
//!
//! Who executes, and when, is decided by the crate `fairgate_core`, which has no clock, no I/O and no
//! tasks. This crate is the gateway around it. See ARCHITECTURE.md for the map.
//!
#![doc = include_str!("design.md")]
//!
#![doc = include_str!("walks.md")]

pub mod app;
pub mod cli;

pub use fairgate_config as config;
pub use fairgate_demo as demo;

/// What a program that embeds a gateway needs of observability: what the gateway counts in, and which metrics there are.
pub mod observe {
    pub use fairgate_observe::{Dumps, GatewayMetrics, catalogue, log::LogError};
}
