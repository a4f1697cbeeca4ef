//! Shared types: those of discovery, and those that a table of fields cannot describe.

use serde_json::{Map, Value, json};

use super::names::meta;
use fairgate_objects::schema::{
    Struct, TypePackage,
    meta_v1::{
        API_GROUP, API_GROUP_LIST, API_RESOURCE_LIST, API_VERSIONS, DELETE_OPTIONS, LIST_META,
        OBJECT_META, STATUS,
    },
};

/// Tables of `meta/v1` that documents may refer to.
pub(super) const TABLES: &[&Struct] = &[
    &API_GROUP,
    &API_GROUP_LIST,
    &API_RESOURCE_LIST,
    &API_VERSIONS,
    &DELETE_OPTIONS,
    &LIST_META,
    &OBJECT_META,
    &STATUS,
];

/// Those that are kinds of `v1`, besides the ones of every group version.
pub(super) const KINDS: &[&str] = &[
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "Status",
];

/// Schemas that no table describes, by name. References are to schemas of v3.
///
/// `WatchEvent` lacks its kinds: they depend on the document.
pub(super) fn untabled() -> Vec<(String, Value)> {
    vec![
        (
            meta("FieldsV1"),
            json!({
                "description": "FieldsV1 is a set of fields, as a trie.",
                "type": "object",
            }),
        ),
        (
            meta("Patch"),
            json!({
                "description": "Patch is a change of an object; its format depends on the media type.",
                "type": "object",
            }),
        ),
        (
            meta("Time"),
            json!({
                "description": "Time is a point in time, in the format of RFC 3339.",
                "type": "string",
                "format": "date-time",
            }),
        ),
        (meta("WatchEvent"), watch_event()),
        (
            RAW_EXTENSION.to_owned(),
            json!({
                "description": "RawExtension is an object of any kind.",
                "type": "object",
            }),
        ),
        (
            meta("MicroTime"),
            json!({
                "description": "MicroTime is a point in time, in the form of RFC 3339, with microseconds.",
                "type": "string",
                "format": "date-time",
            }),
        ),
        (
            QUANTITY.to_owned(),
            json!({
                "description": "Quantity is an amount with a unit, such as 500m or 2Gi.",
                "oneOf": [{ "type": "string" }, { "type": "number" }],
            }),
        ),
        (
            INT_OR_STRING.to_owned(),
            json!({
                "description": "IntOrString is a whole number of 32 bits, or a string.",
                "format": "int-or-string",
                "oneOf": [{ "type": "integer" }, { "type": "string" }],
            }),
        ),
        ("io.k8s.apimachinery.pkg.version.Info".to_owned(), version()),
    ]
}

fn watch_event() -> Value {
    let reference = format!("#/components/schemas/{RAW_EXTENSION}");
    json!({
        "description": "WatchEvent is an event of a watch.",
        "type": "object",
        "required": ["type", "object"],
        "properties": {
            "type": {
                "description": "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.",
                "type": "string",
                "default": "",
            },
            "object": {
                "description": "The object as it is now, or was when it was deleted; a Status \
                                for an error.",
                "allOf": [{ "$ref": reference }],
            },
        },
    })
}

/// Name of the schema of an object of any kind.
pub(super) const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// Name of the schema of an amount.
pub(super) const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// Name of the schema of a number or a string.
pub(super) const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// The response at `/version`.
fn version() -> Value {
    let required = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    let mut properties = Map::new();
    for name in required {
        properties.insert(name.into(), json!({ "type": "string", "default": "" }));
    }
    for name in [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ] {
        properties.insert(name.into(), json!({ "type": "string" }));
    }
    json!({
        "description": "Info is the version of the server.",
        "type": "object",
        "required": required,
        "properties": properties,
    })
}

/// The discriminator of a union: the field that names a member, and the name of each member's field.
pub(super) type Union = (&'static str, &'static [(&'static str, &'static str)]);

/// The union that a type is, if it is one.
pub(super) fn union(table: &Struct) -> Option<Union> {
    let TypePackage::Api { package, .. } = table.home else {
        return None;
    };
    match (package, table.name) {
        ("flowcontrol", "LimitResponse") => Some(("type", &[("queuing", "Queuing")])),
        ("flowcontrol", "PriorityLevelConfigurationSpec") => {
            Some(("type", &[("exempt", "Exempt"), ("limited", "Limited")]))
        }
        ("flowcontrol", "Subject") => Some((
            "kind",
            &[
                ("group", "Group"),
                ("serviceAccount", "ServiceAccount"),
                ("user", "User"),
            ],
        )),
        _ => None,
    }
}
