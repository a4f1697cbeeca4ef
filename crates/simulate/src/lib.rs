//! Virtual time: the pure core driven by an event heap.
//!
//! No real time passes and nothing is random but by a seed, so the same seed gives the same result
//! to the byte.

#[cfg(test)]
mod chaos;
pub mod clients;
pub mod fairness;
pub mod world;
