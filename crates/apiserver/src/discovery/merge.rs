//! Merges the hosted resources into the discovery documents of an upstream.
//!
//! An entry of a hosted resource is replaced; everything else stays as it is, in its order. An upstream
//! document of an unexpected shape counts as empty.

use std::cmp::Reverse;

use serde_json::Value;

use super::rank;
use crate::ownership::OwnedResources;

/// Versions in which old releases of Kubernetes have hosted resources only. Without these they are empty,
/// and kubectl reports an empty version as an error.
const EMPTIED_VERSIONS: &[(&str, &[&str])] = &[(
    "flowcontrol.apiserver.k8s.io",
    &["v1alpha1", "v1beta1", "v1beta2"],
)];

/// Merges two `APIGroupList`s, the documents at `/apis`.
pub(crate) fn merge_group_list(upstream: Value, own: Value) -> Value {
    let name = |group: &Value| group["name"].as_str().unwrap_or_default().to_owned();
    merge_groups(upstream, own, "groups", name, merge_group)
}

/// Merges two `APIGroup`s, the documents at `/apis/<group>`.
pub(crate) fn merge_group(mut upstream: Value, own: Value) -> Value {
    let Some(versions) = upstream["versions"].as_array().cloned() else {
        return own;
    };
    let emptied = emptied_versions(own["name"].as_str().unwrap_or_default());
    let mut merged = versions.clone();
    merged.retain(|version| !emptied.contains(&text(version, "version")));
    for added in own["versions"].as_array().into_iter().flatten() {
        if !merged
            .iter()
            .any(|version| version["version"] == added["version"])
        {
            merged.push(added.clone());
        }
    }
    if merged != versions {
        sort_versions(&mut merged);
        upstream["preferredVersion"] = merged.first().cloned().unwrap_or_default();
        upstream["versions"] = merged.into();
    }
    upstream
}

/// Merges two `APIResourceList`s, the documents at `/apis/<group>/<version>` and `/api/v1`.
pub(crate) fn merge_resource_list(
    mut upstream: Value,
    mut own: Value,
    group: &str,
    owned: &OwnedResources,
) -> Value {
    let Some(Value::Array(entries)) = upstream.get_mut("resources") else {
        return own;
    };
    entries.retain(|entry| !owned.has_entry(group, text(entry, "name")));
    if let Some(Value::Array(added)) = own.get_mut("resources") {
        insert_sorted(entries, std::mem::take(added), "name");
    }
    upstream
}

/// Merges two `APIGroupDiscoveryList`s of the same version, the aggregated documents at `/apis` and `/api`.
pub(crate) fn merge_aggregated(upstream: Value, own: Value, owned: &OwnedResources) -> Value {
    let name = |item: &Value| text(&item["metadata"], "name").to_owned();
    merge_groups(upstream, own, "items", name, |upstream, own| {
        merge_item(upstream, own, owned)
    })
}

/// Merges the groups of two lists. A group that the upstream lacks is inserted by its priority.
fn merge_groups(
    mut upstream: Value,
    mut own: Value,
    list: &str,
    name: impl Fn(&Value) -> String,
    merge: impl Fn(Value, Value) -> Value,
) -> Value {
    let Some(Value::Array(entries)) = upstream.get_mut(list) else {
        return own;
    };
    let Some(Value::Array(added)) = own.get_mut(list).map(Value::take) else {
        return upstream;
    };
    for entry in added {
        let group = name(&entry);
        if let Some(found) = entries.iter_mut().find(|old| name(old) == group) {
            *found = merge(found.take(), entry);
            continue;
        }
        let index = entries
            .iter()
            .position(|old| rank(&name(old)) > rank(&group))
            .unwrap_or(entries.len());
        entries.insert(index, entry);
    }
    upstream
}

