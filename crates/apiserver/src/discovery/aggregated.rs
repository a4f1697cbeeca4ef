//! Aggregated discovery: `/apis` with all named groups, `/api` with the core group.
//!
//! Clients use them only if both are served in this form.
//!
//! In `responseKind`, group and version are empty if they are those of the resource, as in kube-apiserver.
//! Fields are written in the order of the structs here, which is that of kube-apiserver.

use serde::Serialize;

use super::{AggregatedVersion, STATUS_VERBS, groups, resources, verbs, versions};
use crate::ownership::ServedSubresource;
use fairgate_objects::kind::Kind;

/// A document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupDiscoveryList<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata<'a>,
    items: Vec<GroupDiscovery<'a>>,
}

#[derive(Serialize)]
struct GroupDiscovery<'a> {
    metadata: Metadata<'a>,
    versions: Vec<VersionDiscovery<'a>>,
}

/// The name of a group; the core group has none.
#[derive(Default, Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct VersionDiscovery<'a> {
    version: &'a str,
    resources: Vec<ResourceDiscovery>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freshness: Option<&'static str>,
}

/// A resource. Without its kind and what follows, it only says where its subresources are merged.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_kind: Option<ResponseKind>,
    #[serde(skip_serializing_if = "str::is_empty")]
    scope: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    singular_resource: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'static [&'static str],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<SubresourceDiscovery>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubresourceDiscovery {
    subresource: &'static str,
    response_kind: ResponseKind,
    verbs: &'static [&'static str],
}

#[derive(Serialize)]
struct ResponseKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

/// The document at `/apis`.
pub(crate) fn apis<'a>(kinds: &[&'a Kind], form: AggregatedVersion) -> GroupDiscoveryList<'a> {
    let groups = groups(kinds).into_iter();
    list(form, groups.map(|group| item(kinds, group)).collect())
}

/// The document at `/api`; empty without a kind in the core group.
pub(crate) fn api<'a>(kinds: &[&'a Kind], form: AggregatedVersion) -> GroupDiscoveryList<'a> {
    if versions(kinds, "").is_empty() {
        list(form, Vec::new())
    } else {
        list(form, vec![item(kinds, "")])
    }
}

/// The document at `/api` with nothing but subresources of the core group, to be merged.
pub(crate) fn subresources<'a>(
    served: impl Iterator<Item = &'a ServedSubresource>,
    form: AggregatedVersion,
) -> GroupDiscoveryList<'a> {
    let versions = served.map(|served| {
        let [group, version, kind] = served.kind;
        let subresource = SubresourceDiscovery {
            subresource: served.subresource,
            response_kind: ResponseKind {
                group,
                version,
                kind,
            },
            verbs: served.verbs,
        };
        VersionDiscovery {
            version: served.version,
            resources: vec![ResourceDiscovery {
                resource: served.resource,
                subresources: vec![subresource],
                ..ResourceDiscovery::default()
            }],
            freshness: None,
        }
    });
    let core = GroupDiscovery {
        metadata: Metadata::default(),
        versions: versions.collect(),
    };
    list(form, vec![core])
}

fn list(form: AggregatedVersion, items: Vec<GroupDiscovery<'_>>) -> GroupDiscoveryList<'_> {
    GroupDiscoveryList {
        kind: "APIGroupDiscoveryList",
        api_version: form.api_version(),
        metadata: Metadata::default(),
        items,
    }
}

fn item<'a>(kinds: &[&'a Kind], group: &'a str) -> GroupDiscovery<'a> {
    let versions = versions(kinds, group).into_iter();
    GroupDiscovery {
        metadata: Metadata { name: group },
        versions: versions
            .map(|version| of_version(kinds, group, version))
            .collect(),
    }
}

fn of_version<'a>(kinds: &[&'a Kind], group: &str, version: &'a str) -> VersionDiscovery<'a> {
    let resources = resources(kinds, group, version).into_iter();
    VersionDiscovery {
        version,
        resources: resources.map(resource).collect(),
        freshness: Some("Current"),
    }
}

fn resource(kind: &Kind) -> ResourceDiscovery {
    let status = kind.has_status.then(|| SubresourceDiscovery {
        subresource: "status",
        response_kind: response_kind(kind),
        verbs: STATUS_VERBS,
    });
    ResourceDiscovery {
        resource: kind.plural,
        response_kind: Some(response_kind(kind)),
        scope: if kind.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        },
        singular_resource: kind.singular,
        verbs: verbs(kind),
        short_names: kind.short_names,
        categories: kind.categories,
        subresources: status.into_iter().collect(),
    }
}

fn response_kind(kind: &Kind) -> ResponseKind {
    ResponseKind {
        group: "",
        version: "",
        kind: kind.kind,
    }
}
