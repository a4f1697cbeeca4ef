//! Borrowing: from each level's seat demand to its current limit.
//!
//! A level that does not need its seats lends them, and one that needs more borrows. Periodically,
//! and on each change of policy, `rebalance` divides the seats of all levels. Each level first
//! gets at least what it recently used, up to its nominal limit; the rest is divided in proportion
//! to demand (KEP-1040, borrowing). Exempt levels take what they need first.
//!
//! Pure: `limits` computes what follows from the configuration of a level, `solver` divides seats
//! within bounds. `rebalance` divides all seats anew; between changes of policy, Improved uses a
//! `ledger`, which divides them as `rebalance` would at the cost of what changed. Not here: how
//! demand is measured (`demand`) and what a queue set does with a new limit. A limit that shrinks
//! below the seats in use takes none away.

mod kinds;
mod ledger;
pub(crate) mod limits;
pub(crate) mod solver;
mod watermarks;

pub(crate) use ledger::Ledger;
pub use limits::LevelLimits;
pub(crate) use limits::ratio_denominator;
pub(crate) use watermarks::Watermarks;

pub(crate) use solver::{AllocationError, Claim, allocate};

use super::{demand::as_f64, units::Seats};
use crate::apf::spec::Semantics;

/// What rebalancing knows of a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RebalanceInput {
    /// Whether nothing holds its requests back.
    pub exempt: bool,
    /// The limits that follow from its configuration.
    pub limits: LevelLimits,
    /// Greatest demand of the last period, in seats.
    pub high_watermark: u64,
    /// Smoothed demand, in seats.
    pub smoothed: f64,
    /// The current limit so far, which the level keeps if the division fails.
    pub current: Seats,
}

/// What rebalancing decides for a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RebalanceOutcome {
    /// The new current concurrency limit; for an exempt level only informative.
    pub current: Seats,
    /// The seats it should have by its demand.
    pub target: f64,
}

/// The decisions for all levels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rebalanced {
    /// The outcome of each level, in the order of the arguments.
    pub outcomes: Vec<RebalanceOutcome>,
    /// The part of its target that each level is granted, bounds aside; 0 when there is not even
    /// enough for what the levels recently used. In [`Semantics::Improved`] at most 1.
    pub fair_fraction: f64,
    /// Why the limits stay as they are, if they do.
    pub failure: Option<AllocationError>,
}

/// Divides the sum of the nominal limits among `parties`, in any order.
///
/// [`Semantics::Compatible`]:
/// - what exempt levels use is not taken from what the others borrow, only from what they are
///   guaranteed, so all limits together can exceed the sum of the nominal ones;
/// - each limit is rounded by itself, which can add half a seat per level;
/// - an exempt level's target is that of another level;
/// - seats that no level needs are divided in proportion to the targets, so that idle levels have
///   limits in proportion to their min, not to their nominal limits;
/// - limits stay as they are when borrowing limits do not let the levels take all there is.
///
/// [`Semantics::Improved`]: all limits, the exempt levels' use included, sum to at most the nominal
/// ones (unless exempt use leaves less than the min limits, which are always granted); seats that
/// no level needs raise levels towards their nominal limits first; and the division never fails.
///
/// Cost: `O(n log n)` with a few allocations; for a timer, not for each request. In Improved a
/// [`Ledger`] gives the same result at the cost of the levels that changed.
pub(crate) fn rebalance(semantics: Semantics, parties: &[RebalanceInput]) -> Rebalanced {
    let nominal_sum = sum_of(parties.iter().map(|party| party.limits.nominal));
    let exempt_use: u64 = parties
        .iter()
        .filter(|party| party.exempt)
        .map(|party| u64::from(party.guaranteed()))
        .sum();
    let limited: Vec<&RebalanceInput> = parties.iter().filter(|party| !party.exempt).collect();
    let division = Division {
        semantics,
        nominal_sum,
        remaining: nominal_sum.saturating_sub(exempt_use),
    }
    .divide(&limited);

    let (limits, fair_fraction, failure) = match division {
        Ok((limits, fair_fraction)) => (limits, fair_fraction, None),
        Err(error) => {
            let kept = limited.iter().map(|party| party.current);
            (kept.collect(), 0.0, Some(error))
        }
    };
    let mut limits = limits.into_iter();
    let other_target = limited.first().map(|party| party.target());
    let outcome = |party: &RebalanceInput| RebalanceOutcome {
        current: if party.exempt {
            party.guaranteed()
        } else {
            limits.next().unwrap_or(party.current)
        },
        target: match semantics {
            // A quirk of kube-apiserver that its metrics show.
            Semantics::Compatible if party.exempt => other_target.unwrap_or(party.target()),
            _ => party.target(),
        },
    };
    Rebalanced {
        outcomes: parties.iter().map(outcome).collect(),
        fair_fraction,
        failure,
    }
}

