//! Objects as the watches receive them, of which only what is needed is decoded.

use std::{borrow::Cow, fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Which fields of an object are decoded.
pub(crate) trait KeptFields: Clone + fmt::Debug + Send + 'static {
    /// What is decoded.
    type Decoded: DeserializeOwned;
    /// The object with these fields alone.
    fn object(decoded: Self::Decoded) -> Value;
}

/// An object of which only some fields are kept.
#[derive(Clone, Debug)]
pub(crate) struct WatchedObject<K> {
    pub(crate) object: Value,
    /// Only its name and resource version, which the watch itself needs.
    metadata: ObjectMeta,
    kept: PhantomData<K>,
}

/// What is needed of pods and of their controllers: identity, labels, owners, replicas, phase and conditions. All
/// other fields, most of a pod, are skipped while they are parsed.
#[derive(Clone, Debug)]
pub(crate) struct Outline;

/// Everything but `managedFields`. A server that receives an object without them keeps its own.
#[derive(Clone, Debug)]
pub(crate) struct Whole;

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

impl KeptFields for Whole {
    type Decoded = Value;

    fn object(mut decoded: Value) -> Value {
        if let Some(Value::Object(metadata)) = decoded.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        decoded
    }
}

impl<'de, K: KeptFields> Deserialize<'de> for WatchedObject<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let object = K::object(K::Decoded::deserialize(from)?);
        let text = |field| object["metadata"][field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self {
            object,
            metadata,
            kept: PhantomData,
        })
    }
}

impl<K: KeptFields> Resource for WatchedObject<K> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_needed_of_a_pod_is_kept() {
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
        assert_eq!(kept.meta().resource_version.as_deref(), Some("7"));
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

    #[test]
    fn a_budget_is_kept_but_for_its_managed_fields() {
        let budget = json!({"metadata": {"name": "a", "managedFields": [{}]}, "spec": {"x": 1}});
        let kept: WatchedObject<Whole> = serde_json::from_str(&budget.to_string()).unwrap();
        assert_eq!(
            kept.object,
            json!({"metadata": {"name": "a"}, "spec": {"x": 1}})
        );
    }
}
