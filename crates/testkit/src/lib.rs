//! What tests, benches and attacks share: an [`upstream`] that answers as a test says, [`client`]s for good and bad
//! behaviour, certificates ([`pki`]), [`random`] numbers by seed, and a real etcd.
//!
//! Only dev-dependencies name this crate. It uses none of those it helps to test but the pure core: their types would
//! otherwise exist twice in their own unit tests.
//!
//! Not here: the gateway under test, which `tests/it/gate.rs` starts inside the process and `tests/attack` as a program.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![allow(clippy::missing_panics_doc, reason = "tests fail by panicking")]

pub mod client;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod pki;
pub mod random;
pub mod upstream;
