//! Who owns the fields of an object: the entries of `metadata.managedFields` as a server notes them before it asks its policies.
//!
//! Not here: what is owned by which type ([`fairgate_objects::ssa`]).

use fairgate_objects::{
    conversion::BuiltInConversion,
    custom::{CustomSchema, CustomType},
    schema::{add_nulls, built_in, canonical},
    ssa::{ManagedKind, ObjectType, WriteContext, keep_times_if_unchanged, track_update},
};
use serde_json::{Value, json};

use super::{
    WriteStrategy,
    creation::Fresh,
    metadata_mut,
    table::{CreatedStatus, ResourceStrategy, Taken},
};
use crate::request::facts::WriteFacts;

/// A built-in kind in all its versions.
struct BuiltIn {
    group: String,
    kind: String,
    resets: &'static [&'static str],
}

impl BuiltIn {
    /// Group, version and kind of the kind in a version such as `apps/v1`.
    fn parts<'a>(&'a self, api_version: &'a str) -> [&'a str; 3] {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        [group, version, &self.kind]
    }
}

impl ManagedKind for BuiltIn {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let [group, version, kind] = self.parts(api_version);
        let is_of_group = group == self.group;
        let shape = is_of_group.then(|| built_in(group, version, kind))?;
        shape.map(ObjectType::Table)
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        let from = object["apiVersion"].as_str()?;
        if from == to {
            return Some(object.clone());
        }
        let conversion = BuiltInConversion::between(self.parts(from), self.parts(to))?;
        conversion.convert(object).ok()
    }

    fn reset_fields(&self, _: &str, _: &str) -> &'static [&'static str] {
        self.resets
    }
}

/// The kind of a custom resource in all its versions. Objects of other API servers have no schema: of these nothing is known but their metadata.
struct Custom<'a> {
    facts: &'a WriteFacts,
    schema: Option<&'a CustomSchema>,
    resets: &'static [&'static str],
}

impl Custom<'_> {
    fn is_of_request(&self, api_version: &str) -> bool {
        api_version == self.facts.api_version()
    }

    /// Whether an entry of the object is of a version to which only the server converts it.
    fn needs_conversion(&self, objects: [Option<&Value>; 2]) -> bool {
        let is_same_in_all = self.schema.is_some_and(|schema| !schema.has_webhook());
        let objects = objects.into_iter().flatten();
        let entries = objects.filter_map(|object| object["metadata"]["managedFields"].as_array());
        let mut versions = entries.flatten().map(|entry| &entry["apiVersion"]);
        let group = &*self.facts.group;
        let is_another = |version: &str| {
            let is_of_group = version.split_once('/').is_some_and(|(of, _)| of == group);
            is_of_group && !self.is_of_request(version)
        };
        !is_same_in_all && versions.any(|version| version.as_str().is_some_and(is_another))
    }
}

impl ManagedKind for Custom<'_> {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let (group, version) = api_version.split_once('/')?;
        let root = match self.schema {
            Some(schema) if group == &*self.facts.group => schema.object_type(version)?,
            None if self.is_of_request(api_version) => CustomType::RESOURCE,
            _ => return None,
        };
        let [.., kind] = &self.facts.kind;
        Some(ObjectType::Custom { kind, root })
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        self.object_type(to)?;
        let mut object = object.clone();
        object["apiVersion"] = json!(to);
        Some(object)
    }

    /// The server leaves out what a write of the object itself cannot change in entries of the version of the request alone.
    fn reset_fields(&self, api_version: &str, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() && !self.is_of_request(api_version) {
            return &[];
        }
        self.resets
    }
}

/// Takes the entries of an object, if it has any.
pub(super) fn entries(object: &mut Value) -> Option<Value> {
    object
        .pointer_mut("/metadata/managedFields")
        .map(Value::take)
}

/// Gives an object these entries, or none.
pub(super) fn set(object: &mut Value, entries: Option<Value>) {
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    match entries.filter(|entries| !entries.is_null()) {
        Some(entries) => metadata.insert("managedFields".to_owned(), entries),
        None => metadata.remove("managedFields"),
    };
}

/// Who writes an object, and what is known of its kind.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    /// The field manager.
    pub(super) manager: &'a str,
    /// The schema of a custom resource.
    pub(super) schema: Option<&'a CustomSchema>,
    pub(super) fresh: &'a Fresh,
}

