//! What tests, benchmarks and attacks share: an [`upstream`] that responds as a test says, [`client`]s, certificates
//! ([`pki`]), free [`ports`], [`random`] numbers by seed, and a real etcd.
//!
//! Only dev-dependencies name this crate. Of the crates under test it uses only the pure core, and with the feature `store` the
//! store: the types of others would exist twice in their own unit tests.
//!
//! Not here: the gateway under test. `tests/it/gate.rs` starts one inside the process, `tests/it/process.rs` and
//! `tests/attack` start one as a program.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![allow(clippy::missing_panics_doc, reason = "tests fail by panicking")]

pub mod client;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod leases;
pub mod pki;
pub mod ports;
pub mod random;
pub mod relay;
#[cfg(feature = "store")]
pub mod store;
pub mod upstream;
