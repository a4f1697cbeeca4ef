//! Fairness in the path of a request: from a call to a seat, and from the seat's end to the next.
//!
//! The [`Hub`] is shared by all cores: the dispatcher, what is learnt of the upstream, and the
//! mailboxes. Each core has a [`Gate`], the asynchronous face of the dispatcher, which knows the
//! requests of its core by slots and hands decisions to whoever they concern. A [`Seat`] is held by
//! the answer's body, and by what goes on upstream after the client has left. [`layer`] joins it
//! with the stack.
//!
//! Not here: who runs next ([`fairgate_core::apf`]), how an answer looks ([`fairgate_call`]).

mod abandoned;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod hub;
pub mod layer;
mod learn;
mod long_running;

mod place;
mod premature;
mod seat;
mod slots;
mod slow_readers;
mod spread;
mod starts;
mod wait;
mod watch_init;

pub use abandoned::Abandoned;
pub use gate::{Gate, Letter};
pub use hub::{CorePolicy, Enforcement, FlowFacts, Hub, HubSettings};
pub use layer::FairnessLayer;
pub use long_running::{Caps, LongRunning};
pub use premature::UserResets;
pub use seat::Seat;
pub use slots::Waiter;
