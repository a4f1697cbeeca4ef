//! Custom resources: what kube-apiserver makes of the body of one before anybody sees it.
//!
//! Objects without a table are maps to the server, too, but not taken as they are. Their metadata goes through the Go type, as
//! that of all objects: `labels: null` is no labels, `{"l": null}` a label with an empty value, unknown members are gone.
//! The rest goes by the structural schema of the definition ([`CustomSchema`]): members that are missing, or null where the schema does
//! not have `nullable`, get their defaults, what is null without one then is gone, and unknown members are *pruned*. An embedded
//! resource has its metadata read in the same way.
//!
//! Source: Kubernetes `apiextensions-apiserver/pkg/apiserver`: `unstructuredSchemaCoercer` in `customresource_handler.go`, and
//! `schema/{pruning,defaulting,objectmeta}`.
//!
//! Not here: validation.

mod owned_types;
#[cfg(test)]
mod tests;
mod unknown_fields;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

pub use self::owned_types::CustomType;
pub(crate) use self::owned_types::{
    CustomList, CustomMember, CustomParts, MemberType, StoredPaths,
};
use self::{owned_types::OwnedParts, unknown_fields::UnknownFields};
use crate::schema::{
    canonical::{self, TypeError},
    meta_v1::OBJECT_META,
};

/// Members of every resource, which no schema prunes.
const RESOURCE_MEMBERS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// How long the text of the members that defaults add to one object may be, in bytes: as long as the longest body. etcd by default
/// stores half as much.
const MAX_DEFAULTS: usize = 3 << 20;

