//! All priority levels: live policy, and the seats each level has at present.
//!
//! The [`Dispatcher`] is the control side: it applies policies and rebalances. The hot path sees only a
//! [`PolicyView`], an immutable snapshot of policy and levels that each core holds for itself; a request goes
//! straight to its level and takes no lock except that level's.
//!
//! Levels outlive policies: one that is no longer configured is *quiescing* and keeps its shares
//! until nothing waits or executes in it, so a change of policy loses no request.
//!
//! Not here: how seats are rebalanced (`lending`, beside this file), what a request costs ([`super::work`]), delivering decisions, timers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    borrowing::{LevelLimits, Watermarks},
    demand::Demand,
    level::{Arrival, Decisions, Level},
    policy::Policy,
    queueset::{ArrivingRequest, Discipline, QueueSet, QueueSetSummary, RatioReport},
    shard::Dealer,
    units::Seats,
    work::{WidthCap, Work},
};
use crate::{
    apf::spec::{Flow, LevelIndex, LevelKind, LevelSpec, LimitResponse, SchemaIndex, Semantics},
    sync::{Mutex, lock},
    time::Time,
};
use lending::Lending;
pub use shared::{LevelUse, SharedSeats};

/// A schema's number, the same under every policy that has a schema of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaId(pub u32);

/// All priority levels. `W` is the caller's identifier of a waiting request, which is never
/// inspected.
#[derive(Debug)]
pub struct Dispatcher<W> {
    control: Mutex<Control<W>>,
}

#[derive(Debug)]
struct Control<W> {
    view: Arc<PolicyView<W>>,
    levels: BTreeMap<Arc<str>, ControlledLevel<W>>,
    schemas: SchemaNames,
    fair_fraction: f64,
    /// The seats of this gateway, if several share those of the policy.
    shared: Option<SharedSeats>,
    /// The seats that the limits were made of.
    seats_in_force: Seats,
    /// In Improved: what changed since the last rebalancing.
    lending: Option<Lending>,
    /// How many times a rebalancing has looked at a level.
    #[cfg(test)]
    visits: usize,
}

/// A level and what the control side knows of it.
#[derive(Debug)]
struct ControlledLevel<W> {
    level: Level<W>,
    spec: LevelSpec,
    limits: LevelLimits,
    /// Whether its only seat is the minimum, which another level gave up; see `shared`.
    has_minimum_seat: bool,
    demand: Demand,
    watermarks: Watermarks,
    current: Seats,
    /// What its limit should be; greater than `current` only while [`SharedSeats`] are in use elsewhere.
    wanted: Seats,
    target: f64,
    quiescing: bool,
    /// Since when no event has changed its demand, if it was at rest when it was last looked at.
    rests_since: Option<Time>,
}

/// Policy and levels, as one core sees them.
#[derive(Debug)]
pub struct PolicyView<W> {
    policy: Arc<Policy>,
    levels: Box<[ViewLevel<W>]>,
    schemas: Box<[SchemaId]>,
}

#[derive(Debug)]
struct ViewLevel<W> {
    level: Level<W>,
    width_cap: WidthCap,
    exempt: bool,
}

/// What a rebalancing changed, for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitChange {
    /// The name of the level.
    pub level: Arc<str>,
    /// The current limit before the rebalancing.
    pub from: Seats,
    /// The current limit after the rebalancing.
    pub to: Seats,
}

/// The state of one level, for metrics and dumps.
#[derive(Clone, Debug)]
pub struct LevelReport {
    /// The level as configured.
    pub spec: LevelSpec,
    /// The nominal, minimum and maximum limits, which follow from the configuration.
    pub limits: LevelLimits,
    /// The current limit, in seats; for an exempt level the seats that it was observed to use.
    pub current: Seats,
    /// The seats that the level should have by its demand.
    pub target: f64,
    /// The seat demand at the last rebalancing.
    pub demand: Demand,
    /// Whether the level is no longer configured and drains.
    pub quiescing: bool,
    /// Whether nothing waits or executes.
    pub idle: bool,
    /// Requests and seats now, and counts since the level was created.
    pub summary: QueueSetSummary,
    /// Utilization and demand as ratios over time.
    pub ratios: RatioReport,
    /// Least and greatest virtual start over queues with waiting requests, and the same less the
    /// assumed service time of the seats in use; in seat-seconds.
    pub next_s_bounds: Option<[f64; 4]>,
}

