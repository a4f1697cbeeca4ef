//! Arithmetic: percentiles, max-min fair shares, Jain's index, and pseudo-random numbers.

use std::time::Duration;

use fairgate_core::time::nanos;

/// The percentile `percent` (1 to 100) by nearest rank: the smallest of `values` that at least
/// `percent` % of them do not exceed. `None` without values. Reorders them; O(values).
pub(super) fn percentile(values: &mut [Duration], percent: usize) -> Option<Duration> {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    if values.len() < rank {
        return None;
    }
    let (_, value, _) = values.select_nth_unstable(rank - 1);
    Some(*value)
}

/// The max-min fair shares of `capacity`: no share exceeds its demand, and a share is smaller than another
/// only if its demand is smaller. For an unbounded demand pass `f64::INFINITY`.
pub(super) fn max_min_shares(capacity: f64, demands: &[f64]) -> Vec<f64> {
    let mut by_demand: Vec<usize> = (0..demands.len()).collect();
    by_demand.sort_by(|a, b| demands[*a].total_cmp(&demands[*b]));
    let mut shares = vec![0.0; demands.len()];
    let mut left = capacity;
    let mut sharers = f64::from(u32::try_from(demands.len()).unwrap_or(u32::MAX));
    for index in by_demand {
        let share = demands[index].min(left / sharers);
        shares[index] = share;
        left -= share;
        sharers -= 1.0;
    }
    shares
}

/// Jain's index of fairness: 1 when all values are equal, 1/n when one of n has everything. `None` when
/// all are zero.
pub(super) fn jain(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
        squares += value * value;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

/// A pseudo-random duration below `whole`; the same `number` always gives the same duration.
pub(super) fn scrambled_part(number: u64, whole: Duration) -> Duration {
    // The output function of SplitMix64.
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Duration::from_nanos((mixed ^ (mixed >> 31)) % nanos(whole).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(values: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        values.into_iter().map(Duration::from_millis).collect()
    }

    fn assert_close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-9, "{actual} for {expected}");
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

    #[test]
    fn small_demands_are_met_and_the_rest_is_for_the_great_one() {
        let shares = max_min_shares(200.0, &[f64::INFINITY, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(shares, [192.0, 2.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn demands_beyond_the_capacity_are_cut_alike() {
        assert_eq!(max_min_shares(9.0, &[8.0, 1.0, 5.0]), [4.0, 1.0, 4.0]);
        assert_eq!(max_min_shares(9.0, &[1.0, 2.0]), [1.0, 2.0]);
        assert!(max_min_shares(9.0, &[]).is_empty());
    }

    #[test]
    fn jains_index_is_one_for_equals_and_a_fraction_for_a_sole_owner() {
        assert_close(jain([3.0; 5]).unwrap(), 1.0);
        assert_close(jain([7.0, 0.0, 0.0, 0.0]).unwrap(), 0.25);
        assert_close(jain([1.0, 2.0, 3.0]).unwrap(), 36.0 / 42.0);
        assert_eq!(jain([0.0, 0.0]), None);
        assert_eq!(jain([]), None);
    }
}
