//! Keys of pods and budgets in caches and queues.

use crate::{budget::DisruptionBudget, pod::Pod};

/// The namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl ObjectKey {
    /// The key of the object `name` in `namespace`.
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
