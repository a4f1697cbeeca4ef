//! Static limits: the part of a level's concurrency limits that follows from its configuration.

use std::cmp::Reverse;

use super::super::{units::Seats, work::WidthCap};
use crate::apf::spec::{LevelKind, LevelSpec, LimitResponse};

/// The limits of one level that follow from configuration. `min <= nominal <= max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LevelLimits {
    /// The level's part of the server concurrency limit, by shares; rounded up.
    pub nominal: Seats,
    /// The seats that remain to the level when all that it may lend is lent.
    pub min: Seats,
    /// The limit of the level when it borrows as much as it may.
    pub max: Seats,
}

impl LevelLimits {
    /// The limits of `level`, which has its shares out of `share_sum`.
    ///
    /// `share_sum` is the sum over all levels, the exempt and the quiescing ones included. If
    /// it is 0, the nominal limit is 0.
    pub fn of(level: &LevelSpec, total_seats: Seats, share_sum: u64) -> Self {
        let share = u64::from(total_seats) * u64::from(level.shares);
        // Rounded up as in kube-apiserver, so the nominal limits may sum to more than the server has seats.
        let nominal = seats(share.div_ceil(share_sum.max(1)));
        Self::with_nominal(level, nominal, total_seats)
    }

    /// The limits of `level` whose nominal limit is this, of `total_seats`.
    pub(crate) fn with_nominal(level: &LevelSpec, nominal: Seats, total_seats: Seats) -> Self {
        let borrowing = match level.kind {
            LevelKind::Limited {
                borrowing_limit_percent: Some(percent),
                ..
            } => percent_of(nominal, percent),
            // As in kube-apiserver: without a limit of its own, all seats of the server on top of the nominal ones.
            LevelKind::Limited { .. } | LevelKind::Exempt => total_seats,
        };
        Self {
            nominal,
            min: nominal.saturating_sub(percent_of(nominal, level.lendable_percent)),
            max: nominal.saturating_add(borrowing),
        }
    }

    /// The limits of `levels`, in their order, when exactly `total_seats` may be in use by all of them together: the nominal limits
    /// are rounded so that they sum to that. Seats that rounding leaves go to the largest remainders, the first levels first.
    pub fn within<'a>(
        levels: impl IntoIterator<Item = &'a LevelSpec>,
        total_seats: Seats,
    ) -> Vec<Self> {
        let levels: Vec<&LevelSpec> = levels.into_iter().collect();
        let share_sum = Self::share_sum(levels.iter().copied()).max(1);
        let product = |level: &LevelSpec| u64::from(total_seats) * u64::from(level.shares);
        let mut nominal: Vec<u64> = levels
            .iter()
            .map(|level| product(level) / share_sum)
            .collect();
        let mut left = u64::from(total_seats).saturating_sub(nominal.iter().sum());
        let mut by_remainder: Vec<usize> = (0..levels.len()).collect();
        by_remainder.sort_by_key(|index| Reverse(product(levels[*index]) % share_sum));
        for index in by_remainder {
            let one = left.min(1).min(u64::from(levels[index].shares));
            nominal[index] += one;
            left -= one;
        }
        let limits = levels.iter().zip(nominal);
        limits
            .map(|(level, nominal)| Self::with_nominal(level, seats(nominal), total_seats))
            .collect()
    }

    /// The sum of shares that [`Self::of`] requires.
    pub fn share_sum<'a>(levels: impl IntoIterator<Item = &'a LevelSpec>) -> u64 {
        levels
            .into_iter()
            .map(|level| u64::from(level.shares))
            .sum()
    }

    /// How wide a request of a level of this kind may be: 15 % of the nominal limit, and no more
    /// than lets a whole hand execute; at least 1. Levels without queues have no such cap.
    pub fn width_cap(&self, kind: &LevelKind) -> WidthCap {
        let LevelKind::Limited {
            response: LimitResponse::Queue(queuing),
            ..
        } = kind
        else {
            return WidthCap::NONE;
        };
        let of_hand = self.nominal / queuing.hand_size.max(1);
        WidthCap::at(Self::widest_part(self.nominal).min(of_hand).max(1))
    }

    /// 15 % of a nominal limit, rounded up.
    pub fn widest_part(nominal: Seats) -> Seats {
        seats((u64::from(nominal) * 15).div_ceil(100))
    }
}

