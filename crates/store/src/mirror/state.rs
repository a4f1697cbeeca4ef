//! The present entries and the history of changes, from which the entries at an earlier revision follow.

use std::{collections::BTreeMap, num::NonZeroUsize, ops::Bound, sync::Arc};

use crate::{
    entry::{StoreEntry, StoreEvent},
    error::StoreError,
    history::History,
    types::ListPage,
    usage::{UsageByPrefix, UsageChange},
};

#[derive(Default)]
pub(super) struct State {
    pub(super) entries: BTreeMap<Arc<str>, Arc<StoreEntry>>,
    pub(super) history: History,
    /// What `entries` take.
    pub(super) usage: UsageByPrefix,
    /// The revision of `entries`; 0 before the first load.
    pub(super) revision: u64,
}

impl State {
    /// The state with these entries.
    pub(super) fn new(
        entries: BTreeMap<Arc<str>, Arc<StoreEntry>>,
        history: History,
        revision: u64,
    ) -> Self {
        let mut usage = UsageByPrefix::default();
        for (key, entry) in &entries {
            usage.change(key, UsageChange::between(None, Some(entry.length())));
        }
        Self {
            entries,
            history,
            usage,
            revision,
        }
    }

    /// Changes the present entries.
    pub(super) fn change(&mut self, event: &StoreEvent) {
        let after = event.after.as_ref();
        let before = match after {
            Some(entry) => self.entries.insert(entry.key.clone(), entry.clone()),
            None => self.entries.remove(&event.key),
        };
        let length = |entry: Option<&Arc<StoreEntry>>| entry.map(|entry| entry.length());
        let change = UsageChange::between(length(before.as_ref()), length(after));
        self.usage.change(&event.key, change);
    }

    /// The present entries below `prefix` whose key is greater than `after`.
    pub(super) fn below<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<StoreEntry>> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.entries
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(_, entry)| entry)
    }

    /// The entries right after `revision` of those keys below `prefix` that changed since then.
    pub(super) fn undone(
        &self,
        prefix: &str,
        after: Option<&str>,
        revision: u64,
    ) -> BTreeMap<&str, Option<&Arc<StoreEntry>>> {
        let mut undone = BTreeMap::new();
        // From the newest to the oldest: what was before the first change of a key replaces what was before later ones.
        for event in self.history.after(revision).rev() {
            let in_range =
                event.key.starts_with(prefix) && after.is_none_or(|after| &*event.key > after);
            if in_range {
                undone.insert(&*event.key, event.before.as_ref());
            }
        }
        undone
    }

    pub(super) fn reaches(&self, revision: u64) -> Result<(), StoreError> {
        let floor = self.history.floor();
        if revision < floor {
            return Err(StoreError::Compacted {
                requested: revision,
                floor,
            });
        }
        if revision > self.revision {
            return Err(StoreError::Future {
                requested: revision,
                newest: self.revision,
            });
        }
        Ok(())
    }
}

/// The first `limit` of `entries`, and how many follow.
pub(super) fn paged<'a>(
    mut entries: impl Iterator<Item = &'a Arc<StoreEntry>>,
    limit: Option<NonZeroUsize>,
    revision: u64,
) -> ListPage {
    let limit = limit.map_or(usize::MAX, NonZeroUsize::get);
    let page = entries.by_ref().take(limit).cloned().collect();
    ListPage {
        entries: page,
        revision,
        remaining: entries.count() as u64,
    }
}
