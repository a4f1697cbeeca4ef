//! The division of seats in Improved, kept up to date as levels change.
//!
//! [`rebalance`](super::rebalance) reads every level. A [`Ledger`] gives the same limits and the same fair fraction, to the last bit,
//! for the price of what changed since the last time:
//!
//! - The sums that decide how seats are divided are kept: O(1) for a changed level.
//! - Levels with the same limits and need are of one *kind*. They have equal claims, so the division is made by kinds: idle levels are of
//!   as many kinds as their configurations.
//! - Seats that rounding leaves go to the largest remainders, the lowest numbers first. So a kind gets the same number
//!   of seats for each of its levels and one more for those below some number, and a new division is compared with the last one kind
//!   by kind, not level by level.
//!
//! Where levels have what they need and no less than their nominal limits, as is usual, no division is needed at all.
//!
//! Not here: Compatible, whose smoothed demand and separate rounding leave nothing to share; when a level is measured
//! (`dispatcher`).

use std::collections::BTreeMap;

use super::{
    LevelLimits, RebalanceInput,
    kinds::{EqualClaims, IdleSlopes, fair_fraction},
    rounded,
    solver::{AllocationError, Claim, allocate},
};
use crate::apf::{demand::as_f64, units::Seats};

/// The levels, by the numbers that the caller gives them, and the division of their seats. Of equal levels the lower
/// number comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    levels: Vec<Option<Entry>>,
    kinds: BTreeMap<LevelClass, ClassMembers>,
    sums: Sums,
    /// Levels whose seats are to be reported in any case.
    touched: Vec<u32>,
    division: Division,
    fair_fraction: f64,
    idle_slopes: IdleSlopes,
}

/// What the ledger knows of a level.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// An exempt level: its nominal limit and the seats it uses, at least its min limit.
    Exempt {
        nominal: Seats,
        used: Seats,
    },
    Limited(LevelClass),
}

/// What a limited level is to the division.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LevelClass {
    limits: LevelLimits,
    /// What it recently needed, in seats; at least its min limit.
    need: u64,
}

/// The levels of one class.
#[derive(Clone, Debug, Default)]
struct ClassMembers {
    /// Ascending.
    numbers: Vec<u32>,
    /// What they get while the division is [`Division::ByDemand`].
    share: Share,
}

/// What each level of a class gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    seats: Seats,
    /// Levels with lower numbers get one seat more.
    more_below: u32,
}

/// Sums over the levels, in seats; of the exempt ones only the first two.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    nominal: u64,
    exempt_use: u64,
    min: u64,
    guaranteed: u64,
    wanted: u64,
    aim: u64,
    max: u64,
    /// The number of levels whose aim is 0.
    aimless: u64,
}

/// How seats are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Division {
    /// Each level has its min limit: exempt levels leave no more.
    #[default]
    Mins,
    /// Each level has what it wants, and no less than its nominal limit.
    Aims,
    /// Each level has the share of its kind.
    ByDemand,
}

/// A new division, the shares in the order of the kinds, and its fair fraction.
struct Decision {
    division: Division,
    shares: Vec<Share>,
    fair_fraction: f64,
}

impl Ledger {
    /// The ledger of these levels, whose numbers are their places. O(levels · log levels).
    pub(crate) fn new(levels: &[RebalanceInput]) -> Self {
        let mut ledger = Self::default();
        for (number, level) in (0..).zip(levels) {
            ledger.set(number, level);
        }
        ledger.settle();
        ledger
    }

    /// Takes what is known of a level. O(log kinds), and a move of 4 bytes for each level of its kinds; O(1) if nothing
    /// that matters changed.
    pub(crate) fn set(&mut self, number: u32, level: &RebalanceInput) {
        let entry = if level.exempt {
            Entry::Exempt {
                nominal: level.limits.nominal,
                used: level.guaranteed(),
            }
        } else {
            Entry::Limited(LevelClass::of(level))
        };
        let place = number as usize;
        if self.levels.len() <= place {
            self.levels.resize(place + 1, None);
        }
        let before = self.levels[place].replace(entry);
        if before.map(Entry::identity) == Some(entry.identity()) {
            return;
        }
        if let Some(before) = before {
            self.sums = self.sums.combined(Sums::of(before), |sum, part| sum - part);
            self.leave(number, before);
        }
        self.sums = self.sums.combined(Sums::of(entry), |sum, part| sum + part);
        self.join(number, entry);
        self.touched.push(number);
    }

