//! Measures of fairness: max-min fair shares, and Jain's fairness index.

/// The max-min fair shares of `capacity`: no share exceeds its demand, and a share is smaller than another only if its
/// demand is smaller. For an unbounded demand pass `f64::INFINITY`. O(n²).
pub fn max_min_shares(demands: &[f64], capacity: f64) -> Vec<f64> {
    weighted_max_min_shares(demands, &vec![1.0; demands.len()], capacity)
}

/// As [`max_min_shares`], but it is the shares divided by their weights, which are above 0, that are as equal as can be.
pub fn weighted_max_min_shares(demands: &[f64], weights: &[f64], capacity: f64) -> Vec<f64> {
    let of_weight = |index: usize| demands[index] / weights[index];
    let mut by_demand: Vec<usize> = (0..demands.len()).collect();
    by_demand.sort_by(|a, b| of_weight(*a).total_cmp(&of_weight(*b)));
    let mut left = capacity;
    let mut shares = vec![0.0; demands.len()];
    for (served, &index) in by_demand.iter().enumerate() {
        let unserved: f64 = by_demand[served..].iter().map(|i| weights[*i]).sum();
        let part = left / unserved * weights[index];
        shares[index] = demands[index].min(part);
        left -= shares[index];
    }
    shares
}

/// Jain's index of fairness: 1 when all values are equal, 1/n when one of n has everything. `None` when all are zero.
pub fn jain_index(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
        squares += value * value;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_demands_are_met_and_the_largest_gets_the_rest() {
        let shares = max_min_shares(&[f64::INFINITY, 2.0, 2.0, 2.0, 2.0], 200.0);
        assert_eq!(shares, [192.0, 2.0, 2.0, 2.0, 2.0]);
        let shares = max_min_shares(&[3.0, 7.0, 9.0, 1.0], 14.0);
        assert_eq!(shares, [3.0, 5.0, 5.0, 1.0]);
    }

    #[test]
    fn demands_within_the_capacity_are_met() {
        assert_eq!(
            max_min_shares(&[1.0, 9.0, 7.0, 3.0], 21.0),
            [1.0, 9.0, 7.0, 3.0]
        );
        assert_eq!(max_min_shares(&[0.0, 0.0], 42.0), [0.0, 0.0]);
        assert_eq!(max_min_shares(&[1.0, 2.0], 9.0), [1.0, 2.0]);
        assert!(max_min_shares(&[], 9.0).is_empty());
    }

    #[test]
    fn demands_beyond_the_capacity_get_equal_shares() {
        assert_eq!(max_min_shares(&[8.0, 1.0, 5.0], 9.0), [4.0, 1.0, 4.0]);
    }

    #[test]
    fn weighted_shares_are_in_proportion_to_the_weights() {
        let all = f64::INFINITY;
        let shares = weighted_max_min_shares(&[all, 1.0, all], &[1.0, 2.0, 4.0], 11.0);
        assert_eq!(shares, [2.0, 1.0, 8.0]);
    }

    #[test]
    fn jains_index_is_one_for_equal_values_and_one_nth_for_a_single_nonzero_value() {
        let close = |values: &[f64], expected: f64| {
            let index = jain_index(values.iter().copied()).unwrap();
            assert!((index - expected).abs() < 1e-9, "{index} for {expected}");
        };
        close(&[3.0; 5], 1.0);
        close(&[7.0, 0.0, 0.0, 0.0], 0.25);
        close(&[1.0, 2.0, 3.0], 36.0 / 42.0);
        assert_eq!(jain_index([0.0, 0.0]), None);
        assert_eq!(jain_index([]), None);
    }
}
