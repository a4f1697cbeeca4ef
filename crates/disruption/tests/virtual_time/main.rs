//! Evictions through several gateways, with the controller, in virtual time.

#![expect(clippy::unwrap_used, reason = "a panic fails the test, as it should")]

mod drain;
mod scenarios;
mod world;
