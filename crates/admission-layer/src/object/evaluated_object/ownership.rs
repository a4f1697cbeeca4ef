//! Who owns the fields of an object: the entries of `metadata.managedFields` as a server notes them before it asks its policies.
//!
//! Not here: what is owned by which type ([`fairgate_objects::ssa`]).

use fairgate_objects::{
    conversion::BuiltInConversion,
    custom::{CustomSchema, CustomType},
    schema::{built_in, canonical},
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
    match old.map(|old| canonical::decode(shape, old)).transpose() {
        Ok(old) => note(&kinds, object, old.as_ref().map(|old| &old.value), &context),
        Err(_) => return false,
    }
    true
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
            (CreatedStatus::Ordinary, _) => &[],
            (_, "certificatesigningrequests") => &["spec", "status"],
            _ => &["status"],
        }
    }
}
