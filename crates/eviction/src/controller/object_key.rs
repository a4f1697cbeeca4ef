//! Keys of pods and budgets in caches and queues.

use crate::{budget::DisruptionBudget, pod::Pod};

/// The name of a namespaced object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl ObjectKey {
    /// The object `name` of `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(super) fn of_budget(budget: &DisruptionBudget) -> Self {
        Self::new(&budget.namespace, &budget.name)
    }

    pub(super) fn of_pod(pod: &Pod) -> Self {
        Self::new(&pod.namespace, &pod.name)
    }
}
