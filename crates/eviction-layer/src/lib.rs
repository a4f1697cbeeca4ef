//! Evictions in the request path.
//!
//! An eviction is a `POST` to the subresource `eviction` of a pod. [`EvictionLayer`] recognizes such requests;
//! all others pass at the cost of a search in their path. What happens to an eviction depends on the
//! [`EvictionMode`]:
//!
//! - *relay*: it is forwarded, and counted by its response.
//! - *precheck*: the pod and its budgets are read, and what the upstream would certainly refuse is refused here.
//!   Everything else is forwarded unchanged. The gateway grants and writes nothing.
//! - *authoritative*: the gateway carries the eviction out, with calls to the upstream in its own name: it charges
//!   the budget and deletes the pod. The upstream's own subresource is not used.
//!
//! The decisions are those of [`fairgate_disruption`], which is pure. This crate has the I/O: it
//! authorizes the caller, reads bodies, makes the calls, waits, and writes responses. Nothing is read or written
//! before the caller's right to evict the pod is known.
//!
//! An eviction is carried out on the control runtime, while its request waits on its data core. Before
//! the first call that changes anything, the procedure checks with the request whether its client is still connected
//! (`client_link`); from then on the seat is kept until the procedure has ended, also if the client disconnects.
//!
//! For configured users, an eviction that a budget refuses can wait for the budget ([`EvictionWaitLayer`], in
//! front of flow control).
//!
//! Not here: the disruption controller.

mod attempt;
mod body;
mod budget_api;
mod budget_queue;
mod budget_reader;
mod client_link;
mod data_side;
mod events;
mod evictor;
pub mod fuzzing;
mod layer;
mod path;
mod responses;
mod run;
mod upstream_objects;
mod upstream_response;
mod wait_layer;
mod wait_rules;
mod waits;
mod waits_report;

pub use budget_api::{BudgetApi, CallFuture};
pub use events::{EvictionEvent, EvictionOutcome, EvictionWaitEvent};
pub use evictor::{Evictor, EvictorSettings};
pub use fairgate_disruption::EvictionMode;
pub use layer::{EvictionLayer, EvictionService};
pub use upstream_response::UpstreamResponse;
pub use wait_layer::{EvictionWaitLayer, EvictionWaitService};
pub use wait_rules::EvictionWaitRules;
pub use waits::WaitingEviction;
