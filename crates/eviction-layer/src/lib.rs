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
//! # Why it is built like this
//!
//! [`EvictionLayer`] is between the seat and the hosted API. This is a crate of its own because it needs
//! both what the request path has (calls, seats) and what the hosted API has (negotiation of formats, `Status` responses,
//! authorization by the upstream), and neither may depend on the other. For any other request the layer only searches its
//! path for `/eviction`.
//!
//! The data core authorizes the caller, then reads the body. The procedure runs on the control runtime, where each of its
//! calls is made in the gateway's own name. Before its first change the procedure asks the request on its data core for
//! permission (`crates/eviction-layer/src/client_link.rs`). A request grants it only while its client is there, and marks itself
//! as sent upstream, so that flow control keeps its seat if the client disconnects. So no procedure changes anything for a
//! client that has disconnected, and none that changes something runs without a seat, up to the time limit of the request.
//! After 90 s a procedure changes nothing any more: the budget's entry for its pod is about to expire.
//!
//! An eviction that waits for its budget does so in a layer of its own, outside of flow control
//! (`crates/eviction-layer/src/wait_layer.rs`). A budget's refusal reaches that layer as a complete reply whose seat has been
//! returned. When it is the eviction's turn, the layer sends the request again: a new call, which acquires a seat, is
//! authorized and runs the whole procedure. So calls go inwards and replies outwards only, as for a client that repeats its
//! request, and nothing in the stack holds a seat while it waits for something else. The two layers tell each other what
//! they need in the extensions of request and reply. The order of those who wait is pure (`crates/disruption/src/waiting`). A
//! task of the control runtime reads the budgets while anybody waits (`crates/eviction-layer/src/budget_reader.rs`). What it reads
//! decides only who tries next. After a read, an event on the budget says that evictions wait, if some have just begun to (`crates/eviction-layer/src/waits_report.rs`); a task of its own writes it, and loses events rather than delay anything.
//!
//! The evictions of one gateway take turns at a budget (`crates/eviction-layer/src/budget_queue.rs`), from the read to the write
//! of its status. This only saves conflicts. What makes an eviction count is the conditional write.
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
#[cfg(test)]
mod test_side;
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
