//! Estimates what requests cost, from the upstream's object counts and the running watches.

use fairgate_core::{
    apf::{
        Semantics, Work,
        counts::{CountSettings, Counts},
        scope::StatsScope,
        watchers::Watchers,
        work::{EstimateInput, EstimatorSettings, ObjectStats, WidthCap},
    },
    digest::RequestInfo,
    sync::{Mutex, lock},
    time::Time,
};

/// The maximum number of distinct watches; further ones are not counted.
const MAX_WATCH_KEYS: usize = 100_000;

/// The statistics that estimates are based on; shared by all cores.
#[derive(Debug)]
pub(super) struct WorkEstimates {
    counts: Mutex<Counts>,
    watchers: Mutex<Watchers>,
}

impl WorkEstimates {
    /// Estimates without any statistics yet.
    pub(super) fn new(semantics: Semantics) -> Self {
        Self {
            counts: Mutex::new(Counts::new(CountSettings::of(semantics))),
            watchers: Mutex::new(Watchers::new(MAX_WATCH_KEYS)),
        }
    }

    /// Calls `act` with the object counts of the upstream.
    pub(super) fn with_counts<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        act(&mut lock(&self.counts))
    }

    /// Calls `act` with the running watches.
    pub(super) fn with_watchers<T>(&self, act: impl FnOnce(&mut Watchers) -> T) -> T {
        act(&mut lock(&self.watchers))
    }

    /// The estimated cost of a request, and how many watches it notifies if it is a mutating one.
    pub(super) fn estimate(
        &self,
        now: Time,
        info: &RequestInfo,
        estimator: EstimatorSettings,
        cap: WidthCap,
    ) -> (Work, Option<u32>) {
        match estimator.input(info) {
            EstimateInput::Nothing => (
                estimator.estimate(info, ObjectStats::Untracked, 0, cap),
                None,
            ),
            EstimateInput::Objects => {
                let stats = lock(&self.counts).lookup(now, &StatsScope::of(info));
                (estimator.estimate(info, stats, 0, cap), None)
            }
            EstimateInput::Watchers => {
                let watchers = lock(&self.watchers).interested(info);
                (
                    estimator.estimate(info, ObjectStats::Untracked, watchers, cap),
                    Some(watchers),
                )
            }
        }
    }
}
