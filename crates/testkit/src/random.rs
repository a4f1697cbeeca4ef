//! Random numbers whose seed a failing test shows, so that `FAIRGATE_SEED` replays it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

pub use fairgate_core::random::Random;

/// The seed in the environment, if there is one.
pub fn given_seed() -> Option<u64> {
    let seed = std::env::var("FAIRGATE_SEED").ok()?;
    Some(seed.parse().expect("FAIRGATE_SEED is a number"))
}

/// Random numbers from the seed in the environment, or else from a random seed. The seed is printed either way.
pub fn seeded() -> Random {
    let seed = given_seed().unwrap_or_else(|| RandomState::new().build_hasher().finish());
    eprintln!("FAIRGATE_SEED={seed}");
    Random::seeded(seed)
}

/// Random numbers of 32 bits.
pub trait Below {
    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u32) -> u32;
}

impl Below for Random {
    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.within(0..u64::from(bound))).unwrap()
    }
}
