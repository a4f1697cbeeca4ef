//! Who owns the fields of an object: the entries of `metadata.managedFields` as a server notes them before it asks its policies.
//!
//! Not here: who owns what of a custom resource that is changed, which takes its schema.

use fairgate_objects::{
    conversion::BuiltInConversion,
    schema::{Struct, built_in, canonical},
    ssa::{ManagedKind, WriteContext, keep_times_if_unchanged, track_update},
};
use serde_json::{Map, Value, json};

use super::{
    creation::Fresh,
    metadata_mut,
    table::{CreatedStatus, ResourceStrategy},
};
use crate::facts::WriteFacts;

/// Members of metadata that nobody owns.
const UNOWNED: [&str; 8] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// How deep the fields of a custom resource are told apart.
const MAX_DEPTH: u32 = 64;

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

/// Gives a changed object the entries that a server notes, if it is of a built-in kind: `manager` owns what it changed, but for the members
/// `resets`, which the request cannot change. The object has the entries of the body. Returns whether they were noted.
pub(super) fn note_changes(
    object: &mut Value,
    old: &Value,
    resets: &'static [&'static str],
    facts: &WriteFacts,
    (manager, fresh): (&str, &Fresh),
) -> bool {
    let kind = facts.group_version_kind();
    let Some(shape) = built_in(kind.group, kind.version, kind.kind) else {
        return false;
    };
    // Fields that the table does not have are not in the object either.
    let Ok(old) = canonical::decode(shape, old) else {
        return false;
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
    track_update(&kinds, Some(&old.value), object, &context);
    keep_times_if_unchanged(&old.value, object);
    true
}

impl ResourceStrategy {
    /// Notes who owns what of an object as it was sent, with its defaults. `old` is the stored one. Returns whether that was noted.
    pub(super) fn note_owner(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        facts: &WriteFacts,
        (manager, fresh): (&str, &Fresh),
    ) -> bool {
        match old {
            None => {
                self.owned(object, facts, manager, fresh);
                true
            }
            Some(old) => note_changes(object, old, self.resets(), facts, (manager, fresh)),
        }
    }

    /// What a client cannot set.
    fn resets(&self) -> &'static [&'static str] {
        if self.status == CreatedStatus::Ordinary {
            &[]
        } else {
            &["status"]
        }
    }

    /// Adds the entry of the client who creates the object.
    fn owned(&self, object: &mut Value, facts: &WriteFacts, manager: &str, fresh: &Fresh) {
        let kind = facts.group_version_kind();
        let api_version = api_version(facts);
        let now = fresh.time();
        if facts.has_table() {
            let context = WriteContext {
                manager,
                subresource: "",
                api_version: &api_version,
                now: &now,
            };
            let kinds = BuiltIn {
                group: kind.group.to_owned(),
                kind: kind.kind.to_owned(),
                resets: self.resets(),
            };
            track_update(&kinds, None, object, &context);
            return;
        }
        let fields = custom_fields(object, self.resets().is_empty());
        let Some(metadata) = metadata_mut(object) else {
            return;
        };
        let entry = json!({
            "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields,
            "manager": manager, "operation": "Update", "time": now,
        });
        // Entries that a client sends are kept, unless they are empty.
        let sent = metadata.remove("managedFields");
        let mut entries = sent.and_then(|mut sent| sent.as_array_mut().map(std::mem::take));
        let entries = entries.get_or_insert_default();
        entries.retain(|entry| entry.as_object().is_some_and(|entry| !entry.is_empty()));
        entries.push(entry);
        metadata.insert("managedFields".to_owned(), json!(entries));
    }
}

/// The fields of a custom resource whose lists and maps have no type in their schema.
fn custom_fields(object: &Value, is_status_owned: bool) -> Value {
    let mut fields = Map::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let is_owned = match &**name {
            "apiVersion" | "kind" => false,
            "status" => is_status_owned,
            _ => true,
        };
        if name == "metadata" {
            let members = value.as_object().into_iter().flatten();
            let owned = members.filter(|(name, _)| !UNOWNED.contains(&&***name));
            let owned: Map<_, _> = owned.map(|member| owned_field(member, 0)).collect();
            if !owned.is_empty() {
                fields.insert("f:metadata".to_owned(), Value::Object(owned));
            }
        } else if is_owned {
            fields.extend([owned_field((name, value), 0)]);
        }
    }
    Value::Object(fields)
}

fn owned_field((name, value): (&String, &Value), depth: u32) -> (String, Value) {
    let mut fields = Map::new();
    let members = value.as_object().filter(|members| !members.is_empty());
    if let Some(members) = members.filter(|_| depth < MAX_DEPTH) {
        fields.insert(".".to_owned(), json!({}));
        fields.extend(members.iter().map(|member| owned_field(member, depth + 1)));
    }
    (format!("f:{name}"), Value::Object(fields))
}
