//! What the gateway's crates stand on.
//!
//! [`clock`] is the only reader of time, [`socket`] the bytes of a connection with or without TLS and
//! [`local`] who holds its other end on this host; [`log_limit`] bounds how often something is
//! logged, and [`heard`] takes word of what happens to whoever counts it.

pub mod clock;
pub mod heard;
pub mod local;
pub mod log_limit;
pub mod socket;
