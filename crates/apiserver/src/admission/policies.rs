//! The policies and bindings in the store, compiled, and their params.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use serde_json::Value;

use super::{StatusError, text_in};
use crate::stored;
use fairgate_admission::{
    PolicyParamKind, PolicySet,
    kinds::{VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING},
};
use fairgate_core::sync::{Mutex, lock};
use fairgate_objects::{
    kind::{Kind, KindVersion},
    object::Object,
};
use fairgate_store::{ReadRevision, Store, StoreEntry, Watch};

/// Keeps the policies compiled. They are listed, and if need be compiled again, when a write comes after a change.
#[derive(Default)]
pub(super) struct PolicyCache(Mutex<CachedPolicies>);

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
    pub(super) set: PolicySet,
    /// The kinds of params that they name.
    param_kinds: BTreeSet<PolicyParamKind>,
}

/// The number of entries below a prefix, and their greatest revision. As every write takes a new revision, and nothing
/// but a write adds an entry, entries with equal stamps are equal.
#[derive(Clone, Copy, Default, PartialEq)]
struct PrefixStamp {
    entries: usize,
    newest: u64,
}

/// The objects of the kinds that policies take as params, as JSON.
#[derive(Default)]
pub(super) struct PolicyParams(pub(super) Vec<(PolicyParamKind, Vec<Bytes>)>);

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
    /// The policies that the last write was judged by.
    pub(super) fn last(&self) -> Arc<PoliciesInForce> {
        Arc::clone(&lock(&self.0).in_force)
    }

    /// The policies that were compiled last, if nothing has changed since.
    fn unchanged(&self) -> Option<Arc<PoliciesInForce>> {
        let mut cached = lock(&self.0);
        let changes = cached.changes.as_mut()?.ready();
        if !changes.is_ok_and(|changes| changes.is_empty()) {
            cached.changes = None;
            return None;
        }
        Some(Arc::clone(&cached.in_force))
    }

    /// The policies that are in the cache of the store.
    pub(super) async fn in_force(
        &self,
        store: &dyn Store,
    ) -> Result<Arc<PoliciesInForce>, StatusError> {
        if let Some(unchanged) = self.unchanged() {
            return Ok(unchanged);
        }
        // The watch begins before the objects are read, so that it sees every change that they do not show.
        let prefix = VALIDATING_ADMISSION_POLICY.group_prefix();
        let changes = store.watch(&prefix, store.cached_revision()).ok();
        let policies = entries(store, &VALIDATING_ADMISSION_POLICY).await?;
        let bindings = entries(store, &VALIDATING_ADMISSION_POLICY_BINDING).await?;
        let stamps = [&policies, &bindings].map(|entries| PrefixStamp::of(entries));
        // While one compiles, others wait for it instead of doing the same.
        let mut cached = lock(&self.0);
        if cached.in_force.stamps != stamps {
            let policies = decoded(&VALIDATING_ADMISSION_POLICY, &policies)?;
            let bindings = decoded(&VALIDATING_ADMISSION_POLICY_BINDING, &bindings)?;
            cached.in_force = Arc::new(PoliciesInForce::compile(stamps, &policies, &bindings)?);
        }
        cached.changes = changes;
        Ok(Arc::clone(&cached.in_force))
    }
}

impl PoliciesInForce {
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
        let kinds = policies.iter().map(|policy| &policy["spec"]["paramKind"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let param_kinds = kinds
            .filter(|kind| kind.is_object())
            .map(|kind| PolicyParamKind {
                api_version: text(&kind["apiVersion"]),
                kind: text(&kind["kind"]),
            });
        Ok(Self {
            stamps,
            set,
            param_kinds: param_kinds.collect(),
        })
    }

    /// All objects of the kinds of params that are among `kinds`.
    pub(super) async fn params(
        &self,
        store: &dyn Store,
        kinds: &[&'static Kind],
    ) -> Result<PolicyParams, StatusError> {
        let mut params = Vec::new();
        for wanted in &self.param_kinds {
            let Some((kind, version)) = hosted(kinds, wanted) else {
                continue;
            };
            let entries = entries(store, kind).await?;
            let objects = decoded(kind, &entries)?;
            let texts = objects
                .iter()
                .map(|object| text_in(kind, version, object.stored()));
            params.push((wanted.clone(), texts.collect()));
        }
        Ok(PolicyParams(params))
    }
}

/// The hosted kind and version that a policy names.
pub(super) fn hosted(
    kinds: &[&'static Kind],
    wanted: &PolicyParamKind,
) -> Option<(&'static Kind, &'static KindVersion)> {
    let kind = kinds
        .iter()
        .copied()
        .filter(|kind| kind.kind == wanted.kind);
    let mut versions =
        kind.flat_map(|kind| kind.versions.iter().map(move |version| (kind, version)));
    versions.find(|(kind, version)| kind.api_version(version.name) == wanted.api_version)
}

async fn entries(store: &dyn Store, kind: &Kind) -> Result<Vec<Arc<StoreEntry>>, StatusError> {
    let page = store
        .list(&kind.key_prefix(), None, None, ReadRevision::Cached)
        .await;
    match page {
        Ok(page) => Ok(page.entries),
        Err(error) => Err(StatusError::unavailable(error.to_string()).without_retry()),
    }
}

fn decoded(
    kind: &'static Kind,
    entries: &[Arc<StoreEntry>],
) -> Result<Vec<Arc<Object>>, StatusError> {
    entries
        .iter()
        .map(|entry| stored::object(kind, entry))
        .collect()
}