/// A level and what it asks for, in one process or in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelDemand {
    /// Whether nothing holds its requests back.
    pub exempt: bool,
    /// The limits that follow from its configuration.
    pub limits: LevelLimits,
    /// The seats that it recently asked for at most.
    pub demand: u64,
}

/// Divides the sum of the nominal limits as [`Semantics::Improved`] does; in the order of the arguments.
///
/// Each level gets what it asks for up to its nominal limit, what is left goes by demand, and what nobody asks for raises levels towards
/// their nominal limits. `O(n log n)`.
pub fn divide_seats(levels: &[LevelDemand]) -> Vec<Seats> {
    let input = |level: &LevelDemand| RebalanceInput {
        exempt: level.exempt,
        limits: level.limits,
        high_watermark: level.demand,
        smoothed: as_f64(level.demand),
        current: level.limits.nominal,
    };
    let inputs: Vec<_> = levels.iter().map(input).collect();
    let outcomes = rebalance(Semantics::Improved, &inputs).outcomes;
    outcomes.iter().map(|outcome| outcome.current).collect()
}

impl RebalanceInput {
    /// The seats it gets before others may borrow: what it recently used, but at least its min
    /// limit and, unless exempt, at most its nominal limit.
    fn guaranteed(&self) -> Seats {
        let used = Seats::try_from(self.high_watermark).unwrap_or(Seats::MAX);
        let bounded = if self.exempt {
            used
        } else {
            used.min(self.limits.nominal)
        };
        bounded.max(self.limits.min)
    }

    /// The seats it should have by its demand.
    pub(crate) fn target(&self) -> f64 {
        self.smoothed.max(f64::from(self.guaranteed()))
    }

    /// The target, as far as it may borrow.
    fn wanted(&self) -> f64 {
        self.target().min(f64::from(self.limits.max))
    }

    /// The claim of a level that gets `lower` in any case and aims at `target`.
    fn claim(&self, lower: f64, target: f64) -> Claim {
        Claim {
            target,
            lower,
            upper: f64::from(self.limits.max),
        }
    }

    fn claim_by_demand(&self) -> Claim {
        self.claim(f64::from(self.guaranteed()), self.target())
    }

    /// Its claim where all demand is met: what it wants, and a part of what its nominal limit exceeds that by.
    fn claim_to_nominal(&self) -> Claim {
        let wanted = self.wanted();
        self.claim(wanted, wanted.max(f64::from(self.limits.nominal)))
    }

    /// Its seats where there is not enough for all guarantees: `part` of the way from its min limit to its own.
    fn part_of_guarantee(&self, part: f64) -> f64 {
        f64::from(self.limits.min) + f64::from(self.guaranteed() - self.limits.min) * part
    }
}

struct Division {
    semantics: Semantics,
    nominal_sum: u64,
    /// The seats that exempt levels leave to the others.
    remaining: u64,
}

impl Division {
    /// The limits of the limited levels, and the fair fraction.
    fn divide(&self, limited: &[&RebalanceInput]) -> Result<(Vec<Seats>, f64), AllocationError> {
        let min_sum = sum_of(limited.iter().map(|party| party.limits.min));
        let guaranteed_sum = sum_of(limited.iter().map(|party| party.guaranteed()));
        if self.remaining <= min_sum {
            let limits = limited.iter().map(|party| party.limits.min);
            return Ok((limits.collect(), 0.0));
        }
        if self.remaining <= guaranteed_sum {
            let part = as_f64(self.remaining - min_sum) / as_f64(guaranteed_sum - min_sum);
            return Ok((self.divide_guarantees(limited, part), 0.0));
        }
        match self.semantics {
            Semantics::Compatible => self.divide_by_demand(limited),
            Semantics::Improved => self.divide_demand_then_spare(limited),
        }
    }

