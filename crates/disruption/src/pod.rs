//! The facts about a pod that budgets and evictions need.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    labels::PodLabels,
    read::{MalformedObject, ObjectField},
};

/// The facts about a pod that decisions about disruptions depend on. The type is small because the
/// controller keeps one for every pod of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The namespace of the pod.
    pub namespace: Box<str>,
    /// The name of the pod.
    pub name: Box<str>,
    /// The UID of the pod. A later pod may have the same name, but never the same UID.
    pub uid: Box<str>,
    /// The resource version that was read.
    pub resource_version: Box<str>,
    /// The labels of the pod.
    pub labels: PodLabels,
    /// The owner reference of the controller, if the pod has one.
    pub controller: Option<Arc<ControllerRef>>,
    /// `status.phase`
    pub phase: PodPhase,
    /// Whether the condition `Ready` is true, in any phase.
    pub ready: bool,
    /// Whether the deletion of the pod has been requested.
    pub terminating: bool,
    /// The condition `DisruptionTarget`, if the pod has it.
    pub disruption_target: Option<DisruptionTarget>,
}

/// The owner reference with `controller: true`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerRef {
    /// Group and version, such as `apps/v1`.
    pub api_version: Box<str>,
    /// The kind of the owner, such as `ReplicaSet`.
    pub kind: Box<str>,
    /// The name of the owner, which is in the namespace of the object that it owns.
    pub name: Box<str>,
    /// The UID of the owner.
    pub uid: Box<str>,
}

/// The phase of a pod, as far as evictions distinguish phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers are running yet.
    Pending,
    /// At least one container is running, starting or restarting.
    Running,
    /// All containers have terminated successfully.
    Succeeded,
    /// All containers have terminated, at least one of them with a failure.
    Failed,
    /// `Unknown`, empty, or a phase that is not known here.
    Other,
}

/// The condition `DisruptionTarget`: the pod is about to be disrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionTarget {
    /// Whether the condition's status is `True`.
    pub is_true: bool,
    /// Whether the kubelet set it, which also terminates the pod.
    pub by_kubelet: bool,
    /// `lastTransitionTime`: when the status of the condition changed last.
    pub since: Option<Timestamp>,
}

impl Pod {
    /// Reads a pod.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`], if it has no name or a field of a wrong type.
    pub fn from_value(object: &Value) -> Result<Self, MalformedObject> {
        let root = ObjectField::root(object);
        let metadata = root.get("metadata")?;
        let status = root.get("status")?;
        let mut ready = false;
        let mut disruption_target = None;
        for condition in status.get("conditions")?.list()? {
            let condition = ObjectField::root(condition);
            let is_true = condition.get("status")?.text()? == "True";
            match condition.get("type")?.text()? {
                "Ready" => ready = is_true,
                "DisruptionTarget" => {
                    disruption_target = Some(DisruptionTarget {
                        is_true,
                        by_kubelet: condition.get("reason")?.text()? == "TerminationByKubelet",
                        since: condition.get("lastTransitionTime")?.time()?,
                    });
                }
                _ => {}
            }
        }
        Ok(Self {
            namespace: metadata.get("namespace")?.text()?.into(),
            name: metadata.get("name")?.required_text()?.into(),
            uid: metadata.get("uid")?.text()?.into(),
            resource_version: metadata.get("resourceVersion")?.text()?.into(),
            labels: PodLabels::read(metadata.get("labels")?)?,
            controller: ControllerRef::of(metadata)?.map(Arc::new),
            phase: PodPhase::parse(status.get("phase")?.text()?),
            ready,
            terminating: metadata
                .get("deletionTimestamp")?
                .optional_text()?
                .is_some(),
            disruption_target,
        })
    }

    /// Shares the memory of labels and owner with `other` if they are equal, as for most pods of one owner.
    pub(crate) fn share_with(&mut self, other: &Self) {
        if self.labels == other.labels {
            self.labels = other.labels.clone();
        }
        if self.controller == other.controller {
            self.controller.clone_from(&other.controller);
        }
    }

    /// Whether an eviction deletes the pod regardless of budgets: it does not run yet, has ended, or is terminating.
    pub fn is_exempt(&self) -> bool {
        self.terminating
            || matches!(
                self.phase,
                PodPhase::Pending | PodPhase::Succeeded | PodPhase::Failed
            )
    }
}