/// The denominator of a level's ratio metrics: its current limit, or a tenth of all seats if that
/// is 0; at least 1.
pub(crate) fn ratio_denominator(current: Seats, total_seats: Seats) -> Seats {
    match current {
        0 => percent_of(total_seats, 10).max(1),
        current => current,
    }
}

/// `percent` of `seats`, rounded to the nearest, half up.
fn percent_of(whole: Seats, percent: u32) -> Seats {
    seats((u64::from(whole) * u64::from(percent) + 50) / 100)
}

fn seats(number: u64) -> Seats {
    Seats::try_from(number).unwrap_or(Seats::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::apf::spec::Queuing;

    pub(in super::super) fn limited(
        name: &str,
        shares: u32,
        lendable_percent: u32,
        borrowing_limit_percent: Option<u32>,
        hand_size: Option<u32>,
    ) -> LevelSpec {
        LevelSpec {
            name: name.into(),
            uid: name.into(),
            shares,
            lendable_percent,
            kind: LevelKind::Limited {
                borrowing_limit_percent,
                response: match hand_size {
                    None => LimitResponse::Reject,
                    Some(hand_size) => LimitResponse::Queue(Queuing {
                        queues: 128,
                        hand_size,
                        queue_length_limit: 50,
                    }),
                },
            },
        }
    }

    pub(in super::super) fn exempt() -> LevelSpec {
        LevelSpec {
            name: "exempt".into(),
            uid: "exempt".into(),
            shares: 0,
            lendable_percent: 0,
            kind: LevelKind::Exempt,
        }
    }

    /// The built-in levels: system, node-high, leader-election, workload-high, workload-low,
    /// global-default, catch-all and, last, exempt.
    pub(in super::super) fn built_in() -> Vec<LevelSpec> {
        vec![
            limited("system", 30, 33, None, Some(6)),
            limited("node-high", 40, 25, None, Some(6)),
            limited("leader-election", 10, 0, None, Some(4)),
            limited("workload-high", 40, 50, None, Some(6)),
            limited("workload-low", 100, 90, None, Some(6)),
            limited("global-default", 20, 50, None, Some(6)),
            limited("catch-all", 5, 0, None, None),
            exempt(),
        ]
    }

    pub(in super::super) fn limits_of(
        levels: &[LevelSpec],
        total_seats: Seats,
    ) -> Vec<LevelLimits> {
        let share_sum = LevelLimits::share_sum(levels);
        let limits = levels.iter();
        limits
            .map(|level| LevelLimits::of(level, total_seats, share_sum))
            .collect()
    }

    #[test]
    fn the_built_in_levels_have_the_limits_of_the_original() {
        /// Nominal, min and width cap, the latter 0 for none.
        type Expected = [(Seats, Seats, Seats); 7];
        #[rustfmt::skip]
        let table: [(Seats, Expected); 6] = [
            (100, [(13, 9, 2), (17, 13, 2), (5, 5, 1), (17, 8, 2), (41, 4, 6), (9, 4, 1), (3, 3, 0)]),
            (200, [(25, 17, 4), (33, 25, 5), (9, 9, 2), (33, 16, 5), (82, 8, 13), (17, 8, 2), (5, 5, 0)]),
            (600, [(74, 50, 12), (98, 73, 15), (25, 25, 4), (98, 49, 15), (245, 24, 37), (49, 24, 8), (13, 13, 0)]),
            (800, [(98, 66, 15), (131, 98, 20), (33, 33, 5), (131, 65, 20), (327, 33, 50), (66, 33, 10), (17, 17, 0)]),
            (1000, [(123, 82, 19), (164, 123, 25), (41, 41, 7), (164, 82, 25), (409, 41, 62), (82, 41, 13), (21, 21, 0)]),
            (3000, [(368, 247, 56), (490, 367, 74), (123, 123, 19), (490, 245, 74), (1225, 122, 184), (245, 122, 37), (62, 62, 0)]),
        ];
        let levels = built_in();
        for (total, expected) in table {
            let limits = limits_of(&levels, total);
            for ((level, limits), (nominal, min, width)) in levels.iter().zip(&limits).zip(expected)
            {
                let expected = LevelLimits {
                    nominal,
                    min,
                    max: nominal + total,
                };
                assert_eq!(*limits, expected, "{} of {total}", level.name);
                assert_eq!(
                    limits.width_cap(&level.kind),
                    WidthCap::at(width),
                    "{} of {total}",
                    level.name
                );
            }
        }
    }

    #[test]
    fn six_hundred_seats_give_the_sums_of_the_original() {
        let levels = built_in();
        let limits = limits_of(&levels, 600);
        assert_eq!(limits.iter().map(|l| l.nominal).sum::<Seats>(), 602);
        assert_eq!(limits.iter().map(|l| l.min).sum::<Seats>(), 258);
        let lendable: Vec<_> = limits
            .iter()
            .map(|limits: &LevelLimits| limits.nominal - limits.min)
            .collect();
        assert_eq!(lendable, [24, 25, 0, 49, 221, 25, 0, 0]);
        assert_eq!(
            limits[7],
            LevelLimits {
                nominal: 0,
                min: 0,
                max: 600
            }
        );
        assert_eq!(limits[7].width_cap(&levels[7].kind), WidthCap::NONE);
    }

    #[test]
    fn a_request_may_take_fifteen_percent_of_its_level_and_leaves_room_for_a_hand() {
        let table = [
            (5, 6, 1),
            (10, 6, 1),
            (15, 6, 2),
            (20, 6, 3),
            (35, 6, 5),
            (100, 6, 15),
            (200, 6, 30),
            (10, 1, 2),
            (100, 20, 5),
        ];
        for (total, hand_size, expected) in table {
            let level = limited("only", 10_000, 0, None, Some(hand_size));
            let limits = LevelLimits::of(&level, total, 10_000);
            assert_eq!(limits.nominal, total);
            assert_eq!(limits.width_cap(&level.kind), WidthCap::at(expected));
        }
    }

    #[test]
    fn a_borrowing_limit_bounds_the_max() {
        let levels = [
            limited("one", 100, 50, Some(67), Some(2)),
            limited("two", 100, 33, Some(50), Some(2)),
            limited("catch-all", 5, 0, None, None),
        ];
        let limits = limits_of(&levels, 24);
        let triples: Vec<_> = limits.iter().map(|l| (l.nominal, l.min, l.max)).collect();
        assert_eq!(triples, [(12, 6, 20), (12, 8, 18), (1, 1, 25)]);
    }

    #[test]
    fn extreme_settings_neither_panic_nor_overflow() {
        let levels = [limited("huge", u32::MAX, 200, Some(u32::MAX), Some(0))];
        let limits = limits_of(&levels, Seats::MAX);
        assert_eq!(limits[0].nominal, Seats::MAX);
        assert_eq!((limits[0].min, limits[0].max), (0, Seats::MAX));
        assert_eq!(LevelLimits::of(&exempt(), 600, 0).nominal, 0);
    }

    #[test]
    fn a_ratio_has_a_denominator_even_when_the_limit_is_zero() {
        assert_eq!(ratio_denominator(7, 600), 7);
        assert_eq!(ratio_denominator(0, 600), 60);
        assert_eq!(ratio_denominator(0, 15), 2);
        assert_eq!(ratio_denominator(0, 1), 1);
    }
}
