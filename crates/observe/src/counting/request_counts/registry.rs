//! The rows of all cores, by the kind of request: what a scrape reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    DryRun, FinishedRequest, OTHER, RequestLabels,
    request_labels::{running_verb_label, scope_label},
    status_counts::{StatusCounts, StatusTotals},
    timings::{TimingTotals, Timings},
};
use fairgate_core::{
    cells::Counter,
    digest::RequestInfo,
    sync::{Mutex, lock},
};

/// The maximum number of combinations of verb, scope and resource that are distinguished.
pub(super) const MAX_KINDS: usize = 1024;
/// The maximum number of combinations with histograms of their own.
pub(super) const MAX_TIMED: usize = 96;
/// How often [`RequestRegistry::sweep`] is to be called.
pub(crate) const SWEEP_PERIOD: Duration = Duration::from_secs(60);
/// Sweeps without a request after which a combination is removed: an hour.
pub(super) const FORGOTTEN_SWEEPS: u32 = 60;
/// Sweeps without a request after which a combination gives its histogram to one that has none.
pub(super) const IDLE_SWEEPS: u32 = 5;

/// What one core counts of one kind of request.
#[derive(Debug)]
pub(super) struct Row {
    requests: StatusCounts<16>,
    terminations: StatusCounts<6>,
    /// Requests whose response broke off.
    aborts: Counter,
    pub(super) timings: Timings,
    /// Whether `timings` are in use.
    is_timed: AtomicBool,
    /// The sweep after which it was last counted in.
    seen: AtomicU32,
    /// Whether the registry has removed it.
    removed: AtomicBool,
}

impl Row {
    pub(super) fn new(is_timed: bool) -> Self {
        Self {
            is_timed: AtomicBool::new(is_timed),
            seen: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            requests: StatusCounts::default(),
            terminations: StatusCounts::default(),
            aborts: Counter::default(),
            timings: Timings::new(),
        }
    }

    pub(super) fn count(&self, request: &FinishedRequest<'_>, sweep: u32) {
        self.seen.store(sweep, Ordering::Relaxed);
        self.requests.count(request.code, request.dry_run);
        if request.terminated {
            self.terminations.count(request.code, DryRun::No);
        }
        if request.aborted {
            self.aborts.increment();
        }
    }

    pub(super) fn is_timed(&self) -> bool {
        self.is_timed.load(Ordering::Relaxed)
    }

    /// Whether the registry has removed its combination: counts added to it would never be exposed.
    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    fn last_seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }
}

/// What all cores counted of one kind of request.
#[derive(Debug, Default)]
pub(crate) struct RequestTotals {
    /// All requests, by status.
    pub(crate) requests: StatusTotals,
    /// Those that the gateway rejected or ended to protect itself or the upstream, by status.
    pub(crate) terminations: StatusTotals,
    /// Those whose response broke off.
    pub(crate) aborts: u64,
    /// Durations and sizes.
    pub(crate) timings: TimingTotals,
}

/// The rows of all cores.
#[derive(Debug, Default)]
pub(crate) struct RequestRegistry {
    rows: Mutex<BTreeMap<RequestLabels, KindRows>>,
    is_full: AtomicBool,
    /// How many sweeps there were.
    sweeps: AtomicU32,
}

/// The rows of one kind.
#[derive(Clone, Debug, Default)]
struct KindRows {
    rows: Vec<Arc<Row>>,
    is_timed: bool,
}

impl KindRows {
    fn last_seen(&self) -> u32 {
        let seen = self.rows.iter().map(|row| row.last_seen());
        seen.max().unwrap_or(0)
    }

    fn set_timed(&mut self, is_timed: bool) {
        self.is_timed = is_timed;
        for row in &self.rows {
            row.is_timed.store(is_timed, Ordering::Relaxed);
        }
    }

    fn forget(&self) {
        for row in &self.rows {
            row.removed.store(true, Ordering::Relaxed);
        }
    }

    fn totals(&self) -> RequestTotals {
        let mut totals = RequestTotals::default();
        for row in &self.rows {
            row.requests.add_to(&mut totals.requests);
            row.terminations.add_to(&mut totals.terminations);
            totals.aborts += row.aborts.get();
            if self.is_timed {
                row.timings.add_to(&mut totals.timings);
            }
        }
        totals
    }
}

