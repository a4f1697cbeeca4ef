//! The policies and bindings in the store, compiled.

use std::sync::Arc;

use super::StatusError;
use crate::objects::stored;
use fairgate_admission::{
    PolicySet,
    kinds::{VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING},
};
use fairgate_core::sync::{Mutex, lock};
use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::{ReadRevision, Store, StoreEntry, Watch};

/// Keeps the policies compiled. They are listed, and if need be compiled again, when a write comes after a change.
///
/// Compiling is done on a thread of the blocking pool, by one at a time, to its end also if the write that caused it is no
/// longer waited for. No lock is held meanwhile that a thread could wait for.
#[derive(Default)]
pub(super) struct PolicyCache {
    cached: Arc<Mutex<CachedPolicies>>,
    /// Held while the policies are listed and compiled.
    compiling: Arc<tokio::sync::Mutex<()>>,
}

/// The policies that were compiled last.
#[derive(Default)]
struct CachedPolicies {
    in_force: Arc<PoliciesInForce>,
    /// Sees the changes since they were listed; `None` if these are not known.
    changes: Option<Watch>,
}

/// Compiled policies.
#[derive(Default)]
pub(super) struct PoliciesInForce {
    /// What they were compiled from.
    stamps: [PrefixStamp; 2],
    pub(super) set: Arc<PolicySet>,
}

/// The number of entries below a prefix, and their greatest revision. As every write takes a new revision, and nothing
/// but a write adds an entry, entries with equal stamps are equal.
#[derive(Clone, Copy, Default, PartialEq)]
struct PrefixStamp {
    entries: usize,
    newest: u64,
}

impl PrefixStamp {
    fn of(entries: &[Arc<StoreEntry>]) -> Self {
        let revisions = entries.iter().map(|entry| entry.revision);
        Self {
            entries: entries.len(),
            newest: revisions.max().unwrap_or_default(),
        }
    }
}

impl PolicyCache {
    /// The policies that the last write was evaluated by.
    fn last(&self) -> Arc<PoliciesInForce> {
        Arc::clone(&lock(&self.cached).in_force)
    }

    /// Whether the next write may be evaluated by any policy, as far as is known.
    pub(super) fn may_evaluate(&self) -> bool {
        let cached = lock(&self.cached);
        cached.changes.is_none() || !cached.in_force.set.is_empty()
    }

    /// The policies that were compiled last, if nothing has changed since.
    fn unchanged(&self) -> Option<Arc<PoliciesInForce>> {
        let mut cached = lock(&self.cached);
        let changes = cached.changes.as_mut()?.ready();
        if !changes.is_ok_and(|changes| changes.is_empty()) {
            cached.changes = None;
            return None;
        }
        Some(Arc::clone(&cached.in_force))
    }

    /// The policies that are in the cache of the store.
    pub(super) async fn in_force(&self, store: &dyn Store) -> Result<Arc<PolicySet>, StatusError> {
        if let Some(unchanged) = self.unchanged() {
            return Ok(Arc::clone(&unchanged.set));
        }
        // While one compiles, others wait for it instead of doing the same.
        let turn = Arc::clone(&self.compiling).lock_owned().await;
        if let Some(unchanged) = self.unchanged() {
            return Ok(Arc::clone(&unchanged.set));
        }
        // The watch begins before the objects are read, so that it sees every change that they do not show.
        let prefix = VALIDATING_ADMISSION_POLICY.group_prefix();
        let changes = store.watch(&prefix, store.cached_revision()).ok();
        let policies = entries(store, &VALIDATING_ADMISSION_POLICY).await?;
        let bindings = entries(store, &VALIDATING_ADMISSION_POLICY_BINDING).await?;
        let stamps = [&policies, &bindings].map(|entries| PrefixStamp::of(entries));
        let last = self.last();
        if last.stamps == stamps {
            lock(&self.cached).changes = changes;
            return Ok(Arc::clone(&last.set));
        }
        let cached = Arc::clone(&self.cached);
        let compiling = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let in_force = Arc::new(PoliciesInForce::of(stamps, &policies, &bindings)?);
            let set = Arc::clone(&in_force.set);
            let mut cached = lock(&cached);
            let before = std::mem::replace(&mut cached.in_force, in_force);
            cached.changes = changes;
            drop(cached);
            // Here, and not under the lock: it may be large.
            drop(before);
            Ok(set)
        });
        let failed = |error: tokio::task::JoinError| StatusError::internal(error.to_string());
        compiling.await.map_err(failed)?
    }
}

impl PoliciesInForce {
    /// Compiles entries of the store.
    fn of(
        stamps: [PrefixStamp; 2],
        policies: &[Arc<StoreEntry>],
        bindings: &[Arc<StoreEntry>],
    ) -> Result<Self, StatusError> {
        let policies = decoded(&VALIDATING_ADMISSION_POLICY, policies)?;
        let bindings = decoded(&VALIDATING_ADMISSION_POLICY_BINDING, bindings)?;
        Self::compile(stamps, &policies, &bindings)
    }

    fn compile(
        stamps: [PrefixStamp; 2],
        policies: &[Arc<Object>],
        bindings: &[Arc<Object>],
    ) -> Result<Self, StatusError> {
        let [policies, bindings] = [policies, bindings].map(|objects| {
            objects
                .iter()
                .map(|object| object.stored())
                .collect::<Vec<_>>()
        });
        let set = PolicySet::from_json(&policies, &bindings);
        let set = set.map_err(|error| {
            StatusError::internal(format!("the admission policies cannot be read: {error}"))
        })?;
        Ok(Self {
            stamps,
            set: Arc::new(set),
        })
    }
}

pub(super) async fn entries(
    store: &dyn Store,
    kind: &Kind,
) -> Result<Vec<Arc<StoreEntry>>, StatusError> {
    let page = store
        .list(&kind.key_prefix(), None, None, ReadRevision::Cached)
        .await;
    match page {
        Ok(page) => Ok(page.entries),
        Err(error) => Err(StatusError::unavailable(error.to_string()).without_retry()),
    }
}

pub(super) fn decoded(
    kind: &'static Kind,
    entries: &[Arc<StoreEntry>],
) -> Result<Vec<Arc<Object>>, StatusError> {
    entries
        .iter()
        .map(|entry| stored::object(kind, entry))
        .collect()
}