/// Merges two `APIGroupDiscovery`s of one group.
fn merge_item(mut upstream: Value, own: Value, owned: &OwnedResources) -> Value {
    let group = text(&upstream["metadata"], "name").to_owned();
    let Some(Value::Array(versions)) = upstream.get_mut("versions") else {
        return own;
    };
    let mut is_new = false;
    versions.retain_mut(|version| remove_owned(version, &group, owned));
    for added in own["versions"].as_array().into_iter().flatten() {
        let found = versions
            .iter_mut()
            .find(|version| version["version"] == added["version"]);
        if let Some(version) = found {
            add_resources(version, added);
        } else {
            is_new = true;
            versions.push(added.clone());
        }
    }
    if is_new {
        sort_versions(versions);
    }
    upstream
}

/// Removes the owned resources of a version of the upstream. Returns false if the version is to be removed, too: it is
/// one of [`EMPTIED_VERSIONS`], and nothing else was there.
fn remove_owned(version: &mut Value, group: &str, owned: &OwnedResources) -> bool {
    let Some(Value::Array(resources)) = version.get_mut("resources") else {
        return true;
    };
    let count = resources.len();
    resources.retain(|resource| !owned.has(group, text(resource, "resource")));
    for resource in resources.iter_mut() {
        let name = text(resource, "resource").to_owned();
        if let Some(Value::Array(subresources)) = resource.get_mut("subresources") {
            subresources.retain(|entry| {
                !owned.has_entry(group, &format!("{name}/{}", text(entry, "subresource")))
            });
        }
    }
    count == 0
        || !resources.is_empty()
        || !emptied_versions(group).contains(&text(version, "version"))
}

/// Adds resources to a version of the upstream; to one that is there already, subresources.
fn add_resources(version: &mut Value, added: &Value) {
    let Some(Value::Array(resources)) = version.get_mut("resources") else {
        version["resources"] = added["resources"].clone();
        return;
    };
    for resource in added["resources"].as_array().into_iter().flatten() {
        let found = resources
            .iter_mut()
            .find(|old| old["resource"] == resource["resource"]);
        let Some(found) = found else {
            // Not a subresource of a resource that the upstream lacks.
            if resource.get("responseKind").is_some() {
                insert_sorted(resources, vec![resource.clone()], "resource");
            }
            continue;
        };
        let new = resource["subresources"].as_array().cloned();
        match found.get_mut("subresources") {
            Some(Value::Array(old)) => insert_sorted(old, new.unwrap_or_default(), "subresource"),
            _ => found["subresources"] = new.into(),
        }
    }
}

