//! Receives requests from clients.
//!
//! One listener, one acceptor (`acceptor`); each connection goes to the least loaded core and stays there
//! (`connection`, `http1_connection`). hyper parses HTTP, but the bytes of every connection are followed here first (`checked_socket`,
//! `http1`, `http2`): so no part of one request is ever taken for another, unfinished heads have bounded
//! memory (`head_budget`), and floods of frames end the connection (`frame_credits`). Requests that hyper
//! accepts but servers could read in two ways are refused (`head_check`); refusals are counted (`defence`). A client
//! that disconnects is noticed immediately, whatever its request is waiting for (`hangup_watcher`, `disconnect`). A
//! client that stalls is cut off (`checked_socket`, `stream_executor`), as is one that keeps resetting its requests
//! (`premature_resets`). A shutdown lets requests finish (`drain`).
//!
//! Not here: users, policy, where requests go.

mod acceptor;
mod checked_socket;
mod chunked;
mod client_connection;
mod client_connections;
mod connection;
mod connection_service;
mod core_load;
mod data_core;
mod defence;
mod disconnect;
mod drain;
mod driving;
mod event;
mod frame_credits;
mod hangup_watcher;
mod head_budget;
mod head_check;
mod head_limits;
mod head_scan;
mod header_block;
mod held_bytes;
mod http1;
mod http1_connection;
mod http2;
mod http2_frames;
mod lent_socket;
mod message_state;
mod opening;
mod premature_resets;
mod request_future;
mod serve_context;
mod settings;
mod shared_socket;
mod stream_executor;
pub mod tls;
mod unread_bodies;

pub use acceptor::{Acceptor, BindError};
pub use client_connections::ClientConnections;
pub use core_load::CoreLoad;
pub use data_core::{Core, CoreHandle};
pub use defence::{Defence, Offence};
pub use drain::{DrainController, DrainPhase};
pub use event::ClientEvent;
pub use settings::{DrainSettings, ServeSettings};
