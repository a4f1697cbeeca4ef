//! The worked examples of the original, and a pair of tests for each of its defects.

use std::time::Duration;

use super::{
    super::demand::{Demand, Integrator},
    limits::tests::{built_in, exempt, limited, limits_of},
    *,
};
use crate::{
    apf::spec::{LevelKind, LevelSpec},
    random::Random,
    time::Time,
};
use Semantics::{Compatible, Improved};

const BOTH: [Semantics; 2] = [Compatible, Improved];

/// The built-in levels of 600 seats with this demand, and the exempt level.
fn built_in_parties(
    high_watermarks: [u64; 7],
    smoothed: [f64; 7],
    exempt: u64,
) -> Vec<RebalanceInput> {
    let limits = limits_of(&built_in(), 600);
    let mut parties: Vec<_> = (0..7)
        .map(|index| RebalanceInput {
            exempt: false,
            limits: limits[index],
            high_watermark: high_watermarks[index],
            smoothed: smoothed[index],
            current: 0,
        })
        .collect();
    parties.push(RebalanceInput {
        exempt: true,
        limits: limits[7],
        high_watermark: exempt,
        smoothed: 0.0,
        current: 0,
    });
    parties
}

fn currents(rebalanced: &Rebalanced) -> Vec<Seats> {
    assert_eq!(rebalanced.failure, None);
    rebalanced.outcomes.iter().map(|o| o.current).collect()
}

/// The current limits of the seven limited built-in levels.
fn limited_currents(semantics: Semantics, parties: &[RebalanceInput]) -> Vec<Seats> {
    currents(&rebalance(semantics, parties))[..7].to_vec()
}

const LOAD: [u64; 7] = [20, 60, 3, 30, 500, 10, 0];
const SMOOTHED_LOAD: [f64; 7] = [18.5, 55.2, 2.1, 25.0, 480.0, 8.0, 0.0];

fn load(exempt: u64) -> Vec<RebalanceInput> {
    built_in_parties(LOAD, SMOOTHED_LOAD, exempt)
}

fn saturated(exempt: u64) -> Vec<RebalanceInput> {
    built_in_parties([5000; 7], [5000.0; 7], exempt)
}

#[test]
fn compatible_idle_levels_get_limits_in_proportion_to_their_min() {
    let idle = built_in_parties([0; 7], [0.0; 7], 0);
    let rebalanced = rebalance(Compatible, &idle);
    assert_eq!(currents(&rebalanced)[..7], [117, 170, 58, 114, 56, 56, 30]);
    assert!((rebalanced.fair_fraction - 602.0 / 258.0).abs() < 1e-9);
}

#[test]
fn improved_idle_levels_have_their_nominal_limits() {
    let idle = built_in_parties([0; 7], [0.0; 7], 0);
    let rebalanced = rebalance(Improved, &idle);
    assert_eq!(currents(&rebalanced)[..7], [74, 98, 25, 98, 245, 49, 13]);
    assert!((rebalanced.fair_fraction - 1.0).abs() < 1e-9);
}

#[test]
fn a_loaded_level_borrows_what_the_others_do_not_want() {
    for semantics in BOTH {
        let rebalanced = rebalance(semantics, &load(0));
        assert_eq!(currents(&rebalanced), [50, 73, 25, 49, 368, 24, 13, 0]);
        assert!((rebalanced.fair_fraction - 368.0 / 480.0).abs() < 1e-9);
        let targets: Vec<_> = rebalanced.outcomes[..7].iter().map(|o| o.target).collect();
        assert_eq!(targets, [50.0, 73.0, 25.0, 49.0, 480.0, 24.0, 13.0]);
    }
}

#[test]
fn a_level_that_wakes_up_gets_back_its_nominal_limit() {
    let mut parties = load(0);
    parties[5].high_watermark = 60;
    parties[5].smoothed = 52.0;
    for semantics in BOTH {
        let rebalanced = rebalance(semantics, &parties);
        assert_eq!(currents(&rebalanced)[..7], [50, 73, 25, 49, 343, 49, 13]);
        assert!((rebalanced.fair_fraction - 343.0 / 480.0).abs() < 1e-9);
    }
}

fn light_load() -> Vec<RebalanceInput> {
    let mut parties = load(0);
    parties[4].high_watermark = 120;
    parties[4].smoothed = 118.0;
    parties
}

