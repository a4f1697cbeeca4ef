//! What the gateway's crates stand on.
//!
//! [`clock`] is the only reader of time, [`socket`] the bytes of a connection with or without TLS and
//! [`local`] who holds its other end on this host; [`log_limit`] bounds how often something is
//! logged, and [`events`] are sent to whoever counts them.

pub mod clock;
pub mod events;
pub mod local;
pub mod log_limit;
pub mod socket;
