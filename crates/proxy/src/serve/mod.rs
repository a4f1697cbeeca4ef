//! Takes requests off the network.
//!
//! One listener, one acceptor ([`acceptor`]); each connection goes to the least loaded core and
//! stays there ([`connection`]). Its bytes are followed ([`wire`], [`http1`], [`http2`]), so that one
//! request is never taken for a part of another, unfinished heads have bounded memory
//! ([`head_budget`]) and floods of frames end. What hyper lets pass and we must not is refused before
//! anybody looks at the request ([`head`]); what is refused is counted ([`defence`]). A client that
//! leaves is noticed at once, whatever its request is waiting for ([`hangup`]), one that stalls is cut
//! off ([`wire`], [`stream`]), as is one that resets what it asks for (`premature`), and at the end
//! everybody is seen out ([`drain`]).
//!
//! Not here: users, policy, where requests go.

pub mod acceptor;
pub mod chunked;
pub mod connection;
pub mod core;
pub mod defence;
pub mod drain;
pub mod entry;
mod event;
pub mod hangup;
pub mod head;
pub mod head_budget;
pub mod head_scan;
mod header_block;
mod held;
pub mod http1;
pub mod http2;
pub mod leaving;
pub mod limits;
pub mod messages;
mod premature;
pub mod settings;
pub mod stream;
pub mod tls;
pub mod upload;
pub mod wire;

pub use acceptor::{Acceptor, BindError};
pub use core::{Core, CoreHandle};
pub use defence::{Defence, Offence};
pub use drain::{Drain, Phase};
pub use event::ClientEvent;
pub use settings::{DrainSettings, ServeSettings};
