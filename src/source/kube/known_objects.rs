//! The objects of one kind, as known from a list and the events after it.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope},
    runtime::watcher::Event,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::source::same_policy;

/// An object as received.
///
/// Any JSON is accepted: one object that cannot be parsed must not make the whole list unusable.
#[derive(Clone, Debug)]
pub(super) struct RawObject {
    value: Value,
    /// Only its name and resource version.
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(from)?;
        // They are about half of an object's size, and not used here.
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        let text = |field| value["metadata"][field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { value, metadata })
    }
}

impl Resource for RawObject {
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

/// The objects of one kind by their names.
#[derive(Debug, Default)]
pub(super) struct KnownObjects {
    objects: BTreeMap<String, Value>,
    /// A list that is being received. The objects it replaces are valid until it is complete.
    incoming: BTreeMap<String, Value>,
    /// Whether a list has been completed since the last failure.
    listed: bool,
}

impl KnownObjects {
    /// Applies an event; returns whether the change can affect a policy.
    pub(super) fn take(&mut self, event: Event<RawObject>) -> bool {
        match event {
            Event::Init => {
                self.incoming.clear();
                false
            }
            Event::InitApply(object) => {
                self.incoming.insert(object.name(), object.value);
                false
            }
            Event::InitDone => {
                let incoming = std::mem::take(&mut self.incoming);
                let before = std::mem::replace(&mut self.objects, incoming);
                self.listed = true;
                !same_objects(&before, &self.objects)
            }
            Event::Apply(object) => {
                let name = object.name();
                let before = self.objects.get(&name);
                let same = before.is_some_and(|before| same_policy(before, &object.value));
                self.objects.insert(name, object.value);
                !same
            }
            Event::Delete(object) => self.objects.remove(&object.name()).is_some(),
        }
    }

    /// After a failure: the objects stay until the next list is complete.
    pub(super) fn invalidate(&mut self) {
        self.incoming.clear();
        self.listed = false;
    }

    /// Whether all objects are known.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// All objects, in the order of their names.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }
}

impl RawObject {
    /// Sets `apiVersion` and `kind`, which the items of a list lack.
    pub(super) fn set_type(&mut self, kind: &ApiResource) {
        if let Value::Object(value) = &mut self.value {
            value.insert("apiVersion".to_owned(), kind.api_version.as_str().into());
            value.insert("kind".to_owned(), kind.kind.as_str().into());
        }
    }

    fn name(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }
}

fn same_objects(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> bool {
    before.len() == after.len()
        && before
            .iter()
            .zip(after)
            .all(|((a, before), (b, after))| a == b && same_policy(before, after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, spec: u32) -> RawObject {
        let object = json!({
            "metadata": {"name": name, "resourceVersion": "7", "managedFields": [1]},
            "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn names(known: &KnownObjects) -> Vec<&str> {
        known.objects().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_list_replaces_the_known_objects_once_it_is_complete() {
        let mut known = KnownObjects::default();
        for event in [Event::Init, Event::InitApply(object("a", 1))] {
            assert!(!known.take(event));
        }
        assert!(!known.is_listed());
        assert!(known.take(Event::InitDone));
        assert_eq!(names(&known), ["a"]);

        known.invalidate();
        assert!(!known.is_listed());
        known.take(Event::Init);
        known.take(Event::InitApply(object("b", 1)));
        assert_eq!(names(&known), ["a"], "the new list is not complete");
        assert!(known.take(Event::InitDone));
        assert_eq!(names(&known), ["b"]);
        known.take(Event::Init);
        known.take(Event::InitApply(object("b", 1)));
        assert!(!known.take(Event::InitDone), "the same again");
    }

    #[test]
    fn only_events_that_can_affect_a_policy_count() {
        let mut known = KnownObjects::default();
        assert!(known.take(Event::Apply(object("a", 1))));
        assert!(!known.take(Event::Apply(object("a", 1))));
        assert!(known.take(Event::Apply(object("a", 2))));
        assert!(!known.take(Event::Delete(object("b", 1))));
        assert!(known.take(Event::Delete(object("a", 2))));
        assert_eq!(names(&known), [""; 0]);
    }

    #[test]
    fn any_json_is_kept_as_an_object() {
        for strange in [json!({"metadata": {"name": 7}}), json!(null), json!([])] {
            let object: RawObject = serde_json::from_value(strange.clone()).unwrap();
            assert_eq!((object.name(), object.value), (String::new(), strange));
        }
        let value = object("a", 1).value;
        assert_eq!(value["metadata"].get("managedFields"), None);
    }
}
