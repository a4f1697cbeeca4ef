//! Shared types: those of discovery, and those that a table of fields cannot describe.

use serde_json::{Map, Value, json};

use super::names::meta;
use fairgate_objects::schema::{
    Field, List, Struct, Type, TypePackage, field,
    meta::{DELETE_OPTIONS, LIST_META, OBJECT_META, STATUS, TEXTS},
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

const fn table(name: &'static str, doc: &'static str, fields: &'static [Field]) -> Struct {
    Struct::new(name, TypePackage::Meta, doc, fields)
}

static API_VERSIONS: Struct = table(
    "APIVersions",
    "APIVersions lists the versions of the core API.",
    &[
        field("versions", 1, Type::List(&TEXTS), "The versions.")
            .always()
            .required(),
        field(
            "serverAddressByClientCIDRs",
            2,
            Type::List(&SERVER_ADDRESSES),
            "Where clients reach the server, by the network that they are in.",
        )
        .always()
        .required(),
    ],
);

static API_GROUP_LIST: Struct = table(
    "APIGroupList",
    "APIGroupList lists the API groups.",
    &[field("groups", 1, Type::List(&API_GROUPS), "The groups.")
        .always()
        .required()],
);

static API_GROUPS: List = List::atomic(Type::Object(&API_GROUP));

static API_GROUP: Struct = table(
    "APIGroup",
    "APIGroup lists the versions of an API group.",
    &[
        field("name", 1, Type::Text, "Name of the group.")
            .always()
            .required(),
        field("versions", 2, Type::List(&GROUP_VERSIONS), "Its versions.")
            .always()
            .required(),
        field(
            "preferredVersion",
            3,
            Type::Object(&GROUP_VERSION),
            "The version that the server prefers.",
        ),
        field(
            "serverAddressByClientCIDRs",
            4,
            Type::List(&SERVER_ADDRESSES),
            "Where clients reach the server, by the network that they are in.",
        ),
    ],
);

static GROUP_VERSIONS: List = List::atomic(Type::Object(&GROUP_VERSION));

static GROUP_VERSION: Struct = table(
    "GroupVersionForDiscovery",
    "GroupVersionForDiscovery names a version of a group.",
    &[
        field("groupVersion", 1, Type::Text, "Group and version.")
            .always()
            .required(),
        field("version", 2, Type::Text, "The version alone.")
            .always()
            .required(),
    ],
);

static SERVER_ADDRESSES: List = List::atomic(Type::Object(&SERVER_ADDRESS));

static SERVER_ADDRESS: Struct = table(
    "ServerAddressByClientCIDR",
    "ServerAddressByClientCIDR is the address of the server for clients of one network.",
    &[
        field(
            "clientCIDR",
            1,
            Type::Text,
            "The network that clients are in.",
        )
        .always()
        .required(),
        field("serverAddress", 2, Type::Text, "Host or host:port.")
            .always()
            .required(),
    ],
);

static API_RESOURCE_LIST: Struct = table(
    "APIResourceList",
    "APIResourceList lists the resources of an API version.",
    &[
        field("groupVersion", 1, Type::Text, "Group and version.")
            .always()
            .required(),
        field("resources", 2, Type::List(&API_RESOURCES), "The resources.")
            .always()
            .required(),
    ],
);

static API_RESOURCES: List = List::atomic(Type::Object(&API_RESOURCE));

static API_RESOURCE: Struct = table(
    "APIResource",
    "APIResource tells of a resource.",
    &[
        field(
            "name",
            1,
            Type::Text,
            "The plural name; for a subresource followed by a slash and its name.",
        )
        .always()
        .required(),
        field("singularName", 6, Type::Text, "Its name in the singular.")
            .always()
            .required(),
        field(
            "namespaced",
            2,
            Type::Flag,
            "Whether objects live in namespaces.",
        )
        .always()
        .required(),
        field(
            "group",
            8,
            Type::Text,
            "Group of the kind, if it is another than that of the list.",
        ),
        field(
            "version",
            9,
            Type::Text,
            "Version of the kind, if it is another than that of the list.",
        ),
        field("kind", 3, Type::Text, "Kind of its objects.")
            .always()
            .required(),
        field("verbs", 4, Type::List(&TEXTS), "The supported verbs.")
            .always()
            .required(),
        field(
            "shortNames",
            5,
            Type::List(&TEXTS),
            "Short forms of its name.",
        ),
        field(
            "categories",
            7,
            Type::List(&TEXTS),
            "Groups of resources that it belongs to, such as all.",
        ),
        field(
            "storageVersionHash",
            10,
            Type::Text,
            "Changes whenever objects are stored in another version.",
        ),
    ],
);

/// Schemas that no table describes, by name. References are to schemas of v3.
///
/// `WatchEvent` lacks its kinds: they depend on the document.
pub(super) fn untabled() -> Vec<(String, Value)> {
    let reference = "#/components/schemas/io.k8s.apimachinery.pkg.runtime.RawExtension";
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
        (
            meta("WatchEvent"),
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
            }),
        ),
        (
            "io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(),
            json!({
                "description": "RawExtension is an object of any kind.",
                "type": "object",
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

/// Name of the schema of a number or a string.
pub(super) const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// The answer at `/version`.
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

/// What tells the members of a union apart: the field that names one, and by field the name.
pub(super) type Union = (&'static str, &'static [(&'static str, &'static str)]);

/// The union that a type of a group is, if it is one.
pub(super) fn union(group: &str, name: &str) -> Option<Union> {
    match (group, name) {
        ("flowcontrol.apiserver.k8s.io", "LimitResponse") => {
            Some(("type", &[("queuing", "Queuing")]))
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfigurationSpec") => {
            Some(("type", &[("exempt", "Exempt"), ("limited", "Limited")]))
        }
        ("flowcontrol.apiserver.k8s.io", "Subject") => Some((
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
