//! Seats that several gateways share: this one's part changes several times a second, and ends when its lease ends.
//!
//! Three rules keep what executes within the part, over all limited levels together:
//!
//! - The nominal limits sum to the part exactly, and are not rounded up as those of a gateway that has all seats. They are what the
//!   coordinator of the fleet gave each level here, since its demand here may be another than in the whole fleet; by shares if it does
//!   not know the same levels. A level that would have none has one here (its *minimum seat*), if there are enough; it is lent while
//!   there is no demand.
//! - A level's limit rises only from seats that are free: neither within another level's limit, nor still in use beyond it. If
//!   more is in use than the part, limits that are not used up fall.
//! - When the lease has ended, each level falls back to its part of the floor with its next event, before that is acted on.
//!
//! Exempt levels are not counted: nothing holds their requests back. Not here: what is granted (the crate `fairgate-fleet`).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::{Control, ControlledLevel, Decisions, Dispatcher, LevelKind, LevelLimits, LimitChange};
use crate::{
    apf::{
        changes::ChangeList,
        queueset::LevelElsewhere,
        seat_lease::{LevelLease, SeatLease},
        spec::LevelSpec,
        units::Seats,
    },
    sync::{Arc, lock},
    time::Time,
};

/// The seats of this gateway, of those that several share.
#[derive(Clone, Debug)]
pub struct SharedSeats {
    /// What it may use while the lease holds.
    pub seats: Seats,
    /// How these are divided among levels, by name; levels lend them to each other. Empty: by shares.
    pub levels: Vec<(std::sync::Arc<str>, Seats)>,
    /// What it may use after that.
    pub floor: Seats,
    /// Until when `seats` may be used. The caller prolongs it as it goes.
    pub lease: Arc<SeatLease>,
}

/// What one level uses and asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelUse {
    /// Its name.
    pub level: std::sync::Arc<str>,
    /// Whether nothing holds its requests back.
    pub exempt: bool,
    /// Its limit, or what it may be until the next event if the lease has ended.
    pub limit: Seats,
    /// Seats in use.
    pub in_use: Seats,
    /// The seats that were in use or asked for at most in the last second.
    pub demand: u64,
}

impl LevelUse {
    /// The seats that may be in use until limits are changed: of limited levels, the greater one of limit and seats in use.
    pub fn held(&self) -> Seats {
        if self.exempt {
            0
        } else {
            self.limit.max(self.in_use)
        }
    }
}

impl SharedSeats {
    fn at(&self, now: Time) -> Seats {
        if self.lease.holds(now) {
            self.seats
        } else {
            self.floor
        }
    }

    /// The limits of `levels`, in their order, and whether their only seat is the minimum. `in_demand` says which of them had demand lately.
    fn limits<'a>(
        &self,
        now: Time,
        levels: impl Iterator<Item = &'a LevelSpec> + Clone,
        in_demand: &[bool],
    ) -> Vec<(LevelLimits, bool)> {
        let seats = self.at(now);
        let granted = self.levels.iter();
        let granted: BTreeMap<&str, Seats> = granted.map(|(name, at)| (&**name, *at)).collect();
        let granted = |spec: &LevelSpec| granted.get(&*spec.name).copied();
        let all: Option<Vec<_>> = if self.lease.holds(now) {
            levels.clone().map(granted).collect()
        } else {
            None
        };
        let mut nominal = all.unwrap_or_else(|| {
            let limits = LevelLimits::within(levels.clone(), seats);
            limits.iter().map(|limits| limits.nominal).collect()
        });
        let given = give_minimum_seats(&mut nominal, levels.clone(), in_demand);
        let limits = levels.zip(nominal).zip(given);
        limits
            .map(|((spec, nominal), has_minimum_seat)| {
                let mut limits = LevelLimits::with_nominal(spec, nominal, seats);
                if has_minimum_seat {
                    // Lent while there is no demand, whatever the level lends of its own.
                    limits.min = 0;
                }
                (limits, has_minimum_seat)
            })
            .collect()
    }
}

/// Gives each level that has shares, and no seat here, one of the level that has most, as long as that keeps half of what it had. Levels with
/// recent demand come first. Returns which levels got one. O(levels · log levels).
///
/// Without it, a level with fewer seats than the fleet has gateways refuses clients of some gateways all the time: they try again after a
/// second, as `Retry-After` says, and by then their demand is forgotten, and the seat that came for it is gone.
fn give_minimum_seats<'a>(
    nominal: &mut [Seats],
    levels: impl Iterator<Item = &'a LevelSpec>,
    in_demand: &[bool],
) -> Vec<bool> {
    let lacks = |(level, at): (&LevelSpec, &Seats)| {
        *at == 0 && level.shares > 0 && level.kind != LevelKind::Exempt
    };
    let mut given: Vec<bool> = levels.zip(&*nominal).map(lacks).collect();
    let kept: Vec<Seats> = nominal.iter().map(|at| at.div_ceil(2)).collect();
    let rich = (0..).zip(&*nominal).filter(|(_, at)| **at > 1);
    let mut rich: BinaryHeap<(Seats, Reverse<usize>)> =
        rich.map(|(index, at)| (*at, Reverse(index))).collect();
    let mut lacking: Vec<usize> = (0..given.len()).filter(|index| given[*index]).collect();
    lacking.sort_by_key(|index| !in_demand.get(*index).is_some_and(|in_demand| *in_demand));
    for index in lacking {
        let Some((_, giver)) = rich.pop() else {
            given[index] = false;
            continue;
        };
        nominal[giver.0] -= 1;
        nominal[index] += 1;
        let left = nominal[giver.0];
        if left > kept[giver.0] {
            rich.push((left, giver));
        }
    }
    given
}

