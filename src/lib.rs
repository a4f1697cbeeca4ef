//! fairgate: API Priority and Fairness in front of API servers.
//!
//! A request enters, is authenticated, parsed as Kubernetes parses it, classified by a FlowSchema,
//! dealt into a fair queue of its priority level, given seats, forwarded, and answered.
//!
//! The lower half of the crate is *pure*: [`digest`] says what policy may know of a request, [`apf`]
//! decides who executes when, [`simulate`] drives both in virtual time. It has no clock, no I/O and
//! no tasks, and builds alone with `--no-default-features`. The upper half (feature `server`) is the
//! gateway. See ARCHITECTURE.md for the map.

pub mod apf;
pub mod cells;
pub mod digest;
pub mod simulate;
pub mod sync;

#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod auth;
#[cfg(feature = "server")]
pub mod call;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod clock;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod demo;
#[cfg(feature = "server")]
pub mod fairness;
#[cfg(feature = "server")]
pub mod forward;
#[cfg(feature = "server")]
pub mod heard;
#[cfg(feature = "server")]
pub mod hosted;
#[cfg(feature = "server")]
pub mod local;
#[cfg(feature = "server")]
pub mod log_limit;
#[cfg(feature = "server")]
pub mod observe;
#[cfg(feature = "server")]
pub mod serve;
#[cfg(feature = "server")]
pub mod socket;
#[cfg(feature = "server")]
pub mod source;
#[cfg(feature = "server")]
pub mod stack;
#[cfg(feature = "server")]
pub mod store;

/// For loom alone, which builds no server: what the cores of one share.
#[cfg(all(loom, not(feature = "server")))]
#[path = "fairness/mailbox.rs"]
pub mod mailbox;
