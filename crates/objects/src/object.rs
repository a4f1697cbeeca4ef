//! Objects as they are stored, in all their versions; each version is converted and encoded once.
//!
//! What is stored is the object's JSON in its stored version, without its resource version, which is
//! the revision at which it was written. Whoever keeps an [`Object`] lets lists and watches of any
//! number of clients share what was made of it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    codec,
    kind::{Kind, KindVersion},
    metadata,
};

/// Stored bytes that are no object of the kind they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CorruptObject(String);

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

    /// The object whose stored bytes are `bytes`, written at `revision`.
    ///
    /// # Errors
    ///
    /// [`CorruptObject`], when the bytes are no object of this kind.
    pub fn decode(kind: &'static Kind, bytes: &[u8], revision: u64) -> Result<Self, CorruptObject> {
        Ok(Self::plain(kind, decode(kind, bytes, revision)?))
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
pub fn compact(version: &KindVersion, value: &Value) -> Bytes {
    let mut json = codec::json::encode(version.shape, value, false);
    while json.last() == Some(&b'\n') {
        json.pop();
    }
    json.into()
}

/// An object in its stored version as `version` has it.
pub fn versioned(kind: &Kind, version: &KindVersion, stored: &Value) -> Value {
    let mut value = stored.clone();
    (version.from_storage)(&mut value);
    value["apiVersion"] = json!(kind.api_version(version.name));
    value
}

/// An object of `version`, defaults filled in, in its stored version.
pub fn to_stored(kind: &Kind, version: &KindVersion, mut value: Value) -> Value {
    (version.to_storage)(&mut value);
    value["apiVersion"] = json!(kind.api_version(kind.stored().name));
    value
}

/// An object of version `from`, defaults filled in, as version `to` shows it once it is stored. The two
/// may be the same: what an object says only of how it is to be read does not come back.
pub fn converted(kind: &Kind, from: &KindVersion, to: &KindVersion, value: Value) -> Value {
    versioned(kind, to, &to_stored(kind, from, value))
}

/// The bytes that are stored for an object in its stored version.
pub fn encode(kind: &Kind, stored: &Value) -> Bytes {
    let mut value = stored.clone();
    metadata::set(&mut value, "resourceVersion", Value::Null);
    codec::json::encode(kind.stored().shape, &value, false).into()
}

fn decode(kind: &Kind, bytes: &[u8], revision: u64) -> Result<Value, CorruptObject> {
    let corrupt = |why: &str| {
        CorruptObject(format!(
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
