//! Object counts: how many objects there are of a resource, and how large.
//!
//! The cost of a list depends on them. kube-apiserver gets them from its own storage about every minute; a
//! gateway has to learn from the lists that pass ([`Counts::observe_list`]), helped by the server's metrics
//! where it may read them ([`Counts::seed`]). Observations come when clients list, not regularly, so in
//! [`Semantics::Improved`] the last value is valid until it is forgotten, where the original assumes the worst
//! after three minutes; and it is learnt by namespace too, since a list of one small namespace reads little
//! however many objects there are elsewhere.
//!
//! Plain data without locks, bounded in the number of scopes it remembers. Not here: reading
//! answers and metrics, and what a list costs (`work`).

use std::{collections::HashMap, time::Duration};

use super::{
    demand::as_f64,
    scope::{MAX_KEY_BYTES, ScopeKey, StatsScope},
    work::ObjectStats,
};
use crate::{apf::spec::Semantics, time::Time};

/// The size assumed of objects of which only the bytes of all are known.
const ASSUMED_OBJECT_BYTES: u64 = 4_000;

/// The weight of earlier observations against a new one is at most this many objects.
const MAX_WEIGHT: u64 = 1_000;

/// For how long a size from the server is not corrected by the sizes of responses, which are those
/// of another encoding. The server's figures are a minute or two apart.
const SEED_STANDS: Duration = Duration::from_secs(180);

/// How long counts are valid, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountSettings {
    /// [`Semantics::Improved`] uses the counts of the namespace, if there are any;
    /// [`Semantics::Compatible`] knows those of whole resources only.
    pub semantics: Semantics,
    /// After this long without an update [`Counts::lookup`] returns [`ObjectStats::Stale`].
    pub(crate) stale_after: Duration,
    /// After this long without an update a count is forgotten.
    pub(crate) forget_after: Duration,
    /// The most whole resources remembered; at least 1.
    pub(crate) max_resources: usize,
    /// The most namespaces of resources remembered; at least 1.
    pub(crate) max_namespaces: usize,
}

impl CountSettings {
    /// The usual settings. Compatible: stale after 3 minutes, forgotten after 1 hour. Improved: the
    /// last value is valid for 1 hour.
    pub const fn of(semantics: Semantics) -> Self {
        let hour = Duration::from_secs(3600);
        Self {
            semantics,
            stale_after: match semantics {
                Semantics::Compatible => Duration::from_secs(180),
                Semantics::Improved => hour,
            },
            forget_after: hour,
            max_resources: 2_000,
            max_namespaces: 20_000,
        }
    }
}

/// What the response to a list shows.
///
/// Responses of another shape than the objects themselves, like tables and metadata only, must not be
/// observed: their bytes are not those of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListObservation {
    /// Objects in the response, if they were counted.
    pub items_in_page: Option<u64>,
    /// `metadata.remainingItemCount`, if the response has it.
    pub remaining_item_count: Option<u64>,
    /// Length of the response body, decompressed.
    pub decoded_bytes: u64,
    /// The requested `limit`, if any.
    pub limit: Option<u64>,
    /// Whether a label or field selector was given, so that the response does not have all objects.
    pub had_selector: bool,
    /// Whether it continues an earlier list, so that it does not begin with the first object.
    pub from_continue: bool,
}

/// The counts of all recently observed scopes.
#[derive(Clone, Debug)]
pub struct Counts {
    settings: CountSettings,
    resources: Shelf,
    namespaces: Shelf,
}

impl Counts {
    /// Without any counts.
    pub fn new(settings: CountSettings) -> Self {
        Self {
            settings,
            resources: Shelf::new(settings.max_resources),
            namespaces: Shelf::new(settings.max_namespaces),
        }
    }

    /// Changes the semantics; the counts stay.
    pub fn set_semantics(&mut self, semantics: Semantics) {
        self.settings.semantics = semantics;
        self.settings.stale_after = CountSettings::of(semantics).stale_after;
    }

