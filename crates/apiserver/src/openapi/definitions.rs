//! The schemas of types, generated from their tables, in the form of v3.
//!
//! A reference is wrapped in `allOf`, because members beside a bare `$ref` are ignored. A field that is
//! always present has its zero value as default. [`super::v2`] removes both.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use serde_json::{Map, Value, json};

use super::{
    names::{GroupVersion, meta},
    shared::{self, INT_OR_STRING, QUANTITY, RAW_EXTENSION},
};
use crate::discovery::resources;
use fairgate_objects::{
    kind::Kind,
    schema::{
        Field, PatchStrategy, Presence, Struct, Topology, Type, TypePackage, docs,
        meta_v1::LIST_META,
    },
};

/// Schemas by name.
pub(super) type Schemas = BTreeMap<String, Value>;

/// What a reference begins with.
const REFERENCE: &str = "#/components/schemas/";

/// The schemas of all kinds of some group versions, of their lists, and of shared types.
pub(super) fn of(kinds: &[&Kind], group_versions: &[GroupVersion<'_>]) -> Schemas {
    let mut schemas: Schemas = shared::untabled().into_iter().collect();
    let core = GroupVersion {
        group: "",
        version: "v1",
    };
    for &table in shared::TABLES {
        add(&mut schemas, core, table);
    }
    // The Go type of its verbs has no list type.
    if let Some(verbs) = schemas
        .get_mut(&meta("APIResource"))
        .and_then(|schema| schema["properties"]["verbs"].as_object_mut())
    {
        verbs.remove(LIST_TYPE);
    }
    for &gv in group_versions {
        for kind in resources(kinds, gv.group, gv.version) {
            let Some(version) = kind.version(gv.version) else {
                continue;
            };
            add(&mut schemas, gv, version.shape);
            let name = gv.schema(version.shape.home, version.shape.name);
            if !kind.list_kind.is_empty() {
                let list_name = gv.schema(TypePackage::GroupVersion, kind.list_kind);
                schemas.insert(list_name.clone(), list(kind, &name));
                make_kind(&mut schemas, &list_name, kind.list_kind, &[gv]);
            }
            make_kind(&mut schemas, &name, kind.kind, &[gv]);
        }
    }
    for kind in shared::KINDS {
        make_kind(&mut schemas, &meta(kind), kind, &[core]);
    }
    // These two are a kind of every group version.
    let mut everywhere = group_versions.to_vec();
    if !everywhere.contains(&core) {
        everywhere.push(core);
    }
    everywhere.sort_by_key(|gv| (gv.group, gv.version));
    make_kind(
        &mut schemas,
        &meta("DeleteOptions"),
        "DeleteOptions",
        &everywhere,
    );
    // An event has no `kind` of its own.
    if let Some(event) = schemas.get_mut(&meta("WatchEvent")) {
        event[KINDS] = kinds_of("WatchEvent", &everywhere);
    }
    schemas
}

/// Keeps the schemas that `root` refers to, directly or indirectly.
pub(super) fn reachable(mut schemas: Schemas, root: &Value) -> Schemas {
    let mut kept = Schemas::new();
    let mut names = BTreeSet::new();
    references(root, &mut names);
    while let Some(name) = names.pop_first() {
        if let Some(schema) = schemas.remove(&name) {
            references(&schema, &mut names);
            kept.insert(name, schema);
        }
    }
    kept
}

/// Adds the names of the schemas that a document refers to, of v3 or of v2.
pub(super) fn references(document: &Value, names: &mut BTreeSet<String>) {
    let mut values = vec![document];
    while let Some(value) = values.pop() {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(text)) = map.get("$ref") {
                    let name = text.rsplit('/').next().unwrap_or_default();
                    names.insert(name.to_owned());
                }
                values.extend(map.values());
            }
            Value::Array(items) => values.extend(items),
            _ => {}
        }
    }
}

/// A reference to a schema.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{REFERENCE}{name}") })
}

const KINDS: &str = "x-kubernetes-group-version-kind";

