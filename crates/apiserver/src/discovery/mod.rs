//! Discovery: the documents that list the resources of the server.
//!
//! They are generated from the table of kinds, in two forms: one document per group version (`plain`), and
//! all in one (`aggregated`). `AggregatedVersion::accepted` chooses between them. `merge_group_list` and
//! `merge_aggregated` merge the hosted groups into the documents of an upstream.
//!
//! All functions are pure and make a new document at each call.
//!
//! Not here: HTTP, and the fields of each kind (`openapi`).
//!
//! Source: the documents of kube-apiserver 1.36, and its order of groups.

mod accept;
pub(crate) mod aggregated;
mod merge;
pub(crate) mod plain;
mod protobuf;

#[cfg(test)]
pub(super) mod tests;

pub(crate) use accept::AggregatedVersion;
pub(crate) use merge::{merge_aggregated, merge_group, merge_group_list, merge_resource_list};

use http::StatusCode;
use serde_json::Value;
use sha2::{Digest, Sha512};

use crate::HostedResponse;
use fairgate_apihttp::negotiate::{Media, Output};
use fairgate_objects::{
    codec,
    kind::{Kind, Storage},
};

/// Verbs of a kind whose objects are stored, sorted.
const STORED_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Verbs of a kind whose objects are returned and not stored.
const CREATE_VERBS: &[&str] = &["create"];
/// Verbs of a `status` subresource, sorted.
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

/// Priorities of the groups that kube-apiserver knows; higher comes first.
const PRIORITIES: &[(&str, u32)] = &[
    ("", 18_000),
    ("apiregistration.k8s.io", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("internal.apiserver.k8s.io", 16_000),
    ("storagemigration.k8s.io", 15_800),
];

/// Priority of a group that is not listed, such as one of custom resources.
const OTHER_PRIORITY: u32 = 1_000;

/// The response with a document. `json` is its text, without white space.
pub(crate) fn response(json: &[u8], output: Output) -> HostedResponse {
    // JSON that was written here.
    let value = || -> Value { serde_json::from_slice(json).unwrap_or_default() };
    let body = match output.media {
        Media::Json if output.pretty => codec::json::indent(json),
        Media::Json => json.to_vec(),
        Media::Yaml => return HostedResponse::document(StatusCode::OK, &value(), output),
        Media::Protobuf => match protobuf::encode(&value()) {
            Some(body) => body,
            None => return HostedResponse::document(StatusCode::OK, &value(), output),
        },
    };
    HostedResponse::full(StatusCode::OK, output.media.name(), body)
}

/// The entity tag of a document, with its quotes: `"<hash>"`.
pub(crate) fn etag(document: &str) -> String {
    format!("\"{}\"", hash(document))
}

/// SHA-512 of a document's text, in upper-case hexadecimal digits.
pub(crate) fn hash(document: &str) -> String {
    use std::fmt::Write as _;

    let mut hex = String::with_capacity(128);
    for byte in Sha512::digest(document.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02X}");
    }
    hex
}

/// The sort key of a group: the lesser key comes first.
fn rank(group: &str) -> (std::cmp::Reverse<u32>, &str) {
    let priority = PRIORITIES
        .iter()
        .find(|(name, _)| *name == group)
        .map_or(OTHER_PRIORITY, |(_, priority)| *priority);
    (std::cmp::Reverse(priority), group)
}

/// The named groups of `kinds` in order; the core group is not one of them.
pub(super) fn groups<'a>(kinds: &[&'a Kind]) -> Vec<&'a str> {
    let mut groups: Vec<_> = kinds
        .iter()
        .map(|kind| kind.group)
        .filter(|group| !group.is_empty())
        .collect();
    groups.sort_by(|a, b| rank(a).cmp(&rank(b)));
    groups.dedup();
    groups
}

/// The versions of a group, in the order in which its kinds name them first; empty for an unknown group.
pub(super) fn versions<'a>(kinds: &[&'a Kind], group: &str) -> Vec<&'a str> {
    let mut versions = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group == group) {
        for version in kind.versions {
            if !versions.contains(&version.name) {
                versions.push(version.name);
            }
        }
    }
    versions
}

/// The kinds of a group version, sorted by resource.
pub(super) fn resources<'a>(kinds: &[&'a Kind], group: &str, version: &str) -> Vec<&'a Kind> {
    let mut found: Vec<_> = kinds
        .iter()
        .copied()
        .filter(|kind| kind.group == group && kind.version(version).is_some())
        .collect();
    found.sort_by_key(|kind| kind.plural);
    found
}

/// `group/version`, or the version alone in the core group.
pub(super) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn verbs(kind: &Kind) -> &'static [&'static str] {
    match kind.storage {
        Storage::Stored => STORED_VERBS,
        Storage::CreateOnly => CREATE_VERBS,
    }
}
