//! Fuzz targets: functions that take any bytes, hand them to code that reads what clients send, and panic when a
//! property does not hold.
//!
//! A property is more than "no panic": a round trip, the agreement of two ways to the same result, a bound on the
//! output. Each target has a file in [`targets`] and inputs in `corpus/NAME/`, which `cargo test` replays. The
//! program `fuzz` mutates them, by seed, on any toolchain; `fuzz_targets/` has the same targets for cargo-fuzz.
//!
//! A target returns an [`Outcome`]: a summary of what the input led to. The runner keeps inputs that lead to an
//! outcome not seen before and mutates these further, which takes the place of coverage where there is none.

mod check;
pub mod corpus;
pub mod mutate;
pub mod targets;

use std::hash::{DefaultHasher, Hash, Hasher as _};

pub use check::check;

/// A hash that summarises what an input led to, coarsely: the kind of result, not its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outcome(u64);

impl Outcome {
    /// Summarises `facts`.
    pub fn of(facts: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        facts.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its directory in `corpus/` and its file in `fuzz_targets/`.
    pub name: &'static str,
    /// Tries an input. Panics when a property does not hold.
    pub run: fn(&[u8]) -> Outcome,
    /// Fragments that mutations insert.
    pub dictionary: &'static [&'static str],
}
