//! The events of the disruption controller, which tell operators about misconfigured budgets.

use std::fmt::Write as _;

use fairgate_objects::go::Quoted;

use super::object_key::ObjectKey;
use crate::{budget::DisruptionBudget, pod::Pod};

/// The reporting component.
pub const EVENT_SOURCE: &str = "controllermanager";

/// The number of pod names in one event; the length of messages is limited.
const MOST_NAMES: usize = 10;

/// An event to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionEvent {
    /// What it is about.
    pub about: EventSubject,
    /// Whether it is a `Warning`, or `Normal`.
    pub is_warning: bool,
    /// Such as `NoPods`.
    pub reason: &'static str,
    /// The human-readable text.
    pub message: String,
}

/// What an event is about. Its namespace is that of the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSubject {
    /// The budget of this name and UID.
    Budget {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// The pod of this name and UID.
    Pod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

impl DisruptionEvent {
    /// The key of the object that the event is about.
    pub(super) fn key(&self, namespace: &str) -> ObjectKey {
        match &self.about {
            EventSubject::Budget { name, .. } | EventSubject::Pod { name, .. } => {
                ObjectKey::new(namespace, name)
            }
        }
    }

    fn on_budget(budget: &DisruptionBudget, reason: &'static str, message: String) -> Self {
        Self {
            about: EventSubject::Budget {
                name: budget.name.clone(),
                uid: budget.uid().to_owned(),
            },
            is_warning: true,
            reason,
            message,
        }
    }

    fn on_pod(pod: &Pod, reason: &'static str, message: String) -> Self {
        Self {
            about: EventSubject::Pod {
                name: pod.name.to_string(),
                uid: pod.uid.to_string(),
            },
            is_warning: true,
            reason,
            message,
        }
    }

    /// The budget selects no pod, which may be intended.
    pub(crate) fn no_pods(budget: &DisruptionBudget) -> Self {
        Self {
            is_warning: false,
            ..Self::on_budget(budget, "NoPods", "No matching pods found".to_owned())
        }
    }

    /// The selector is invalid.
    pub(crate) fn selector_failed(budget: &DisruptionBudget, error: &str) -> Self {
        Self::on_budget(budget, "NoPods", format!("Failed to get pods: {error}"))
    }

    pub(crate) fn calculation_failed(
        budget: &DisruptionBudget,
        error: &dyn std::error::Error,
    ) -> Self {
        let message = format!("Failed to calculate the number of expected pods: {error}");
        Self::on_budget(budget, "CalculateExpectedPodCountFailed", message)
    }

    pub(crate) fn unmanaged_pods(budget: &DisruptionBudget, pods: &[&Pod]) -> Self {
        let mut names = String::new();
        for (index, pod) in pods.iter().take(MOST_NAMES).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(names, "{comma}{}", pod.name);
        }
        if pods.len() > MOST_NAMES {
            let _ = write!(names, " and {} more", pods.len() - MOST_NAMES);
        }
        let message = format!(
            "Pods selected by this PodDisruptionBudget have no controller and do not count as \
             expected pods: {names}. Set spec.minAvailable to an integer to account for them."
        );
        Self::on_budget(budget, "UnmanagedPods", message)
    }

    /// The pod was not deleted within the time-out after its eviction was granted.
    pub(crate) fn not_deleted(budget: &DisruptionBudget, pod: &Pod) -> Self {
        let DisruptionBudget {
            namespace, name, ..
        } = budget;
        let message =
            format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
        Self::on_pod(pod, "NotDeleted", message)
    }

    /// Several budgets select the pod, so its eviction will be refused.
    pub(crate) fn multiple_budgets(pod: &Pod, chosen: &str) -> Self {
        let message = format!(
            "Pod {}/{} matches multiple PodDisruptionBudgets.  Chose {} arbitrarily.",
            Quoted(&pod.namespace),
            Quoted(&pod.name),
            Quoted(chosen)
        );
        Self::on_pod(pod, "MultiplePodDisruptionBudgets", message)
    }
}