/// Gives an object the entries that a server notes: the owner owns what it changed of the `old` one, but for the
/// members `resets`, which the request cannot change. The object has the entries of the body. Returns whether they were noted.
fn note_changes(
    object: &mut Value,
    old: Option<&Value>,
    resets: &'static [&'static str],
    facts: &WriteFacts,
    owner: Owner<'_>,
) -> bool {
    let context = WriteContext {
        manager: owner.manager,
        subresource: &facts.subresource,
        api_version: &facts.api_version(),
        now: &owner.fresh.time(),
    };
    let kind = facts.group_version_kind();
    let Some(shape) = built_in(kind.group, kind.version, kind.kind) else {
        let kinds = Custom {
            facts,
            schema: owner.schema,
            resets,
        };
        if kinds.needs_conversion([Some(object), old]) {
            return false;
        }
        note(&kinds, object, old, &context);
        return true;
    };
    let kinds = BuiltIn {
        group: kind.group.to_owned(),
        kind: kind.kind.to_owned(),
        resets,
    };
    // Fields that the table does not have are not in the object either.
    let Ok(old) = old.map(|old| canonical::decode(shape, old)).transpose() else {
        return false;
    };
    let mut old = old.map(|old| old.value);
    // What Go writes as null is owned, too, unless that is so in an object without any fields.
    let of = [kind.group, kind.version, kind.kind];
    add_nulls(of, object);
    if let Some(old) = &mut old {
        add_nulls(of, old);
    } else if let Ok(empty) = canonical::decode(shape, &json!({})) {
        let plain = empty.value;
        let mut empty = plain.clone();
        add_nulls(of, &mut empty);
        remove_added_nulls(&plain, &empty, object);
    }
    note(&kinds, object, old.as_ref(), &context);
    true
}

/// Removes the nulls of an object that `empty` has, and `plain` has not.
fn remove_added_nulls(plain: &Value, empty: &Value, object: &mut Value) {
    let (Value::Object(members), Value::Object(object)) = (empty, object) else {
        return;
    };
    for (name, value) in members {
        if value.is_null() && plain.get(name).is_none() {
            if object.get(name).is_some_and(Value::is_null) {
                object.remove(name);
            }
        } else if let Some(inner) = object.get_mut(name) {
            remove_added_nulls(&plain[name], value, inner);
        }
    }
}

fn note(
    kinds: &dyn ManagedKind,
    object: &mut Value,
    old: Option<&Value>,
    context: &WriteContext<'_>,
) {
    track_update(kinds, old, object, context);
    if let Some(old) = old {
        keep_times_if_unchanged(old, object);
    }
}

impl WriteStrategy {
    /// Notes who owns what of an object as it was sent, with its defaults. `old` is the stored one. Returns whether that was noted.
    pub(super) fn note_owner(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        facts: &WriteFacts,
        owner: Owner<'_>,
    ) -> bool {
        match (self, old) {
            (Self::Resource(strategy), old) => {
                note_changes(object, old, strategy.resets(), facts, owner)
            }
            // Its body is no object of the resource.
            (Self::Subresource(Taken::Scale), _) => false,
            (Self::Subresource(taken), old) => {
                let is_known = old.is_some() || self.is_posted();
                is_known && note_changes(object, old, taken.resets(), facts, owner)
            }
        }
    }
}