impl<W: Copy> Dispatcher<W> {
    /// From now on this gateway has only a part of the policy's seats. To be called with each change of the part, also while
    /// nothing is in it. O(levels · log levels).
    pub fn share_seats(
        &self,
        now: Time,
        seats: SharedSeats,
        out: &mut Decisions<W>,
    ) -> Vec<LimitChange> {
        let mut control = lock(&self.control);
        control.shared = Some(seats);
        control.divide_anew(now, out)
    }

    /// What happens at the other gateways in each level, by name, from `now` on.
    pub fn note_elsewhere(
        &self,
        now: Time,
        of_level: impl Fn(&str) -> LevelElsewhere,
        out: &mut Decisions<W>,
    ) {
        for (name, level) in self.levels() {
            level.note_elsewhere(now, &of_level(&name), out);
        }
    }

    /// What each level uses, by name. O(levels).
    pub fn level_uses(&self) -> Vec<LevelUse> {
        let control = lock(&self.control);
        let levels = control.levels.values().map(|held| LevelUse {
            level: std::sync::Arc::clone(&held.spec.name),
            exempt: held.is_exempt(),
            limit: held.current,
            in_use: held.seats_in_use(),
            demand: held.demand.high_watermark,
        });
        levels.collect()
    }
}

impl<W: Copy> Control<W> {
    /// Divides the part of this gateway among the levels.
    pub(super) fn divide_shared(&mut self, now: Time, shared: &SharedSeats) {
        let seats = shared.at(now);
        let specs = || self.levels.values().map(|held| &held.spec);
        let in_demand = self
            .levels
            .values()
            .map(|held| held.watermarks.has_recent_demand(now));
        let in_demand: Vec<bool> = in_demand.collect();
        let limits = shared.limits(now, specs(), &in_demand);
        let after = LevelLimits::within(specs(), shared.floor);
        let list = Arc::new(ChangeList::new(0, now));
        for ((held, limits), after) in self.levels.values_mut().zip(limits).zip(after) {
            (held.limits, held.has_minimum_seat) = limits;
            if !held.is_exempt() {
                held.level.set_lease(LevelLease {
                    lease: Arc::clone(&shared.lease),
                    list: Arc::clone(&list),
                    after: after.nominal,
                });
            }
        }
        self.seats_in_force = seats;
    }

    /// Whether the limits are made of seats whose lease has ended.
    pub(super) fn is_lease_over(&self, now: Time) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| shared.at(now) != self.seats_in_force)
    }

    /// Divides all seats anew, among the levels that have not drained. The view is another one if any has: how wide requests may be depends
    /// on the nominal limits.
    pub(super) fn divide_anew(&mut self, now: Time, out: &mut Decisions<W>) -> Vec<LimitChange> {
        let before = self.levels.len();
        self.drop_drained();
        self.set_static_limits(now);
        let lending = self.new_lending(now);
        let changes = self.rebalance_all(now, lending, out);
        if self.levels.len() < before {
            let policy = std::sync::Arc::clone(&self.view.policy);
            self.view = self.make_view(policy);
        }
        changes
    }

    /// Moves the limits to what they should be, as far as seats are free. O(levels).
    pub(super) fn set_limits_within(
        &mut self,
        now: Time,
        out: &mut Decisions<W>,
        changes: &mut Vec<LimitChange>,
    ) {
        let total = self.seats_in_force;
        // Decreases first, and dispatching within limits that stay: what is in use is counted after that.
        for held in self.levels.values_mut() {
            let limit = if held.is_exempt() {
                held.wanted
            } else {
                held.wanted.min(held.current)
            };
            held.set_limit(now, limit, total, out, changes);
        }
        let taken: u64 = self
            .levels
            .values()
            .filter(|held| !held.is_exempt())
            .map(|held| u64::from(held.seats_in_use().max(held.current)))
            .sum();
        self.lower_unused(now, taken.saturating_sub(total.into()), out, changes);
        let mut free = u64::from(total).saturating_sub(taken);
        let missing = |held: &ControlledLevel<W>| u64::from(held.wanted - held.current);
        let mut sum: u64 = self.levels.values().map(missing).sum();
        for held in self.levels.values_mut() {
            let missing = missing(held);
            if missing == 0 || free == 0 {
                continue;
            }
            // In proportion, rounded up: what is left goes to those that come after.
            let seats = (missing * free).div_ceil(sum).min(missing).min(free);
            free -= seats;
            sum -= missing;
            // Seats that are in use beyond the limit are counted already.
            let limit = u64::from(held.current) + seats;
            let limit = Seats::try_from(limit).unwrap_or(Seats::MAX);
            held.set_limit(now, limit, total, out, changes);
        }
    }
}

impl<W: Copy> Control<W> {
    /// Takes `excess` seats from limits that are not used up: as many are in use in other levels, beyond their limits.
    fn lower_unused(
        &mut self,
        now: Time,
        mut excess: u64,
        out: &mut Decisions<W>,
        changes: &mut Vec<LimitChange>,
    ) {
        let total = self.seats_in_force;
        for held in self.levels.values_mut() {
            if excess == 0 {
                return;
            }
            let unused = held.current.saturating_sub(held.seats_in_use());
            if held.is_exempt() || unused == 0 {
                continue;
            }
            let less = u64::from(unused).min(excess);
            excess -= less;
            let limit = u64::from(held.current) - less;
            held.set_limit(
                now,
                Seats::try_from(limit).unwrap_or(0),
                total,
                out,
                changes,
            );
        }
    }
}

impl<W: Copy> ControlledLevel<W> {
    fn is_exempt(&self) -> bool {
        self.spec.kind == LevelKind::Exempt
    }

    fn seats_in_use(&self) -> Seats {
        self.level.inspect(|set| set.summary().seats_in_use)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
