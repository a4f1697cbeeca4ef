//! Rebalancing: which levels are looked at, and what happens to the limits that [`borrowing`](crate::apf::borrowing) decides.
//!
//! A change of policy looks at every level, as does every rebalancing in Compatible. Otherwise a rebalancing in Improved looks
//! at the levels that are not *at rest*. A level is at rest when its high watermark will stay what it is until an event
//! occurs: the greatest demand that is remembered is its present demand, nothing waits in it, and no seats linger. Its first event
//! enters it into a [`ChangeList`], so levels without events cost nothing.
//!
//! The limits are those that looking at every level would give; tests compare both.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{Control, ControlledLevel, LimitChange};
use crate::{
    apf::{
        borrowing::{Ledger, RebalanceInput, ratio_denominator, rebalance},
        changes::{ChangeList, ChangeNotice},
        demand::{Demand, DemandSample, as_f64},
        level::Decisions,
        spec::{LevelKind, Semantics},
        units::Seats,
    },
    sync,
    time::Time,
};

/// What is kept between two rebalancings in Improved. Levels have numbers in the order of their names, from one change of
/// policy to the next.
#[derive(Debug)]
pub(super) struct Lending {
    names: Vec<Arc<str>>,
    /// Whether some level is no longer configured, so that it may have drained.
    is_any_quiescing: bool,
    ledger: Ledger,
    changes: sync::Arc<ChangeList>,
    /// Levels that are not at rest.
    awake: BTreeSet<u32>,
    /// Has the room to take the place of the list of changes.
    spare: Vec<u32>,
    /// The time of the last rebalancing.
    now: Time,
}

impl Lending {
    /// The levels of these names, in order; their numbers count from 0.
    pub(super) fn new<'a>(
        names: impl Iterator<Item = &'a Arc<str>>,
        is_any_quiescing: bool,
        now: Time,
    ) -> Self {
        let names: Vec<_> = names.cloned().collect();
        Self {
            is_any_quiescing,
            ledger: Ledger::default(),
            changes: sync::Arc::new(ChangeList::new(names.len(), now)),
            awake: BTreeSet::new(),
            spare: Vec::with_capacity(names.len()),
            now,
            names,
        }
    }

    fn notice(&self, number: u32) -> ChangeNotice {
        ChangeNotice::new(sync::Arc::clone(&self.changes), number)
    }

    /// The levels that are to be looked at, in order; from then on none is awake.
    fn begin(&mut self, now: Time) -> BTreeSet<u32> {
        self.now = now;
        self.changes.read(now, &mut self.spare);
        let mut visited = std::mem::take(&mut self.awake);
        visited.extend(self.spare.drain(..));
        visited
    }
}

impl<W: Copy> Control<W> {
    /// Looks at every level, and divides all seats anew. `lending`, whose numbers are those of all levels, is kept for
    /// [`Control::rebalance`]; without it, that looks at every level, too. O(levels · log levels).
    pub(super) fn rebalance_all(
        &mut self,
        now: Time,
        mut lending: Option<Lending>,
        out: &mut Decisions<W>,
    ) -> Vec<LimitChange> {
        let settings = self.view.policy.settings().clone();
        let mut parties = Vec::with_capacity(self.levels.len());
        for (number, held) in (0..).zip(self.levels.values_mut()) {
            let notice = lending.as_ref().map(|lending| lending.notice(number));
            held.measure(now, settings.semantics, notice);
            parties.push(held.input(now, settings.semantics));
            if let Some(lending) = lending.as_mut().filter(|_| held.rests_since.is_none()) {
                lending.awake.insert(number);
            }
        }
        #[cfg(test)]
        {
            self.visits += parties.len();
        }
        let decided = rebalance(settings.semantics, &parties);
        self.fair_fraction = decided.fair_fraction;
        let mut changes = Vec::new();
        for (held, outcome) in self.levels.values_mut().zip(decided.outcomes) {
            held.target = outcome.target;
            held.wanted = outcome.current;
            if self.shared.is_none() {
                held.set_limit(now, outcome.current, self.seats_in_force, out, &mut changes);
            }
        }
        if self.shared.is_some() {
            self.set_limits_within(now, out, &mut changes);
        }
        if let Some(lending) = &mut lending {
            lending.ledger = Ledger::new(&parties);
        }
        self.lending = lending;
        changes
    }

