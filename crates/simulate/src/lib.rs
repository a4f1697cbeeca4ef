//! Virtual time: the pure core driven by an event heap.
//!
//! No real time passes, and all random numbers come from a seed: the same seed gives the same result,
//! byte for byte.

#[cfg(test)]
mod chaos;
pub mod clients;
pub mod world;
