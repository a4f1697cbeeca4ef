//! Borrowing over random demand curves, in virtual time: a level gets the seats that it needs within a tenth of a
//! second, and once demand is constant the limits stop changing.
//!
//! `FAIRGATE_CURVES` is the number of curves, `FAIRGATE_SEED` the seed of the first.

use super::*;
use crate::{
    apf::{demand::as_f64, spec::LevelSpec},
    random::Random,
    time::Time,
};

/// Milliseconds between two rebalancings: while a level is short of seats, and otherwise.
const SOON: u64 = 50;
const PERIOD: u64 = 100;
/// Milliseconds that are simulated after the last change of demand.
const REST: u64 = 4_000;

/// A level and its demand curve.
struct Sample {
    limits: LevelLimits,
    marks: Watermarks,
    /// The demand of the level: milliseconds, and the seats that it wants from then on.
    wants: Vec<(u64, u64)>,
    /// The greatest demand since the last rebalancing.
    most: u64,
    current: Seats,
    changes: Vec<u64>,
}

impl Sample {
    fn want(&self, at: u64) -> u64 {
        let before = self.wants.iter().rev().find(|(from, _)| *from <= at);
        before.map_or(0, |(_, seats)| *seats)
    }

    /// The most that it wanted in the last 1.2 s: the time that demand is remembered, and two intervals between
    /// rebalancings.
    fn recent_most(&self, at: u64) -> u64 {
        let from = at.saturating_sub(1_200);
        let during = self
            .wants
            .iter()
            .filter(|(since, _)| (from..=at).contains(since));
        let most = during.map(|(_, seats)| *seats).max().unwrap_or(0);
        most.max(self.want(from))
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(usual, |text| text.parse().expect("a number"))
}

fn draw(random: &mut Random) -> (Vec<Sample>, u64) {
    let count = random.within(2..9);
    let total = Seats::try_from(random.within(2..2000)).expect("a few");
    let specs: Vec<LevelSpec> = (0..count)
        .map(|number| {
            let mut part = |most| u32::try_from(random.within(0..most)).expect("a few");
            let borrowing = [None, Some(part(400))][part(2) as usize];
            limits::tests::limited(&number.to_string(), part(50), part(101), borrowing, Some(6))
        })
        .collect();
    let share_sum = LevelLimits::share_sum(&specs);
    let mut last = 0;
    let levels = specs.iter().map(|spec| {
        let mut at = 0;
        let changes = random.within(1..6);
        let wants = (0..changes).map(|_| {
            at += random.within(1..1_500);
            let most = [1, 10, u64::from(total), 3 * u64::from(total)];
            (at, random.within(0..random.clone().pick(&most) + 1))
        });
        let wants: Vec<_> = wants.collect();
        last = last.max(at);
        let limits = LevelLimits::of(spec, total, share_sum);
        Sample {
            limits,
            marks: Watermarks::default(),
            wants,
            most: 0,
            current: limits.nominal - (limits.nominal - limits.min) / 2,
            changes: Vec::new(),
        }
    });
    (levels.collect(), last)
}

fn rebalance_all(levels: &mut [Sample], at: u64) {
    let now = Time::from_nanos(at * 1_000_000);
    let parties = levels.iter_mut().map(|level| {
        let watermark = level.marks.greatest(now, level.most);
        level.most = level.want(at);
        RebalanceInput {
            exempt: false,
            limits: level.limits,
            high_watermark: watermark,
            smoothed: as_f64(watermark),
            current: level.current,
        }
    });
    let decided = rebalance(Semantics::Improved, &parties.collect::<Vec<_>>());
    assert_eq!(decided.failure, None);
    for (level, outcome) in levels.iter_mut().zip(decided.outcomes) {
        if level.current != outcome.current {
            level.changes.push(at);
        }
        level.current = outcome.current;
    }
}

/// A level that is short of seats has all seats that no other level wanted recently.
fn check_seats_are_used(levels: &[Sample], at: u64, seed: u64) {
    for (number, level) in levels.iter().enumerate() {
        let own = level.want(at).min(u64::from(level.limits.nominal));
        assert!(
            u64::from(level.current) >= own,
            "seed {seed}, {at} ms: level {number} wants {own} of its nominal seats and has {}",
            level.current
        );
        let wants = level.want(at).min(u64::from(level.limits.max));
        if u64::from(level.current) >= wants {
            continue;
        }
        for (other, lender) in levels
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number)
        {
            let kept = lender.recent_most(at).max(lender.limits.min.into());
            assert!(
                u64::from(lender.current) <= kept,
                "seed {seed}, {at} ms: level {number} has {} and wants {wants}; level {other} has {} and \
                 keeps {kept} at most",
                level.current,
                lender.current
            );
        }
    }
}

fn play(seed: u64) {
    let mut random = Random::seeded(seed);
    let (mut levels, last) = draw(&mut random);
    let mut rebalanced = 0;
    rebalance_all(&mut levels, 0);
    for at in 1..last + REST {
        for level in &mut levels {
            level.most = level.most.max(level.want(at));
        }
        let short = levels
            .iter()
            .any(|level| level.want(at) > u64::from(level.current));
        // A level that is short of seats asks for a rebalancing at each arrival.
        let due = if short { SOON } else { PERIOD };
        if at >= rebalanced + due {
            rebalance_all(&mut levels, at);
            rebalanced = at;
        }
        let changed = levels.iter().any(|level| {
            level
                .wants
                .iter()
                .any(|(since, _)| (at.saturating_sub(99)..=at).contains(since))
        });
        if !changed {
            check_seats_are_used(&levels, at, seed);
        }
    }
    for level in &levels {
        let after = level.changes.iter().filter(|at| **at > last + 100);
        let after: Vec<_> = after.copied().collect();
        for (at, next) in after.iter().zip(after.iter().skip(2)) {
            assert!(
                next - at > 1_000,
                "seed {seed}: three changes in a second: {after:?}"
            );
        }
        assert!(
            after.iter().all(|at| *at <= last + 1_200),
            "seed {seed}: limits change long after {last}: {after:?}"
        );
    }
}

#[test]
fn levels_get_the_seats_they_need_and_limits_stop_changing() {
    let from = number("FAIRGATE_SEED", 1);
    for seed in from..from + number("FAIRGATE_CURVES", 100) {
        play(seed);
    }
}