impl RequestRegistry {
    /// A new row for requests of `kind`; `None` if there are too many kinds already.
    pub(super) fn add(&self, kind: &RequestLabels) -> Option<Arc<Row>> {
        // Without the lock: once there are too many kinds, requests of new ones would take it again and again.
        if self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        let mut rows = lock(&self.rows);
        let is_timed = match rows.get(kind) {
            Some(same) => same.is_timed,
            None if rows.len() >= MAX_KINDS => {
                self.is_full.store(true, Ordering::Relaxed);
                return None;
            }
            None => count_timed(&rows) < MAX_TIMED,
        };
        let row = Arc::new(Row::new(is_timed));
        row.seen.store(self.sweep_number(), Ordering::Relaxed);
        let same = rows.entry(kind.clone()).or_default();
        same.is_timed = is_timed;
        same.rows.push(Arc::clone(&row));
        Some(row)
    }

    pub(super) fn sweep_number(&self) -> u32 {
        self.sweeps.load(Ordering::Relaxed)
    }

    /// Forgets what was not seen for too long, and takes histograms from kinds that do not use them to
    /// kinds that have none. To be called every [`SWEEP_PERIOD`]. A core that counts at this very
    /// moment may lose that one count.
    pub(crate) fn sweep(&self) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed) + 1;
        let mut rows = lock(&self.rows);
        let idle = |rows: &KindRows| now.saturating_sub(rows.last_seen());
        rows.retain(|kind, rows| {
            let forgotten = &*kind.group != OTHER && idle(rows) > FORGOTTEN_SWEEPS;
            if forgotten {
                rows.forget();
            }
            !forgotten
        });
        let mut room = MAX_TIMED.saturating_sub(count_timed(&rows));
        let of_idle: Vec<RequestLabels> = rows
            .iter()
            .filter(|(kind, rows)| {
                &*kind.group != OTHER && rows.is_timed && idle(rows) > IDLE_SWEEPS
            })
            .map(|(kind, _)| kind.clone())
            .collect();
        let mut of_idle = of_idle.iter();
        let untimed: Vec<RequestLabels> = rows
            .iter()
            .filter(|(_, rows)| !rows.is_timed && idle(rows) <= 1)
            .map(|(kind, _)| kind.clone())
            .collect();
        for kind in untimed {
            if room > 0 {
                room -= 1;
            } else if let Some(other) = of_idle.next().and_then(|other| rows.get_mut(other)) {
                other.set_timed(false);
            } else {
                break;
            }
            if let Some(rows) = rows.get_mut(&kind) {
                rows.set_timed(true);
            }
        }
        self.is_full
            .store(rows.len() >= MAX_KINDS, Ordering::Relaxed);
    }

    /// A new row for requests that are not distinguished.
    pub(super) fn add_other(&self, kind: RequestLabels) -> Arc<Row> {
        let row = Arc::new(Row::new(true));
        let mut rows = lock(&self.rows);
        let same = rows.entry(kind).or_default();
        same.is_timed = true;
        same.rows.push(Arc::clone(&row));
        row
    }

    /// Whether no further kinds are distinguished.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Long-running requests by kind. Those for resources of which no request has ended yet are counted as
    /// `other`, so that clients cannot create series at will.
    pub(crate) fn count_running<'r>(
        &self,
        running: impl Iterator<Item = &'r RequestInfo>,
    ) -> BTreeMap<RequestLabels, u64> {
        // Copied, so that no core waits for the lock meanwhile.
        let kinds: Vec<RequestLabels> = lock(&self.rows).keys().cloned().collect();
        let known: BTreeSet<_> = kinds.iter().map(RequestLabels::resource_labels).collect();
        let mut counts = BTreeMap::new();
        for info in running {
            let (scope, verb) = (scope_label(info), running_verb_label(info));
            let mut labels = RequestLabels::of(info, scope, verb);
            if !known.contains(&labels.resource_labels()) {
                labels = RequestLabels::other(scope, verb);
            }
            *counts.entry(labels).or_default() += 1;
        }
        counts
    }

    /// Everything counted, by kind.
    pub(crate) fn totals(&self) -> Vec<(RequestLabels, RequestTotals)> {
        // Copied, which costs pointers, so that no core waits for the lock while a scrape adds up.
        let rows = lock(&self.rows).clone();
        rows.into_iter()
            .map(|(kind, rows)| (kind, rows.totals()))
            .collect()
    }
}

/// How many kinds have a histogram of their own. O(kinds): called only for a new kind and at each sweep.
fn count_timed(rows: &BTreeMap<RequestLabels, KindRows>) -> usize {
    rows.values().filter(|rows| rows.is_timed).count()
}