    /// Takes over the server's own figures: `count` objects, and their `total_bytes` if known.
    ///
    /// For three minutes the sizes of responses do not replace such a size.
    pub fn seed(
        &mut self,
        now: Time,
        scope: &StatsScope<'_>,
        count: u64,
        total_bytes: Option<u64>,
    ) {
        let Some(entry) = self.entry(now, scope) else {
            return;
        };
        entry.population = Population::Count(count);
        if let Some(total_bytes) = total_bytes
            && count > 0
        {
            entry.average_bytes = Some(as_f64(total_bytes / count));
            entry.size_given = Some(now);
        }
    }

    /// Learns from the response to a list of `scope`.
    ///
    /// Cost: one hash of the scope's names; when full, now and then a pass over all entries.
    pub fn observe_list(&mut self, now: Time, scope: &StatsScope<'_>, observed: &ListObservation) {
        if let Some(entry) = self.entry(now, scope) {
            entry.observe(now, observed);
        }
    }

    /// The counts of `scope`; in [`Semantics::Improved`] those of the whole resource if nothing is
    /// known of its namespace.
    ///
    /// Cost: one or two hashes of the scope's names; no allocation for names of usual length.
    pub fn lookup(&self, now: Time, scope: &StatsScope<'_>) -> ObjectStats {
        let of_whole = || self.stats(now, &self.resources, &scope.whole());
        if scope.namespace.is_none() || self.settings.semantics == Semantics::Compatible {
            return of_whole();
        }
        match self.stats(now, &self.namespaces, scope) {
            known @ ObjectStats::Known { .. } => known,
            unknown => match of_whole() {
                ObjectStats::Untracked => unknown,
                stats => stats,
            },
        }
    }

    /// Forgets counts that were not updated for too long. Call it about every hour; the answers do
    /// not depend on it.
    pub fn prune(&mut self, now: Time) {
        let forget_after = self.settings.forget_after;
        for shelf in [&mut self.resources, &mut self.namespaces] {
            shelf
                .entries
                .retain(|_, entry| now.since(entry.updated) < forget_after);
        }
    }

    /// The number of scopes remembered.
    pub fn len(&self) -> usize {
        self.resources.entries.len() + self.namespaces.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn stats(&self, now: Time, shelf: &Shelf, scope: &StatsScope<'_>) -> ObjectStats {
        let Some(entry) = shelf.entries.get(&scope.key()[..]) else {
            return ObjectStats::Untracked;
        };
        let age = now.since(entry.updated);
        if age >= self.settings.forget_after {
            ObjectStats::Untracked
        } else if age > self.settings.stale_after {
            ObjectStats::Stale
        } else {
            entry.stats()
        }
    }

    /// The entry of `scope`, new or not, marked as updated; none for names that are too long to be real.
    fn entry(&mut self, now: Time, scope: &StatsScope<'_>) -> Option<&mut ScopeCount> {
        let shelf = match scope.namespace {
            None => &mut self.resources,
            Some(_) => &mut self.namespaces,
        };
        let key = scope.key();
        (key.len() <= MAX_KEY_BYTES).then(|| shelf.entry(now, &key))
    }
}

/// A bounded number of entries, the latest updated.
#[derive(Clone, Debug)]
struct Shelf {
    entries: HashMap<Box<[u8]>, ScopeCount>,
    max_entries: usize,
    updates: u64,
}

impl Shelf {
    fn new(max_entries: usize) -> Self {
        Self {
            entries: HashMap::new(),
            max_entries: max_entries.max(1),
            updates: 0,
        }
    }

    fn entry(&mut self, now: Time, key: &ScopeKey) -> &mut ScopeCount {
        if self.entries.len() >= self.max_entries && !self.entries.contains_key(&key[..]) {
            self.evict();
        }
        self.updates += 1;
        let entry = self.entries.entry(key[..].into()).or_default();
        // Cores do not read the clock at the same moment, so an update may come with an earlier time.
        entry.updated = now.max(entry.updated);
        entry.update = self.updates;
        entry
    }

