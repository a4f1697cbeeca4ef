//! The account of what the gateway itself does for somebody.
//!
//! Forwarding a request costs a constant, and flow control bounds how many are forwarded at a time. But the gateway also does work
//! of its own that a client can make large: it compiles expressions, evaluates objects, encodes lists, computes budgets, reviews
//! tokens, and holds bodies and responses. All of that is charged to a *payer*: the user who asked for it, the namespace whose
//! objects it is for, or, before a client is authenticated, the address of the peer. It is charged in units that can be counted
//! (bytes, cost, objects), never in time. There are two ways:
//!
//! - What is *held* is charged to a [`ByteBudget`]: a payer may have at most as much as is still free.
//! - What is *done* waits in a [`TurnQueue`] if it cannot be done at once: payers take turns, and one whose work costs more has
//!   fewer of them. [`HeavyTurns`] are such turns for tasks.
//!
//! Who has more than a fair part waits, or is refused. The others do not notice.
//!
#![doc = include_str!("payers.md")]

mod byte_budget;
mod heavy_turns;
mod used_bytes;

pub use byte_budget::{ByteBudget, BytePayer, ByteShare, BytesHeld};
pub use heavy_turns::{HeavyTurn, HeavyTurns};

pub use fairgate_core::turn_queue::TurnQueue;