/// Marks a schema as a kind, and adds the fields `apiVersion` and `kind`.
fn make_kind(schemas: &mut Schemas, name: &str, kind: &str, group_versions: &[GroupVersion<'_>]) {
    let Some(schema) = schemas.get_mut(name) else {
        return;
    };
    schema[KINDS] = kinds_of(kind, group_versions);
    let properties = &mut schema["properties"];
    for (field, doc) in [
        ("apiVersion", "Group and version of the object."),
        ("kind", "Kind of the object, in CamelCase."),
    ] {
        properties[field] = json!({ "description": doc, "type": "string" });
    }
}

fn kinds_of(kind: &str, group_versions: &[GroupVersion<'_>]) -> Value {
    group_versions
        .iter()
        .map(|gv| json!({ "group": gv.group, "kind": kind, "version": gv.version }))
        .collect()
}

/// Adds the schema of a table, and of all tables that it refers to.
fn add(schemas: &mut Schemas, gv: GroupVersion<'_>, table: &'static Struct) {
    let mut tables = vec![table];
    while let Some(table) = tables.pop() {
        let name = gv.schema(table.home, table.name);
        if let Entry::Vacant(entry) = schemas.entry(name) {
            entry.insert(object(gv, table));
            tables.extend(table.fields.iter().filter_map(|field| inner(field.ty)));
        }
    }
}

/// The table that a type refers to.
fn inner(mut ty: Type) -> Option<&'static Struct> {
    loop {
        ty = match ty {
            Type::Object(table) => return Some(table),
            Type::List(list) => list.item,
            Type::Map(map) => map.value,
            _ => return None,
        }
    }
}

fn object(gv: GroupVersion<'_>, table: &Struct) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in table.fields {
        properties.insert(field.name.into(), property(gv, table, field));
        if field.required {
            required.push(field.name);
        }
    }
    let mut schema = json!({
        "description": docs::of_struct(table),
        "type": "object",
        "properties": properties,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if table.atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    if let Some((discriminator, members)) = shared::union(table) {
        let members: Map<String, Value> = members
            .iter()
            .map(|&(field, name)| (field.to_owned(), name.into()))
            .collect();
        schema["x-kubernetes-unions"] =
            json!([{ "discriminator": discriminator, "fields-to-discriminateBy": members }]);
    }
    schema
}

fn property(gv: GroupVersion<'_>, table: &Struct, field: &Field) -> Value {
    let declared = field
        .default
        .and_then(|text| serde_json::from_str(text).ok());
    let default = match field.presence {
        _ if declared.is_some() => declared,
        Presence::Always => zero(field.ty),
        // An object that is not a pointer is always present.
        Presence::NonZero if matches!(field.ty, Type::Object(_)) => zero(field.ty),
        Presence::NonZero | Presence::Pointer | Presence::Nullable => None,
    };
    let mut schema = wrapped(schema(gv, field.ty));
    schema["description"] = docs::of_field(table, field).into();
    if let Some(default) = default {
        schema["default"] = default;
    }
    if let Type::List(list) = field.ty {
        let (name, keys) = match list.topology {
            Topology::Atomic => ("atomic", None),
            Topology::Set => ("set", None),
            Topology::Map(keys) => ("map", Some(keys)),
        };
        schema[LIST_TYPE] = name.into();
        if let Some(keys) = keys {
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
    if let Type::Map(map) = field.ty
        && map.atomic
    {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    let (strategy, key) = match field.patch {
        PatchStrategy::Plain => (None, None),
        PatchStrategy::MergeBy(key) => (Some("merge"), Some(key)),
        PatchStrategy::MergeByRetainingKeys(key) => (Some("merge,retainKeys"), Some(key)),
        PatchStrategy::RetainKeys => (Some("retainKeys"), None),
        PatchStrategy::MergeSet => (Some("merge"), None),
        PatchStrategy::Replace => (Some("replace"), None),
    };
    if let Some(strategy) = strategy {
        schema["x-kubernetes-patch-strategy"] = strategy.into();
    }
    if let Some(key) = key {
        schema["x-kubernetes-patch-merge-key"] = key.into();
    }
    schema
}

const LIST_TYPE: &str = "x-kubernetes-list-type";

/// The schema of a value. The depth of recursion is that of lists and maps in a table.
fn schema(gv: GroupVersion<'_>, ty: Type) -> Value {
    match ty {
        Type::Text => json!({ "type": "string" }),
        Type::Int32 => json!({ "type": "integer", "format": "int32" }),
        Type::Int64 => json!({ "type": "integer", "format": "int64" }),
        Type::Flag => json!({ "type": "boolean" }),
        Type::Bytes => json!({ "type": "string", "format": "byte" }),
        Type::Time => reference(&meta("Time")),
        Type::MicroTime => reference(&meta("MicroTime")),
        Type::Raw => reference(&meta("FieldsV1")),
        Type::RawExtension => reference(RAW_EXTENSION),
        Type::Quantity => reference(QUANTITY),
        Type::IntOrString => reference(INT_OR_STRING),
        Type::Object(table) => reference(&gv.schema(table.home, table.name)),
        Type::List(list) => json!({ "type": "array", "items": element(gv, list.item) }),
        Type::Map(map) => {
            json!({ "type": "object", "additionalProperties": element(gv, map.value) })
        }
    }
}

/// The schema of a value in a list or a map, which is never absent.
fn element(gv: GroupVersion<'_>, ty: Type) -> Value {
    let schema = schema(gv, ty);
    match zero(ty) {
        Some(zero) => {
            let mut schema = wrapped(schema);
            schema["default"] = zero;
            schema
        }
        None => schema,
    }
}

/// The zero value of a type, if JSON has one.
fn zero(ty: Type) -> Option<Value> {
    match ty {
        Type::Text => Some("".into()),
        Type::Int32 | Type::Int64 => Some(0.into()),
        Type::Flag => Some(false.into()),
        Type::Object(_) => Some(json!({})),
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::Raw
        | Type::RawExtension
        | Type::IntOrString
        | Type::Quantity
        | Type::List(_)
        | Type::Map(_) => None,
    }
}

/// The schema in a form that further members can be added to.
fn wrapped(schema: Value) -> Value {
    if schema.get("$ref").is_some() {
        json!({ "allOf": [schema] })
    } else {
        schema
    }
}

/// The schema of a kind's list.
fn list(kind: &Kind, item: &str) -> Value {
    let wrapped = |name: &str| json!({ "allOf": [reference(name)], "default": {} });
    let mut metadata = wrapped(&meta(LIST_META.name));
    metadata["description"] = docs::of_struct(&LIST_META).into();
    json!({
        "description": format!("{} is a list of objects of kind {}.", kind.list_kind, kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "metadata": metadata,
            "items": {
                "description": "The objects.",
                "type": "array",
                "items": wrapped(item),
            },
        },
    })
}