/// Inserts each entry before the first with a greater key: a sorted list stays sorted, any other keeps its
/// order.
fn insert_sorted(entries: &mut Vec<Value>, added: Vec<Value>, key: &str) {
    for entry in added {
        let index = entries
            .iter()
            .position(|old| text(old, key) > text(&entry, key))
            .unwrap_or(entries.len());
        entries.insert(index, entry);
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn emptied_versions(group: &str) -> &'static [&'static str] {
    let found = EMPTIED_VERSIONS.iter().find(|(name, _)| *name == group);
    found.map_or(&[], |(_, versions)| versions)
}

fn sort_versions(versions: &mut [Value]) {
    versions
        .sort_by(|a, b| version_rank(text(a, "version")).cmp(&version_rank(text(b, "version"))));
}

/// The sort key of a version, as Kubernetes orders versions: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`,
/// and then any other by name.
fn version_rank(version: &str) -> (u8, Reverse<u32>, Reverse<u32>, &str) {
    let other = (3, Reverse(0), Reverse(0), version);
    let Some(rest) = version.strip_prefix('v') else {
        return other;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (major, rest) = rest.split_at(digits);
    let (stage, minor) = match rest {
        "" => (0, "0"),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (2, minor),
            _ => return other,
        },
    };
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => (stage, Reverse(major), Reverse(minor), ""),
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ownership::ServedSubresource;
    use fairgate_objects::kinds::FLOW_CONTROL as KINDS;

    const EVICTION: ServedSubresource = ServedSubresource {
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "eviction",
        namespaced: true,
        kind: ["policy", "v1", "Eviction"],
        verbs: &["create"],
    };

    fn owned() -> OwnedResources {
        OwnedResources::new(&KINDS, &[EVICTION])
    }

    const GROUP: &str = "flowcontrol.apiserver.k8s.io";

    #[test]
    fn versions_are_ordered_as_in_kubernetes() {
        let mut versions = ["x", "v1alpha1", "v1", "v1beta2", "v10", "v1beta11", "v2"];
        versions.sort_by(|a, b| version_rank(a).cmp(&version_rank(b)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v1beta11", "v1beta2", "v1alpha1", "x"]
        );
    }

    #[test]
    fn a_group_has_the_versions_of_both() {
        let group = |versions: &[&str]| {
            let versions: Vec<Value> = versions.iter().map(|v| json!({"version": v})).collect();
            json!({"name": GROUP, "versions": versions, "preferredVersion": versions[0], "x": 1})
        };
        let own = group(&["v1", "v1beta3"]);
        let same = group(&["v1beta3", "v1"]);
        assert_eq!(merge_group(same.clone(), own.clone()), same);
        assert_eq!(merge_group(group(&["v1"]), own.clone()), own);
        let old = group(&["v1beta2", "v1beta1"]);
        assert_eq!(merge_group(old, own.clone()), own);
        assert_eq!(
            merge_group(group(&["v2", "v1"]), own),
            group(&["v2", "v1", "v1beta3"])
        );
    }

    #[test]
    fn entries_of_other_resources_stay_in_a_list_of_resources() {
        let list = |names: &[&str], of: &str| {
            let entries: Vec<Value> = names.iter().map(|n| json!({"name": n, "of": of})).collect();
            json!({"resources": entries})
        };
        let upstream = list(
            &["another", "flowschemas", "flowschemas/status", "zebras"],
            "upstream",
        );
        let own = list(
            &[
                "flowschemas",
                "flowschemas/status",
                "prioritylevelconfigurations",
            ],
            "own",
        );
        let merged = merge_resource_list(upstream, own, GROUP, &owned());
        let expected: Vec<Value> = [
            ("another", "upstream"),
            ("flowschemas", "own"),
            ("flowschemas/status", "own"),
            ("prioritylevelconfigurations", "own"),
            ("zebras", "upstream"),
        ]
        .map(|(name, of)| json!({"name": name, "of": of}))
        .to_vec();
        assert_eq!(merged["resources"], Value::Array(expected));
    }

    #[test]
    fn aggregated_discovery_is_merged_resource_by_resource() {
        let upstream = json!({"items": [{"metadata": {"name": GROUP}, "versions": [
            {"version": "v1", "freshness": "Stale", "resources": [
                {"resource": "another"}, {"resource": "flowschemas", "of": "upstream"}]},
            {"version": "v1beta2", "resources": [{"resource": "flowschemas"}]},
        ]}]});
        let own = json!({"items": [{"metadata": {"name": GROUP}, "versions": [
            {"version": "v1", "resources": [
                {"resource": "flowschemas", "of": "own", "responseKind": {}}]},
            {"version": "v1beta3", "resources": [{"resource": "flowschemas", "of": "own"}]},
        ]}]});
        assert_eq!(
            merge_aggregated(upstream, own, &owned()),
            json!({"items": [{"metadata": {"name": GROUP}, "versions": [
                {"version": "v1", "freshness": "Stale", "resources": [
                    {"resource": "another"},
                    {"resource": "flowschemas", "of": "own", "responseKind": {}}]},
                {"version": "v1beta3", "resources": [{"resource": "flowschemas", "of": "own"}]},
            ]}]})
        );
    }

    #[test]
    fn a_subresource_that_is_served_here_replaces_the_upstreams() {
        let item = |subresources: Value| {
            json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
                {"resource": "pods", "verbs": ["get"], "subresources": subresources}]}]}]})
        };
        let upstream = item(json!([
            {"subresource": "binding"}, {"subresource": "eviction", "of": "upstream"}, {"subresource": "log"},
        ]));
        let own = json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
            {"resource": "pods", "subresources": [{"subresource": "eviction", "of": "own"}]}]}]}]});
        let merged = item(json!([
            {"subresource": "binding"}, {"subresource": "eviction", "of": "own"}, {"subresource": "log"},
        ]));
        assert_eq!(merge_aggregated(upstream, own, &owned()), merged);
    }
}
