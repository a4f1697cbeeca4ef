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

    /// The work that this gateway has done since it became the leader, or when it last was.
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
    }

    pub(crate) fn set_counts(&self, counts: ControllerCounts) {
        self.pods.store(counts.pods, Ordering::Relaxed);
        self.budgets.store(counts.budgets, Ordering::Relaxed);
        self.exhausted.store(counts.exhausted, Ordering::Relaxed);
        self.over_limit.store(counts.over_limit, Ordering::Relaxed);
    }

    pub(crate) fn set_work(&self, work: SelectorWork) {
        self.look_ups.store(work.look_ups, Ordering::Relaxed);
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
