//! Virtual time: the pure core driven by an event heap.
//!
//! No real time passes, and all random numbers come from a seed: the same seed gives the same result, byte for byte. So
//! minutes of load take milliseconds, a failure can be replayed, and fairness is judged without the noise of a machine.
//!
//! - [`world`] draws levels and flows, plays them in both semantics, and compares what each client got with an ideal server.
//! - [`fleet`] plays several gateways that share seats, and compares what each client got with one gateway that has all.
//! - [`clients`] plays closed loops against one level, and shows their shares.
//! - `chaos` (tests) flips policies, cancels in masses and makes clocks jump, and checks the invariants of the core.
//!
//! Not here: sockets and real time, which the load tests have (`loadtest`).

#[cfg(test)]
mod chaos;
pub mod clients;
pub mod fleet;
pub mod world;