    /// Looks at the levels that have changed; at every level where nothing is kept about which these are, and where one has drained.
    ///
    /// O(changed levels · log levels) and what the division costs: see [`Ledger::settle`].
    pub(super) fn rebalance(&mut self, now: Time, out: &mut Decisions<W>) -> Vec<LimitChange> {
        if self.is_lease_over(now) {
            return self.divide_anew(now, out);
        }
        let Some(lending) = &mut self.lending else {
            if self.levels.values().any(ControlledLevel::has_drained) {
                return self.divide_anew(now, out);
            }
            return self.rebalance_all(now, None, out);
        };
        let visited = lending.begin(now);
        if visited.is_empty() && lending.ledger.is_settled() && self.shared.is_none() {
            self.fair_fraction = lending.ledger.fair_fraction();
            return Vec::new();
        }
        let held = |number: &u32| self.levels.get(&lending.names[*number as usize]);
        if lending.is_any_quiescing
            && visited
                .iter()
                .filter_map(held)
                .any(ControlledLevel::has_drained)
        {
            // The seats of its shares are for the others from now on.
            return self.divide_anew(now, out);
        }
        let mut limits: BTreeMap<u32, Option<Seats>> = BTreeMap::new();
        for number in visited {
            let name = &lending.names[number as usize];
            let Some(held) = self.levels.get_mut(name) else {
                continue;
            };
            #[cfg(test)]
            {
                self.visits += 1;
            }
            held.measure(now, Semantics::Improved, Some(lending.notice(number)));
            let input = held.input(now, Semantics::Improved);
            held.target = input.target();
            lending.ledger.set(number, &input);
            if held.rests_since.is_none() {
                lending.awake.insert(number);
                limits.insert(number, None);
            }
        }
        let changed = lending.ledger.settle().into_iter();
        limits.extend(changed.map(|(number, limit)| (number, Some(limit))));
        self.fair_fraction = lending.ledger.fair_fraction();
        let (total_seats, is_shared) = (self.seats_in_force, self.shared.is_some());
        let mut changes = Vec::new();
        for (number, limit) in limits {
            let Some(held) = self.levels.get_mut(&lending.names[number as usize]) else {
                continue;
            };
            if is_shared {
                held.wanted = limit.unwrap_or(held.wanted);
                continue;
            }
            let limit = limit.unwrap_or(held.current);
            // What waits in a level that is not at rest may be dispatched, whether its limit changes or not.
            if held.rests_since.is_none() || limit != held.current {
                held.set_limit(now, limit, total_seats, out, &mut changes);
            }
        }
        if is_shared {
            self.set_limits_within(now, out, &mut changes);
        }
        changes
    }

    /// When demand was last read, if levels may have been at rest since before.
    pub(super) fn last_rebalanced(&self) -> Option<Time> {
        self.lending.as_ref().map(|lending| lending.now)
    }
}

impl<W: Copy> ControlledLevel<W> {
    /// Takes the demand since the last time into account. With a notice, the level may rest until its next event.
    fn measure(&mut self, now: Time, semantics: Semantics, notice: Option<ChangeNotice>) {
        let watermarks = &mut self.watermarks;
        let has_minimum_seat = self.has_minimum_seat;
        let (sample, high_watermark, rests) = self.level.look(|set| {
            let sample = set.take_demand(now);
            let greatest = watermarks.greatest(now, sample.max);
            let high_watermark = match semantics {
                Semantics::Compatible => sample.max,
                Semantics::Improved => greatest,
            };
            let summary = set.summary();
            let is_settled = high_watermark == u64::from(summary.seats_in_use)
                && summary.waiting == 0
                && summary.waiting_seats == 0
                && summary.lingering == 0
                && !(has_minimum_seat && watermarks.has_recent_demand(now));
            let notice = notice.filter(|_| is_settled);
            ((sample, high_watermark, notice.is_some()), notice)
        });
        let rest = self.rested(now).saturating_sub(sample.elapsed);
        self.demand = self.demand_after(rest, semantics);
        self.demand.update(&sample, semantics);
        self.demand.high_watermark = high_watermark;
        self.rests_since = rests.then_some(now);
    }

    /// For how long the level has been at rest at `now`, if it still is.
    pub(super) fn rested(&self, now: Time) -> Duration {
        self.rests_since
            .map_or(Duration::ZERO, |since| now.since(since))
    }

    /// The demand after the level has been at rest for so long: what rebalancing would have found.
    pub(super) fn demand_after(&self, rest: Duration, semantics: Semantics) -> Demand {
        let mut demand = self.demand;
        if !rest.is_zero() {
            let sample = DemandSample::constant(demand.high_watermark, rest);
            demand.update(&sample, semantics);
        }
        demand
    }

    /// What rebalancing knows of the level.
    fn input(&self, now: Time, semantics: Semantics) -> RebalanceInput {
        let mut limits = self.limits;
        if self.has_minimum_seat && self.watermarks.has_recent_demand(now) {
            limits.min = limits.nominal;
        }
        RebalanceInput {
            exempt: self.spec.kind == LevelKind::Exempt,
            limits,
            high_watermark: self.demand.high_watermark,
            smoothed: match semantics {
                Semantics::Compatible => self.demand.smoothed,
                Semantics::Improved => as_f64(self.demand.high_watermark),
            },
            current: self.current,
        }
    }

    pub(super) fn set_limit(
        &mut self,
        now: Time,
        limit: Seats,
        total_seats: Seats,
        out: &mut Decisions<W>,
        changes: &mut Vec<LimitChange>,
    ) {
        if self.current != limit {
            changes.push(LimitChange {
                level: Arc::clone(&self.spec.name),
                from: self.current,
                to: limit,
            });
        }
        self.current = limit;
        let denominator = ratio_denominator(limit, total_seats);
        self.level.set_limit(now, limit, denominator, out);
    }
}
