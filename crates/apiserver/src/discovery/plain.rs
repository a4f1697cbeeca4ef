//! The discovery documents of one group, or of one group version.
//!
//! `/api`, `/apis`, `/apis/<group>`, `/apis/<group>/<version>`, and the list of paths at `/`.
//!
//! [`text`] writes them with their keys in the order of kube-apiserver.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::ownership::ServedSubresource;

use super::{STATUS_VERBS, group_version, groups, resources, verbs, versions};
use fairgate_objects::{
    codec,
    kind::{Kind, Storage},
    schema::{
        Struct,
        meta_v1::{API_GROUP, API_GROUP_LIST, API_RESOURCE_LIST, API_VERSIONS},
    },
};

/// The text of a document.
pub(crate) fn text(document: &Value) -> Vec<u8> {
    match shape(document) {
        Some(shape) => codec::json::encode(shape, document, false),
        None => codec::json::encode_plain(document, false),
    }
}

/// The fields of a document in the order in which they are written; `None` if it is not one of these.
pub(super) fn shape(document: &Value) -> Option<&'static Struct> {
    match document["kind"].as_str()? {
        "APIVersions" => Some(&API_VERSIONS),
        "APIGroupList" => Some(&API_GROUP_LIST),
        "APIGroup" => Some(&API_GROUP),
        "APIResourceList" => Some(&API_RESOURCE_LIST),
        _ => None,
    }
}

/// The document at `/`: the paths of `kinds`, of the documents, and `others` (health, metrics), sorted.
pub(crate) fn paths(kinds: &[&Kind], others: &[&str]) -> Value {
    let mut paths: BTreeSet<String> = others.iter().map(|&path| path.to_owned()).collect();
    for path in [
        "/api",
        "/apis",
        "/apis/",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/version",
    ] {
        paths.insert(path.to_owned());
    }
    for version in versions(kinds, "") {
        paths.insert(format!("/api/{version}"));
    }
    for group in groups(kinds) {
        paths.insert(format!("/apis/{group}"));
        for version in versions(kinds, group) {
            paths.insert(format!("/apis/{group}/{version}"));
        }
    }
    json!({ "paths": paths })
}

/// The document at `/api`. `server_address` is `host:port`, as clients reach this server.
///
/// It has no `apiVersion`. Without a kind in the core group it lists no version: kubectl treats a version
/// without resources as an error.
pub(crate) fn api_versions(kinds: &[&Kind], server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": versions(kinds, ""),
        "serverAddressByClientCIDRs": [
            { "clientCIDR": "0.0.0.0/0", "serverAddress": server_address },
        ],
    })
}

/// The document at `/apis`.
pub(crate) fn group_list(kinds: &[&Kind]) -> Value {
    let entries: Vec<Value> = groups(kinds)
        .into_iter()
        .map(|group| Value::Object(entry(kinds, group)))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": entries })
}

/// The document at `/apis/<group>`; `None` for an unknown group.
pub(crate) fn group(kinds: &[&Kind], group: &str) -> Option<Value> {
    if !groups(kinds).contains(&group) {
        return None;
    }
    let mut document = entry(kinds, group);
    document.insert("kind".into(), "APIGroup".into());
    document.insert("apiVersion".into(), "v1".into());
    Some(Value::Object(document))
}

/// The document at `/apis/<group>/<version>`, or at `/api/v1` for the core group; `None` for an unknown
/// group version.
pub(crate) fn resource_list(kinds: &[&Kind], group: &str, version: &str) -> Option<Value> {
    if !versions(kinds, group).contains(&version) {
        return None;
    }
    let mut entries = Vec::new();
    for kind in resources(kinds, group, version) {
        entries.push(resource(kind));
        if kind.has_status {
            entries.push(status(kind));
        }
    }
    let mut document = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, version),
        "resources": entries,
    });
    // The core group has none, as in kube-apiserver.
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

fn entry(kinds: &[&Kind], group: &str) -> Map<String, Value> {
    let versions: Vec<Value> = versions(kinds, group)
        .into_iter()
        .map(|version| json!({ "groupVersion": group_version(group, version), "version": version }))
        .collect();
    let mut entry = Map::new();
    entry.insert("name".into(), group.into());
    entry.insert(
        "preferredVersion".into(),
        versions.first().cloned().unwrap_or_default(),
    );
    entry.insert("versions".into(), versions.into());
    entry
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if kind.storage == Storage::Stored {
        entry["storageVersionHash"] = storage_version_hash(kind).into();
    }
    entry
}

fn status(kind: &Kind) -> Value {
    json!({
        "name": format!("{}/status", kind.plural),
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": STATUS_VERBS,
    })
}

/// The entry of a subresource that is served here for a resource of the upstream.
pub(crate) fn subresource(served: &ServedSubresource) -> Value {
    let [group, version, kind] = served.kind;
    json!({
        "name": served.name(),
        "singularName": "",
        "namespaced": served.namespaced,
        "group": group,
        "version": version,
        "kind": kind,
        "verbs": served.verbs,
    })
}

/// A hash of group, version and kind of the stored form: changes when that changes.
fn storage_version_hash(kind: &Kind) -> String {
    let name = format!("{}/{}/{}", kind.group, kind.stored().name, kind.kind);
    STANDARD.encode(&Sha256::digest(name.as_bytes())[..8])
}