    fn join(&mut self, number: u32, entry: Entry) {
        if let Entry::Limited(kind) = entry {
            let numbers = &mut self.kinds.entry(kind).or_default().numbers;
            let place = numbers.partition_point(|other| *other < number);
            numbers.insert(place, number);
        }
    }

    fn leave(&mut self, number: u32, entry: Entry) {
        let Entry::Limited(kind) = entry else {
            return;
        };
        let Some(members) = self.kinds.get_mut(&kind) else {
            return;
        };
        let place = members.numbers.partition_point(|other| *other < number);
        members.numbers.remove(place);
        if members.numbers.is_empty() {
            self.kinds.remove(&kind);
        }
    }

    /// The limit of a level; for an exempt level the seats it uses. O(log kinds).
    fn limit(&self, number: u32) -> Option<Seats> {
        match self.levels.get(number as usize).copied()?? {
            Entry::Exempt { used, .. } => Some(used),
            Entry::Limited(kind) => {
                let share = kind.share(self.division, self.kinds.get(&kind)?);
                Some(share.of(number))
            }
        }
    }

    /// The fraction of its target that each level was granted at the last [`Ledger::settle`]; at most 1.
    pub(crate) fn fair_fraction(&self) -> f64 {
        self.fair_fraction
    }

    /// Whether no level has changed since the last [`Ledger::settle`].
    pub(crate) fn is_settled(&self) -> bool {
        self.touched.is_empty()
    }

    /// Divides the seats anew if a level has changed. Returns at least the levels whose limits changed, with the new ones; perhaps
    /// twice.
    ///
    /// O(1) if no level has changed. O(changed levels · log kinds) while all levels have what they need and their nominal limits.
    /// Otherwise, for k kinds, also O(k log k). Two rare cases take a walk over all levels, without a lock: levels without a seat of
    /// their own are short of seats, or the fair fraction is just what some level needs no more than.
    pub(crate) fn settle(&mut self) -> Vec<(u32, Seats)> {
        if self.is_settled() {
            return Vec::new();
        }
        let decision = match self.decide() {
            Ok(decision) => decision,
            Err(error) => {
                debug_assert!(false, "seats can always be divided: {error}");
                return Vec::new();
            }
        };
        let mut changed = Vec::new();
        self.carry_out(decision, &mut changed);
        // Reported apart: a level that has moved to another class is not found by comparing the shares of each
        // class.
        for number in std::mem::take(&mut self.touched) {
            changed.extend(self.limit(number).map(|limit| (number, limit)));
        }
        changed
    }

    fn carry_out(&mut self, decision: Decision, changed: &mut Vec<(u32, Seats)>) {
        let before = std::mem::replace(&mut self.division, decision.division);
        self.fair_fraction = decision.fair_fraction;
        // With these divisions what a class gets follows from the class alone, so it cannot have changed.
        if decision.division == before && before != Division::ByDemand {
            return;
        }
        let mut shares = decision.shares.into_iter();
        for (kind, members) in &mut self.kinds {
            let old = kind.share(before, members);
            members.share = shares.next().unwrap_or_default();
            let new = kind.share(decision.division, members);
            members.report(old, new, changed);
        }
    }