impl ResourceStrategy {
    /// What a client cannot set.
    fn resets(&self) -> &'static [&'static str] {
        match (self.status, self.resource) {
            // Of two kinds the server drops the status, and notes it all the same.
            (CreatedStatus::Ordinary, _) | (_, "podcertificaterequests" | "podgroups") => &[],
            (_, "certificatesigningrequests") => &["spec", "status"],
            _ => &["status"],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairgate_core::digest::{RequestInfo, User};
    use uuid::Uuid;

    use super::*;
    use crate::{object::evaluated_object::strategy, request::write_request::Subject};

    /// The entries of an object that is written to a path, of which `old` is stored.
    fn owned(method: &str, path: &str, object: &Value, old: Option<&Value>) -> Value {
        written(method, path, object, old).1
    }

    /// The object that is made of one, and its entries.
    fn written(method: &str, path: &str, object: &Value, old: Option<&Value>) -> (Value, Value) {
        let info = RequestInfo::from_target(method, path).unwrap();
        let Subject::Write(write) = Subject::of(&info) else {
            panic!("no write");
        };
        let mut facts = WriteFacts::new(&write, &Arc::new(User::default()), None);
        facts.set_kind_by(object);
        let fresh = Fresh {
            uid: Uuid::nil(),
            seconds: 1_767_225_600,
        };
        let mut object = object.clone();
        let strategy = strategy(&facts, true).unwrap();
        let applied = strategy.apply(&mut object, old, &mut facts, &fresh, Some(("me", None)));
        assert_eq!(applied, Ok(()));
        let entries = object["metadata"]["managedFields"].take();
        (object, entries)
    }

    /// The server resets the status of both kinds, but the strategies of their objects do not say so.
    #[test]
    fn the_status_of_some_kinds_is_owned_although_it_is_dropped() {
        let status = json!({"conditions": [{"type": "t", "status": "True"}]});
        let condition = json!({".": {}, "f:status": {}, "f:type": {}});
        let conditions = json!({".": {}, "k:{\"type\":\"t\"}": condition});
        for (path, api_version, kind, status_owner) in [
            (
                "/apis/scheduling.k8s.io/v1alpha2/namespaces/n/podgroups",
                "scheduling.k8s.io/v1alpha2",
                "PodGroup",
                true,
            ),
            (
                "/apis/certificates.k8s.io/v1beta1/namespaces/n/podcertificaterequests",
                "certificates.k8s.io/v1beta1",
                "PodCertificateRequest",
                true,
            ),
            (
                "/apis/apps/v1/namespaces/n/deployments",
                "apps/v1",
                "Deployment",
                false,
            ),
        ] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "labels": {"a": "b"}}, "status": status});
            let owned = &owned("POST", path, &object, None)[0]["fieldsV1"];
            let wanted = status_owner.then_some(&conditions);
            let of_conditions = owned.pointer("/f:status/f:conditions");
            let types = |of: &Value| {
                of.as_object()
                    .map(|of| of.keys().cloned().collect::<Vec<_>>())
            };
            assert_eq!(
                of_conditions.and_then(types),
                wanted.and_then(types),
                "{kind}: {owned}"
            );
        }
    }

    #[test]
    fn what_an_object_without_fields_has_is_owned_by_nobody() {
        let path = "/apis/scheduling.k8s.io/v1alpha2/namespaces/n/podgroups";
        let group = json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"},
            "spec": {"schedulingPolicy": {"basic": {}}},
        });
        let entries = owned("POST", path, &group, None);
        let spec = json!({"f:spec": {"f:schedulingPolicy": {"f:basic": {}}}});
        assert_eq!(entries[0]["fieldsV1"], spec);
    }

    #[test]
    fn times_that_are_always_there_stay_null() {
        let path = "/api/v1/namespaces/n/events";
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "r",
            "involvedObject": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
        });
        let (object, entries) = written("POST", path, &event, None);
        assert_eq!(object.get("firstTimestamp"), Some(&Value::Null), "{object}");
        assert_eq!(entries[0]["fieldsV1"], json!({"f:reason": {}}));
    }

    #[test]
    fn members_that_go_writes_as_null_have_an_owner() {
        let path = "/apis/scheduling.k8s.io/v1alpha2/namespaces/n/workloads";
        let template = json!({"name": "g", "schedulingPolicy": {"basic": {}}});
        let workload = |labels: Value| {
            json!({
                "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload", "metadata": {"name": "w", "labels": labels},
                "spec": {"podGroupTemplates": [template]},
            })
        };
        let mut first = workload(json!({"a": "b"}));
        let entries = owned("POST", path, &first, None);
        let group =
            "/0/fieldsV1/f:spec/f:podGroupTemplates/k:{\"name\":\"g\"}/f:schedulingConstraints";
        assert_eq!(entries.pointer(group), Some(&json!({})), "{entries}");
        // Who changes something else does not come to own it.
        first["metadata"]["managedFields"] = entries;
        first["metadata"]["managedFields"][0]["manager"] = json!("other");
        let item = format!("{path}/w");
        let entries = owned("PUT", &item, &workload(json!({"a": "c"})), Some(&first));
        let changed = (entries.as_array().unwrap().iter()).find(|entry| entry["manager"] == "me");
        let label = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
        assert_eq!(
            changed.map(|entry| &entry["fieldsV1"]),
            Some(&label),
            "{entries}"
        );
    }
}
