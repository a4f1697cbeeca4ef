//! Runs the disruption controller.
//!
//! [`fairgate_disruption::controller`] decides: it caches pods and budgets, computes statuses, and says what to read or
//! write next. It does no I/O. This crate makes the calls, with the gateway's own credentials:
//!
//! - `watches` lists and watches pods, their controllers, and the upstream's budgets. It keeps only the fields of pods
//!   that are needed (`outline`).
//! - `lookups` finds the scale of an owner: from the watched controllers, else by its scale subresource.
//! - `recorder` writes events, as kube-controller-manager does. `event_correlator` limits and combines them.
//! - `runner` connects them. One of several gateways is elected by a `Lease` (`fairgate-election`); only the leader watches anything.
//!
//! Budgets are those of the upstream, or those that the gateway hosts ([`BudgetFeed`]).
//!
//! A controller that has lost its lease but does not know it yet does no harm: every status is written on condition
//! that the budget has not changed since it was read.
//!
//! # Decisions
//!
//! This crate is separate from `fairgate-eviction-layer` because the two share no code: they meet in the budget's status alone, and each works
//! without the other. It does not depend on the request path.
//!
//! - One of several gateways leads, by a `Lease` (`crates/election/src/election.rs`, which is pure). Only the leader
//!   watches anything, so the others have no cost. The libraries for leases with kube-rs compare `renewTime` with the local
//!   clock, or need another version of kube-rs; so this one is ours, and uses monotonic clocks alone.
//! - The lists and watches are those of kube-rs. Of an object only the fields that are needed are decoded
//!   (`crates/disruption-controller/src/outline.rs`); all others are skipped while they are parsed. Hosted budgets are followed in
//!   their store (`src/app/hosted_api/followed_budgets.rs`).
//! - The scales of the built-in controllers come from watches, too, as in kube-controller-manager: requests for them would
//!   be most of the load. Other owners are asked by their scale subresource.
//! - A change of a scale causes no sync, as in kube-controller-manager; the next change of a pod does.
//! - A gateway whose budgets are in a file of its own needs no lease. Gateways that share an etcd have a lease of their
//!   own.
//!
//! Not here: evictions (`fairgate-eviction-layer`), and the computation of statuses (`fairgate-disruption`).

mod budget_feed;
mod calls;
mod event_correlator;
mod lookups;
mod outline;
mod recorder;
mod runner;
mod status;
mod watches;

pub use budget_feed::{BudgetEvent, BudgetEvents, BudgetFeed, StatusWriteFuture};
pub use calls::UpstreamCalls;
pub use recorder::{EventRecorder, Occurrence};
pub use runner::{DisruptionRunner, RunnerSettings};
pub use status::ControllerStatus;
