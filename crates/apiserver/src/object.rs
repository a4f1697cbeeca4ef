//! Objects as they come out of the store, decoded and encoded once each.
//!
//! What is stored is the object's JSON in its stored version, without its resource version, which is
//! the revision of its entry. What is made of an entry (the value, the other versions, their JSON) is
//! kept with the entry, so that lists and watches of any number of clients share it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    codec,
    fault::Fault,
    kind::{Kind, KindVersion},
    metadata,
};
use fairgate_store::Entry;

/// An object at one revision.
#[derive(Debug)]
pub struct Object {
    kind: &'static Kind,
    stored: Value,
    forms: Box<[OnceLock<VersionForm>]>,
}

/// An object as one version has it.
#[derive(Debug)]
struct VersionForm {
    /// Unless it is the stored version, which the object has anyway.
    value: Option<Value>,
    json: OnceLock<Bytes>,
}

impl Object {
    /// An object in its stored version, resource version included.
    pub fn new(kind: &'static Kind, stored: Value) -> Arc<Self> {
        Arc::new(Self::plain(kind, stored))
    }

    /// The same, not shared yet.
    pub fn plain(kind: &'static Kind, stored: Value) -> Self {
        let forms = kind.versions.iter().map(|_| OnceLock::new()).collect();
        Self {
            kind,
            stored,
            forms,
        }
    }

    /// What an entry of the store holds. Decodes it if nobody has done so yet.
    ///
    /// # Errors
    ///
    /// 500, when the entry holds no object of this kind.
    pub fn of(kind: &'static Kind, entry: &Entry) -> Result<Arc<Self>, Fault> {
        if let Some(known) = entry.memo.get::<Self>() {
            return Ok(known);
        }
        let stored = decode(kind, &entry.value, entry.revision)?;
        Ok(entry.memo.get_or_make(|| Self::plain(kind, stored)))
    }

    /// The object in its stored version.
    pub fn stored(&self) -> &Value {
        &self.stored
    }

    /// The object as `version` has it.
    pub fn value(&self, version: &KindVersion) -> &Value {
        self.form(version).value.as_ref().unwrap_or(&self.stored)
    }

    /// Its compact JSON as `version` has it; kind and API version come first.
    pub fn json(&self, version: &KindVersion) -> Bytes {
        let form = self.form(version);
        let value = form.value.as_ref().unwrap_or(&self.stored);
        form.json.get_or_init(|| compact(version, value)).clone()
    }

    fn form(&self, version: &KindVersion) -> &VersionForm {
        let index = self
            .kind
            .versions
            .iter()
            .position(|one| one.name == version.name)
            .unwrap_or(0);
        self.forms[index].get_or_init(|| VersionForm {
            value: (version.name != self.kind.stored().name)
                .then(|| versioned(self.kind, version, &self.stored)),
            json: OnceLock::new(),
        })
    }
}

/// The JSON of an object in one line, without the end of the line.
pub(crate) fn compact(version: &KindVersion, value: &Value) -> Bytes {
    let mut json = codec::json::encode(version.shape, value, false);
    while json.last() == Some(&b'\n') {
        json.pop();
    }
    json.into()
}

/// An object in its stored version as `version` has it.
pub(crate) fn versioned(kind: &Kind, version: &KindVersion, stored: &Value) -> Value {
    let mut value = stored.clone();
    (version.from_storage)(&mut value);
    value["apiVersion"] = json!(kind.api_version(version.name));
    value
}

/// An object of `version`, defaults filled in, in its stored version.
pub(crate) fn to_stored(kind: &Kind, version: &KindVersion, mut value: Value) -> Value {
    (version.to_storage)(&mut value);
    value["apiVersion"] = json!(kind.api_version(kind.stored().name));
    value
}

/// An object of version `from`, defaults filled in, as version `to` shows it once it is stored. The two
/// may be the same: what an object says only of how it is to be read does not come back.
pub(crate) fn converted(kind: &Kind, from: &KindVersion, to: &KindVersion, value: Value) -> Value {
    versioned(kind, to, &to_stored(kind, from, value))
}

/// The bytes that are stored for an object in its stored version.
pub(crate) fn encode(kind: &Kind, stored: &Value) -> Bytes {
    let mut value = stored.clone();
    metadata::set(&mut value, "resourceVersion", Value::Null);
    codec::json::encode(kind.stored().shape, &value, false).into()
}

fn decode(kind: &Kind, bytes: &[u8], revision: u64) -> Result<Value, Fault> {
    let corrupt = |why: &str| {
        Fault::internal(format!(
            "the store holds an object of {} that cannot be read: {why}",
            kind.group_resource()
        ))
    };
    let mut value: Value =
        serde_json::from_slice(bytes).map_err(|error| corrupt(&error.to_string()))?;
    if value["kind"] != kind.kind || !value["metadata"].is_object() {
        return Err(corrupt("it is of another kind"));
    }
    (kind.stored().default)(&mut value);
    metadata::set(&mut value, "resourceVersion", json!(revision.to_string()));
    Ok(value)
}
