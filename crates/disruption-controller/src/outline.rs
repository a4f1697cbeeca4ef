//! The fields of pods and of their controllers that are kept.

use fairgate_upstream::informer::KeptFields;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The needed fields of pods and of their controllers: identity, labels, owners, replicas, phase and conditions. All
/// other fields, which are most of a pod, are skipped during parsing.
#[derive(Clone, Debug)]
pub(crate) struct Outline;

/// The decoded fields of an [`Outline`]. Values of any type are accepted here, so that one invalid object does not make
/// a whole list unusable.
#[derive(Deserialize)]
pub(crate) struct OutlineFields {
    metadata: Option<OutlineMetadata>,
    spec: Option<OutlineSpec>,
    status: Option<OutlineStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlineMetadata {
    name: Option<Value>,
    namespace: Option<Value>,
    uid: Option<Value>,
    resource_version: Option<Value>,
    labels: Option<Value>,
    owner_references: Option<Value>,
    deletion_timestamp: Option<Value>,
}

#[derive(Deserialize)]
struct OutlineSpec {
    replicas: Option<Value>,
}

#[derive(Deserialize)]
struct OutlineStatus {
    phase: Option<Value>,
    conditions: Option<Value>,
}

fn members<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields.into_iter();
    let there = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect::<Map<_, _>>())
}

impl KeptFields for Outline {
    type Decoded = OutlineFields;

    fn object(decoded: OutlineFields) -> Value {
        let metadata = decoded.metadata.map(|metadata| {
            members([
                ("name", metadata.name),
                ("namespace", metadata.namespace),
                ("uid", metadata.uid),
                ("resourceVersion", metadata.resource_version),
                ("labels", metadata.labels),
                ("ownerReferences", metadata.owner_references),
                ("deletionTimestamp", metadata.deletion_timestamp),
            ])
        });
        let spec = decoded.spec;
        let status = decoded.status;
        members([
            ("metadata", metadata),
            (
                "spec",
                spec.map(|spec| members([("replicas", spec.replicas)])),
            ),
            (
                "status",
                status.map(|status| {
                    members([("phase", status.phase), ("conditions", status.conditions)])
                }),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use fairgate_upstream::informer::WatchedObject;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_needed_fields_of_a_pod_are_kept() {
        let pod = json!({
            "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"x": "y"}, "annotations": {"long": "text"}, "managedFields": [{}],
                "ownerReferences": [{"kind": "ReplicaSet", "controller": true}],
            },
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready"}], "podIP": "1.2.3.4"},
        });
        let kept: WatchedObject<Outline> = serde_json::from_str(&pod.to_string()).unwrap();
        assert_eq!(kept.resource_version(), Some("7"));
        assert_eq!(
            kept.object,
            json!({
                "metadata": {
                    "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                    "labels": {"x": "y"},
                    "ownerReferences": [{"kind": "ReplicaSet", "controller": true}],
                },
                "spec": {},
                "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
            })
        );
        let odd = json!({"metadata": {"name": 5}, "spec": null});
        let kept: WatchedObject<Outline> = serde_json::from_str(&odd.to_string()).unwrap();
        assert_eq!(kept.object, json!({"metadata": {"name": 5}}));
    }
}
