//! Pods that have changed, until it is known which budget selects them.
//!
//! That is found out in turns of the namespaces, so that one with many budgets or changes does not delay the others.

use std::{collections::BTreeMap, sync::Arc, vec};

use fairgate_core::turn_queue::TurnQueue;

use super::object_key::ObjectKey;
use crate::pod::Pod;

/// So many versions of a pod with different labels wait at a time. Changes of anything else replace what waits.
const MOST_VERSIONS: usize = 8;

/// The pods that wait.
#[derive(Debug, Default)]
pub(super) struct ChangedPods {
    turns: TurnQueue<ObjectKey>,
    versions: BTreeMap<ObjectKey, Vec<Pod>>,
}

/// A pod whose budgets are being looked for.
#[derive(Debug)]
pub(super) struct PodMatch {
    pub(super) pod: Pod,
    /// The budgets that are left to look at.
    pub(super) candidates: vec::IntoIter<Arc<str>>,
    /// The first budget that selects the pod.
    pub(super) first: Option<Arc<str>>,
    /// Whether an event says that several budgets select it.
    pub(super) is_reported: bool,
}

impl ChangedPods {
    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds a version of a pod. Returns `false`, and forgets all of them, if too many versions of this pod wait.
    pub(super) fn add(&mut self, key: ObjectKey, pod: Pod) -> bool {
        let versions = self.versions.entry(key.clone()).or_default();
        if versions.is_empty() {
            self.turns.push(&pod.namespace, 1, key);
        }
        if let Some(same) = versions.iter_mut().find(|old| old.labels == pod.labels) {
            *same = pod;
            return true;
        }
        let is_full = versions.len() >= MOST_VERSIONS;
        if is_full {
            versions.clear();
        }
        versions.push(pod);
        !is_full
    }

    /// Takes a version whose turn it is.
    pub(super) fn take(&mut self) -> Option<Pod> {
        let key = self.turns.pop()?;
        let versions = self.versions.get_mut(&key)?;
        let pod = versions.remove(0);
        if versions.is_empty() {
            self.versions.remove(&key);
        } else {
            self.turns.push(&pod.namespace, 1, key);
        }
        Some(pod)
    }

    /// Charges a namespace for what was done for it.
    pub(super) fn charge(&mut self, namespace: &str, look_ups: u64) {
        self.turns.charge(namespace, look_ups);
    }
}