impl<W: Copy> Dispatcher<W> {
    /// A dispatcher that follows `policy` from `now` on.
    pub fn new(policy: Arc<Policy>, now: Time) -> Self {
        let view = Arc::new(PolicyView {
            policy: Arc::clone(&policy),
            levels: Box::default(),
            schemas: Box::default(),
        });
        let control = Control {
            view,
            levels: BTreeMap::new(),
            schemas: SchemaNames::default(),
            fair_fraction: 0.0,
            shared: None,
            seats_in_force: 0,
            lending: None,
            #[cfg(test)]
            visits: 0,
        };
        let dispatcher = Self {
            control: Mutex::new(control),
        };
        let mut nobody = Decisions::default();
        dispatcher.apply(now, policy, &mut nobody);
        debug_assert!(nobody.dispatched.is_empty(), "nothing waits in new levels");
        dispatcher
    }

    /// The present snapshot.
    pub fn view(&self) -> Arc<PolicyView<W>> {
        Arc::clone(&lock(&self.control).view)
    }

    /// Replaces the policy. Requests that wait or execute keep their places. O(levels + schemas).
    pub fn apply(
        &self,
        now: Time,
        policy: Arc<Policy>,
        out: &mut Decisions<W>,
    ) -> Arc<PolicyView<W>> {
        let mut control = lock(&self.control);
        // The order matters: limits depend on the shares of all levels, quiescing ones included; queue sets are
        // configured with their new limits; and the view has caps on widths that follow from the limits.
        control.take_on(now, &policy);
        control.set_static_limits(now);
        let lending = control.new_lending(now);
        control.rebalance_all(now, lending, out);
        control.configure(now, out);
        control.view = control.make_view(policy);
        Arc::clone(&control.view)
    }

    /// Lends and borrows seats by recent demand. Levels that have drained are dropped, their seats divided among the others, and
    /// [`view`](Self::view) is another one then. To be called
    /// regularly: every 10 s in the original; in Improved every 100 ms, and soon after a request had to
    /// wait or was refused.
    ///
    /// O(levels · log levels) in Compatible. In Improved O(changed levels · log levels), where a level has changed if it
    /// had requests since the last time, if some wait, or if its demand of the last second is not yet forgotten. While some
    /// levels have less than their nominal limits because others borrow, also O(k log k), where k is the number of different
    /// limits and demands that levels have. Nothing is locked for levels that have not changed and keep their limit.
    pub fn rebalance(&self, now: Time, out: &mut Decisions<W>) -> Vec<LimitChange> {
        lock(&self.control).rebalance(now, out)
    }

    /// All levels, by name. O(queues).
    pub fn report(&self, now: Time) -> Vec<LevelReport> {
        let control = lock(&self.control);
        let rebalanced = control.last_rebalanced();
        let levels = control.levels.values();
        levels.map(|held| held.report(now, rebalanced)).collect()
    }

    /// All levels by name, to inspect their queue sets.
    pub fn levels(&self) -> Vec<(Arc<str>, Level<W>)> {
        let control = lock(&self.control);
        control
            .levels
            .iter()
            .map(|(name, held)| (Arc::clone(name), held.level.clone()))
            .collect()
    }

    /// The fraction of its target that each level was granted at the last rebalancing.
    pub fn fair_fraction(&self) -> f64 {
        lock(&self.control).fair_fraction
    }

    /// The name of a schema.
    pub fn schema_name(&self, id: SchemaId) -> Arc<str> {
        lock(&self.control).schemas.name(id)
    }
}

impl<W: Copy> Control<W> {
    fn semantics(&self) -> Semantics {
        self.view.policy.settings().semantics
    }

