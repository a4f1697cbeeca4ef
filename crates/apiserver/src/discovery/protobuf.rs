//! Discovery documents as protobuf.
//!
//! Source: `meta/v1/generated.proto` of apimachinery.

use serde_json::{Value, json};

use fairgate_objects::{
    codec::envelope,
    schema::{Field, List, Struct, Type, TypePackage, field, meta::TEXTS},
};

/// Encodes a document; `None` if it has no protobuf form. A list of verbs becomes a message with the list
/// as its `items`.
pub fn encode(document: &Value) -> Option<Vec<u8>> {
    let shape = match document["kind"].as_str()? {
        "APIVersions" => &VERSIONS,
        "APIGroupList" => &GROUP_LIST,
        "APIGroup" => &GROUP,
        "APIResourceList" => {
            return Some(envelope::seal_object(&RESOURCE_LIST, &wrapped(document)));
        }
        _ => return None,
    };
    Some(envelope::seal_object(shape, document))
}

/// The document with the verbs of each resource as a message with a list.
fn wrapped(document: &Value) -> Value {
    let mut document = document.clone();
    let resources = document["resources"].as_array_mut();
    for resource in resources.into_iter().flatten() {
        let verbs = resource["verbs"].take();
        resource["verbs"] = json!({ "items": verbs });
    }
    document
}

const fn shape(name: &'static str, fields: &'static [Field]) -> Struct {
    Struct::new(name, TypePackage::Meta, "", fields)
}

const fn text(name: &'static str, number: u32) -> Field {
    field(name, number, Type::Text, "")
}

static ADDRESSES: List = List::atomic(Type::Object(&ADDRESS));
static ADDRESS: Struct = shape(
    "ServerAddressByClientCIDR",
    &[text("clientCIDR", 1), text("serverAddress", 2)],
);

static VERSIONS: Struct = shape(
    "APIVersions",
    &[
        field("versions", 1, Type::List(&TEXTS), ""),
        field("serverAddressByClientCIDRs", 2, Type::List(&ADDRESSES), ""),
    ],
);

static GROUP_LIST: Struct = shape(
    "APIGroupList",
    &[field(
        "groups",
        1,
        Type::List(&List::atomic(Type::Object(&GROUP))),
        "",
    )],
);

static GROUP: Struct = shape(
    "APIGroup",
    &[
        text("name", 1),
        field(
            "versions",
            2,
            Type::List(&List::atomic(Type::Object(&GROUP_VERSION))),
            "",
        ),
        field("preferredVersion", 3, Type::Object(&GROUP_VERSION), ""),
        field("serverAddressByClientCIDRs", 4, Type::List(&ADDRESSES), ""),
    ],
);

static GROUP_VERSION: Struct = shape(
    "GroupVersionForDiscovery",
    &[text("groupVersion", 1), text("version", 2)],
);

/// The document of a group version. Its verbs are messages, see [`encode`].
pub static RESOURCE_LIST: Struct = shape(
    "APIResourceList",
    &[
        text("groupVersion", 1),
        field(
            "resources",
            2,
            Type::List(&List::atomic(Type::Object(&RESOURCE))),
            "",
        ),
    ],
);

static RESOURCE: Struct = shape(
    "APIResource",
    &[
        text("name", 1).always(),
        field("namespaced", 2, Type::Flag, "").always(),
        text("kind", 3).always(),
        field("verbs", 4, Type::Object(&VERBS), "").pointer(),
        field("shortNames", 5, Type::List(&TEXTS), ""),
        text("singularName", 6).always(),
        field("categories", 7, Type::List(&TEXTS), ""),
        text("group", 8),
        text("version", 9),
        text("storageVersionHash", 10),
    ],
);

static VERBS: Struct = shape("Verbs", &[field("items", 1, Type::List(&TEXTS), "")]);

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents of kube-apiserver 1.36, each in both languages.
    const GOLDENS: [(&[u8], &[u8]); 4] = [
        (
            include_bytes!("goldens/versions.json"),
            include_bytes!("goldens/versions.pb"),
        ),
        (
            include_bytes!("goldens/group_list.json"),
            include_bytes!("goldens/group_list.pb"),
        ),
        (
            include_bytes!("goldens/group.json"),
            include_bytes!("goldens/group.pb"),
        ),
        (
            include_bytes!("goldens/resource_list.json"),
            include_bytes!("goldens/resource_list.pb"),
        ),
    ];

    #[test]
    fn every_document_is_written_as_the_real_server_writes_it() {
        for (json, protobuf) in GOLDENS {
            let document: Value = serde_json::from_slice(json).unwrap();
            let encoded = encode(&document).unwrap();
            assert_eq!(encoded, protobuf, "{}", document["kind"]);
        }
    }

    #[test]
    fn what_protobuf_does_not_know_is_not_written() {
        assert_eq!(encode(&json!({"paths": []})), None);
        assert_eq!(encode(&json!({"kind": "Table"})), None);
    }
}