    /// Not enough for all guarantees: `part` of the way from the min limits to them.
    fn divide_guarantees(&self, limited: &[&RebalanceInput], part: f64) -> Vec<Seats> {
        match self.semantics {
            Semantics::Compatible => limited
                .iter()
                .map(|party| {
                    let raise = f64::from(party.guaranteed() - party.limits.min) * part;
                    party.limits.min.saturating_add(rounded(raise))
                })
                .collect(),
            Semantics::Improved => {
                let exact = limited.iter().map(|party| party.part_of_guarantee(part));
                whole_seats(self.remaining, &exact.collect::<Vec<_>>(), limited)
            }
        }
    }

    /// Everything in proportion to demand, regardless of what exempt levels use.
    fn divide_by_demand(
        &self,
        limited: &[&RebalanceInput],
    ) -> Result<(Vec<Seats>, f64), AllocationError> {
        let claims: Vec<_> = limited
            .iter()
            .map(|party| party.claim_by_demand())
            .collect();
        let allocation = allocate(as_f64(self.nominal_sum), &claims)?;
        // Rounded one by one, as kube-apiserver does, although the limits may then sum to more.
        let limits = allocation.grants.iter().map(|&grant| rounded(grant));
        Ok((limits.collect(), allocation.fair_fraction))
    }

    /// What exempt levels leave: in proportion to demand, or, where that is met in full, the rest
    /// in proportion to the nominal limits.
    fn divide_demand_then_spare(
        &self,
        limited: &[&RebalanceInput],
    ) -> Result<(Vec<Seats>, f64), AllocationError> {
        let max_sum = sum_of(limited.iter().map(|party| party.limits.max));
        // The solver divides the whole amount or fails, and borrowing limits may not let the levels take it all.
        let amount = self.remaining.min(max_sum);
        let wanted_sum: f64 = limited.iter().map(|party| party.wanted()).sum();
        let is_enough = wanted_sum <= as_f64(amount);
        let claim = |party: &&RebalanceInput| {
            if is_enough {
                party.claim_to_nominal()
            } else {
                party.claim_by_demand()
            }
        };
        let claims: Vec<_> = limited.iter().map(claim).collect();
        let allocation = allocate(as_f64(amount), &claims)?;
        let fair_fraction = if is_enough {
            1.0
        } else {
            allocation.fair_fraction
        };
        let limits = whole_seats(amount, &allocation.grants, limited);
        Ok((limits, fair_fraction))
    }
}

/// Rounds `grants`, which sum to `amount`, to whole seats that do so too: the seats that rounding
/// down leaves go to the largest remainders, the first of equals.
fn whole_seats(amount: u64, grants: &[f64], limited: &[&RebalanceInput]) -> Vec<Seats> {
    let mut seats: Vec<Seats> = grants.iter().map(|grant| rounded(grant.floor())).collect();
    let mut left = amount.saturating_sub(sum_of(seats.iter().copied()));
    let mut by_remainder: Vec<usize> = (0..grants.len()).collect();
    // A stable sort: the same demand gives the same limits each time, or seats would move for nothing.
    by_remainder.sort_by(|&one, &other| {
        let remainder = |index: usize| grants[index] - grants[index].floor();
        remainder(other).total_cmp(&remainder(one))
    });
    for index in by_remainder {
        if left == 0 {
            break;
        }
        if seats[index] < limited[index].limits.max {
            seats[index] += 1;
            left -= 1;
        }
    }
    seats
}

fn sum_of(seats: impl Iterator<Item = Seats>) -> u64 {
    seats.map(u64::from).sum()
}

/// The nearest whole number of seats, halves away from zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "grants are not negative, and the cast saturates"
)]
fn rounded(grant: f64) -> Seats {
    grant.round() as Seats
}

#[cfg(test)]
mod curves_tests;
#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod tests;
