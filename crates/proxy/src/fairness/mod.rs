//! Flow control in the request path: a call gets a seat, and the end of the seat starts the next call.
//!
//! The [`FlowControl`] is shared by all cores: the dispatcher, the statistics of the upstream's objects, and the cores'
//! mailboxes. Each core has a [`Gate`], the asynchronous side of the dispatcher: it knows the requests of its
//! core as [`Waiter`]s, and delivers decisions about them. A [`Seat`] is held by the body of the reply, and by
//! a request that continues upstream after its client has disconnected. [`layer`] puts flow control in front of a
//! service.
//!
//! Not here: which request executes next ([`fairgate_core::apf`]), what replies look like
//! ([`fairgate_call`]).

mod abandoned;
mod admission;
mod annotation_search;
mod borrowing_trigger;
mod core_policy;
mod delayed_starts;
mod executing;
mod flow_control;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod gate_task;
pub mod layer;
mod level_fullness;
mod list_observer;
mod long_heads;
mod long_running;
mod long_running_guard;
mod message;
mod premature_resets;
mod queued;
mod receiving;
mod seat;
mod settings;
mod shadow;
mod slow_readers;
mod slow_senders;
mod start_spreading;
mod unfinished_bodies;
mod wait_limit;
mod waiters;
mod watch_init;
mod work_estimates;

pub use abandoned::AbandonedRequests;
pub use core_policy::{CorePolicy, FlowFacts};
pub use flow_control::FlowControl;
pub use gate::Gate;
pub use layer::FairnessLayer;
pub use long_heads::LongHeads;
pub use long_running::{Caps, LongRunning};
pub use message::GateMessage;
pub use premature_resets::UserResets;
pub use seat::Seat;
pub use settings::{Enforcement, FlowControlSettings};
pub use unfinished_bodies::{BodyLimits, LateBody, UnfinishedBodies};
pub use waiters::Waiter;
