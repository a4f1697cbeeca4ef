//! Behaviour through the public API: real sockets on loopback against a fake upstream.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what goes wrong should end it there and then"
)]
#![expect(
    unreachable_pub,
    reason = "the modules are each other's helpers, and nobody else's"
)]

mod client;
mod gate;
mod pki;
mod rules;
mod upstream;

mod draining;
mod failures;
mod fairness;
mod forwarding;
mod framing;
mod hanging_up;
mod listening;
mod panics;
mod pooling;
mod tls;
mod tunnels;
