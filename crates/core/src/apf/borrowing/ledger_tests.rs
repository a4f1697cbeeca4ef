//! A ledger beside the full computation: after any change both give the same limits and the same fair fraction.
//!
//! `FAIRGATE_LEDGERS` is the number of ledgers, `FAIRGATE_SEED` the seed of the first.

use super::*;
use crate::random::Random;

/// A ledger, and the same levels for the full computation.
struct Pair {
    ledger: Ledger,
    /// By number: the level, and the limit that the ledger last reported.
    levels: Vec<(RebalanceInput, Seats)>,
}

impl Pair {
    fn of(levels: &[RebalanceInput]) -> Self {
        let ledger = Ledger::new(levels);
        let decided = rebalance(Semantics::Improved, levels);
        let limits = decided.outcomes.iter().map(|outcome| outcome.current);
        let levels = levels.iter().copied().zip(limits).collect();
        Self { ledger, levels }
    }

    /// Settles the ledger, in which the levels of these numbers may have changed, and compares.
    fn check(&mut self, touched: &[u32], context: &str) {
        for (number, limit) in self.ledger.settle() {
            let (_, current) = &mut self.levels[number as usize];
            let is_news = *current != limit || touched.contains(&number);
            assert!(is_news, "{context}: level {number} keeps {limit}");
            *current = limit;
        }
        let parties: Vec<_> = self.levels.iter().map(|(level, _)| *level).collect();
        let decided = rebalance(Semantics::Improved, &parties);
        assert_eq!(decided.failure, None, "{context}");
        for (outcome, (level, limit)) in decided.outcomes.iter().zip(&self.levels) {
            assert_eq!(*limit, outcome.current, "{context}: {level:?}");
        }
        assert_eq!(
            self.ledger.fair_fraction().to_bits(),
            decided.fair_fraction.to_bits(),
            "{context}: {} and {}",
            self.ledger.fair_fraction(),
            decided.fair_fraction
        );
    }

    fn set(&mut self, number: usize, level: RebalanceInput) {
        self.levels[number].0 = level;
        let number = u32::try_from(number).expect("a few");
        self.ledger.set(number, &level);
    }
}

fn seats(random: &mut Random, most: u64) -> Seats {
    Seats::try_from(random.within(0..most + 1)).expect("a few")
}

/// What levels of one world are like.
#[derive(Clone, Copy)]
struct Habit {
    /// The greatest nominal limit.
    most: u64,
    /// One in so many has no seats of its own, lends all, or may not borrow.
    odd: u64,
    /// One in so many wants more than its min limit.
    busy: u64,
}

impl Habit {
    fn draw(random: &mut Random) -> Self {
        Self {
            most: *random.pick(&[1, 2, 5, 30, 1_000, 1_000_000]),
            odd: *random.pick(&[2, 5, 1_000]),
            busy: *random.pick(&[1, 2, 10]),
        }
    }

    fn is_odd(self, random: &mut Random) -> bool {
        random.within(0..self.odd) == 0
    }

    fn limits(self, random: &mut Random) -> LevelLimits {
        let mut nominal = 1 + seats(random, self.most - 1);
        if self.is_odd(random) {
            nominal = 0;
        }
        let lent = if self.is_odd(random) {
            nominal
        } else {
            seats(random, u64::from(nominal) / 2)
        };
        let most = u32::try_from(self.most).expect("a few");
        let borrowed = [0, 1, most / 2, 8 * most];
        let borrowed = if self.is_odd(random) {
            0
        } else {
            *random.pick(&borrowed)
        };
        LevelLimits {
            nominal,
            min: nominal - lent,
            max: nominal + borrowed,
        }
    }

    fn demand(self, random: &mut Random, limits: LevelLimits) -> u64 {
        if random.within(0..self.busy) > 0 {
            return random.within(0..u64::from(limits.min) + 1);
        }
        let of = |seats: Seats| u64::from(seats);
        let any = random.within(0..4 * of(limits.nominal) + 3);
        let near = [
            of(limits.min),
            of(limits.nominal),
            of(limits.nominal) + 1,
            2 * of(limits.nominal),
            of(limits.max),
            of(limits.max) + 1,
            any,
            any,
        ];
        *random.pick(&near)
    }