    /// Adds the levels that are new, and marks those that are no longer configured.
    fn take_on(&mut self, now: Time, policy: &Arc<Policy>) {
        let settings = policy.settings();
        for held in self.levels.values_mut() {
            held.quiescing = true;
        }
        for spec in policy.levels() {
            match self.levels.get_mut(&spec.name) {
                Some(held) => {
                    held.quiescing = false;
                    held.spec = spec.clone();
                }
                None => {
                    self.levels.insert(
                        Arc::clone(&spec.name),
                        ControlledLevel::new(settings.semantics, spec, now),
                    );
                }
            }
        }
        // Before the shares are summed: a level that has drained has none, and one that drains keeps its own.
        self.drop_drained();
        // Only for its settings. `apply` replaces it before it unlocks, so no core sees a view without levels.
        self.view = Arc::new(PolicyView {
            policy: Arc::clone(policy),
            levels: Box::default(),
            schemas: Box::default(),
        });
    }

    fn new_lending(&self, now: Time) -> Option<Lending> {
        let is_improved = self.semantics() == Semantics::Improved;
        let is_any_quiescing = self.levels.values().any(|held| held.quiescing);
        is_improved.then(|| Lending::new(self.levels.keys(), is_any_quiescing, now))
    }

    /// The limits that follow from the shares of levels and from the seats of all levels together.
    fn set_static_limits(&mut self, now: Time) {
        if let Some(shared) = self.shared.clone() {
            return self.divide_shared(now, &shared);
        }
        let total_seats = self.view.policy.settings().total_seats;
        let share_sum = LevelLimits::share_sum(self.levels.values().map(|held| &held.spec));
        for held in self.levels.values_mut() {
            held.limits = LevelLimits::of(&held.spec, total_seats, share_sum);
        }
        self.seats_in_force = total_seats;
    }

    fn drop_drained(&mut self) {
        self.levels.retain(|_, held| !held.has_drained());
    }

    fn configure(&mut self, now: Time, out: &mut Decisions<W>) {
        let settings = self.view.policy.settings();
        let (semantics, tenant_weight) = (settings.semantics, settings.tenant_weight);
        // Quiescing levels keep the queues that they have: they only drain.
        for held in self.levels.values_mut().filter(|held| !held.quiescing) {
            let discipline = discipline(&held.spec.kind);
            held.level
                .configure(now, semantics, discipline, tenant_weight, out);
        }
    }

    fn make_view(&mut self, policy: Arc<Policy>) -> Arc<PolicyView<W>> {
        let total_seats = policy.settings().total_seats;
        let share_sum = LevelLimits::share_sum(self.levels.values().map(|held| &held.spec));
        let levels = policy.levels().iter().map(|spec| {
            let held = &self.levels[&spec.name];
            // Of all seats, also if several gateways share them: what a request costs does not depend on where it arrives.
            let limits = LevelLimits::of(spec, total_seats, share_sum);
            ViewLevel {
                level: held.level.clone(),
                width_cap: limits.width_cap(&spec.kind),
                exempt: spec.kind == LevelKind::Exempt,
            }
        });
        let levels = levels.collect();
        let schemas = policy
            .schemas()
            .iter()
            .map(|schema| self.schemas.id(&schema.name))
            .collect();
        Arc::new(PolicyView {
            policy,
            levels,
            schemas,
        })
    }
}

impl<W: Copy> ControlledLevel<W> {
    fn new(semantics: Semantics, spec: &LevelSpec, now: Time) -> Self {
        Self {
            level: Level::new(semantics, discipline(&spec.kind), 0, now),
            spec: spec.clone(),
            limits: LevelLimits::default(),
            has_minimum_seat: false,
            demand: Demand::default(),
            watermarks: Watermarks::default(),
            current: 0,
            wanted: 0,
            target: 0.0,
            quiescing: false,
            rests_since: None,
        }
    }

    /// Whether it is to be dropped: it is no longer configured, and nothing waits or executes.
    fn has_drained(&self) -> bool {
        self.quiescing && self.level.inspect(QueueSet::is_idle)
    }

    /// `rebalanced` is the last time that levels at rest were not looked at.
    fn report(&self, now: Time, rebalanced: Option<Time>) -> LevelReport {
        let rest = rebalanced.map_or(Duration::ZERO, |at| self.rested(at));
        let demand = self.demand_after(rest, Semantics::Improved);
        let (idle, summary, ratios, next_s_bounds) = self.level.inspect(|set| {
            (
                set.is_idle(),
                set.summary(),
                set.ratios(now),
                set.next_s_bounds(),
            )
        });
        LevelReport {
            spec: self.spec.clone(),
            limits: self.limits,
            current: self.current,
            target: self.target,
            demand,
            quiescing: self.quiescing,
            idle,
            summary,
            ratios,
            next_s_bounds,
        }
    }
}