/// Why a body is no custom resource. The server refuses it, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustomObjectError {
    /// Metadata of the wrong type.
    #[error(transparent)]
    Metadata(#[from] TypeError),
    /// `apiVersion` or `kind` of an embedded resource.
    #[error("{0} of an embedded resource must be a string")]
    NotText(&'static str),
    /// Its defaults take more room than any object may have.
    #[error("the defaults of its definition make the object longer than 3 MiB")]
    TooManyDefaults,
}

/// What a `CustomResourceDefinition` says about the members of its resources, in all versions.
#[derive(Debug)]
pub struct CustomDefinition {
    versions: Vec<CustomVersion>,
    /// Whether nothing is pruned (`spec.preserveUnknownFields`, which only old definitions have).
    keeps_all: bool,
    has_webhook: bool,
    bytes: usize,
}

#[derive(Debug)]
struct CustomVersion {
    name: Box<str>,
    root: SchemaNode,
    has_schema: bool,
    has_status: bool,
    repeats_defaults: bool,
}

/// What the schema of one version of a custom resource says about which members are kept and added, and how they are owned.
#[derive(Clone, Debug)]
pub struct CustomSchema {
    definition: Arc<CustomDefinition>,
    /// Which of its versions it is.
    at: usize,
}

/// A structural schema.
#[derive(Debug, Default)]
struct SchemaNode {
    members: BTreeMap<Box<str>, SchemaNode>,
    others: OtherMembers,
    items: Option<Box<SchemaNode>>,
    parts: OwnedParts,
    default: Option<SchemaDefault>,
    is_nullable: bool,
    keeps_unknown: bool,
    is_resource: bool,
}

/// The default of a member.
#[derive(Debug)]
pub(crate) struct SchemaDefault {
    pub(crate) value: Value,
    /// The length of its text.
    pub(crate) bytes: usize,
}

/// How many bytes of defaults may still be added.
struct DefaultRoom(usize);

impl DefaultRoom {
    /// A copy of the default of a member; `key` is empty for an item of a list.
    fn take(&mut self, key: &str, default: &SchemaDefault) -> Result<Value, CustomObjectError> {
        const PUNCTUATION: usize = 4;
        let left = self.0.checked_sub(key.len() + PUNCTUATION + default.bytes);
        self.0 = left.ok_or(CustomObjectError::TooManyDefaults)?;
        Ok(default.value.clone())
    }
}

/// `additionalProperties`.
#[derive(Debug, Default)]
enum OtherMembers {
    /// There are none.
    #[default]
    Unknown,
    /// They are known, and nothing in them is.
    Any,
    Of(Box<SchemaNode>),
}

/// What a schema says about a member.
enum Member<'a> {
    Unknown,
    /// It is known, and nothing in it is.
    Any,
    Of(&'a SchemaNode),
}

impl CustomDefinition {
    /// Reads a `CustomResourceDefinition` (`apiextensions.k8s.io/v1`). A version without a schema keeps only apiVersion, kind and metadata.
    ///
    /// Costs time and memory linear in the size of the definition.
    pub fn new(definition: &Value) -> Self {
        let spec = &definition["spec"];
        let mut bytes = size_of::<Self>();
        let versions = spec["versions"].as_array().into_iter().flatten();
        let versions = versions.map(|version| {
            let schema = version.pointer("/schema/openAPIV3Schema");
            let mut root = schema.map_or_else(SchemaNode::default, |schema| {
                SchemaNode::new(schema, false, &mut bytes)
            });
            root.is_resource = true;
            let name = version["name"].as_str().unwrap_or_default();
            bytes += size_of::<CustomVersion>() + name.len();
            CustomVersion {
                name: name.into(),
                repeats_defaults: root.repeats_defaults(false),
                root,
                has_schema: schema.is_some(),
                has_status: version["subresources"]["status"].is_object(),
            }
        });
        Self {
            versions: versions.collect(),
            keeps_all: spec["preserveUnknownFields"] == true,
            has_webhook: spec["conversion"]["strategy"] == "Webhook",
            bytes,
        }
    }

    /// The schema of a version; `None` if there is no such version.
    pub fn version(self: &Arc<Self>, name: &str) -> Option<CustomSchema> {
        let at = self.versions.iter().position(|one| *one.name == *name)?;
        let definition = Arc::clone(self);
        Some(CustomSchema { definition, at })
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl CustomSchema {
    /// The schema of a version in a `CustomResourceDefinition`, as [`CustomDefinition`] reads it; `None` if that has no such version.
    pub fn of_version(definition: &Value, version: &str) -> Option<Self> {
        Arc::new(CustomDefinition::new(definition)).version(version)
    }

    fn version(&self) -> &CustomVersion {
        &self.definition.versions[self.at]
    }

    /// Whether the version has the subresource `status`, so that writes of the object itself leave the status as it is.
    pub fn has_status(&self) -> bool {
        self.version().has_status
    }

    /// Whether a short object may have long defaults, because items of lists, or members of any name, have some.
    pub fn repeats_defaults(&self) -> bool {
        self.version().repeats_defaults
    }

    /// Whether a webhook converts objects between the versions. Otherwise they are the same in all versions.
    pub fn has_webhook(&self) -> bool {
        self.definition.has_webhook
    }

    /// Returns the paths of unknown fields.
    fn apply(&self, object: &mut Value) -> Result<Vec<String>, CustomObjectError> {
        let (mut unknown, mut all) = (UnknownFields::default(), Vec::new());
        let root = &self.version().root;
        root.fill(object, &mut DefaultRoom(MAX_DEFAULTS))?;
        if !self.definition.keeps_all {
            root.prune(object, &mut unknown);
            all = unknown.take_sorted();
            root.drop_nulls(object);
        }
        root.read_embedded(object, &mut unknown)?;
        all.extend(unknown.take_sorted());
        Ok(all)
    }
}

/// Makes of a decoded body what the server does. Without a schema only the metadata is read. Returns a text for each unknown field, as
/// strict decoding words it and in its order, at most 64 KiB of them.
///
/// Costs time linear in the size of the object.
///
/// # Errors
///
/// The body is none of a custom resource.
pub fn as_read(
    object: &mut Value,
    schema: Option<&CustomSchema>,
) -> Result<Vec<String>, CustomObjectError> {
    let mut unknown = UnknownFields::default();
    let metadata = object.get("metadata");
    let metadata = metadata.map(|metadata| read_metadata(metadata, &mut unknown));
    let metadata = metadata.transpose()?;
    let mut all = unknown.take_found();
    if let Some(schema) = schema {
        all.extend(schema.apply(object)?);
    }
    if let (Some(metadata), Value::Object(members)) = (metadata, object) {
        members.insert("metadata".to_owned(), metadata);
    }
    let texts = all.iter().map(|path| format!("unknown field \"{path}\""));
    Ok(texts.collect())
}

/// Metadata has no `apiVersion` and `kind`, which decoding keeps at the top of what it reads.
fn read_metadata(metadata: &Value, unknown: &mut UnknownFields) -> Result<Value, TypeError> {
    unknown.enter_member("metadata");
    let mut metadata = Cow::Borrowed(metadata);
    for key in ["apiVersion", "kind"] {
        if metadata.get(key).is_some()
            && let Value::Object(members) = metadata.to_mut()
        {
            unknown.record(key);
            members.remove(key);
        }
    }
    let read = canonical::decode(&OBJECT_META, &*metadata)?;
    for problem in &read.problems {
        let field = problem.strip_prefix("unknown field \"");
        if let Some(field) = field.and_then(|field| field.strip_suffix('"')) {
            unknown.record(field);
        }
    }
    unknown.leave();
    Ok(read.value)
}

impl SchemaNode {
    /// `is_open` is whether a schema around it keeps unknown members.
    fn new(schema: &Value, is_open: bool, bytes: &mut usize) -> Self {
        let is = |key: &str| schema[key] == true;
        let keeps_unknown = is("x-kubernetes-preserve-unknown-fields");
        let is_open = is_open || keeps_unknown;
        let mut new = |schema: &Value| {
            *bytes += size_of::<Self>();
            Self::new(schema, is_open, bytes)
        };
        let others = match &schema["additionalProperties"] {
            Value::Bool(_) => OtherMembers::Any,
            Value::Null => OtherMembers::Unknown,
            others => OtherMembers::Of(Box::new(new(others))),
        };
        let items = Some(&schema["items"]).filter(|items| items.is_object());
        let items = items.map(|items| Box::new(new(items)));
        let members = schema["properties"].as_object().into_iter().flatten();
        let members = members.map(|(key, schema)| {
            let node = new(schema);
            (Box::from(&**key), node)
        });
        let members: BTreeMap<Box<str>, Self> = members.collect();
        *bytes += members.keys().map(|key| key.len() + 16).sum::<usize>();
        let default = schema.get("default").map(|value| SchemaDefault {
            value: value.clone(),
            bytes: value.to_string().len(),
        });
        *bytes += default.as_ref().map_or(0, |default| default.bytes);
        Self {
            parts: OwnedParts::of(schema, is_open),
            default,
            members,
            others,
            items,
            is_nullable: is("nullable"),
            keeps_unknown,
            is_resource: is("x-kubernetes-embedded-resource"),
        }
    }

    fn member(&self, key: &str) -> Member<'_> {
        if let Some(schema) = self.members.get(key) {
            return Member::Of(schema);
        }
        match &self.others {
            OtherMembers::Unknown => Member::Unknown,
            OtherMembers::Any => Member::Any,
            OtherMembers::Of(schema) => Member::Of(schema),
        }
    }

    /// Whether it has defaults that an object may get several times; `is_repeated` if the schema itself is for several values.
    fn repeats_defaults(&self, is_repeated: bool) -> bool {
        let others = match &self.others {
            OtherMembers::Of(schema) => Some(&**schema),
            OtherMembers::Unknown | OtherMembers::Any => None,
        };
        let mut repeated = others.into_iter().chain(self.items.as_deref());
        is_repeated && self.default.is_some()
            || self
                .members
                .values()
                .any(|schema| schema.repeats_defaults(is_repeated))
            || repeated.any(|schema| schema.repeats_defaults(true))
    }

    /// Adds the defaults of members that are missing. A null that may not be one is as good as missing.
    fn fill(&self, value: &mut Value, room: &mut DefaultRoom) -> Result<(), CustomObjectError> {
        match value {
            Value::Object(members) => {
                for (key, schema) in &self.members {
                    if let Some(default) = &schema.default
                        && members
                            .get(&**key)
                            .is_none_or(|value| schema.refuses(value))
                    {
                        let default = room.take(key, default)?;
                        members.insert(key.to_string(), default);
                    }
                }
                for (key, value) in members {
                    if let Member::Of(schema) = self.member(key) {
                        schema.fill_null(value, room)?;
                        schema.fill(value, room)?;
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.fill_null(item, room)?;
                        schema.fill(item, room)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Replaces a null that may not be one by the default.
    fn fill_null(
        &self,
        value: &mut Value,
        room: &mut DefaultRoom,
    ) -> Result<(), CustomObjectError> {
        if self.refuses(value)
            && let Some(default) = &self.default
        {
            *value = room.take("", default)?;
        }
        Ok(())
    }

    /// Whether it is a null that may not be one.
    fn refuses(&self, value: &Value) -> bool {
        value.is_null() && !self.is_nullable
    }

    fn prune(&self, value: &mut Value, unknown: &mut UnknownFields) {
        self.prune_keeping(value, self.keeps_unknown, unknown);
    }

    /// Removes unknown members, unless they are kept. What is kept does not go by any schema.
    fn prune_keeping(&self, value: &mut Value, keeps: bool, unknown: &mut UnknownFields) {
        match value {
            Value::Object(members) => members.retain(|key, value| {
                if self.is_resource && RESOURCE_MEMBERS.contains(&&**key) {
                    return true;
                }
                let member = self.member(key);
                if matches!(member, Member::Unknown) {
                    if !keeps {
                        unknown.record(key);
                    }
                    return keeps;
                }
                unknown.enter_member(key);
                if let Member::Of(schema) = member {
                    schema.prune(value, unknown);
                } else {
                    prune_all(value, unknown);
                }
                unknown.leave();
                true
            }),
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    unknown.enter_item(index);
                    match &self.items {
                        // Lists hand on that unknown members are kept.
                        Some(schema) => {
                            schema.prune_keeping(item, keeps || schema.keeps_unknown, unknown);
                        }
                        None if keeps => {}
                        None => prune_all(item, unknown),
                    }
                    unknown.leave();
                }
            }
            _ => {}
        }
    }

    /// Removes members that are null and may not be.
    fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(members) => members.retain(|key, value| {
                let Member::Of(schema) = self.member(key) else {
                    return true;
                };
                let is_dropped = schema.refuses(value);
                if !is_dropped {
                    schema.drop_nulls(value);
                }
                !is_dropped
            }),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.drop_nulls(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// Reads the metadata of resources in an object.
    fn read_embedded(
        &self,
        value: &mut Value,
        unknown: &mut UnknownFields,
    ) -> Result<(), CustomObjectError> {
        match value {
            Value::Object(members) => {
                let is_embedded = self.is_resource && !unknown.is_at_root();
                if is_embedded {
                    read_type_and_metadata(members, unknown)?;
                }
                for (key, value) in members.iter_mut() {
                    let is_read = is_embedded && key == "metadata";
                    if let Member::Of(schema) = self.member(key)
                        && !is_read
                    {
                        unknown.enter_member(key);
                        schema.read_embedded(value, unknown)?;
                        unknown.leave();
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for (index, item) in items.iter_mut().enumerate() {
                        unknown.enter_item(index);
                        schema.read_embedded(item, unknown)?;
                        unknown.leave();
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Removes all members of objects where nothing is known.
fn prune_all(value: &mut Value, unknown: &mut UnknownFields) {
    match value {
        Value::Object(members) => {
            for key in members.keys() {
                unknown.record(key);
            }
            members.clear();
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                unknown.enter_item(index);
                prune_all(item, unknown);
                unknown.leave();
            }
        }
        _ => {}
    }
}

fn read_type_and_metadata(
    members: &mut Map<String, Value>,
    unknown: &mut UnknownFields,
) -> Result<(), CustomObjectError> {
    for key in ["apiVersion", "kind"] {
        if members.get(key).is_some_and(|value| !value.is_string()) {
            return Err(CustomObjectError::NotText(key));
        }
    }
    if let Some(metadata) = members.get_mut("metadata") {
        *metadata = read_metadata(metadata, unknown)?;
    }
    Ok(())
}
