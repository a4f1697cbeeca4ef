//! Aggregated discovery: `/apis` with all named groups, `/api` with the core group.
//!
//! Clients use them only if both are served in this form.
//!
//! In `responseKind`, group and version are empty if they are those of the resource, as in kube-apiserver.

use serde_json::{Value, json};

use super::{AggregatedVersion, STATUS_VERBS, groups, resources, verbs, versions};
use crate::ownership::ServedSubresource;
use fairgate_objects::kind::Kind;

/// The document at `/apis`.
pub(crate) fn apis(kinds: &[&Kind], form: AggregatedVersion) -> Value {
    let items: Vec<Value> = groups(kinds)
        .into_iter()
        .map(|group| item(kinds, group))
        .collect();
    list(form, &items)
}

/// The document at `/api`; empty without a kind in the core group.
pub(crate) fn api(kinds: &[&Kind], form: AggregatedVersion) -> Value {
    if versions(kinds, "").is_empty() {
        list(form, &[])
    } else {
        list(form, &[item(kinds, "")])
    }
}

/// The document at `/api` with nothing but subresources of the core group, to be merged.
pub(crate) fn subresources<'a>(
    served: impl Iterator<Item = &'a ServedSubresource>,
    form: AggregatedVersion,
) -> Value {
    let mut versions: Vec<Value> = Vec::new();
    for served in served {
        let [group, version, kind] = served.kind;
        let resource = json!({
            "resource": served.resource,
            "subresources": [{
                "subresource": served.subresource,
                "responseKind": { "group": group, "version": version, "kind": kind },
                "verbs": served.verbs,
            }],
        });
        versions.push(json!({ "version": served.version, "resources": [resource] }));
    }
    list(form, &[json!({ "metadata": {}, "versions": versions })])
}

fn list(form: AggregatedVersion, items: &[Value]) -> Value {
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": form.api_version(),
        "metadata": {},
        "items": items,
    })
}

fn item(kinds: &[&Kind], group: &str) -> Value {
    let versions: Vec<Value> = versions(kinds, group)
        .into_iter()
        .map(|version| of_version(kinds, group, version))
        .collect();
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({ "name": group })
    };
    json!({ "metadata": metadata, "versions": versions })
}

fn of_version(kinds: &[&Kind], group: &str, version: &str) -> Value {
    let resources: Vec<Value> = resources(kinds, group, version)
        .into_iter()
        .map(resource)
        .collect();
    json!({ "version": version, "resources": resources, "freshness": "Current" })
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "resource": kind.plural,
        "responseKind": response_kind(kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if kind.has_status {
        entry["subresources"] = json!([{
            "subresource": "status",
            "responseKind": response_kind(kind),
            "verbs": STATUS_VERBS,
        }]);
    }
    entry
}

fn response_kind(kind: &Kind) -> Value {
    json!({ "group": "", "version": "", "kind": kind.kind })
}