impl<W> PolicyView<W> {
    /// The same snapshot for one core, which counts its references to the levels apart from other cores. O(levels + schemas).
    #[must_use]
    pub fn for_core(&self) -> Self {
        let levels = self.levels.iter().map(|view| ViewLevel {
            level: view.level.for_core(),
            ..*view
        });
        Self {
            policy: Arc::clone(&self.policy),
            levels: levels.collect(),
            schemas: self.schemas.clone(),
        }
    }
}

impl<W: Copy> PolicyView<W> {
    /// The policy.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// How wide a request of a level may be.
    pub fn width_cap(&self, level: LevelIndex) -> WidthCap {
        self.levels[level.0 as usize].width_cap
    }

    /// Whether nothing holds the requests of a level back.
    pub fn is_exempt(&self, level: LevelIndex) -> bool {
        self.levels[level.0 as usize].exempt
    }

    /// The number of a schema that stays the same under later policies.
    pub fn schema_id(&self, schema: SchemaIndex) -> SchemaId {
        self.schemas[schema.0 as usize]
    }

    /// A level.
    pub fn level(&self, level: LevelIndex) -> &Level<W> {
        &self.levels[level.0 as usize].level
    }
}

impl<W: Copy> PolicyView<W> {
    /// A request of `flow` arrives. If it waits, the caller cancels its place at its deadline.
    ///
    /// `out` gets decisions about *other* requests. O(hand + log queues), one short lock.
    pub fn arrive(
        &self,
        now: Time,
        flow: &Flow,
        work: Work,
        waiter: W,
        out: &mut Decisions<W>,
    ) -> Arrival<W> {
        self.arrive_with_check(now, flow, work, waiter, || true, out)
    }

    /// The same, for a request that may not wait unless `may_wait` returns true: see [`Level::arrive_with_check`].
    pub fn arrive_with_check(
        &self,
        now: Time,
        flow: &Flow,
        work: Work,
        waiter: W,
        may_wait: impl FnOnce() -> bool,
        out: &mut Decisions<W>,
    ) -> Arrival<W> {
        let schema = self.schema_id(flow.schema).0;
        let arriving = ArrivingRequest {
            waiter,
            schema,
            hash: flow.hash,
            tenant: flow.tenant,
            work,
        };
        let level = self.level(flow.level);
        level.arrive_with_check(now, arriving, may_wait, out)
    }
}

fn discipline(kind: &LevelKind) -> Discipline {
    match kind {
        LevelKind::Exempt => Discipline::Exempt,
        LevelKind::Limited {
            response: LimitResponse::Reject,
            ..
        } => Discipline::Reject,
        LevelKind::Limited {
            response: LimitResponse::Queue(queuing),
            ..
        } => {
            let dealer = Dealer::new(queuing.queues, queuing.hand_size);
            // Validation refuses hands that need more bits than a hash has.
            let dealer = dealer.expect("a compiled policy has dealable hands");
            Discipline::Queue {
                queuing: *queuing,
                dealer,
            }
        }
    }
}

/// Names and their numbers.
#[derive(Debug, Default)]
struct SchemaNames {
    names: Vec<Arc<str>>,
    ids: BTreeMap<Arc<str>, SchemaId>,
}

impl SchemaNames {
    fn id(&mut self, name: &Arc<str>) -> SchemaId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = SchemaId(
            u32::try_from(self.names.len()).expect("fewer than 2^32 schemas were ever named"),
        );
        // Never removed: waiting requests and counters name schemas of earlier policies by their numbers.
        self.names.push(Arc::clone(name));
        self.ids.insert(Arc::clone(name), id);
        id
    }

    fn name(&self, id: SchemaId) -> Arc<str> {
        self.names
            .get(id.0 as usize)
            .map_or_else(|| Arc::from(""), Arc::clone)
    }
}

mod lending;
mod shared;

#[cfg(all(test, not(loom)))]
mod borrowing_tests;
#[cfg(all(test, not(loom)))]
mod rebalance_tests;