    fn level(self, random: &mut Random, exempt: bool) -> RebalanceInput {
        let limits = if exempt {
            LevelLimits {
                nominal: [0, seats(random, 2 * self.most)][usize::from(self.is_odd(random))],
                min: 0,
                max: Seats::MAX,
            }
        } else {
            self.limits(random)
        };
        needing(limits, exempt, self.demand(random, limits))
    }
}

fn needing(limits: LevelLimits, exempt: bool, demand: u64) -> RebalanceInput {
    RebalanceInput {
        exempt,
        limits,
        high_watermark: demand,
        smoothed: as_f64(demand),
        current: 0,
    }
}

fn play(seed: u64) {
    let mut random = Random::seeded(seed);
    let habit = Habit::draw(&mut random);
    let count = 1 + random.within(0..40);
    let exempt = random.within(0..count);
    // Few configurations, as in a cluster of tenants, or one each.
    let patterns: Vec<_> = (0..=random.within(0..6))
        .map(|_| habit.limits(&mut random))
        .collect();
    let is_uniform = random.within(0..2) == 0;
    let draw = |random: &mut Random, number: u64| {
        if is_uniform && number != exempt {
            let limits = *random.pick(&patterns);
            needing(limits, false, habit.demand(random, limits))
        } else {
            habit.level(random, number == exempt)
        }
    };
    let levels: Vec<_> = (0..count).map(|number| draw(&mut random, number)).collect();
    let mut pair = Pair::of(&levels);
    pair.check(&[], &format!("seed {seed}, at first"));
    for step in 0..40 {
        let mut touched = Vec::new();
        for _ in 0..random.within(0..4) {
            let drawn = random.within(0..count);
            touched.push(u32::try_from(drawn).expect("a few"));
            let number = usize::try_from(drawn).expect("a few");
            match (random.within(0..20), pair.levels[number]) {
                (0..2, _) => pair.set(number, draw(&mut random, drawn)),
                (_, (level, _)) => {
                    let demand = if level.exempt {
                        random.within(0..habit.most * count)
                    } else {
                        habit.demand(&mut random, level.limits)
                    };
                    pair.set(number, needing(level.limits, level.exempt, demand));
                }
            }
        }
        pair.check(&touched, &format!("seed {seed}, step {step}"));
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn a_ledger_gives_the_limits_and_the_fraction_of_the_full_computation() {
    let from = number("FAIRGATE_SEED", 1);
    for seed in from..from + number("FAIRGATE_LEDGERS", 2_000) {
        play(seed);
    }
}

/// `count` idle levels of these limits and one that wants `demand` seats.
fn one_busy(limits: LevelLimits, count: usize, demand: u64) -> Pair {
    let mut levels = vec![needing(limits, false, 0); count];
    levels.push(needing(limits, false, demand));
    Pair::of(&levels)
}

#[test]
fn demand_below_the_nominal_limits_reports_none_but_the_level_that_changed() {
    let limits = LevelLimits {
        nominal: 10,
        min: 5,
        max: 100,
    };
    let mut pair = one_busy(limits, 1_000, 7);
    pair.set(3, needing(limits, false, 10));
    assert_eq!(pair.ledger.settle(), [(3, 10)]);
}

#[test]
fn borrowing_reports_the_levels_whose_limit_changes_and_the_level_that_changed() {
    let limits = LevelLimits {
        nominal: 10,
        min: 5,
        max: 100,
    };
    let mut pair = one_busy(limits, 1_000, 10);
    pair.set(1_000, needing(limits, false, 17));
    let mut changed = pair.ledger.settle();
    changed.dedup();
    // Seven lend a seat: all have the same remainder, and those with low numbers keep theirs.
    let lenders = (993..1_000).map(|number| (number, 9));
    assert_eq!(changed, lenders.chain([(1_000, 17)]).collect::<Vec<_>>());
}

#[test]
fn a_level_of_which_nothing_that_matters_changed_is_not_reported() {
    let limits = LevelLimits {
        nominal: 10,
        min: 5,
        max: 100,
    };
    let mut pair = one_busy(limits, 10, 0);
    pair.set(4, needing(limits, false, 5));
    assert_eq!(pair.ledger.settle(), []);
}
