//! Runs the disruption controller.
//!
//! [`fairgate_disruption::controller`] decides: it caches pods and budgets, computes statuses, and says what to read or
//! write next. It does no I/O. This crate makes the calls, with the gateway's own credentials:
//!
//! - `watches` lists and watches pods, their controllers, and the upstream's budgets. It keeps only the fields of pods
//!   that are needed (`outline`).
//! - `lookups` finds the scale of an owner: from the watched controllers, else by its scale subresource.
//! - `recorder` writes events, as kube-controller-manager does. `event_correlator` limits and combines them.
//! - `election` and `lease` elect one of several gateways by a `Lease`. Only the leader watches anything.
//! - `runner` connects them.
//!
//! Budgets are those of the upstream, or those that the gateway hosts ([`BudgetFeed`]).
//!
//! A controller that has lost its lease but does not know it yet does no harm: every status is written on condition
//! that the budget has not changed since it was read.
//!
//! Not here: evictions (`fairgate-eviction-layer`), and the computation of statuses (`fairgate-disruption`).

mod budget_feed;
mod calls;
mod election;
mod event_correlator;
mod lease;
mod lookups;
mod outline;
mod recorder;
mod runner;
mod status;
mod watches;

pub use budget_feed::{BudgetEvent, BudgetEvents, BudgetFeed, StatusWriteFuture};
pub use recorder::{EventRecorder, Occurrence};
pub use runner::{DisruptionRunner, RunnerSettings};
pub use status::ControllerStatus;
