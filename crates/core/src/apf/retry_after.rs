//! Retry-After: when a rejected client should retry.
//!
//! One [`RetryAfter`] per level counts the rejections of recent seconds. As long as there are at
//! least three a second, the delay doubles, like TCP's slow start, up to 32 s; once there is less
//! than one a second, it falls by one at a time. Memory is constant: the 32 seconds that can
//! matter, inline.
//!
//! Time is wall time in whole Unix seconds, because rejections are counted by second.

use crate::apf::spec::Semantics;

/// The longest delay, in seconds; also the seconds of history that can matter.
const MAX_SECONDS: u32 = 32;

/// How many seconds the time of another core may lag behind the newest.
const SKEW_SECONDS: u64 = 2;

/// The recent rejections of one level, and the Retry-After they call for.
#[derive(Clone, Debug)]
pub(crate) struct RetryAfter {
    /// The delay in seconds, 1 to [`MAX_SECONDS`].
    seconds: u32,
    /// Unix second of the last increase.
    increased: u64,
    /// The second of the latest rejection, with its count.
    current: Tally,
    /// Seconds before `current`, each in the place of its remainder.
    history: [Tally; MAX_SECONDS as usize],
}

/// Rejections in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    second: u64,
    count: u32,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self {
            seconds: 1,
            increased: 0,
            current: Tally::default(),
            history: [Tally::default(); MAX_SECONDS as usize],
        }
    }
}

impl RetryAfter {
    /// Counts a rejection at `unix_seconds`; ask [`Self::delay`] next.
    ///
    /// In [`Semantics::Compatible`] the delay changes only in seconds that see a rejection, so the
    /// first client rejected after a long quiet period gets nearly the delay of the last storm. In
    /// [`Semantics::Improved`] it also falls by one for each `delay` seconds without a rejection.
    ///
    /// A time that lags a little counts as the newest second seen; one that lags more starts over.
    ///
    /// Cost: constant within a second, else at most 32 steps; no allocation.
    pub(crate) fn record(&mut self, semantics: Semantics, unix_seconds: u64) {
        if unix_seconds.saturating_add(SKEW_SECONDS) < self.current.second {
            *self = Self::default();
        }
        if unix_seconds <= self.current.second {
            self.current.count = self.current.count.saturating_add(1);
            return;
        }
        let quiet = unix_seconds - self.current.second;
        *self.place(self.current.second) = self.current;
        self.current = Tally {
            second: unix_seconds,
            count: 1,
        };
        if semantics == Semantics::Improved && self.decay(quiet) {
            return;
        }
        self.adapt();
    }

    /// The Retry-After to send, in seconds.
    ///
    /// In [`Semantics::Compatible`] the same for all. In [`Semantics::Improved`] drawn evenly from
    /// 1 to that by `random`, uniform over all values, so that clients rejected together do not
    /// retry together.
    pub(crate) fn delay(&self, semantics: Semantics, random: u64) -> u32 {
        match semantics {
            Semantics::Compatible => self.seconds,
            Semantics::Improved => {
                let drawn = (u128::from(random) * u128::from(self.seconds)) >> 64;
                1 + u32::try_from(drawn).unwrap_or(0)
            }
        }
    }

    /// Doubles or lowers the delay by the rejections of the last `delay` whole seconds.
    fn adapt(&mut self) {
        let now = self.current.second;
        let window = u64::from(self.seconds);
        let rejected = self.rejected_between(now.saturating_sub(window), now);
        if now - self.increased >= window && rejected >= 3 * window {
            self.seconds = (2 * self.seconds).min(MAX_SECONDS);
            self.increased = now;
        } else if rejected < window && self.seconds > 1 {
            self.seconds -= 1;
        }
    }

    /// Lowers the delay for `quiet` seconds without rejection; whether it did.
    fn decay(&mut self, quiet: u64) -> bool {
        let before = self.seconds;
        let mut left = quiet;
        while self.seconds > 1 && left >= u64::from(self.seconds) {
            left -= u64::from(self.seconds);
            self.seconds -= 1;
        }
        self.seconds < before
    }

    fn rejected_between(&self, from: u64, until: u64) -> u64 {
        let seconds = (from..until).map(|second| (second, self.history[index(second)]));
        let seen = seconds.filter(|(second, tally)| tally.second == *second);
        seen.map(|(_, tally)| u64::from(tally.count)).sum()
    }

    fn place(&mut self, second: u64) -> &mut Tally {
        &mut self.history[index(second)]
    }
}

