//! The disruption controller, which keeps the status of budgets up to date as kube-controller-manager does.
//!
//! The module `sync` computes the status of one budget. A [`DisruptionController`] caches pods and budgets, decides
//! when to compute which status, and requests the necessary reads and writes.
//!
//! Not here: watching pods and budgets, and leader election. Two active controllers do no harm because every
//! write is conditional, but they double the work and the events.

pub mod events;
mod follower;
mod object_key;
pub mod scale;
mod stale_target;
pub(crate) mod sync;
mod work_queue;

#[cfg(test)]
mod tests;

pub use follower::{
    ControllerCounts, ControllerStep, DisruptionController, StatusWriteOutcome, SyncEnding,
    SyncReport,
};
pub use object_key::ObjectKey;
