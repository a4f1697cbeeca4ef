//! What the gateway's crates have in common.
//!
//! [`clock`] is the only reader of time, [`socket`] is a connection with or without TLS, and [`local`] runs
//! work on one thread; [`log_limit`] bounds how often an event is logged, [`priority`] is that of threads, and [`events`] are
//! sent to a listener that counts them.

pub mod clock;
pub mod events;
pub mod local;
pub mod log_limit;
pub mod priority;
pub mod socket;