impl ControllerRef {
    /// The controller of an object, from its owner references.
    ///
    /// # Errors
    ///
    /// [`MalformedObject`], if an owner has a field of a wrong type.
    pub fn from_value(object: &Value) -> Result<Option<Self>, MalformedObject> {
        Self::of(ObjectField::root(object).get("metadata")?)
    }

    fn of(metadata: ObjectField<'_, '_>) -> Result<Option<Self>, MalformedObject> {
        for owner in metadata.get("ownerReferences")?.list()? {
            let owner = ObjectField::root(owner);
            // The first one counts, as in `metav1.GetControllerOf`.
            if owner.get("controller")?.flag()? == Some(true) {
                return Ok(Some(Self {
                    api_version: owner.get("apiVersion")?.text()?.into(),
                    kind: owner.get("kind")?.text()?.into(),
                    name: owner.get("name")?.text()?.into(),
                    uid: owner.get("uid")?.text()?.into(),
                }));
            }
        }
        Ok(None)
    }

    /// The API group of the owner; empty for the core group.
    pub fn group(&self) -> &str {
        match self.api_version.split_once('/') {
            Some((group, _)) => group,
            None => "",
        }
    }
}

impl PodPhase {
    fn parse(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_read_with_the_owner_that_controls_it() {
        let pod = Pod::from_value(&json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"b": "2", "a": "1"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "1"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "y", "uid": "2", "controller": true},
                ],
            },
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "DisruptionTarget", "status": "False", "lastTransitionTime": "2024-01-01T00:00:00Z"},
                ],
            },
        }))
        .unwrap();
        let owner = pod.controller.as_ref().unwrap();
        assert_eq!((&*owner.name, owner.group()), ("y", "apps"));
        assert!(pod.ready && !pod.terminating && !pod.is_exempt());
        assert_eq!(pod.labels.get("b"), Some("2"));
        assert_eq!(pod.labels.get("c"), None);
        assert!(!pod.disruption_target.unwrap().is_true);
    }

    #[test]
    fn a_pod_of_no_or_unknown_phase_is_not_exempt() {
        let exempt = |status: Value, metadata: Value| {
            let mut object = json!({"metadata": metadata, "status": status});
            object["metadata"]["name"] = json!("a");
            Pod::from_value(&object).unwrap().is_exempt()
        };
        for phase in ["Pending", "Succeeded", "Failed"] {
            assert!(exempt(json!({"phase": phase}), json!({})), "{phase}");
        }
        for phase in ["Running", "Unknown", ""] {
            assert!(!exempt(json!({"phase": phase}), json!({})), "{phase}");
            let deleted = json!({"deletionTimestamp": "2024-01-01T00:00:00Z"});
            assert!(exempt(json!({"phase": phase}), deleted), "{phase}");
        }
        assert!(!exempt(json!(null), json!({})));
    }

    #[test]
    fn a_malformed_pod_is_refused() {
        let error = Pod::from_value(&json!({"metadata": {}})).unwrap_err();
        assert_eq!(error.field, "metadata.name");
        let error = Pod::from_value(&json!({"metadata": {"name": "a", "labels": {"x": 1}}}));
        assert_eq!(error.unwrap_err().field, "metadata.labels[x]");
        assert!(Pod::from_value(&json!([])).is_err());
    }

    #[test]
    fn a_typical_pod_takes_less_than_a_kilobyte() {
        let labels: serde_json::Map<_, _> = [
            "app.kubernetes.io/name",
            "app.kubernetes.io/instance",
            "app.kubernetes.io/version",
            "pod-template-hash",
        ]
        .map(|key| (key.to_owned(), json!("checkout-7d9c5b8f64")))
        .into_iter()
        .collect();
        let uid = "0b9c2a5e-7b1c-4d6e-9a53-6c1de1a0f0b7";
        let object = json!({
            "metadata": {
                "name": "checkout-7d9c5b8f64-x2x7k", "namespace": "shop", "uid": uid,
                "resourceVersion": "123456789", "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout-7d9c5b8f64",
                    "uid": uid, "controller": true,
                }],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let mut pod = None;
        let heap = allocation_counter::measure(|| pod = Pod::from_value(&object).ok());
        let bytes = usize::try_from(heap.bytes_current).unwrap() + size_of::<Pod>();
        assert!(pod.is_some() && bytes < 1000, "{bytes}");
    }
}
