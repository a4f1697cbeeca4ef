//! A gateway as a member of its fleet: what keeps the protocol of `fairgate-fleet` going.
//!
//! - [`engine`]: where reports and the ledger are kept, with compare-and-swap. [`memory`] is for tests, [`kubernetes`] keeps them in
//!   `Lease` objects, `etcd` (a feature) in keys. All pass [`conformance`].
//! - [`member`]: the task that reports, applies ledgers, and divides the seats while it is elected.
//! - [`status`]: what operators see of it.
//!
//! Not here: the rules of the protocol, and how limits reach requests (`fairgate-core`'s dispatcher).

pub mod conformance;
mod coordination;
mod elected;
pub mod engine;
#[cfg(feature = "etcd")]
pub mod etcd;
mod hash_keys;
pub mod kubernetes;
pub mod member;
pub mod memory;
pub mod status;
#[cfg(test)]
mod tests;
