//! The allocation solver: dividing seats in proportion to targets, within bounds.
//!
//! The problem: find one *fair fraction* `f` such that the allocations `clamp(f * target, lower,
//! upper)` sum to what there is. The sum grows with `f`, piecewise linearly, so the solver walks
//! the bounds in the order in which growing `f` meets them (KEP-1040, borrowing).

/// One party to an allocation. `0 <= lower <= target`, `lower <= upper`, all finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    /// The seats of the party with a fair fraction of 1, before `lower` and `upper` limit them.
    pub target: f64,
    /// The party gets no less than this.
    pub lower: f64,
    /// The party gets no more than this.
    pub(crate) upper: f64,
}

/// How an amount was divided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Allocation {
    /// The part of each target that is granted where no bound applies.
    pub fair_fraction: f64,
    /// The grants, in the order of the claims.
    pub(crate) grants: Vec<f64>,
}

/// Why an amount cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum AllocationError {
    /// A bound or target is negative, infinite or not a number.
    #[error("claim {index}: target and bounds must be finite and not negative")]
    NotAnAmount { index: usize },
    /// The target is below the lower bound.
    #[error("claim {index}: target {target} is below the lower bound {lower}")]
    TargetBelowLower {
        index: usize,
        target: f64,
        lower: f64,
    },
    /// The bounds leave no room.
    #[error("claim {index}: upper bound {upper} is below the lower bound {lower}")]
    UpperBelowLower {
        index: usize,
        upper: f64,
        lower: f64,
    },
    /// There is less than the claims must get.
    #[error("lower bounds sum to {lower_sum}, more than the {amount} there are")]
    TooLittle { amount: f64, lower_sum: f64 },
    /// There is more than the claims may get.
    #[error("upper bounds sum to {upper_sum}, less than the {amount} there are")]
    TooMuch { amount: f64, upper_sum: f64 },
    /// The walk over the bounds found no solution, which no valid problem leads to.
    #[error("no fair fraction was found")]
    Unsolved,
}

/// Differences of sums up to this count as none.
pub(super) const EPSILON: f64 = 1e-7;

/// Smaller targets count as this, so that no ratio divides by zero.
pub(super) const LEAST_TARGET: f64 = 0.001;

/// Divides `amount`, which is not negative, among `claims`.
///
/// Cost: `O(n log n)` and three allocations of the size of `claims`.
///
/// # Errors
///
/// See [`AllocationError`]: a claim that contradicts itself, or bounds whose sums exclude `amount`.
///
/// Source: KEP-1040, borrowing.
pub(crate) fn allocate(amount: f64, claims: &[Claim]) -> Result<Allocation, AllocationError> {
    let sums = Sums::of(claims)?;
    if sums.lower - amount > EPSILON {
        return Err(AllocationError::TooLittle {
            amount,
            lower_sum: sums.lower,
        });
    }
    if amount - sums.upper > EPSILON {
        return Err(AllocationError::TooMuch {
            amount,
            upper_sum: sums.upper,
        });
    }
    let fair_fraction = match fraction_without_walk(amount, &sums, || claims.iter()) {
        Some(fraction) => fraction,
        None => walk(amount, &bounds_by_fraction(claims), sums.lower)
            .ok_or(AllocationError::Unsolved)?,
    };
    let grants = claims.iter();
    Ok(Allocation {
        fair_fraction,
        grants: grants.map(|claim| claim.grant(fair_fraction)).collect(),
    })
}

impl Claim {
    /// The target that ratios and sums use.
    pub(super) fn scale(&self) -> f64 {
        self.target.max(LEAST_TARGET)
    }

    /// What it gets.
    pub(super) fn grant(&self, fair_fraction: f64) -> f64 {
        (fair_fraction * self.scale())
            .min(self.upper)
            .max(self.lower)
    }

