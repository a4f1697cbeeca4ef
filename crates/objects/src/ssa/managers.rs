//! The entries of `metadata.managedFields`: which manager owns which fields.
//!
//! An entry is identified by its [`ManagerKey`]. For appliers this is name and subresource only, so that an
//! applier has one entry, whatever version it used last; updaters have one for each version.

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::{Map, Value};

use super::{
    fields_v1::{self, FieldsError},
    path_set::PathSet,
};
use crate::go;
use fairgate_gotext::Quoted;

/// The operation of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ManagerOperation {
    /// Server-side apply.
    Apply,
    /// Every other write.
    Update,
}

impl ManagerOperation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of an entry. Ordered by its JSON text, as kube-apiserver orders conflicts.
#[derive(Clone, Debug)]
pub(super) struct ManagerKey {
    text: String,
    manager: String,
    operation: ManagerOperation,
    version: String,
    subresource: String,
}

impl ManagerKey {
    /// The identity of an entry; the version of appliers does not count.
    pub(super) fn new(
        manager: &str,
        operation: ManagerOperation,
        version: &str,
        subresource: &str,
    ) -> Self {
        let version = match operation {
            ManagerOperation::Apply => "",
            ManagerOperation::Update => version,
        };
        let parts = [
            // In the order of the fields of Go's struct, whose JSON is the identity there.
            ("manager", manager),
            ("operation", operation.name()),
            ("apiVersion", version),
            ("subresource", subresource),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("\"{name}\":{}", go::json(&value.into())))
            .collect();
        Self {
            text: format!("{{{}}}", parts.join(",")),
            manager: manager.to_owned(),
            operation,
            version: version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// The manager's name.
    pub(super) fn manager(&self) -> &str {
        &self.manager
    }

    /// The version of an updater; empty for appliers.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The subresource, empty for the object itself.
    pub(super) fn subresource(&self) -> &str {
        &self.subresource
    }
}

impl PartialEq for ManagerKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ManagerKey {}

impl PartialOrd for ManagerKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ManagerKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// What one manager owns.
#[derive(Clone, Debug)]
pub(super) struct ManagerEntry {
    /// The version of the object that the paths refer to.
    pub(super) version: String,
    /// The paths it owns.
    pub(super) set: PathSet,
    /// When it last changed, RFC 3339 in whole seconds of UTC.
    pub(super) time: Option<String>,
}

/// Why stored entries cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ManagersError {
    /// Neither a list nor null.
    #[error("managedFields must be a list of objects")]
    NotAList,
    /// Another operation.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    Version,
    /// No type of fields.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// An unknown type of fields.
    #[error("invalid fieldsType {found} in managed fields entry {1}", found = Quoted(.0))]
    FieldsType(String, usize),
    /// Fields that are not a set.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers {
    entries: BTreeMap<ManagerKey, ManagerEntry>,
}

impl Managers {
    /// Reads `managedFields`, whose sets of fields have at most `deepest` levels; null is none. If several entries have the same identity, the last
    /// counts.
    ///
    /// # Errors
    ///
    /// [`ManagersError`] says what is wrong with the first entry that is not well-formed.
    pub(super) fn decode(list: &Value, deepest: usize) -> Result<Self, ManagersError> {
        let list = match list {
            Value::Null => &[],
            Value::Array(list) => list.as_slice(),
            _ => return Err(ManagersError::NotAList),
        };
        let mut managers = Self::default();
        for (index, entry) in list.iter().enumerate() {
            let (identity, entry) = decode_entry(index, entry, deepest)?;
            managers.entries.insert(identity, entry);
        }
        Ok(managers)
    }

