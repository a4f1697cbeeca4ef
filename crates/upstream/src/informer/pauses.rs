//! The pauses between attempts.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

/// Pauses after failures in a row. Each is twice as long as the one before, up to a bound, and shortened by up to half at
/// random, so that gateways do not all come back at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPauses {
    longest: Duration,
    next: Duration,
}

impl RetryPauses {
    /// Pauses from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        let next = first;
        Self { longest, next }
    }

    /// The longest pause.
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// What the next pause is at most.
    pub const fn longest_next(&self) -> Duration {
        self.next
    }

    /// The next pause, where `random` says by how much it is shortened.
    fn advance(&mut self, random: u64) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        #[expect(clippy::cast_precision_loss, reason = "a random number")]
        let part = random as f64 / u64::MAX as f64;
        pause.mul_f64(0.5 + part / 2.0)
    }
}

impl Default for RetryPauses {
    /// From 0.2 to 10 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(10))
    }
}

impl Iterator for RetryPauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // A random number, from the keys of the standard library's hash maps.
        let random = RandomState::new().build_hasher().finish();
        Some(self.advance(random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let (first, longest) = (Duration::from_millis(200), Duration::from_secs(3));
        let mut pauses = RetryPauses::new(first, longest);
        let most = [1, 2, 4, 8, 15, 15].map(|times| first * times);
        assert_eq!([(); 6].map(|()| pauses.advance(u64::MAX)), most);
        assert_eq!(pauses.advance(0), longest / 2);
        assert!(pauses.take(1000).all(|pause| pause <= longest));
    }
}
