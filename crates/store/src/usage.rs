//! How much of a store its entries take, by prefix, and the limits of that.
//!
//! A prefix is the beginning of a key up to one of its slashes: `/policy/poddisruptionbudgets/default/` has what one
//! namespace has of one resource, `/policy/poddisruptionbudgets/` that of all namespaces, `/` everything. The usage of
//! each is updated with every change, at a cost of `O(length of the key)`, so that no write has to count entries.
//!
//! Only values count. Keys are bounded by names, and every value has the name as well.

use std::{collections::HashMap, fmt, sync::Arc};

/// What entries take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// The number of entries.
    pub objects: u64,
    /// The lengths of their values, as stored, in bytes.
    pub bytes: u64,
}

/// The most that the entries below a prefix may take together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLimit {
    /// The beginning of the keys. It begins and ends with `/`.
    pub prefix: String,
    /// The most entries and bytes; `u64::MAX`: any number.
    pub most: StoreUsage,
}

/// What a write must observe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBounds {
    /// The limits that it must not exceed.
    pub limits: Vec<StoreLimit>,
    /// Whether the write may use space that is reserved for writes that make room, although it takes more: for those on
    /// which others depend, such as statuses. They are few and add little.
    pub is_essential: bool,
}

/// What a write would exceed. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// The first limit that the write would exceed.
    pub limit: StoreLimit,
    /// What is below its prefix at present.
    pub used: StoreUsage,
    /// By how much the write would increase that: 0 where it would not.
    pub requested: StoreUsage,
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            used,
            requested,
        } = self;
        write!(
            f,
            "the limit of {} would be exceeded: requested: objects={},bytes={}, used: objects={},bytes={}, limited: objects={},bytes={}",
            limit.prefix,
            requested.objects,
            requested.bytes,
            used.objects,
            used.bytes,
            limit.most.objects,
            limit.most.bytes
        )
    }
}

/// By how much a write changes what is used. Negative: it makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageChange {
    objects: i64,
    bytes: i64,
}

impl UsageChange {
    /// The change when a value of so many bytes is replaced by another one; `None`: there is none.
    pub(crate) fn between(before: Option<usize>, after: Option<usize>) -> Self {
        let bytes = |length: Option<usize>| {
            let length = length.unwrap_or(0);
            i64::try_from(length).unwrap_or(i64::MAX)
        };
        Self {
            objects: i64::from(after.is_some()) - i64::from(before.is_some()),
            bytes: bytes(after) - bytes(before),
        }
    }

    /// Both changes together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            bytes: self.bytes + other.bytes,
        }
    }

    /// What the change adds, without what it takes away.
    #[cfg(feature = "etcd")]
    pub(crate) fn growth(self) -> Self {
        Self {
            objects: self.objects.max(0),
            bytes: self.bytes.max(0),
        }
    }

    /// The opposite change.
    #[cfg(feature = "etcd")]
    pub(crate) fn reversed(self) -> Self {
        Self {
            objects: -self.objects,
            bytes: -self.bytes,
        }
    }
}

impl std::error::Error for ExceededLimit {}

impl StoreUsage {
    pub(crate) fn after(self, change: UsageChange) -> Self {
        Self {
            objects: self.objects.saturating_add_signed(change.objects),
            bytes: self.bytes.saturating_add_signed(change.bytes),
        }
    }
}

impl StoreLimit {
    /// Whether a change is within the limit. Of objects and bytes, each may be over the limit as long as it does not
    /// grow: what is over a limit may shrink.
    pub(crate) fn check(
        &self,
        used: StoreUsage,
        change: UsageChange,
    ) -> Result<(), Box<ExceededLimit>> {
        let next = used.after(change);
        let objects = change.objects > 0 && next.objects > self.most.objects;
        let bytes = change.bytes > 0 && next.bytes > self.most.bytes;
        if !objects && !bytes {
            return Ok(());
        }
        Err(Box::new(ExceededLimit {
            limit: self.clone(),
            used,
            requested: StoreUsage::default().after(change),
        }))
    }
}

/// The prefixes of a key, the shortest first.
pub(crate) fn prefixes(key: &str) -> impl Iterator<Item = &str> {
    key.match_indices('/').map(|(at, _)| &key[..=at])
}

/// What is used below each prefix that has entries.
#[derive(Debug, Default)]
pub(crate) struct UsageByPrefix(HashMap<Arc<str>, StoreUsage>);