    /// Where a growing fair fraction meets its lower and its upper bound, if `responsive` claims like it have this slope together.
    pub(super) fn bends(&self, slope: f64, responsive: i64) -> [Bend; 2] {
        let scale = self.scale();
        let bend = |bound: f64, slope: f64, responsive: i64| Bend {
            fraction: bound / scale,
            slope,
            responsive,
        };
        [
            bend(self.lower, slope, responsive),
            bend(self.upper, -slope, -responsive),
        ]
    }

    fn check(&self, index: usize) -> Result<(), AllocationError> {
        let Self {
            target,
            lower,
            upper,
        } = *self;
        let is_amount = |number: f64| number.is_finite() && number >= 0.0;
        if !(is_amount(target) && is_amount(lower) && is_amount(upper)) {
            return Err(AllocationError::NotAnAmount { index });
        }
        if target < lower {
            return Err(AllocationError::TargetBelowLower {
                index,
                target,
                lower,
            });
        }
        if upper < lower {
            return Err(AllocationError::UpperBelowLower {
                index,
                upper,
                lower,
            });
        }
        Ok(())
    }
}

/// Sums over all claims.
pub(super) struct Sums {
    pub(super) target: f64,
    pub(super) lower: f64,
    pub(super) upper: f64,
}

impl Sums {
    /// The sums over `claims`, which are checked on the way.
    fn of(claims: &[Claim]) -> Result<Self, AllocationError> {
        let mut sums = Self {
            target: 0.0,
            lower: 0.0,
            upper: 0.0,
        };
        for (index, claim) in claims.iter().enumerate() {
            claim.check(index)?;
            sums.target += claim.scale();
            sums.lower += claim.lower;
            sums.upper += claim.upper;
        }
        Ok(sums)
    }
}

fn least<'a>(claims: impl Iterator<Item = &'a Claim>, bound: fn(&Claim) -> f64) -> f64 {
    let ratios = claims.map(|claim| bound(claim) / claim.scale());
    ratios.fold(f64::INFINITY, f64::min)
}

fn greatest<'a>(claims: impl Iterator<Item = &'a Claim>, bound: fn(&Claim) -> f64) -> f64 {
    let ratios = claims.map(|claim| bound(claim) / claim.scale());
    ratios.fold(0.0, f64::max)
}

/// The fair fraction where no walk over the bounds is needed to find it. `amount` lies between the sums of the bounds.
pub(super) fn fraction_without_walk<'a, I: Iterator<Item = &'a Claim>>(
    amount: f64,
    sums: &Sums,
    claims: impl Fn() -> I,
) -> Option<f64> {
    // At the sum of the lower bounds every fraction up to the first bend gives the same grants, and at the sum of the
    // upper bounds every fraction from the last bend on. The walk would find any of them by rounding; these are exact.
    if amount <= 0.0 {
        return Some(0.0);
    }
    if sums.lower - amount > -EPSILON {
        return Some(least(claims(), |claim| claim.lower));
    }
    if amount - sums.upper > -EPSILON {
        return Some(greatest(claims(), |claim| claim.upper));
    }
    let unbounded = amount / sums.target;
    let no_bound_matters = greatest(claims(), |claim| claim.lower) <= unbounded
        && unbounded <= least(claims(), |claim| claim.upper);
    no_bound_matters.then_some(unbounded)
}

/// Where a growing fair fraction meets a bound, and by how much the sum's slope changes there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bend {
    pub(super) fraction: f64,
    pub(super) slope: f64,
    /// How many claims begin (positive) or cease (negative) to respond.
    pub(super) responsive: i64,
}

fn bounds_by_fraction(claims: &[Claim]) -> Vec<Bend> {
    let bends = claims.iter();
    let bends = bends.flat_map(|claim| claim.bends(claim.scale(), 1));
    let mut bends: Vec<_> = bends.collect();
    bends.sort_by(|left, right| left.fraction.total_cmp(&right.fraction));
    bends
}