#[test]
fn compatible_light_load_leaves_a_level_far_from_its_nominal_limit() {
    let rebalanced = rebalance(Compatible, &light_load());
    assert_eq!(currents(&rebalanced)[..7], [85, 124, 43, 83, 204, 41, 22]);
    assert!((rebalanced.fair_fraction - 602.0 / 354.0).abs() < 1e-9);
}

#[test]
fn improved_light_load_leaves_all_at_their_nominal_limits() {
    let limits = limited_currents(Improved, &light_load());
    assert_eq!(limits, [74, 98, 25, 98, 245, 49, 13]);
}

#[test]
fn improved_spare_seats_go_to_nominal_limits_after_all_demand_is_met() {
    let mut parties = load(0);
    parties[4].high_watermark = 310;
    parties[4].smoothed = 300.0;
    let limits = limited_currents(Improved, &parties);
    assert_eq!(limits.iter().sum::<Seats>(), 602);
    for (index, (&limit, party)) in limits.iter().zip(&parties).enumerate() {
        let wanted = party.wanted();
        assert!(f64::from(limit) >= wanted, "level {index}: {limit}");
    }
    // The rest is between demand and nominal limit, all at 264/319 of the latter.
    assert_eq!(limits, [61, 81, 25, 81, 300, 41, 13]);
}

#[test]
fn saturated_levels_have_their_nominal_limits() {
    for semantics in BOTH {
        let rebalanced = rebalance(semantics, &saturated(0));
        assert_eq!(currents(&rebalanced)[..7], [74, 98, 25, 98, 245, 49, 13]);
        assert!(rebalanced.fair_fraction.abs() < 1e-12);
    }
}

#[test]
fn compatible_what_exempt_levels_use_is_granted_twice() {
    let limits = currents(&rebalance(Compatible, &load(100)));
    assert_eq!(limits, [50, 73, 25, 49, 368, 24, 13, 100]);
    assert_eq!(limits.iter().sum::<Seats>(), 702);
}

#[test]
fn improved_what_exempt_levels_use_cannot_be_borrowed() {
    let limits = currents(&rebalance(Improved, &load(100)));
    assert_eq!(limits, [50, 73, 25, 49, 268, 24, 13, 100]);
    assert_eq!(limits.iter().sum::<Seats>(), 602);
}

#[test]
fn exempt_demand_beyond_the_seats_not_guaranteed_shrinks_the_guarantees() {
    for semantics in BOTH {
        let limits = limited_currents(semantics, &load(200));
        assert_eq!(limits, [50, 73, 25, 49, 168, 24, 13]);
    }
    assert_eq!(
        limited_currents(Compatible, &saturated(300)),
        [53, 76, 25, 55, 52, 27, 13]
    );
    for semantics in BOTH {
        let limits = limited_currents(semantics, &saturated(420));
        assert_eq!(limits, [50, 73, 25, 49, 24, 24, 13]);
    }
}

#[test]
fn compatible_rounding_each_limit_by_itself_loses_or_invents_seats() {
    let idle = built_in_parties([0; 7], [0.0; 7], 0);
    let sum: Seats = limited_currents(Compatible, &idle).iter().sum();
    assert_eq!(sum, 601);

    let limits = currents(&rebalance(Compatible, &three_for_two()));
    assert_eq!(limits, [2, 2, 1]);
}

#[test]
fn improved_rounding_neither_loses_nor_invents_seats() {
    let limits = limited_currents(Improved, &saturated(299));
    assert_eq!(limits.iter().sum::<Seats>(), 303);

    let limits = currents(&rebalance(Improved, &three_for_two()));
    assert_eq!(limits, [2, 1, 1]);
}

/// Four seats: one for a level that may not lend it, three for two levels that want equally many more.
fn three_for_two() -> Vec<RebalanceInput> {
    let party = |nominal, min, max, smoothed| RebalanceInput {
        exempt: false,
        limits: LevelLimits { nominal, min, max },
        high_watermark: 0,
        smoothed,
        current: 0,
    };
    vec![
        party(2, 0, 10, 20.0),
        party(1, 0, 10, 20.0),
        party(1, 1, 1, 1.0),
    ]
}