fn index(second: u64) -> usize {
    usize::try_from(second % u64::from(MAX_SECONDS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Semantics; 2] = [Semantics::Compatible, Semantics::Improved];

    /// Records `count` rejections in `second`; the longest delay after them.
    fn reject(tracker: &mut RetryAfter, semantics: Semantics, second: u64, count: u32) -> u32 {
        for _ in 0..count {
            tracker.record(semantics, second);
        }
        tracker.seconds
    }

    #[test]
    fn the_delay_doubles_in_overload_and_falls_by_one_after_it() {
        let trace = [
            (0, 5, 1),
            (1, 11, 2),
            (2, 1, 2),
            (3, 11, 4),
            (4, 1, 4),
            (7, 1, 8),
            (11, 1, 8),
            (15, 1, 7),
            (17, 1, 6),
            (21, 14, 5),
            (22, 1, 10),
        ];
        for semantics in BOTH {
            let mut tracker = RetryAfter::default();
            for (second, count, expected) in trace {
                let seconds = reject(&mut tracker, semantics, second, count);
                assert_eq!(seconds, expected, "second {second}, {semantics:?}");
            }
        }
    }

    #[test]
    fn constant_heavy_overload_reaches_the_longest_delay_in_half_a_minute() {
        for semantics in BOTH {
            let mut tracker = RetryAfter::default();
            for second in 0..100 {
                let expected = match second {
                    0 => 1,
                    1..3 => 2,
                    3..7 => 4,
                    7..15 => 8,
                    15..31 => 16,
                    _ => 32,
                };
                let seconds = reject(&mut tracker, semantics, second, 1000);
                assert_eq!(seconds, expected, "second {second}");
            }
        }
    }

    fn after_a_storm(semantics: Semantics) -> RetryAfter {
        let mut tracker = RetryAfter::default();
        for second in 1000..1100 {
            reject(&mut tracker, semantics, second, 100);
        }
        assert_eq!(tracker.seconds, 32);
        tracker
    }

    #[test]
    fn compatible_the_first_rejection_after_a_long_quiet_still_gets_a_long_delay() {
        let mut tracker = after_a_storm(Semantics::Compatible);
        assert_eq!(reject(&mut tracker, Semantics::Compatible, 100_000, 1), 31);
    }

    #[test]
    fn improved_the_delay_falls_with_quiet_time_down_to_one() {
        let mut tracker = after_a_storm(Semantics::Improved);
        // One step after 32 quiet seconds, the next after 31 more.
        assert_eq!(
            reject(&mut tracker.clone(), Semantics::Improved, 1099 + 62, 1),
            31
        );
        assert_eq!(
            reject(&mut tracker.clone(), Semantics::Improved, 1099 + 63, 1),
            30
        );
        assert_eq!(reject(&mut tracker, Semantics::Improved, 100_000, 1), 1);
    }

    #[test]
    fn compatible_all_clients_get_the_same_delay() {
        let tracker = after_a_storm(Semantics::Compatible);
        for random in [0, 1 << 63, u64::MAX] {
            assert_eq!(tracker.delay(Semantics::Compatible, random), 32);
        }
    }

    #[test]
    fn improved_delays_are_spread_evenly_from_one_to_the_longest() {
        let tracker = after_a_storm(Semantics::Improved);
        let mut drawn = [0_u32; 33];
        for step in 0..3200_u64 {
            let random = step * (u64::MAX / 3200) + 1;
            drawn[tracker.delay(Semantics::Improved, random) as usize] += 1;
        }
        assert_eq!(drawn[0], 0);
        assert!(drawn[1..].iter().all(|n| (99..=101).contains(n)));
        assert_eq!(tracker.delay(Semantics::Improved, u64::MAX), 32);
        assert_eq!(
            RetryAfter::default().delay(Semantics::Improved, u64::MAX),
            1
        );
    }

    #[test]
    fn trackers_of_different_levels_are_independent() {
        let mut busy = RetryAfter::default();
        let mut calm = RetryAfter::default();
        for second in 1..60 {
            reject(&mut busy, Semantics::Compatible, second, 1000);
            reject(&mut calm, Semantics::Compatible, second, 1);
        }
        assert_eq!((busy.seconds, calm.seconds), (32, 1));
    }

    #[test]
    fn a_clock_a_little_behind_counts_as_now_and_one_set_back_starts_over() {
        let mut tracker = after_a_storm(Semantics::Compatible);
        assert_eq!(reject(&mut tracker, Semantics::Compatible, 1098, 5), 32);
        assert_eq!(reject(&mut tracker, Semantics::Compatible, 500, 5), 1);
        assert_eq!(
            reject(&mut tracker, Semantics::Compatible, u64::MAX - 2, 5),
            1
        );
    }
}
