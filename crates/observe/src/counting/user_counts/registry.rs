//! The rows of all cores, and which of them are dropped.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{UserLabels, UserRefusal};
use fairgate_core::{
    cells::Counter,
    sync::{Mutex, lock},
};

/// How often [`UserRegistry::sweep`] is to be called.
pub(crate) const SWEEP_PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of combinations of labels that are counted.
pub(super) const MAX_KEYS: usize = 512;
/// The number of sweeps after which what was counted weighs 1/e: a minute.
pub(super) const MEMORY: f64 = 60.0;
/// Sweeps without a request after which a combination is dropped: an hour.
const FORGOTTEN_SWEEPS: u32 = 3600;

/// What one core counts of one combination of labels.
#[derive(Debug)]
pub(super) struct UserRow {
    pub(super) labels: UserLabels,
    pub(super) count: Counter,
    /// Whether the registry has dropped it.
    is_dropped: AtomicBool,
}

impl UserRow {
    /// Whether counts added to it are lost.
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed)
    }
}

/// The rows of all cores of one combination.
#[derive(Debug, Default)]
struct KeyRows {
    rows: Vec<Arc<UserRow>>,
    /// The sum of all rows at the last sweep.
    swept: u64,
    /// What was counted up to the last sweep, the older the less.
    weight: f64,
    idle_sweeps: u32,
}

impl KeyRows {
    fn total(&self) -> u64 {
        self.rows.iter().map(|row| row.count.get()).sum()
    }

    /// What was counted lately, including what was counted since the last sweep.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn present_weight(&self) -> f64 {
        self.weight + (self.total() - self.swept) as f64
    }

    fn sweep(&mut self) {
        let total = self.total();
        let is_idle = total == self.swept;
        self.idle_sweeps = if is_idle { self.idle_sweeps + 1 } else { 0 };
        self.weight = self.present_weight() * (-1.0 / MEMORY).exp();
        self.swept = total;
    }

    /// Whether it was counted in lately. What is not kept is dropped.
    fn is_kept(&self) -> bool {
        let is_kept = self.idle_sweeps < FORGOTTEN_SWEEPS;
        if !is_kept {
            self.drop_rows();
        }
        is_kept
    }

    /// Has the cores forget the rows.
    fn drop_rows(&self) {
        for row in &self.rows {
            row.is_dropped.store(true, Ordering::Relaxed);
        }
    }
}

/// A count of a user, for scrapes and dumps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UserCount {
    /// What was counted.
    pub(crate) labels: UserLabels,
    /// The count since the combination was added.
    pub(crate) total: u64,
    /// What was counted in about the last minute: older counts weigh less.
    pub(crate) recent: f64,
}

/// The rows of all cores.
#[derive(Debug, Default)]
pub(crate) struct UserRegistry {
    keys: Mutex<BTreeMap<UserLabels, KeyRows>>,
    is_full: AtomicBool,
    /// How many sweeps dropped something.
    drops: AtomicU32,
}

impl UserRegistry {
    /// Whether no further combinations are counted until the next sweep.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Changes whenever rows are dropped.
    pub(super) fn drops(&self) -> u32 {
        self.drops.load(Ordering::Relaxed)
    }

    /// A new row for `labels`, of which each core has one at most; `None` if there are too many combinations.
    pub(super) fn add(&self, labels: UserLabels) -> Option<Arc<UserRow>> {
        let mut keys = lock(&self.keys);
        if keys.len() >= MAX_KEYS && !keys.contains_key(&labels) {
            self.is_full.store(true, Ordering::Relaxed);
            return None;
        }
        let row = Arc::new(UserRow {
            labels: labels.clone(),
            count: Counter::default(),
            is_dropped: AtomicBool::new(false),
        });
        let same = keys.entry(labels).or_default();
        same.rows.push(Arc::clone(&row));
        Some(row)
    }

    /// Lets what was counted weigh less, and drops the lightest combinations if there are many. To be called every
    /// [`SWEEP_PERIOD`]. A core that counts at this very moment may lose that one count.
    pub(crate) fn sweep(&self) {
        let mut keys = lock(&self.keys);
        for rows in keys.values_mut() {
            rows.sweep();
        }
        let before = keys.len();
        keys.retain(|_, rows| rows.is_kept());
        for labels in lightest(&keys) {
            if let Some(rows) = keys.remove(&labels) {
                rows.drop_rows();
            }
        }
        if keys.len() < before {
            self.drops.fetch_add(1, Ordering::Relaxed);
        }
        self.is_full
            .store(keys.len() >= MAX_KEYS, Ordering::Relaxed);
    }

    /// All counts, those with most in the last minute first.
    pub(crate) fn counts(&self) -> Vec<UserCount> {
        let keys = lock(&self.keys);
        let count = |(labels, rows): (&UserLabels, &KeyRows)| UserCount {
            labels: labels.clone(),
            total: rows.total(),
            recent: rows.present_weight(),
        };
        let mut counts: Vec<UserCount> = keys.iter().map(count).collect();
        // Cores that add a key do not wait for the sort.
        drop(keys);
        counts.sort_by(|a, b| {
            let by_weight = b.recent.total_cmp(&a.recent);
            by_weight
                .then(b.total.cmp(&a.total))
                .then_with(|| a.labels.cmp(&b.labels))
        });
        counts
    }

    /// The `most` heaviest counts of each of these levels and of no level, in order of their labels; refusals of admission are counted
    /// apart from others. Counts of other levels, which no longer exist, are left out.
    pub(crate) fn heaviest(&self, most: usize, levels: &BTreeSet<&str>) -> Vec<UserCount> {
        let mut taken: BTreeMap<(Box<str>, bool), usize> = BTreeMap::new();
        let mut counts = self.counts();
        let exists = |level: &str| level.is_empty() || levels.contains(level);
        counts.retain(|count| exists(&count.labels.level));
        counts.retain(|count| {
            let refusal = count.labels.refusal;
            let is_of_admission = refusal.is_some_and(UserRefusal::is_of_admission);
            let taken = taken.entry((count.labels.level.clone(), is_of_admission));
            let taken = taken.or_default();
            *taken += 1;
            *taken <= most
        });
        counts.sort_by(|a, b| a.labels.cmp(&b.labels));
        counts
    }
}

/// What has to go so that the table is half full again; nothing unless it is more than three quarters full.
fn lightest(keys: &BTreeMap<UserLabels, KeyRows>) -> Vec<UserLabels> {
    if keys.len() <= MAX_KEYS / 4 * 3 {
        return Vec::new();
    }
    let mut by_weight: Vec<(f64, &UserLabels)> = keys
        .iter()
        .map(|(labels, rows)| (rows.weight, labels))
        .collect();
    by_weight.sort_by(|a, b| b.0.total_cmp(&a.0));
    // Down to a half, so that the sort is not needed again at the next sweep.
    let rest = by_weight.into_iter().skip(MAX_KEYS / 2);
    rest.map(|(_, labels)| labels.clone()).collect()
}

#[cfg(test)]
impl UserRegistry {
    /// How many combinations and rows there are.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let keys = lock(&self.keys);
        (keys.len(), keys.values().map(|rows| rows.rows.len()).sum())
    }
}