    /// Removes the eighth that was not updated for the longest time, so that the cost of finding it is
    /// spread over many insertions.
    fn evict(&mut self) {
        let mut updates: Vec<u64> = self.entries.values().map(|entry| entry.update).collect();
        let last_of_eighth = updates.len().div_ceil(8).saturating_sub(1);
        if last_of_eighth < updates.len() {
            let (_, &mut oldest, _) = updates.select_nth_unstable(last_of_eighth);
            self.entries.retain(|_, entry| entry.update > oldest);
        }
    }
}

/// The counts of one scope.
#[derive(Clone, Debug, Default)]
struct ScopeCount {
    updated: Time,
    /// The number of its last update, for a strict order.
    update: u64,
    population: Population,
    average_bytes: Option<f64>,
    /// When the server gave the size.
    size_given: Option<Time>,
}

/// How many objects there are.
#[derive(Clone, Copy, Debug, Default)]
enum Population {
    #[default]
    Unknown,
    /// This number of objects.
    Count(u64),
    /// As many as amount to this number of bytes.
    Bytes(u64),
}

impl ScopeCount {
    fn stats(&self) -> ObjectStats {
        let average_bytes = self.average();
        match self.population {
            Population::Unknown => ObjectStats::Untracked,
            Population::Count(count) => ObjectStats::Known {
                count,
                average_bytes: average_bytes.unwrap_or(0),
            },
            Population::Bytes(bytes) => {
                let average_bytes = average_bytes.unwrap_or(ASSUMED_OBJECT_BYTES);
                ObjectStats::Known {
                    count: bytes.div_ceil(average_bytes),
                    average_bytes,
                }
            }
        }
    }

    /// The mean size in whole bytes, at least 1, if it is known.
    fn average(&self) -> Option<u64> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "sizes are not negative, and the cast saturates"
        )]
        self.average_bytes.map(|bytes| (bytes as u64).max(1))
    }

    fn observe(&mut self, now: Time, observed: &ListObservation) {
        let items = observed.items();
        if let Some(items) = items {
            self.learn_size(now, items, observed.decoded_bytes);
        }
        // A filtered response shows how large objects are, but not how many there are.
        if observed.had_selector {
            return;
        }
        let remaining = observed.remaining_item_count;
        match items {
            Some(items) if observed.from_continue => {
                self.learn_at_least(items.saturating_add(remaining.unwrap_or(0)));
            }
            // The server returns the number of remaining objects unless it is 0.
            Some(items) => {
                let count = items.saturating_add(remaining.unwrap_or(0));
                self.population = Population::Count(count);
            }
            None if observed.from_continue => {}
            None => match remaining {
                Some(remaining) => self.learn_at_least(remaining),
                None => self.learn_total(now, observed.decoded_bytes),
            },
        }
    }

    /// Merges the size of `items` objects, in a response of `bytes`, into the mean. Both sides are weighted by
    /// their number of objects.
    fn learn_size(&mut self, now: Time, items: u64, bytes: u64) {
        let is_reported = self
            .size_given
            .is_some_and(|reported| now.since(reported) <= SEED_STANDS);
        if items == 0 || is_reported {
            return;
        }
        let seen = as_f64(bytes) / as_f64(items);
        let known = match self.stats() {
            ObjectStats::Known { count, .. } => count.clamp(1, MAX_WEIGHT),
            _ => 1,
        };
        let weight = as_f64(items) / as_f64(items.saturating_add(known));
        self.average_bytes = Some(match self.average_bytes {
            None => seen,
            Some(average) => average + weight * (seen - average),
        });
    }

    /// All objects, whose number is unknown, take `bytes`.
    fn learn_total(&mut self, now: Time, bytes: u64) {
        match (self.population, self.average_bytes) {
            (Population::Count(count), None) if count > 0 => self.learn_size(now, count, bytes),
            _ => self.population = Population::Bytes(bytes),
        }
    }

    fn learn_at_least(&mut self, count: u64) {
        let known = match self.stats() {
            ObjectStats::Known { count, .. } => count,
            _ => 0,
        };
        if count > known {
            self.population = Population::Count(count);
        }
    }
}

impl ListObservation {
    /// The number of objects in the response, if known: every page except the last is full.
    fn items(&self) -> Option<u64> {
        let full_page = || {
            self.remaining_item_count
                .filter(|&remaining| remaining > 0)
                .and(self.limit)
                .filter(|&limit| limit > 0)
        };
        self.items_in_page.or_else(full_page)
    }
}

#[cfg(test)]
mod tests;
