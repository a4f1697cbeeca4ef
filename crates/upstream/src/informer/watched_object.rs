//! Objects as the lists and watches of kube-rs receive them, of which only what is needed is kept.

use std::{borrow::Cow, fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use crate::deep_json::DeepValue;

/// Which fields of an object are kept.
pub trait KeptFields: Clone + fmt::Debug + Send + 'static {
    /// What is decoded. It should accept values of any type: one invalid object would make a whole list unusable.
    type Decoded: DeserializeOwned;
    /// The object with the fields that are kept.
    fn object(decoded: Self::Decoded) -> Value;
}

/// An object of which only some fields are kept.
#[derive(Clone, Debug)]
pub struct WatchedObject<K> {
    /// The object with the fields that `K` keeps.
    pub object: Value,
    /// Only its name and resource version, which the watch itself needs.
    metadata: ObjectMeta,
    kept: PhantomData<K>,
}

/// Everything but `managedFields`, which are about half of an object. A server that receives an object without them
/// keeps its own.
#[derive(Clone, Debug)]
pub struct Whole;

impl KeptFields for Whole {
    type Decoded = DeepValue;

    fn object(decoded: DeepValue) -> Value {
        Self::of(decoded.0)
    }
}

impl Whole {
    /// What is kept of an object.
    pub fn of(mut object: Value) -> Value {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        object
    }
}

impl<K> WatchedObject<K> {
    /// The name of the object; empty if it has none.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The resource version of the object, if it has one.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
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
    fn everything_is_kept_but_managed_fields() {
        let budget = json!({"metadata": {"name": "a", "managedFields": [{}]}, "spec": {"x": 1}});
        let kept: WatchedObject<Whole> = serde_json::from_value(budget).unwrap();
        assert_eq!(
            kept.object,
            json!({"metadata": {"name": "a"}, "spec": {"x": 1}})
        );
        assert_eq!((kept.name(), kept.resource_version()), ("a", None));
    }

    #[test]
    fn any_json_is_accepted() {
        for strange in [json!({"metadata": {"name": 7}}), json!(null), json!([])] {
            let kept: WatchedObject<Whole> = serde_json::from_value(strange.clone()).unwrap();
            assert_eq!((kept.name(), &kept.object), ("", &strange));
        }
    }
}
