//! Arithmetic: percentiles and pseudo-random durations.

use std::time::Duration;

use fairgate_core::{random::Random, time::nanos};

/// The percentile `percent` (1 to 100) by nearest rank: the smallest of `values` that at least
/// `percent` % of them do not exceed. `None` without values. Reorders them; O(values).
pub(super) fn percentile(values: &mut [Duration], percent: usize) -> Option<Duration> {
    percentile_among(values, values.len(), percent)
}

/// The same among `all` values, of which those that are not here are infinite. Then it is [`Duration::MAX`].
pub(super) fn percentile_among(
    values: &mut [Duration],
    all: usize,
    percent: usize,
) -> Option<Duration> {
    let rank = (all * percent).div_ceil(100).max(1);
    if all == 0 {
        return None;
    }
    if values.len() < rank {
        return Some(Duration::MAX);
    }
    let (_, value, _) = values.select_nth_unstable(rank - 1);
    Some(*value)
}

/// A pseudo-random duration below `whole`; the same `number` always gives the same duration.
pub(super) fn random_part(number: u64, whole: Duration) -> Duration {
    Duration::from_nanos(Random::seeded(number).within(0..nanos(whole).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(values: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        values.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values = ms((1..=200).rev());
        assert_eq!(
            percentile(&mut values, 50),
            Some(Duration::from_millis(100))
        );
        assert_eq!(
            percentile(&mut values, 99),
            Some(Duration::from_millis(198))
        );
        assert_eq!(
            percentile(&mut values, 100),
            Some(Duration::from_millis(200))
        );
    }

    #[test]
    fn what_is_not_among_the_values_is_infinite() {
        let mut values = ms(1..=99);
        let mut among = |all, percent| percentile_among(&mut values, all, percent);
        assert_eq!(among(99, 99), Some(Duration::from_millis(99)));
        assert_eq!(among(100, 99), Some(Duration::from_millis(99)));
        assert_eq!(among(101, 99), Some(Duration::MAX));
        assert_eq!(among(101, 50), Some(Duration::from_millis(51)));
        assert_eq!(percentile_among(&mut [], 1, 50), Some(Duration::MAX));
        assert_eq!(percentile_among(&mut [], 0, 50), None);
    }

    #[test]
    fn of_few_values_the_99th_percentile_is_the_greatest() {
        assert_eq!(
            percentile(&mut ms([3, 9, 1]), 99),
            Some(Duration::from_millis(9))
        );
        assert_eq!(
            percentile(&mut ms([3, 9, 1]), 50),
            Some(Duration::from_millis(3))
        );
        assert_eq!(percentile(&mut ms([7]), 1), Some(Duration::from_millis(7)));
        assert_eq!(percentile(&mut [], 99), None);
    }
}
