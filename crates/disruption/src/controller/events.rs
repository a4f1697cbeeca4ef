//! The events of the disruption controller, which tell operators about misconfigured budgets.

use std::fmt::Write as _;

use serde_json::Value;

use super::object_key::ObjectKey;
use crate::{budget::DisruptionBudget, pod::Pod};
use fairgate_gotext::Quoted;

/// The component that reports the events; the same as in kube-controller-manager.
pub const EVENT_SOURCE: &str = "controllermanager";

/// An event to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionEvent {
    /// The object that the event is about.
    pub about: EventSubject,
    /// Whether the type of the event is `Warning`; otherwise it is `Normal`.
    pub is_warning: bool,
    /// The reason, such as `NoPods`.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// The object that an event is about. It is in the namespace of the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSubject {
    /// The budget of this name and UID.
    Budget {
        /// The name of the budget.
        name: String,
        /// The UID of the budget.
        uid: String,
    },
    /// The pod of this name and UID.
    Pod {
        /// The name of the pod.
        name: String,
        /// The UID of the pod.
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
                uid: budget.uid.to_string(),
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

    /// The selectors of the namespace exceed their limit, and this budget is one of those that do not count any more.
    pub(crate) fn too_many_terms(budget: &DisruptionBudget, error: &dyn std::error::Error) -> Self {
        Self::on_budget(budget, "TooManySelectorTerms", error.to_string())
    }

    pub(crate) fn calculation_failed(
        budget: &DisruptionBudget,
        error: &dyn std::error::Error,
    ) -> Self {
        let message = format!("Failed to calculate the number of expected pods: {error}");
        Self::on_budget(budget, "CalculateExpectedPodCountFailed", message)
    }

    /// Some pods have no controller, so they do not count as expected pods.
    pub(crate) fn unmanaged_pods(budget: &DisruptionBudget) -> Self {
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
             status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
             these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
            go_selector(&budget.object()["spec"]["selector"])
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

/// The longest text of a selector. An event with a longer message would be refused.
const MAX_SELECTOR: usize = 600;

/// A label selector as Go prints it. A long one is cut off.
fn go_selector(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut printed = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let _ = write!(printed, "{key}: {},", text(value));
        if printed.len() > MAX_SELECTOR {
            return cut(printed);
        }
    }
    printed.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for one in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let values = one["values"].as_array().into_iter().flatten().map(text);
        let values = values.take(MAX_SELECTOR);
        let _ = write!(
            printed,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text(&one["key"]),
            text(&one["operator"]),
            values.collect::<Vec<_>>().join(" ")
        );
        if printed.len() > MAX_SELECTOR {
            return cut(printed);
        }
    }
    printed.push_str("},}");
    printed
}

fn cut(mut text: String) -> String {
    let end = (0..=MAX_SELECTOR)
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text.push_str("...");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_is_printed_as_go_prints_it() {
        let selector = json!({
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [
                {"key": "x", "operator": "In", "values": ["p", "q"]},
                {"key": "y", "operator": "Exists"},
            ],
        });
        assert_eq!(
            go_selector(&selector),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:x,Operator:In,Values:[p q],},LabelSelectorRequirement{Key:y,Operator:Exists,Values:[],},},}"
        );
        let long = json!({"matchExpressions": [
            {"key": "a", "operator": "In", "values": vec!["value"; 10_000]},
        ]});
        assert_eq!(go_selector(&long).len(), MAX_SELECTOR + 3);
        assert_eq!(
            go_selector(&json!({})),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}"
        );
    }
}
