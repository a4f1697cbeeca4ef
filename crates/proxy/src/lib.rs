//! The request path: what happens to a request from the first byte of its connection to the last byte of its reply.
//!
//! [`stack`] shows the layers from the outside in. [`serve`] receives requests from clients, [`auth`] authenticates
//! them, [`fairness`] makes them wait for seats, [`forward`] sends them to the upstream. The layers use
//! [`fairgate_call`], and never each other.
//!
#![doc = include_str!("request.md")]

pub mod auth;
pub mod fairness;
pub mod forward;
pub mod serve;
pub mod stack;
