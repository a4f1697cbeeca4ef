//! A small pseudo-random generator (SplitMix64): the same seed gives the same numbers everywhere.

use std::ops::Range;

/// Pseudo-random numbers of one seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers follow from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, from the whole range of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `range`, which must not be empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// A number that is evenly distributed from 0 to less than 1.
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 random bits")]
        let bits = (self.number() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// True with a probability of `percent` in 100.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.within(0..items.len() as u64);
        &items[usize::try_from(index).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::seeded(seed);
            [random.number(), random.within(3..9), random.number()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_eq!(Random::seeded(0).number(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn numbers_of_the_unit_interval_are_even() {
        let mut random = Random::seeded(7);
        let all: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(all.iter().all(|one| (0.0..1.0).contains(one)));
        assert!((all.iter().sum::<f64>() / 10_000.0 - 0.5).abs() < 0.01);
    }
}
