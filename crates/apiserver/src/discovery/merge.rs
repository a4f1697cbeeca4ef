//! Merges the hosted resources into the discovery documents of an upstream.
//!
//! An entry of a hosted resource is replaced; everything else keeps its text and its place. An upstream
//! document of an unexpected shape counts as empty.

use std::cmp::Reverse;

use serde_json::value::RawValue;

use super::rank;
use crate::{
    ownership::OwnedResources,
    raw_json::{Raw, RawMembers, raw},
};

/// Versions in which old releases of Kubernetes have hosted resources only. Without these they are empty,
/// and kubectl reports an empty version as an error.
const EMPTIED_VERSIONS: &[(&str, &[&str])] = &[(
    "flowcontrol.apiserver.k8s.io",
    &["v1alpha1", "v1beta1", "v1beta2"],
)];

/// Merges two `APIGroupList`s, the documents at `/apis`.
pub(crate) fn merge_group_list(upstream: &RawValue, own: &RawValue) -> Raw {
    merge_groups(
        upstream,
        own,
        "groups",
        |group| text(group, "name"),
        merge_group,
    )
}

/// Merges two `APIGroup`s, the documents at `/apis/<group>`.
pub(crate) fn merge_group(upstream: &RawValue, own: &RawValue) -> Raw {
    let Some((mut group, mut versions)) = with_items(upstream, "versions") else {
        return own.to_owned();
    };
    let own = RawMembers::parse(own).unwrap_or_default();
    let before = versions.len();
    let emptied = emptied_versions(&own.text("name"));
    versions.retain(|version| !emptied.contains(&text(version, "version").as_str()));
    let mut is_changed = versions.len() != before;
    for added in own.items("versions").unwrap_or_default() {
        if position(&versions, "version", &text(&added, "version")).is_none() {
            versions.push(added);
            is_changed = true;
        }
    }
    if !is_changed {
        return upstream.to_owned();
    }
    sort_versions(&mut versions);
    group.set("versions", raw(&versions));
    group.set("preferredVersion", raw(&versions.first()));
    group.raw()
}

/// Merges two `APIResourceList`s, the documents at `/apis/<group>/<version>` and `/api/v1`.
pub(crate) fn merge_resource_list(
    upstream: &RawValue,
    own: &RawValue,
    group: &str,
    owned: &OwnedResources,
) -> Raw {
    let Some((mut list, mut entries)) = with_items(upstream, "resources") else {
        return own.to_owned();
    };
    entries.retain(|entry| !owned.has_entry(group, &text(entry, "name")));
    let (_, own) = with_items(own, "resources").unwrap_or_default();
    insert_sorted(&mut entries, own, "name");
    list.set("resources", raw(&entries));
    list.raw()
}

/// Merges two `APIGroupDiscoveryList`s of the same version, the aggregated documents at `/apis` and `/api`.
pub(crate) fn merge_aggregated(upstream: &RawValue, own: &RawValue, owned: &OwnedResources) -> Raw {
    merge_groups(upstream, own, "items", metadata_name, |upstream, own| {
        merge_item(upstream, own, owned)
    })
}

/// Merges the groups of two lists. A group that the upstream lacks is inserted by its priority.
fn merge_groups(
    upstream: &RawValue,
    own: &RawValue,
    list: &str,
    name: impl Fn(&RawValue) -> String,
    merge: impl Fn(&RawValue, &RawValue) -> Raw,
) -> Raw {
    let Some((mut document, mut entries)) = with_items(upstream, list) else {
        return own.to_owned();
    };
    let (_, own) = with_items(own, list).unwrap_or_default();
    for entry in own {
        let group = name(&entry);
        if let Some(found) = entries.iter_mut().find(|old| name(old) == group) {
            *found = merge(found, &entry);
            continue;
        }
        let index = entries
            .iter()
            .position(|old| rank(&name(old)) > rank(&group))
            .unwrap_or(entries.len());
        entries.insert(index, entry);
    }
    document.set(list, raw(&entries));
    document.raw()
}

/// Merges two `APIGroupDiscovery`s of one group.
fn merge_item(upstream: &RawValue, own: &RawValue, owned: &OwnedResources) -> Raw {
    let group = metadata_name(upstream);
    let Some((mut item, versions)) = with_items(upstream, "versions") else {
        return own.to_owned();
    };
    let mut versions: Vec<Raw> = versions
        .into_iter()
        .filter_map(|version| without_owned(version, &group, owned))
        .collect();
    let (_, own) = with_items(own, "versions").unwrap_or_default();
    let mut is_new = false;
    for added in own {
        if let Some(index) = position(&versions, "version", &text(&added, "version")) {
            versions[index] = with_resources(&versions[index], &added);
        } else {
            is_new = true;
            versions.push(added);
        }
    }
    if is_new {
        sort_versions(&mut versions);
    }
    item.set("versions", raw(&versions));
    item.raw()
}

/// A version of the upstream without the owned resources. `None` if the version is to be removed, too: it is
/// one of [`EMPTIED_VERSIONS`], and nothing else was there.
fn without_owned(version: Raw, group: &str, owned: &OwnedResources) -> Option<Raw> {
    let Some((mut object, mut resources)) = with_items(&version, "resources") else {
        return Some(version);
    };
    let count = resources.len();
    resources.retain(|resource| !owned.has(group, &text(resource, "resource")));
    if count > 0
        && resources.is_empty()
        && emptied_versions(group).contains(&object.text("version").as_str())
    {
        return None;
    }
    for resource in &mut resources {
        without_owned_subresources(resource, group, owned);
    }
    object.set("resources", raw(&resources));
    Some(object.raw())
}

