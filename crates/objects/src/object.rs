//! Objects as they are stored, in all their versions; each version is converted and encoded once.
//!
//! The store holds the object's JSON in its storage version, without the resource version, which is the
//! revision at which it was written. Lists and watches of any number of clients share an [`Object`] and
//! everything that was encoded from it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    codec,
    kind::{Kind, KindVersion},
    metadata,
};

/// Stored bytes that are not an object of the expected kind.
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

/// An object in one version.
#[derive(Debug)]
struct VersionForm {
    /// None for the stored version, which the object has anyway.
    value: Option<Value>,
    json: OnceLock<Bytes>,
}

impl Object {
    /// An object in its stored version, resource version included.
    pub fn new(kind: &'static Kind, stored: Value) -> Arc<Self> {
        Arc::new(Self::plain(kind, stored))
    }

    /// As [`Self::new`], without the [`Arc`].
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
    /// [`CorruptObject`], when the bytes are not an object of this kind.
    pub fn decode(kind: &'static Kind, bytes: &[u8], revision: u64) -> Result<Self, CorruptObject> {
        Ok(Self::plain(kind, decode(kind, bytes, revision)?))
    }

    /// The object in its stored version.
    pub fn stored(&self) -> &Value {
        &self.stored
    }

    /// The object in `version`.
    pub fn value(&self, version: &KindVersion) -> &Value {
        self.form(version).value.as_ref().unwrap_or(&self.stored)
    }

    /// The compact JSON of the object in `version`; `kind` and `apiVersion` come first.
    pub fn json(&self, version: &KindVersion) -> Bytes {
        let form = self.form(version);
        let value = form.value.as_ref().unwrap_or(&self.stored);
        form.json.get_or_init(|| compact(version, value)).clone()
    }

    fn form(&self, version: &KindVersion) -> &VersionForm {
        let mut versions = self.kind.versions.iter();
        let index = versions.position(|one| one.name == version.name);
        debug_assert!(
            index.is_some(),
            "{} is not a version of the kind",
            version.name
        );
        self.forms[index.unwrap_or(0)].get_or_init(|| VersionForm {
            value: (version.name != self.kind.stored().name)
                .then(|| versioned(self.kind, version, &self.stored)),
            json: OnceLock::new(),
        })
    }
}

/// The JSON of an object in one line, without the newline.
pub fn compact(version: &KindVersion, value: &Value) -> Bytes {
    let mut json = codec::json::encode(version.shape, value, false);
    while json.last() == Some(&b'\n') {
        json.pop();
    }
    json.into()
}

/// Converts an object from its stored version to `version`.
pub fn versioned(kind: &Kind, version: &KindVersion, stored: &Value) -> Value {
    let mut value = stored.clone();
    (version.from_storage)(&mut value);
    value["apiVersion"] = json!(kind.api_version(version.name));
    value
}

/// Converts an object of `version`, with defaults filled in, to its stored version.
pub fn to_stored(kind: &Kind, version: &KindVersion, mut value: Value) -> Value {
    (version.to_storage)(&mut value);
    value["apiVersion"] = json!(kind.api_version(kind.stored().name));
    value
}

/// Converts an object of version `from`, with defaults filled in, to what version `to` shows once it is stored.
/// The two may be the same: annotations that only control the conversion to the stored version are not shown
/// again.
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
    if value["kind"] != kind.kind {
        return Err(corrupt("it is of another kind"));
    }
    if !value["metadata"].is_object() {
        return Err(corrupt("it has no metadata"));
    }
    (kind.stored().default)(&mut value);
    metadata::set(&mut value, "resourceVersion", json!(revision.to_string()));
    Ok(value)
}
