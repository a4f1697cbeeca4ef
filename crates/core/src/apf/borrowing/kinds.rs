//! The fair fraction of many claims of few kinds.
//!
//! [`allocate`](super::allocate) walks over the bounds of every claim. Claims that are equal meet theirs at the same fraction, so here one
//! step is made for all claims of a kind. The result is the same *to the last bit*, because targets and bounds are whole
//! numbers of seats and sums of these are exact in any order. The one exception are targets of 0, which count as a
//! thousandth: sums with them depend on their order, which is therefore kept.

use super::solver::{Bend, Claim, EPSILON, LEAST_TARGET, Sums, fraction_without_walk, walk};

/// Claims that are equal. Targets and bounds are whole numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct EqualClaims<'a> {
    pub(super) claim: Claim,
    /// The numbers of the claims, ascending: their places among all claims.
    pub(super) numbers: &'a [u32],
}

/// Whole numbers below this and their sums are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The slope of the sum of the grants while no claim but some with a target of 0 respond, by how many these are: a thousandth
/// each, added one by one.
#[derive(Clone, Debug)]
pub(super) struct IdleSlopes(Vec<f64>);

/// The fair fraction with which [`allocate`](super::allocate) divides `amount` among these claims, or `None` where it is to be asked: if
/// `amount` is more or less than the claims allow, if the fraction lies at a bend, and if claims with targets of 0 make the
/// order of the others matter everywhere.
///
/// O(k log k) for k kinds. With targets of 0, O(c log c) for the c claims whose bounds a fraction below 1 meets.
pub(super) fn fair_fraction(
    amount: f64,
    kinds: &[EqualClaims<'_>],
    idle_slopes: &mut IdleSlopes,
) -> Option<f64> {
    let sums = sums_of(kinds);
    let is_exact = sums.target < EXACT && sums.upper < EXACT;
    if !is_exact || sums.lower - amount > EPSILON || amount - sums.upper > EPSILON {
        return None;
    }
    if kinds.iter().any(|kind| kind.claim.target < LEAST_TARGET) {
        return fraction_beside_idle(amount, kinds, &sums, idle_slopes);
    }
    let claims = || kinds.iter().map(|kind| &kind.claim);
    fraction_without_walk(amount, &sums, claims)
        .or_else(|| walk_by_kinds(amount, &bends_of(kinds), sums.lower))
}

/// The sums over all claims. A target of 0 counts as 0.
fn sums_of(kinds: &[EqualClaims<'_>]) -> Sums {
    let sum = |part: fn(&Claim) -> f64| {
        let parts = kinds.iter();
        parts.map(|kind| part(&kind.claim) * kind.count()).sum()
    };
    Sums {
        target: sum(|claim| claim.target),
        lower: sum(|claim| claim.lower),
        upper: sum(|claim| claim.upper),
    }
}

impl EqualClaims<'_> {
    fn count(&self) -> f64 {
        f64::from(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX))
    }

    fn responsive(&self) -> i64 {
        i64::try_from(self.numbers.len()).unwrap_or(i64::MAX)
    }
}

/// All bends at one fraction.
struct JointBend {
    bend: Bend,
    /// By how much the slope rises at most on the way through the bends.
    rise: f64,
}

