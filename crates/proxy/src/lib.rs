//! The request path: what happens to a request from the first byte of its connection to the last of
//! its answer.
//!
//! [`stack`] shows the layers from the outside in. [`serve`] takes requests off the network, [`auth`]
//! finds out who asks, [`fairness`] has them wait for seats, [`forward`] sends them on. The layers know
//! [`fairgate_call`], and not each other.

pub mod auth;
pub mod fairness;
pub mod forward;
pub mod serve;
pub mod stack;