/// Follows the sum of the grants, `lower_sum` at first, along the bends up to `amount`.
pub(super) fn walk(amount: f64, bends: &[Bend], lower_sum: f64) -> Option<f64> {
    let mut total = lower_sum;
    let mut slope = 0.0;
    let mut responsive = 0_i64;
    for (index, bend) in bends.iter().enumerate() {
        slope += bend.slope;
        responsive += bend.responsive;
        let next = bends.get(index + 1)?;
        if responsive == 0 {
            // No claim responds: the slope is exactly 0, without rounding errors.
            slope = 0.0;
            continue;
        }
        let wanted = bend.fraction + (amount - total) / slope;
        if wanted <= next.fraction {
            return Some(wanted);
        }
        total += (next.fraction - bend.fraction) * slope;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const fn claim(target: f64, lower: f64, upper: f64) -> Claim {
        Claim {
            target,
            lower,
            upper,
        }
    }

    fn assert_is(allocation: &Allocation, fair_fraction: f64, grants: [f64; 2]) {
        let close = |left: f64, right: f64| (left - right).abs() < 1e-9;
        let same = grants
            .iter()
            .zip(&allocation.grants)
            .all(|(&left, &right)| close(left, right));
        assert!(
            same && close(allocation.fair_fraction, fair_fraction),
            "{allocation:?}"
        );
    }

    #[test]
    fn without_bounds_that_matter_all_get_the_same_part_of_their_target() {
        let claims = [claim(10.0, 0.0, 100.0), claim(30.0, 1.0, 100.0)];
        let allocation = allocate(20.0, &claims).unwrap();
        assert_is(&allocation, 0.5, [5.0, 15.0]);
    }

    #[test]
    fn a_lower_bound_leaves_less_for_the_other_claims() {
        let claims = [claim(10.0, 8.0, 100.0), claim(30.0, 0.0, 100.0)];
        let allocation = allocate(20.0, &claims).unwrap();
        assert_is(&allocation, 0.4, [8.0, 12.0]);
    }

    #[test]
    fn an_upper_bound_leaves_more_for_the_other_claims() {
        let claims = [claim(10.0, 0.0, 2.0), claim(30.0, 0.0, 100.0)];
        let allocation = allocate(20.0, &claims).unwrap();
        assert_is(&allocation, 0.6, [2.0, 18.0]);
    }

    #[test]
    fn allocating_zero_seats_or_to_no_claims_gives_zero() {
        let claims = [claim(10.0, 0.0, 2.0), claim(0.0, 0.0, 0.0)];
        let allocation = allocate(0.0, &claims).unwrap();
        assert_is(&allocation, 0.0, [0.0, 0.0]);
        assert!(allocate(0.0, &[]).unwrap().grants.is_empty());
    }

    #[test]
    fn an_invalid_claim_is_an_error_with_its_index() {
        use AllocationError::*;
        let good = claim(1.0, 0.0, 9.0);
        let with = |bad| allocate(5.0, &[good, bad]).unwrap_err();
        assert_eq!(with(claim(1.0, -1.0, 9.0)), NotAnAmount { index: 1 });
        assert_eq!(with(claim(f64::NAN, 1.0, 9.0)), NotAnAmount { index: 1 });
        assert_eq!(
            with(claim(1.0, 0.0, f64::INFINITY)),
            NotAnAmount { index: 1 }
        );
        assert!(matches!(
            with(claim(1.0, 2.0, 9.0)),
            TargetBelowLower { index: 1, .. }
        ));
        assert!(matches!(
            with(claim(3.0, 2.0, 1.0)),
            UpperBelowLower { index: 1, .. }
        ));
        assert!(matches!(with(claim(6.0, 6.0, 9.0)), TooLittle { .. }));
        let too_much = allocate(19.0, &[good, good]).unwrap_err();
        assert!(matches!(too_much, TooMuch { .. }), "{too_much}");
    }

    /// A random number in `0.0..1.0`.
    fn random(state: &mut Random) -> f64 {
        f64::from(u32::try_from(state.number() >> 32).unwrap()) / 4_294_967_296.0
    }

    /// An amount and claims: mostly general, sometimes at the very sum of one kind of bounds.
    fn random_problem(state: &mut Random) -> (f64, Vec<Claim>) {
        let style = random(state);
        let mut claims = Vec::new();
        while claims.len() < 2 || random(state) < 0.75 {
            let target = 10.0 * random(state);
            let lower = target * random(state).min(if random(state) < 0.25 { 0.0 } else { 1.0 });
            let upper = lower + 2.0 * target * random(state);
            claims.push(claim(target, lower, upper));
        }
        while random(state) < 0.25 {
            claims.push(claim(0.0, 0.0, 0.01 * random(state)));
        }
        let lower_sum: f64 = claims.iter().map(|c| c.lower).sum();
        let upper_sum: f64 = claims.iter().map(|c| c.upper).sum();
        let amount = if style < 0.05 {
            (lower_sum + random(state) - 0.5).max(0.0)
        } else if style < 0.1 {
            (upper_sum + random(state) - 0.5).max(0.0)
        } else {
            lower_sum + (upper_sum - lower_sum) * (1.2 * random(state) - 0.1)
        };
        // As for seats: a whole number.
        (amount.max(0.0).round(), claims)
    }

    fn check(seed: u64, amount: f64, claims: &[Claim], allocation: &Allocation) {
        let sum: f64 = allocation.grants.iter().sum();
        assert!((sum - amount).abs() < 1e-6, "seed {seed}: {sum}, {amount}");
        for (claim, &grant) in claims.iter().zip(&allocation.grants) {
            assert!(
                (claim.lower..=claim.upper).contains(&grant),
                "seed {seed}: {claim:?} got {grant}"
            );
            let fair = allocation.fair_fraction * claim.target.max(0.001);
            let is_fair = (grant - fair).abs() < 1e-6;
            let is_held_up = grant <= claim.lower && fair < claim.lower + 1e-6;
            let is_held_down = grant >= claim.upper && fair > claim.upper - 1e-6;
            assert!(
                is_fair || is_held_up || is_held_down,
                "seed {seed}: {claim:?} got {grant}, fair is {fair}"
            );
        }
    }

    #[test]
    fn ten_thousand_random_problems_are_solved_fairly_within_bounds_or_have_no_solution() {
        let (mut solved, mut refused) = (0, 0);
        for seed in 0..10_000 {
            let (amount, claims) = random_problem(&mut Random::seeded(seed));
            let lower_sum: f64 = claims.iter().map(|c| c.lower).sum();
            let upper_sum: f64 = claims.iter().map(|c| c.upper).sum();
            match allocate(amount, &claims) {
                Ok(allocation) => {
                    assert!(lower_sum - amount <= EPSILON && amount - upper_sum <= EPSILON);
                    check(seed, amount, &claims, &allocation);
                    solved += 1;
                }
                Err(AllocationError::TooLittle { .. }) => {
                    assert!(lower_sum - amount > EPSILON, "seed {seed}");
                    refused += 1;
                }
                Err(AllocationError::TooMuch { .. }) => {
                    assert!(amount - upper_sum > EPSILON, "seed {seed}");
                    refused += 1;
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        assert!(solved > 7000 && refused > 500, "{solved}, {refused}");
    }

    #[test]
    fn at_the_sum_of_a_bound_the_fair_fraction_is_the_outermost_that_keeps_to_it() {
        let claims = [(2.0, 1.0, 4.0), (4.0, 1.0, 6.0)].map(|(target, lower, upper)| Claim {
            target,
            lower,
            upper,
        });
        let fraction = |amount| allocate(amount, &claims).unwrap().fair_fraction;
        assert!((fraction(2.0) - 0.25).abs() < 1e-9, "{}", fraction(2.0));
        assert!((fraction(10.0) - 2.0).abs() < 1e-9, "{}", fraction(10.0));
    }
}