impl UsageByPrefix {
    /// Adds a change of the entry at `key`.
    pub(crate) fn change(&mut self, key: &str, change: UsageChange) {
        if change == UsageChange::default() {
            return;
        }
        for prefix in prefixes(key) {
            let Some(usage) = self.0.get_mut(prefix) else {
                self.0
                    .insert(prefix.into(), StoreUsage::default().after(change));
                continue;
            };
            *usage = usage.after(change);
            // Names that come and go leave nothing behind.
            if usage.objects == 0 {
                self.0.remove(prefix);
            }
        }
    }

    /// What is used below `prefix`.
    pub(crate) fn below(&self, prefix: &str) -> StoreUsage {
        self.0.get(prefix).copied().unwrap_or_default()
    }

    /// All prefixes that have entries, in no order.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, StoreUsage)> {
        let usages = self.0.iter();
        usages
            .map(|(key, usage)| (Arc::clone(key), *usage))
            .collect()
    }
}

/// Changes that are not in a [`UsageByPrefix`] yet.
#[derive(Debug, Default)]
pub(crate) struct PendingChanges(HashMap<Box<str>, UsageChange>);

impl PendingChanges {
    /// Adds a change of the entry at `key`.
    pub(crate) fn add(&mut self, key: &str, change: UsageChange) {
        for prefix in prefixes(key) {
            let sum = self.below(prefix).plus(change);
            if sum == UsageChange::default() {
                self.0.remove(prefix);
            } else {
                self.0.insert(prefix.into(), sum);
            }
        }
    }

    /// The changes below `prefix` together.
    pub(crate) fn below(&self, prefix: &str) -> UsageChange {
        self.0.get(prefix).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(objects: u64, bytes: u64) -> StoreUsage {
        StoreUsage { objects, bytes }
    }

    #[test]
    fn each_prefix_has_what_is_below_it() {
        let mut usages = UsageByPrefix::default();
        usages.change("/policy/budgets/a/x", UsageChange::between(None, Some(10)));
        usages.change("/policy/budgets/a/y", UsageChange::between(None, Some(5)));
        usages.change("/policy/budgets/b/x", UsageChange::between(None, Some(3)));
        assert_eq!(usages.below("/policy/budgets/a/"), used(2, 15));
        assert_eq!(usages.below("/policy/budgets/"), used(3, 18));
        assert_eq!(usages.below("/"), used(3, 18));
        usages.change(
            "/policy/budgets/a/x",
            UsageChange::between(Some(10), Some(1)),
        );
        usages.change("/policy/budgets/b/x", UsageChange::between(Some(3), None));
        assert_eq!(usages.below("/policy/budgets/a/"), used(2, 6));
        assert_eq!(usages.below("/policy/budgets/b/"), used(0, 0));
        // Nothing stays behind of namespaces that are gone.
        assert_eq!(usages.all().len(), 4);
    }

    #[test]
    fn what_is_over_a_limit_may_shrink_but_not_grow() {
        let limit = StoreLimit {
            prefix: "/a/".to_owned(),
            most: used(2, 100),
        };
        let over = used(3, 150);
        let check = |used, before, after| limit.check(used, UsageChange::between(before, after));
        assert!(check(over, Some(50), Some(49)).is_ok());
        assert!(check(over, Some(50), Some(50)).is_ok());
        assert!(check(over, Some(50), None).is_ok());
        let exceeded = check(over, Some(50), Some(51)).unwrap_err();
        assert_eq!(exceeded.requested, used(0, 1));
        // Up to the limit, and not beyond it.
        assert!(check(used(1, 40), None, Some(60)).is_ok());
        assert!(check(used(1, 40), None, Some(61)).is_err());
        assert!(check(used(2, 40), None, Some(0)).is_err());
    }

    #[test]
    fn pending_changes_that_cancel_out_are_forgotten() {
        let mut pending = PendingChanges::default();
        pending.add("/a/x", UsageChange::between(None, Some(3)));
        pending.add("/a/y", UsageChange::between(Some(1), None));
        assert_eq!(
            pending.below("/a/"),
            UsageChange {
                objects: 0,
                bytes: 2
            }
        );
        pending.add("/a/x", UsageChange::between(Some(3), None));
        pending.add("/a/y", UsageChange::between(None, Some(1)));
        assert!(pending.0.is_empty());
    }
}
