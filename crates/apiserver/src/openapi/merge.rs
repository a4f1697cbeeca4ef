//! Merges the hosted groups into the OpenAPI documents of an upstream.
//!
//! Everything that the upstream has of a hosted group is replaced; the rest stays. Types that both have,
//! such as `ObjectMeta`, stay those of the upstream. An upstream document of an unexpected shape counts as
//! empty.
//!
//! Of v3 only the index is merged, because each document is about one group version.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::definitions::references;

/// `/openapi/v3` of `upstream`, with the groups of `ours` in it.
pub(crate) fn merge_v3_index(mut upstream: Value, ours: Value) -> Value {
    let groups = groups(&ours, "apis/");
    let Some(Value::Object(paths)) = upstream.get_mut("paths") else {
        return ours;
    };
    paths.retain(|key, _| !belongs(key, "apis/", &groups));
    let added = take(ours, "paths").into_iter();
    paths.extend(added.filter(|(key, _)| belongs(key, "apis/", &groups)));
    upstream
}

/// `/openapi/v2` of `upstream`, with the groups of `ours` in it.
pub(crate) fn merge_v2(mut upstream: Value, mut ours: Value) -> Value {
    let groups = groups(&ours, "/apis/");
    let definitions = ours.get_mut("definitions").map(Value::take);
    let Some(Value::Object(paths)) = upstream.get_mut("paths") else {
        if let Some(definitions) = definitions {
            ours["definitions"] = definitions;
        }
        return ours;
    };
    paths.retain(|path, _| !belongs(path, "/apis/", &groups));
    let added = take(ours, "paths").into_iter();
    paths.extend(added.filter(|(path, _)| belongs(path, "/apis/", &groups)));
    if let Some(Value::Object(definitions)) = definitions {
        merge_definitions(&mut upstream, definitions);
    }
    upstream
}

fn merge_definitions(upstream: &mut Value, ours: Map<String, Value>) {
    let Some(Value::Object(theirs)) = upstream.get_mut("definitions") else {
        upstream["definitions"] = ours.into();
        return;
    };
    let packages: BTreeSet<String> = ours.keys().filter_map(|name| package(name)).collect();
    for (name, schema) in ours {
        if package(&name).is_some() || !theirs.contains_key(&name) {
            theirs.insert(name, schema);
        }
    }
    // Types of a group of ours that nothing refers to any more are those of versions we do not serve.
    let used = used(upstream);
    if let Some(Value::Object(theirs)) = upstream.get_mut("definitions") {
        theirs.retain(|name, _| {
            used.contains(name) || package(name).is_none_or(|package| !packages.contains(&package))
        });
    }
}

/// Names of all definitions that the paths of a document refer to, directly or not.
fn used(document: &Value) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut pending = BTreeSet::new();
    for key in ["paths", "parameters", "responses"] {
        if let Some(part) = document.get(key) {
            references(part, &mut pending);
        }
    }
    while let Some(name) = pending.pop_first() {
        let schema = document.get("definitions").and_then(|all| all.get(&name));
        if used.insert(name)
            && let Some(schema) = schema
        {
            references(schema, &mut pending);
        }
    }
    used
}

/// The package of a group's types, without the version; `None` for types that are shared.
fn package(name: &str) -> Option<String> {
    let rest = name.strip_prefix("io.k8s.api.")?;
    rest.split('.').next().map(str::to_owned)
}

/// The groups that the paths of a document are in.
fn groups(document: &Value, prefix: &str) -> BTreeSet<String> {
    let paths = document.get("paths").and_then(Value::as_object);
    paths
        .into_iter()
        .flat_map(Map::keys)
        .filter_map(|path| group(path, prefix))
        .map(str::to_owned)
        .collect()
}

fn belongs(path: &str, prefix: &str, groups: &BTreeSet<String>) -> bool {
    group(path, prefix).is_some_and(|group| groups.contains(group))
}

fn group<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix)?;
    rest.split('/').next().filter(|group| !group.is_empty())
}

fn take(mut document: Value, key: &str) -> Map<String, Value> {
    match document.get_mut(key).map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
