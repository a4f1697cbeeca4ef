//! The state of the controller, for metrics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_disruption::controller::{ControllerCounts, SelectorWork, SyncEnding, SyncReport};
use fairgate_upstream::informer::WatchHealth;

/// The counters and gauges of the controller. Reading them is cheap.
#[derive(Debug)]
pub struct ControllerStatus {
    clock: Clock,
    leads: AtomicBool,
    pods: AtomicUsize,
    budgets: AtomicUsize,
    exhausted: AtomicUsize,
    over_limit: AtomicUsize,
    look_ups: AtomicU64,
    /// Those of [`Self::look_ups`] that were done since this gateway last became the leader.
    look_ups_as_leader: AtomicU64,
    longest_slice: AtomicU64,
    syncs: [AtomicU64; SyncEnding::ALL.len()],
    /// When the last sync that did not fail or conflict ended, and how long it took.
    last: Mutex<Option<(Time, Duration)>>,
    /// The watches of this gateway while it is the leader.
    watches: Mutex<Vec<Arc<WatchHealth>>>,
}

impl ControllerStatus {
    /// The status of a controller that has not started.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            leads: AtomicBool::new(false),
            pods: AtomicUsize::new(0),
            budgets: AtomicUsize::new(0),
            exhausted: AtomicUsize::new(0),
            over_limit: AtomicUsize::new(0),
            look_ups: AtomicU64::new(0),
            look_ups_as_leader: AtomicU64::new(0),
            longest_slice: AtomicU64::new(0),
            syncs: Default::default(),
            last: Mutex::default(),
            watches: Mutex::default(),
        }
    }

    /// Whether this gateway is the leader.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// The numbers of cached objects; all 0 unless this gateway is the leader.
    pub fn counts(&self) -> ControllerCounts {
        ControllerCounts {
            pods: self.pods.load(Ordering::Relaxed),
            budgets: self.budgets.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
            over_limit: self.over_limit.load(Ordering::Relaxed),
        }
    }

    /// The look-ups that this gateway has done, and the longest slice since it became the leader, or when it last was.
    pub fn work(&self) -> SelectorWork {
        SelectorWork {
            look_ups: self.look_ups.load(Ordering::Relaxed),
            longest_slice: self.longest_slice.load(Ordering::Relaxed),
        }
    }

    /// The number of syncs that ended so.
    pub fn syncs(&self, ending: SyncEnding) -> u64 {
        self.syncs[ending as usize].load(Ordering::Relaxed)
    }

    /// How long the last sync took that did not fail or conflict, lookups and writes included; zero before the first.
    pub fn last_duration(&self) -> Duration {
        lock(&self.last).map_or(Duration::ZERO, |(_, took)| took)
    }

    /// The time since the end of the last sync that did not fail or conflict; zero before the first.
    pub fn last_age(&self) -> Duration {
        lock(&self.last).map_or(Duration::ZERO, |(ended, _)| self.clock.now().since(ended))
    }

    /// Which kind of objects this gateway, as the leader, cannot watch, and why. `None` if all watches work.
    pub fn problem(&self) -> Option<String> {
        let failure = |health: &Arc<WatchHealth>| {
            let (why, _) = health.failure()?;
            Some(format!("cannot watch {}: {why}", health.what()))
        };
        lock(&self.watches).iter().find_map(failure)
    }

    pub(crate) fn set_watches(&self, watches: Vec<Arc<WatchHealth>>) {
        *lock(&self.watches) = watches;
    }

    pub(crate) fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
        // The next leadership counts from zero.
        self.look_ups_as_leader.store(0, Ordering::Relaxed);
    }

    pub(crate) fn set_counts(&self, counts: ControllerCounts) {
        self.pods.store(counts.pods, Ordering::Relaxed);
        self.budgets.store(counts.budgets, Ordering::Relaxed);
        self.exhausted.store(counts.exhausted, Ordering::Relaxed);
        self.over_limit.store(counts.over_limit, Ordering::Relaxed);
    }

    /// Takes over what was done since this gateway became the leader. Called by one task only.
    pub(crate) fn set_work(&self, work: SelectorWork) {
        let counted = self
            .look_ups_as_leader
            .swap(work.look_ups, Ordering::Relaxed);
        let more = work.look_ups.saturating_sub(counted);
        self.look_ups.fetch_add(more, Ordering::Relaxed);
        self.longest_slice
            .store(work.longest_slice, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, report: SyncReport) {
        self.syncs[report.ending as usize].fetch_add(1, Ordering::Relaxed);
        if matches!(report.ending, SyncEnding::Written | SyncEnding::Unchanged) {
            *lock(&self.last) = Some((self.clock.now(), report.took));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_look_ups_of_all_leaderships_are_added_up() {
        let status = ControllerStatus::new(Clock::system());
        let counted = |look_ups| {
            status.set_work(SelectorWork {
                look_ups,
                longest_slice: 1,
            });
            status.work().look_ups
        };
        assert_eq!([4, 10, 10].map(counted), [4, 10, 10]);
        // Each leadership has a controller of its own, which begins with zero.
        status.set_leads(false);
        assert_eq!([3, 12].map(counted), [13, 22]);
    }
}
