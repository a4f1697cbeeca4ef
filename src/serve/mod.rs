//! Takes requests off the network.
//!
//! One listener, one acceptor ([`acceptor`]); each connection goes to the least loaded core and
//! stays there ([`connection`]). What hyper lets pass and we must not is refused before anybody
//! looks at the request ([`head`]). A client that leaves is noticed at once, whatever its request is
//! waiting for ([`hangup`]), one that stalls is cut off ([`wire`], [`stream`]), as is one that resets what it asks for (`premature`), and at the end
//! everybody is seen out ([`drain`]).
//!
//! Not here: users, policy, where requests go.

pub mod acceptor;
pub mod connection;
pub mod core;
pub mod drain;
pub mod entry;
mod event;
pub mod hangup;
pub mod head;
pub mod limits;
mod premature;
pub mod settings;
pub mod stream;
pub mod tls;
pub mod wire;

pub use acceptor::{Acceptor, BindError};
pub use core::{Core, CoreHandle};
pub use drain::{Drain, Phase};
pub use event::ClientEvent;
pub use premature::ResetLimits;
pub use settings::{DrainSettings, ServeSettings};