#[test]
fn compatible_an_exempt_level_shows_the_target_of_another() {
    let mut parties = load(30);
    parties[7].smoothed = 35.5;
    let rebalanced = rebalance(Compatible, &parties);
    assert!((rebalanced.outcomes[7].target - 50.0).abs() < 1e-9);
}

#[test]
fn improved_an_exempt_level_shows_its_own_target() {
    let mut parties = load(30);
    parties[7].smoothed = 35.5;
    let rebalanced = rebalance(Improved, &parties);
    assert!((rebalanced.outcomes[7].target - 35.5).abs() < 1e-9);
    assert_eq!(rebalanced.outcomes[7].current, 30);
}

/// Levels that may not borrow, and an exempt level with shares that it does not use.
fn unborrowable() -> Vec<RebalanceInput> {
    let levels = [
        limited("one", 10, 0, Some(0), None),
        limited("two", 10, 0, Some(0), None),
        LevelSpec {
            shares: 10,
            lendable_percent: 100,
            ..exempt()
        },
    ];
    let limits = limits_of(&levels, 30);
    let parties = levels
        .iter()
        .zip(limits)
        .map(|(level, limits)| RebalanceInput {
            exempt: level.kind == LevelKind::Exempt,
            limits,
            high_watermark: 0,
            smoothed: 0.0,
            current: 7,
        });
    parties.collect()
}

#[test]
fn compatible_limits_stay_when_nobody_may_borrow_what_is_left() {
    let rebalanced = rebalance(Compatible, &unborrowable());
    assert!(matches!(
        rebalanced.failure,
        Some(AllocationError::TooMuch { .. })
    ));
    assert_eq!(rebalanced.outcomes[0].current, 7);
    assert_eq!(rebalanced.outcomes[1].current, 7);
}

#[test]
fn improved_levels_get_their_max_when_nobody_may_borrow_what_is_left() {
    let limits = currents(&rebalance(Improved, &unborrowable()));
    assert_eq!(limits, [10, 10, 0]);
}

/// Two levels of 100 shares that want 24 and 6 of 24 seats, and the catch-all.
fn two_levels(first: (u32, u32), second: (u32, u32)) -> Vec<RebalanceInput> {
    let levels = [
        limited("one", 100, first.0, Some(first.1), Some(2)),
        limited("two", 100, second.0, Some(second.1), Some(2)),
        limited("catch-all", 5, 0, None, None),
    ];
    let demands = [24, 6, 0_u32];
    let parties = limits_of(&levels, 24).into_iter().zip(demands);
    parties
        .map(|(limits, demand)| RebalanceInput {
            exempt: false,
            limits,
            high_watermark: demand.into(),
            smoothed: demand.into(),
            current: 0,
        })
        .collect()
}

#[test]
fn borrowing_is_bounded_by_the_lendable_seats_and_by_the_borrowing_limit() {
    for semantics in BOTH {
        let lendable_limited = two_levels((50, 67), (33, 50));
        let rebalanced = rebalance(semantics, &lendable_limited);
        assert_eq!(currents(&rebalanced), [16, 8, 1]);
        assert!((rebalanced.fair_fraction - 2.0 / 3.0).abs() < 1e-9);

        let borrowing_limited = two_levels((50, 33), (67, 50));
        assert_eq!(
            currents(&rebalance(semantics, &borrowing_limited)),
            [16, 8, 1]
        );
    }
    let fraction = rebalance(Compatible, &two_levels((50, 33), (67, 50))).fair_fraction;
    assert!((fraction - 9.0 / 7.0).abs() < 1e-3, "{fraction}");
}

/// Levels whose demand a test sets, rebalanced every 10 s.
struct World {
    now: Time,
    semantics: Semantics,
    levels: Vec<(Integrator, Demand, RebalanceInput)>,
}

impl World {
    /// exempt, workload-high, workload-low and catch-all, of 870 seats.
    fn of_870_seats(semantics: Semantics) -> Self {
        let levels = [
            exempt(),
            limited("workload-high", 40, 50, None, Some(6)),
            limited("workload-low", 100, 90, None, Some(6)),
            limited("catch-all", 5, 0, None, None),
        ];
        let parties = limits_of(&levels, 870).into_iter().enumerate();
        let levels = parties.map(|(index, limits)| {
            let party = RebalanceInput {
                exempt: index == 0,
                limits,
                high_watermark: 0,
                smoothed: 0.0,
                current: 0,
            };
            (Integrator::new(Time::ZERO), Demand::default(), party)
        });
        Self {
            now: Time::ZERO,
            semantics,
            levels: levels.collect(),
        }
    }

