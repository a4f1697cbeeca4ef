//! The disruption controller, which keeps the status of budgets up to date as kube-controller-manager does.
//!
//! The module `sync` computes the status of one budget. A [`DisruptionController`] caches pods and budgets, decides
//! when to compute which status, and requests the necessary reads and writes. It does so in bounded slices, and namespaces
//! take turns, by the work that their pods and budgets cause.
//!
//! Not here: watching pods and budgets, and leader election. Two active controllers do no harm because every
//! write is conditional, but they double the work and the events.

mod cached_budget;
mod changed_pods;
pub mod events;
mod follower;
mod namespace_budgets;
mod object_key;
mod operations;
pub mod scale;
mod slice;
mod stale_target;
pub(crate) mod sync;
mod work_queue;

#[cfg(test)]
mod tests;

pub use follower::{DEFAULT_SELECTOR_TERMS, DisruptionController};
pub use object_key::ObjectKey;
pub use operations::{
    ControllerCounts, ControllerStep, StatusWriteOutcome, SyncEnding, SyncReport,
};
pub use slice::SelectorWork;
