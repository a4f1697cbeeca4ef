//! Receives requests from clients.
//!
//! One listener, one acceptor (`acceptor`); each connection goes to the least loaded core (`data_core`) and stays there
//! (`connection`). hyper parses HTTP, but the bytes of every connection are followed here first (`wire`): so no part of one request is ever taken
//! for another, and unfinished heads and floods of frames are bounded. A client that disconnects is noticed immediately, whatever its request is
//! waiting for (`hangup_watcher`). A shutdown lets requests finish (`drain`).
//!
//! Not here: users, policy, where requests go.

mod acceptor;
mod client_connections;
mod connection;
mod core_load;
mod data_core;
mod drain;
mod event;
mod hangup_watcher;
mod limited_address;
mod opening;
mod serve_context;
mod settings;
pub mod tls;
mod wire;

pub use acceptor::{Acceptor, BindError};
pub use client_connections::ClientConnections;
pub use core_load::CoreLoad;
pub use data_core::{Core, CoreHandle};
pub use drain::{DrainController, DrainPhase};
pub use event::ClientEvent;
pub use settings::{DrainSettings, ServeSettings};
pub use wire::defence::{Defence, Offence};