    /// How seats are divided at present: see [`super::rebalance`].
    fn decide(&mut self) -> Result<Decision, AllocationError> {
        let sums = self.sums;
        let remaining = sums.nominal.saturating_sub(sums.exempt_use);
        if remaining <= sums.min {
            return Ok(Decision::without_shares(Division::Mins, 0.0));
        }
        if remaining <= sums.guaranteed {
            let part = as_f64(remaining - sums.min) / as_f64(sums.guaranteed - sums.min);
            let levels = self.kinds.keys().map(LevelClass::level);
            let grants: Vec<f64> = levels.map(|level| level.part_of_guarantee(part)).collect();
            return Ok(Decision {
                division: Division::ByDemand,
                shares: self.whole_shares(remaining, &grants),
                fair_fraction: 0.0,
            });
        }
        let amount = remaining.min(sums.max);
        let is_enough = sums.wanted <= amount;
        if is_enough && amount == sums.aim && sums.aimless == 0 {
            return Ok(Decision::without_shares(Division::Aims, 1.0));
        }
        let claim = if is_enough {
            RebalanceInput::claim_to_nominal
        } else {
            RebalanceInput::claim_by_demand
        };
        let fraction = self.fraction(amount, claim)?;
        let claims = self.kinds.keys().map(|kind| claim(&kind.level()));
        let grants: Vec<f64> = claims.map(|claim| claim.grant(fraction)).collect();
        Ok(Decision {
            division: Division::ByDemand,
            shares: self.whole_shares(amount, &grants),
            fair_fraction: if is_enough { 1.0 } else { fraction },
        })
    }

    fn fraction(
        &mut self,
        amount: u64,
        claim: fn(&RebalanceInput) -> Claim,
    ) -> Result<f64, AllocationError> {
        let kinds = self.kinds.iter().map(|(kind, members)| EqualClaims {
            claim: claim(&kind.level()),
            numbers: &members.numbers,
        });
        let kinds: Vec<_> = kinds.collect();
        if let Some(fraction) = fair_fraction(as_f64(amount), &kinds, &mut self.idle_slopes) {
            return Ok(fraction);
        }
        let levels = self.levels.iter().flatten();
        let claims = levels.filter_map(|entry| match entry {
            Entry::Exempt { .. } => None,
            Entry::Limited(kind) => Some(claim(&kind.level())),
        });
        let claims: Vec<_> = claims.collect();
        Ok(allocate(as_f64(amount), &claims)?.fair_fraction)
    }

    /// Rounds `grants`, in the order of the kinds, to whole seats: see [`super::whole_seats`].
    fn whole_shares(&self, amount: u64, grants: &[f64]) -> Vec<Share> {
        let members: Vec<_> = self.kinds.iter().collect();
        let mut shares: Vec<Share> = Vec::with_capacity(grants.len());
        let mut left = amount;
        for (grant, (_, members)) in grants.iter().zip(&members) {
            let seats = rounded(grant.floor());
            left = left.saturating_sub(u64::from(seats) * members.count());
            shares.push(Share {
                seats,
                more_below: 0,
            });
        }
        let mut by_remainder: Vec<(f64, usize)> = Vec::with_capacity(grants.len());
        for (place, grant) in grants.iter().enumerate() {
            if shares[place].seats < members[place].0.limits.max {
                by_remainder.push((grant - grant.floor(), place));
            }
        }
        by_remainder.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
        for equal in by_remainder.chunk_by(|(one, _), (other, _)| one.total_cmp(other).is_eq()) {
            let count: u64 = equal
                .iter()
                .map(|(_, place)| members[*place].1.count())
                .sum();
            if left >= count {
                left -= count;
                for (_, place) in equal {
                    shares[*place].seats += 1;
                }
                continue;
            }
            let of_equal = equal.iter().map(|(_, place)| &*members[*place].1.numbers);
            // Among equal remainders the first levels get the seats, as in `whole_seats`, whatever their class.
            let bound = self.bound(left, &of_equal.collect::<Vec<_>>());
            for (_, place) in equal {
                shares[*place].more_below = bound;
            }
            break;
        }
        shares
    }

