//! The pure core of fairgate.
//!
//! [`digest`] is what policy may know of a request, and [`apf`] decides which requests execute, and when. There
//! is no clock, no I/O and no task in here: time, randomness and waiting requests are arguments, so that the
//! same input gives the same result. Threads share [`cells`] and [`mailbox`]es, and take their locks from
//! [`sync`], so that loom can try every interleaving.
//!
//! Not here: HTTP, timers, waking who waits, and where policy objects come from.

pub mod apf;
pub mod cells;
pub mod digest;
pub mod fairness;
pub mod finding;
pub mod identity_hasher;
pub mod mailbox;
pub mod random;
pub mod rejection;
pub mod servers;
pub mod sync;
pub mod time;
pub mod turn_queue;