fn bends_of(kinds: &[EqualClaims<'_>]) -> Vec<JointBend> {
    let mut bends = Vec::with_capacity(2 * kinds.len());
    for kind in kinds {
        let slope = kind.claim.scale() * kind.count();
        let [lower, upper] = kind.claim.bends(slope, kind.responsive());
        bends.push(JointBend {
            bend: lower,
            rise: slope,
        });
        bends.push(JointBend {
            bend: upper,
            rise: 0.0,
        });
    }
    bends.sort_unstable_by(|left, right| left.bend.fraction.total_cmp(&right.bend.fraction));
    bends.dedup_by(|next, kept| {
        let is_same = next.bend.fraction.total_cmp(&kept.bend.fraction).is_eq();
        if is_same {
            kept.bend.slope += next.bend.slope;
            kept.bend.responsive += next.bend.responsive;
            kept.rise += next.rise;
        }
        is_same
    });
    bends
}

/// As [`walk`], but each step passes all bends at one fraction. `None` also if [`walk`] could end between these.
fn walk_by_kinds(amount: f64, bends: &[JointBend], lower_sum: f64) -> Option<f64> {
    let mut total = lower_sum;
    let mut slope = 0.0;
    let mut responsive = 0_i64;
    for (index, JointBend { bend, rise }) in bends.iter().enumerate() {
        let steepest = slope + rise;
        if bend.fraction + (amount - total) / steepest <= bend.fraction {
            return None;
        }
        slope += bend.slope;
        responsive += bend.responsive;
        let next = &bends.get(index + 1)?.bend;
        if responsive == 0 {
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

/// The fraction where some claims have a target of 0 and the fraction is below 1 for certain. Claims that respond
/// below 1 are walked one by one, except that all with a target of 0, which come first, make one step.
fn fraction_beside_idle(
    amount: f64,
    kinds: &[EqualClaims<'_>],
    sums: &Sums,
    idle_slopes: &mut IdleSlopes,
) -> Option<f64> {
    let is_idle = |kind: &&EqualClaims<'_>| kind.claim.target < LEAST_TARGET;
    let others = || kinds.iter().filter(|kind| !is_idle(kind));
    // A claim that gets its whole target in any case: then some bound matters, because the fraction is below 1.
    let is_bounded = others().any(|kind| kind.claim.lower >= kind.claim.target);
    let granted_at_one: f64 = others()
        .map(|kind| kind.claim.target.min(kind.claim.upper) * kind.count())
        .sum();
    let is_between =
        amount - sums.lower > EPSILON && sums.upper - amount > EPSILON && amount < granted_at_one;
    // Those with a target of 0 must be the only ones that respond from the beginning, and respond up to 1.
    let are_idle_first = kinds.iter().all(|kind| kind.claim.upper >= 1.0)
        && others().all(|kind| kind.claim.lower >= 1.0);
    if !(is_bounded && is_between && are_idle_first) {
        return None;
    }
    let idle = kinds.iter().filter(is_idle).map(|kind| kind.numbers.len());
    let idle = idle.sum();
    let mut bends: Vec<(u32, Bend)> = Vec::new();
    for kind in others() {
        for bend in kind.claim.bends(kind.claim.scale(), 1) {
            if bend.fraction < 1.0 {
                bends.extend(kind.numbers.iter().map(|number| (*number, bend)));
            }
        }
    }
    // Stable: the lower bound of a claim is met before the upper one.
    bends.sort_by(|(number, bend), (other_number, other)| {
        let by_fraction = bend.fraction.total_cmp(&other.fraction);
        by_fraction.then(number.cmp(other_number))
    });
    let first = Bend {
        fraction: 0.0,
        slope: idle_slopes.of(idle),
        responsive: i64::try_from(idle).unwrap_or(i64::MAX),
    };
    let last = Bend {
        fraction: 1.0,
        slope: 0.0,
        responsive: 0,
    };
    let between = bends.into_iter().map(|(_, bend)| bend);
    let bends: Vec<Bend> = [first].into_iter().chain(between).chain([last]).collect();
    walk(amount, &bends, sums.lower)
}

impl Default for IdleSlopes {
    fn default() -> Self {
        Self(vec![0.0])
    }
}

impl IdleSlopes {
    /// The slope of `count` claims. O(1), but for the first time that there are so many.
    fn of(&mut self, count: usize) -> f64 {
        while self.0.len() <= count {
            let last = self.0.last().copied().unwrap_or(0.0);
            self.0.push(last + LEAST_TARGET);
        }
        self.0[count]
    }
}
