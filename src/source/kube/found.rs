//! The objects of one kind, as a list and the events after it tell of them.

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

/// An object as it came.
///
/// Whatever it holds: one object that nobody can read must not spoil the list that it is in.
#[derive(Clone, Debug)]
pub(super) struct Object {
    value: Value,
    /// Its name and its version.
    metadata: ObjectMeta,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(from)?;
        // Half of an object's size, and of no use here.
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

impl Resource for Object {
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
pub(super) struct Found {
    objects: BTreeMap<String, Value>,
    /// A list on its way; what it replaces counts until it is complete.
    coming: BTreeMap<String, Value>,
    /// Whether the list was complete since the upstream was last lost.
    listed: bool,
}

impl Found {
    /// Takes an event; returns whether a policy can depend on what it changed.
    pub(super) fn take(&mut self, event: Event<Object>) -> bool {
        match event {
            Event::Init => {
                self.coming.clear();
                false
            }
            Event::InitApply(object) => {
                self.coming.insert(object.name(), object.value);
                false
            }
            Event::InitDone => {
                let coming = std::mem::take(&mut self.coming);
                let before = std::mem::replace(&mut self.objects, coming);
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

    /// The upstream was lost: what was found counts until there is another list.
    pub(super) fn lost(&mut self) {
        self.coming.clear();
        self.listed = false;
    }

    /// Whether nothing is missing.
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

impl Object {
    /// Says of what kind it is, which goes without saying in a list.
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

    fn object(name: &str, spec: u32) -> Object {
        let object = json!({
            "metadata": {"name": name, "resourceVersion": "7", "managedFields": [1]},
            "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn names(found: &Found) -> Vec<&str> {
        found.objects().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_list_replaces_what_was_found_once_it_is_complete() {
        let mut found = Found::default();
        for event in [Event::Init, Event::InitApply(object("a", 1))] {
            assert!(!found.take(event));
        }
        assert!(!found.is_listed());
        assert!(found.take(Event::InitDone));
        assert_eq!(names(&found), ["a"]);

        found.lost();
        assert!(!found.is_listed());
        found.take(Event::Init);
        found.take(Event::InitApply(object("b", 1)));
        assert_eq!(names(&found), ["a"], "the new list is not complete");
        assert!(found.take(Event::InitDone));
        assert_eq!(names(&found), ["b"]);
        found.take(Event::Init);
        found.take(Event::InitApply(object("b", 1)));
        assert!(!found.take(Event::InitDone), "the same again");
    }

    #[test]
    fn events_count_where_a_policy_depends_on_them() {
        let mut found = Found::default();
        assert!(found.take(Event::Apply(object("a", 1))));
        assert!(!found.take(Event::Apply(object("a", 1))));
        assert!(found.take(Event::Apply(object("a", 2))));
        assert!(!found.take(Event::Delete(object("b", 1))));
        assert!(found.take(Event::Delete(object("a", 2))));
        assert_eq!(names(&found), [""; 0]);
    }

    #[test]
    fn an_object_is_kept_however_strange_it_is() {
        for strange in [json!({"metadata": {"name": 7}}), json!(null), json!([])] {
            let object: Object = serde_json::from_value(strange.clone()).unwrap();
            assert_eq!((object.name(), object.value), (String::new(), strange));
        }
        let value = object("a", 1).value;
        assert_eq!(value["metadata"].get("managedFields"), None);
    }
}