    fn want(&mut self, level: usize, seats: u64) {
        self.levels[level].0.set(self.now, seats);
    }

    fn after_ten_seconds(&mut self) -> Vec<Seats> {
        self.now = self.now.plus(Duration::from_secs(10));
        for (integrator, demand, party) in &mut self.levels {
            demand.update(&integrator.read_and_reset(self.now), self.semantics);
            party.high_watermark = demand.high_watermark;
            party.smoothed = demand.smoothed;
        }
        let parties: Vec<_> = self.levels.iter().map(|(_, _, party)| *party).collect();
        currents(&rebalance(self.semantics, &parties))
    }
}

#[test]
fn exempt_demand_takes_seats_from_all_others_down_to_their_min() {
    for semantics in BOTH {
        let mut world = World::of_870_seats(semantics);
        for level in 0..4 {
            world.want(level, 970);
        }
        assert_eq!(world.after_ten_seconds(), [970, 120, 60, 30]);

        world.want(0, 330);
        world.after_ten_seconds(); // forgets the high watermark
        assert_eq!(world.after_ten_seconds(), [330, 180, 330, 30]);

        world.want(2, 1);
        world.want(0, 540);
        world.after_ten_seconds();
        assert_eq!(world.after_ten_seconds(), [540, 240, 60, 30]);
    }
}

fn random_parties(state: &mut Random) -> Vec<RebalanceInput> {
    let percent = |state: &mut Random| u32::try_from(state.within(0..101)).unwrap();
    let mut levels = vec![exempt()];
    for _ in 0..=state.within(0..9) {
        let shares = u32::try_from(state.within(0..200)).unwrap();
        let lendable = percent(state);
        let borrowing = (state.within(0..2) == 0).then(|| percent(state));
        levels.push(limited("any", shares, lendable, borrowing, Some(2)));
    }
    let total = u32::try_from(1 + state.within(0..900)).unwrap();
    let limits = limits_of(&levels, total).into_iter().enumerate();
    limits
        .map(|(index, limits)| {
            let scale = if index == 0 {
                2
            } else {
                1 + state.within(0..4)
            };
            let reach = u64::from(limits.nominal) * scale + 2;
            RebalanceInput {
                exempt: index == 0,
                limits,
                high_watermark: state.within(0..reach),
                smoothed: as_f64(state.within(0..reach * 16)) / 16.0,
                current: 0,
            }
        })
        .collect()
}

#[test]
fn improved_limits_never_exceed_the_nominal_sum_nor_leave_their_bounds() {
    for seed in 0..10_000 {
        let parties = random_parties(&mut Random::seeded(seed));
        let limits = currents(&rebalance(Improved, &parties));
        let nominal_sum = sum_of(parties.iter().map(|party| party.limits.nominal));
        let granted = sum_of(limits.iter().copied());
        let min_sum = sum_of(parties[1..].iter().map(|party| party.limits.min));
        let floor = u64::from(limits[0]) + min_sum;
        assert!(granted <= nominal_sum.max(floor), "seed {seed}: {limits:?}");
        for (party, limit) in parties.iter().zip(limits).skip(1) {
            let LevelLimits { min, max, .. } = party.limits;
            assert!((min..=max).contains(&limit), "seed {seed}: {party:?}");
            if granted < nominal_sum {
                // Seats are left over only when nobody may take them.
                assert_eq!(limit, max, "seed {seed}: {party:?}");
            }
        }
    }
}

#[test]
fn the_order_of_the_levels_does_not_matter() {
    for semantics in BOTH {
        let parties = load(100);
        let mut reversed = parties.clone();
        reversed.reverse();
        let mut limits = currents(&rebalance(semantics, &reversed));
        limits.reverse();
        assert_eq!(limits, currents(&rebalance(semantics, &parties)));
    }
}

#[test]
fn rebalancing_no_levels_has_no_outcomes() {
    for semantics in BOTH {
        assert!(rebalance(semantics, &[]).outcomes.is_empty());
    }
}