    /// Writes `managedFields`: appliers first, then by time, name, version and subresource. `None`
    /// if there is no entry.
    pub(super) fn encode(&self) -> Option<Value> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by(|(a, x), (b, y)| {
            let key = |identity: &ManagerKey| identity.operation;
            (key(a), &x.time, &a.manager, &x.version, &a.subresource).cmp(&(
                key(b),
                &y.time,
                &b.manager,
                &y.version,
                &b.subresource,
            ))
        });
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(identity, entry)| encode_entry(identity, entry))
            .collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    /// Whether there is no manager.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What one manager owns.
    pub(super) fn get(&self, identity: &ManagerKey) -> Option<&ManagerEntry> {
        self.entries.get(identity)
    }

    /// What one manager owns, to be changed.
    pub(super) fn get_mut(&mut self, identity: &ManagerKey) -> Option<&mut ManagerEntry> {
        self.entries.get_mut(identity)
    }

    /// Replaces what one manager owns.
    pub(super) fn insert(&mut self, identity: ManagerKey, entry: ManagerEntry) {
        self.entries.insert(identity, entry);
    }

    /// Removes a manager.
    pub(super) fn remove(&mut self, identity: &ManagerKey) -> Option<ManagerEntry> {
        self.entries.remove(identity)
    }

    /// Keeps the entries for which `keep` returns true; it may change them.
    pub(super) fn retain(&mut self, keep: impl FnMut(&ManagerKey, &mut ManagerEntry) -> bool) {
        self.entries.retain(keep);
    }

    /// All entries, by identity.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ManagerKey, &ManagerEntry)> {
        self.entries.iter()
    }

    /// The updaters, the oldest entry first.
    pub(super) fn updaters_by_age(&self) -> Vec<ManagerKey> {
        let mut updaters: Vec<_> = self
            .entries
            .iter()
            .filter(|(identity, _)| identity.operation == ManagerOperation::Update)
            .map(|(identity, entry)| (&entry.time, identity))
            .collect();
        updaters.sort();
        updaters
            .into_iter()
            .map(|(_, identity)| identity.clone())
            .collect()
    }
}

/// Sets the entries in an object's metadata, or removes them.
pub(super) fn set_managed_fields(object: &mut Value, entries: Option<Value>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let metadata = fields.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(metadata) = metadata {
        match entries {
            Some(entries) => metadata.insert("managedFields".to_owned(), entries),
            None => metadata.remove("managedFields"),
        };
    }
}

fn decode_entry(
    index: usize,
    entry: &Value,
    deepest: usize,
) -> Result<(ManagerKey, ManagerEntry), ManagersError> {
    let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or("");
    let operation = match text("operation") {
        "Apply" => ManagerOperation::Apply,
        "Update" => ManagerOperation::Update,
        _ => return Err(ManagersError::Operation),
    };
    let version = text("apiVersion");
    if version.is_empty() {
        return Err(ManagersError::Version);
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(ManagersError::NoFieldsType(index)),
        other => return Err(ManagersError::FieldsType(other.to_owned(), index)),
    }
    let identity = ManagerKey::new(text("manager"), operation, version, text("subresource"));
    let entry = ManagerEntry {
        version: version.to_owned(),
        set: fields_v1::decode(entry.get("fieldsV1").unwrap_or(&Value::Null), deepest)?,
        time: Some(text("time").to_owned()).filter(|time| !time.is_empty()),
    };
    Ok((identity, entry))
}

fn encode_entry(identity: &ManagerKey, entry: &ManagerEntry) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: &str| {
        if !value.is_empty() {
            out.insert(name.to_owned(), value.into());
        }
    };
    put("manager", &identity.manager);
    put("operation", identity.operation.name());
    put("apiVersion", &entry.version);
    put("time", entry.time.as_deref().unwrap_or(""));
    put("fieldsType", "FieldsV1");
    put("subresource", &identity.subresource);
    out.insert("fieldsV1".to_owned(), fields_v1::encode(&entry.set));
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_type_of_fields_is_quoted_as_go_quotes_it() {
        let error = ManagersError::FieldsType("Fields\u{1}".to_owned(), 0);
        assert_eq!(
            error.to_string(),
            r#"invalid fieldsType "Fields\x01" in managed fields entry 0"#
        );
    }
}
