//! Who owns the fields of an object: the entries of `metadata.managedFields` as a server notes them before it asks its policies.
//!
//! Not here: who owns what of a custom resource that is changed, which takes its schema.

use fairgate_objects::{
    conversion::BuiltInConversion,
    custom::{self, CustomSchema},
    schema::{Struct, built_in, canonical},
    ssa::{ManagedKind, WriteContext, keep_times_if_unchanged, track_update},
};
use serde_json::{Map, Value, json};

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
    fn shape(&self, api_version: &str) -> Option<&'static Struct> {
        let [group, version, kind] = self.parts(api_version);
        (group == self.group)
            .then(|| built_in(group, version, kind))
            .flatten()
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

/// Group and version as objects state them.
fn api_version(facts: &WriteFacts) -> String {
    let kind = facts.group_version_kind();
    match kind.group {
        "" => kind.version.to_owned(),
        group => format!("{group}/{}", kind.version),
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

/// Gives an object the entries that a server notes, if it is of a built-in kind: `manager` owns what it changed of the `old` one, but for the
/// members `resets`, which the request cannot change. The object has the entries of the body. Returns whether they were noted.
fn note_changes(
    object: &mut Value,
    old: Option<&Value>,
    resets: &'static [&'static str],
    facts: &WriteFacts,
    (manager, fresh): (&str, &Fresh),
) -> bool {
    let kind = facts.group_version_kind();
    let Some(shape) = built_in(kind.group, kind.version, kind.kind) else {
        return false;
    };
    // Fields that the table does not have are not in the object either.
    let old = match old.map(|old| canonical::decode(shape, old)) {
        Some(Err(_)) => return false,
        Some(Ok(old)) => Some(old.value),
        None => None,
    };
    let kinds = BuiltIn {
        group: kind.group.to_owned(),
        kind: kind.kind.to_owned(),
        resets,
    };
    let context = WriteContext {
        manager,
        subresource: &facts.subresource,
        api_version: &api_version(facts),
        now: &fresh.time(),
    };
    track_update(&kinds, old.as_ref(), object, &context);
    if let Some(old) = old {
        keep_times_if_unchanged(&old, object);
    }
    true
}

impl WriteStrategy {
    /// Notes who owns what of an object as it was sent, with its defaults. `old` is the stored one. Returns whether that was noted.
    pub(super) fn note_owner(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        facts: &WriteFacts,
        schema: Option<&CustomSchema>,
        owner: (&str, &Fresh),
    ) -> bool {
        match (self, old) {
            (Self::Resource(strategy), None) => {
                strategy.owned(object, facts, schema, owner);
                true
            }
            (Self::Resource(strategy), Some(old)) => {
                note_changes(object, Some(old), strategy.resets(), facts, owner)
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

    /// Adds the entry of the client who creates the object.
    fn owned(
        &self,
        object: &mut Value,
        facts: &WriteFacts,
        schema: Option<&CustomSchema>,
        (manager, fresh): (&str, &Fresh),
    ) {
        if note_changes(object, None, self.resets(), facts, (manager, fresh)) {
            return;
        }
        let fields = custom_fields(object, schema, self.resets().is_empty(), (manager, fresh));
        let Some(metadata) = metadata_mut(object) else {
            return;
        };
        let entry = json!({
            "apiVersion": api_version(facts), "fieldsType": "FieldsV1", "fieldsV1": fields,
            "manager": manager, "operation": "Update", "time": fresh.time(),
        });
        // Entries that a client sends are kept, unless they are empty. If one is of another group, the server notes none.
        let sent = metadata.remove("managedFields");
        let mut entries = sent.and_then(|mut sent| sent.as_array_mut().map(std::mem::take));
        let entries = entries.get_or_insert_default();
        entries.retain(|entry| entry.as_object().is_some_and(|entry| !entry.is_empty()));
        let is_of_group = |entry: &Value| {
            let version = entry["apiVersion"].as_str().unwrap_or_default();
            version
                .split_once('/')
                .is_some_and(|(group, _)| group == &*facts.group)
        };
        if !entries.iter().all(is_of_group) {
            return;
        }
        // Who owns nothing has no entry.
        if entry["fieldsV1"] != json!({}) {
            entries.push(entry);
        }
        if !entries.is_empty() {
            metadata.insert("managedFields".to_owned(), json!(entries));
        }
    }
}

/// The fields of a new custom resource.
fn custom_fields(
    object: &Value,
    schema: Option<&CustomSchema>,
    is_status_owned: bool,
    owner: (&str, &Fresh),
) -> Value {
    let mut fields = Map::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let is_owned = match &**name {
            "apiVersion" | "kind" => false,
            "status" => is_status_owned,
            _ => true,
        };
        if name == "metadata" {
            fields.extend(metadata_fields(value, owner));
        } else if is_owned {
            fields.extend([custom::owned_member(schema, name, value)]);
        }
    }
    Value::Object(fields)
}

/// The fields of metadata, which is the same in all kinds.
fn metadata_fields(metadata: &Value, (manager, fresh): (&str, &Fresh)) -> Option<(String, Value)> {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    map["metadata"].as_object_mut()?.remove("managedFields");
    let kinds = BuiltIn {
        group: String::new(),
        kind: "ConfigMap".to_owned(),
        resets: &[],
    };
    let context = WriteContext {
        manager,
        subresource: "",
        api_version: "v1",
        now: &fresh.time(),
    };
    track_update(&kinds, None, &mut map, &context);
    // Nobody owns metadata without anything but a name.
    let fields = map.pointer_mut("/metadata/managedFields/0/fieldsV1/f:metadata");
    fields.map(|fields| ("f:metadata".to_owned(), fields.take()))
}
