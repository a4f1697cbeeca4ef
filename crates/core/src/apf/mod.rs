//! API Priority and Fairness: who executes, and when.
//!
//! Pure: time, randomness and waiters are arguments; nothing here waits, logs or reads a clock.
//!
#![doc = include_str!("design.md")]

pub mod borrowing;
mod changes;
pub(crate) mod classify;
pub mod counts;
pub(crate) mod demand;
pub mod dispatcher;
pub mod level;
pub mod objects;
mod order;
mod packed_rules;
pub mod policy;
pub mod queueset;
pub mod ratio;
pub(crate) mod retry_after;
pub mod scope;
pub mod seat_lease;
pub mod shard;
mod spec;
pub mod units;
pub mod watchers;
pub mod work;

pub use crate::apf::spec::{Flow, LevelIndex, SchemaIndex, Semantics};
pub use objects::ObjectSet;
pub use policy::{Compiled, Policy, PolicySettings};
pub use units::{SeatSeconds, Seats};
pub use work::Work;
