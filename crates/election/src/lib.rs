//! Elects one of several gateways by a `Lease` of Kubernetes.
//!
//! - [`election`] decides what to read or write, and when. It is pure: time comes in as an argument.
//! - [`lease`] makes the calls, waits between them, and logs what fails.
//!
//! How an API server is reached is the caller's: it implements [`LeaseApi`].
//!
//! Not here: what the leader does, and for which task it is elected.

pub mod election;
pub mod lease;

pub use lease::{Leadership, LeaseApi, LeaseCallError, LeaseCandidate};