    /// The number below which there are `count` of `numbers`. O(log² levels) for each part of `numbers`.
    fn bound(&self, count: u64, numbers: &[&[u32]]) -> u32 {
        let below = |bound: u32| -> u64 {
            let parts = numbers.iter();
            let parts = parts.map(|part| part.partition_point(|number| *number < bound));
            parts.map(|part| part as u64).sum()
        };
        let (mut least, mut most) = (0, u32::try_from(self.levels.len()).unwrap_or(u32::MAX));
        while least < most {
            let middle = least + (most - least) / 2;
            if below(middle) < count {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least
    }
}

impl Decision {
    fn without_shares(division: Division, fair_fraction: f64) -> Self {
        Self {
            division,
            shares: Vec::new(),
            fair_fraction,
        }
    }
}

impl Entry {
    /// Entries of which this is equal are the same to the division.
    fn identity(self) -> (Option<LevelClass>, Seats, Seats) {
        match self {
            Self::Exempt { nominal, used } => (None, nominal, used),
            Self::Limited(kind) => (Some(kind), 0, 0),
        }
    }
}

impl LevelClass {
    fn of(level: &RebalanceInput) -> Self {
        Self {
            limits: level.limits,
            need: level.high_watermark.max(level.limits.min.into()),
        }
    }

    /// A level of this kind.
    fn level(&self) -> RebalanceInput {
        RebalanceInput {
            exempt: false,
            limits: self.limits,
            high_watermark: self.need,
            smoothed: as_f64(self.need),
            current: 0,
        }
    }

    fn wanted(&self) -> u64 {
        self.need.min(self.limits.max.into())
    }

    /// What it wants, but no less than its nominal limit.
    fn aim(&self) -> u64 {
        self.wanted().max(self.limits.nominal.into())
    }

    fn share(&self, division: Division, members: &ClassMembers) -> Share {
        let seats = match division {
            Division::ByDemand => return members.share,
            Division::Mins => self.limits.min,
            Division::Aims => Seats::try_from(self.aim()).unwrap_or(Seats::MAX),
        };
        Share {
            seats,
            more_below: 0,
        }
    }
}

impl ClassMembers {
    fn count(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Appends the levels whose limit differs between two shares.
    fn report(&self, old: Share, new: Share, changed: &mut Vec<(u32, Seats)>) {
        if old == new {
            return;
        }
        let mut range = 0..self.numbers.len();
        if old.seats == new.seats {
            let place = |bound: u32| self.numbers.partition_point(|number| *number < bound);
            let (one, other) = (place(old.more_below), place(new.more_below));
            range = one.min(other)..one.max(other);
        }
        let numbers = self.numbers[range].iter().copied();
        let limits = numbers.filter(|number| old.of(*number) != new.of(*number));
        changed.extend(limits.map(|number| (number, new.of(number))));
    }
}

impl Share {
    fn of(self, number: u32) -> Seats {
        self.seats + Seats::from(number < self.more_below)
    }
}

impl Sums {
    /// The part of one level.
    fn of(entry: Entry) -> Self {
        match entry {
            Entry::Exempt { nominal, used } => Self {
                nominal: nominal.into(),
                exempt_use: used.into(),
                ..Self::default()
            },
            Entry::Limited(kind) => Self {
                nominal: kind.limits.nominal.into(),
                exempt_use: 0,
                min: kind.limits.min.into(),
                guaranteed: kind.level().guaranteed().into(),
                wanted: kind.wanted(),
                aim: kind.aim(),
                max: kind.limits.max.into(),
                aimless: u64::from(kind.aim() == 0),
            },
        }
    }

    fn combined(self, other: Self, by: fn(u64, u64) -> u64) -> Self {
        Self {
            nominal: by(self.nominal, other.nominal),
            exempt_use: by(self.exempt_use, other.exempt_use),
            min: by(self.min, other.min),
            guaranteed: by(self.guaranteed, other.guaranteed),
            wanted: by(self.wanted, other.wanted),
            aim: by(self.aim, other.aim),
            max: by(self.max, other.max),
            aimless: by(self.aimless, other.aimless),
        }
    }
}
