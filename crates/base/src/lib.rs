//! What the gateway's crates have in common.
//!
//! [`clock`] is the only reader of time, [`socket`] is a connection with or without TLS, [`gathered_writes`] lets short writes leave
//! together, [`local`] runs work on one thread, and [`background`] is for threads that must not disturb those, and [`stack`] says how large their stacks are; [`turns`] counts how long tasks
//! keep a data core; [`account`] shares what the gateway itself does among those for whom it does it; [`tasks`] spawns tasks elsewhere; [`log_limit`] bounds how often an
//! event is logged, and [`events`] are sent to a listener that counts them.

pub mod account;
pub mod background;
pub mod clock;
pub mod descriptor_limit;
pub mod events;
pub mod gathered_writes;
pub mod local;
pub mod log_limit;
pub mod metrics_text;
pub mod socket;
pub mod stack;
pub mod tasks;
pub mod turns;