fn without_owned_subresources(resource: &mut Raw, group: &str, owned: &OwnedResources) {
    let Some((mut object, mut subresources)) = with_items(resource, "subresources") else {
        return;
    };
    let name = object.text("resource");
    let is_owned = |entry: &Raw| {
        let entry = format!("{name}/{}", text(entry, "subresource"));
        owned.has_entry(group, &entry)
    };
    subresources.retain(|entry| !is_owned(entry));
    object.set("subresources", raw(&subresources));
    *resource = object.raw();
}

/// Adds the resources of `added` to a version of the upstream; to one that is there already, subresources.
fn with_resources(version: &RawValue, added: &RawValue) -> Raw {
    let mut object = RawMembers::parse(version).unwrap_or_default();
    let (_, added) = with_items(added, "resources").unwrap_or_default();
    let mut resources = object.items("resources").unwrap_or_default();
    for resource in added {
        let Some(own) = RawMembers::parse(&resource) else {
            continue;
        };
        let Some(index) = position(&resources, "resource", &own.text("resource")) else {
            // Not a subresource of a resource that the upstream lacks.
            if own.get("responseKind").is_some() {
                insert_sorted(&mut resources, vec![resource], "resource");
            }
            continue;
        };
        let new = own.items("subresources").unwrap_or_default();
        if let Some(mut found) = RawMembers::parse(&resources[index]) {
            let mut subresources = found.items("subresources").unwrap_or_default();
            insert_sorted(&mut subresources, new, "subresource");
            found.set("subresources", raw(&subresources));
            resources[index] = found.raw();
        }
    }
    object.set("resources", raw(&resources));
    object.raw()
}

/// Inserts each entry before the first with a greater key: a sorted list stays sorted, any other keeps its
/// order.
fn insert_sorted(entries: &mut Vec<Raw>, added: Vec<Raw>, key: &str) {
    for entry in added {
        let name = text(&entry, key);
        let index = entries
            .iter()
            .position(|old| text(old, key) > name)
            .unwrap_or(entries.len());
        entries.insert(index, entry);
    }
}

/// An object, and the entries of its list at `key`.
fn with_items(value: &RawValue, key: &str) -> Option<(RawMembers, Vec<Raw>)> {
    let object = RawMembers::parse(value)?;
    let items = object.items(key)?;
    Some((object, items))
}

/// The first entry whose string at `key` is `name`.
fn position(entries: &[Raw], key: &str, name: &str) -> Option<usize> {
    entries.iter().position(|entry| text(entry, key) == name)
}

/// The string at `key` of an object; empty if there is none.
fn text(value: &RawValue, key: &str) -> String {
    RawMembers::parse(value).map_or_else(String::new, |object| object.text(key))
}

fn metadata_name(item: &RawValue) -> String {
    let metadata = RawMembers::parse(item).and_then(|item| item.object("metadata"));
    metadata.map_or_else(String::new, |metadata| metadata.text("name"))
}

fn emptied_versions(group: &str) -> &'static [&'static str] {
    let found = EMPTIED_VERSIONS.iter().find(|(name, _)| *name == group);
    found.map_or(&[], |(_, versions)| versions)
}

fn sort_versions(versions: &mut [Raw]) {
    versions.sort_by(|a, b| {
        let (a, b) = (text(a, "version"), text(b, "version"));
        version_rank(&a).cmp(&version_rank(&b))
    });
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
    use serde_json::{Value, json};

    use super::*;
    use crate::{ownership::ServedSubresource, raw_json::value};
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

    fn merge_group(upstream: &Value, own: &Value) -> Value {
        value(&super::merge_group(&raw(upstream), &raw(own)))
    }

    fn merge_aggregated(upstream: &Value, own: &Value) -> Value {
        let (upstream, own) = (raw(upstream), raw(own));
        value(&super::merge_aggregated(&upstream, &own, &owned()))
    }

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
        assert_eq!(merge_group(&same, &own), same);
        assert_eq!(merge_group(&group(&["v1"]), &own), own);
        let old = group(&["v1beta2", "v1beta1"]);
        assert_eq!(merge_group(&old, &own), own);
        assert_eq!(
            merge_group(&group(&["v2", "v1"]), &own),
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
        let merged = value(&merge_resource_list(
            &raw(&upstream),
            &raw(&own),
            GROUP,
            &owned(),
        ));
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
            merge_aggregated(&upstream, &own),
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
        assert_eq!(merge_aggregated(&upstream, &own), merged);
    }

    #[test]
    fn what_is_the_upstreams_keeps_its_text_and_its_place() {
        let upstream = RawValue::from_string(
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","verbs":["create"],"kind":"\u003cBinding"},{"name":"pods/eviction","kind":"Old"},{"name":"pods/log","a":1.0}],"later":{"z":1,"a":2}}"#
                .to_owned(),
        );
        let own = json!({"resources": [{"name": "pods/eviction", "kind": "New"}]});
        let merged = merge_resource_list(&upstream.unwrap(), &raw(&own), "", &owned());
        assert_eq!(
            merged.get(),
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","verbs":["create"],"kind":"\u003cBinding"},{"kind":"New","name":"pods/eviction"},{"name":"pods/log","a":1.0}],"later":{"z":1,"a":2}}"#
        );
    }
}
