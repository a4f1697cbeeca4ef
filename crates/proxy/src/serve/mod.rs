//! Takes requests off the network.
//!
//! One listener, one acceptor ([`acceptor`]); each connection goes to the least loaded core and
//! stays there (`connection`). Its bytes are followed (`wire`, `http1`, `http2`), so that one
//! request is never taken for a part of another, unfinished heads have bounded memory
//! (`head_budget`) and floods of frames end. What hyper lets pass and we must not is refused before
//! anybody looks at the request (`head`); what is refused is counted (`defence`). A client that
//! leaves is noticed at once, whatever its request is waiting for (`hangup`), one that stalls is cut
//! off (`wire`, `stream`), as is one that resets what it asks for (`premature`), and at the end
//! everybody is seen out (`drain`).
//!
//! Not here: users, policy, where requests go.

pub mod acceptor;
pub(crate) mod chunked;
pub(crate) mod connection;
pub mod core;
pub(crate) mod defence;
pub(crate) mod drain;
pub(crate) mod entry;
mod event;
pub(crate) mod hangup;
pub(crate) mod head;
pub(crate) mod head_budget;
pub(crate) mod head_scan;
mod header_block;
mod held;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod leaving;
pub mod limits;
pub(crate) mod messages;
mod premature;
pub(crate) mod settings;
pub(crate) mod stream;
pub mod tls;
pub(crate) mod upload;
pub(crate) mod wire;

pub use acceptor::{Acceptor, BindError};
pub use core::{Core, CoreHandle};
pub use defence::{Defence, Offence};
pub use drain::{Drain, Phase};
pub use event::ClientEvent;
pub use settings::{DrainSettings, ServeSettings};
