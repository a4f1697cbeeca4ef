//! The HTTP/1 client for requests of clients.
//!
//! A request drives its own connection: whoever polls it, or the body of its response, writes and reads. There is no task, no channel and
//! no buffer for each connection: what a core reads goes through one buffer that its connections share ([`ReadBuffer`]). What the
//! bytes mean is decided by `fairgate_http1`, which does no I/O.
//!
//! - `exchange`: one request and its response on a socket.
//! - `connection`: a connection that is lent to requests, one after another, and is idle between them.
//! - `write_queue`: bytes to be sent.
//!
//! The bare proxy of the load tests (`loadtest/peers/bare`) uses [`Exchange`] alone, so that it shows what all the rest costs.
//!
//! hyper's HTTP/1 client needs a task, a channel and buffers for each connection, so requests are not forwarded with it. HTTP/2, upgrades, and
//! all that clients send are hyper's. A response that recipients can read in two ways is refused (`fairgate_http1`).
//!
//! Not here: upgrades (`tunnel`), which use hyper's client.

mod connection;
mod exchange;
mod write_queue;

pub(super) use connection::{Http1Connection, KeepsIdle, SharedByConnections};
pub use exchange::{Exchange, ExchangeError, OutgoingHead, ReadBuffer};
