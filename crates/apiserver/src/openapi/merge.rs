//! Merges the hosted resources into the OpenAPI documents of an upstream.
//!
//! The paths of hosted resources are replaced in all versions, and so are the schemas of their types; the
//! rest stays. Types that both have, such as `ObjectMeta`, stay those of the upstream. An upstream document
//! of an unexpected shape counts as empty.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::definitions::references;
use crate::{
    discovery::hash,
    ownership::{OwnedResources, resource_of},
};

/// Merges the indexes at `/openapi/v3`.
///
/// The hash of a merged document is that of [`merged_hash`], because the upstream's document is not known
/// here.
pub(crate) fn merge_v3_index(mut upstream: Value, own: Value) -> Value {
    let Some(Value::Object(paths)) = upstream.get_mut("paths") else {
        return own;
    };
    for (key, entry) in take(own, "paths") {
        // Such as `apis/policy/v1`; only documents of group versions are merged.
        if !key.starts_with("apis/") {
            continue;
        }
        let is_version = key.split('/').count() == 3;
        match paths.get_mut(&key) {
            Some(old) if is_version => {
                let merged = merged_hash(hash_in(old), hash_in(&entry));
                let url = format!("/openapi/v3/{key}?hash={merged}");
                old["serverRelativeURL"] = url.into();
            }
            Some(_) => {}
            None => drop(paths.insert(key, entry)),
        }
    }
    upstream
}

/// The hash of a merged OpenAPI v3 document, from the hashes of its two parts.
pub(crate) fn merged_hash(upstream: &str, own: &str) -> String {
    hash(&format!("{upstream} {own}"))
}

/// The hash in the URL of an entry of the index.
fn hash_in(entry: &Value) -> &str {
    let url = entry["serverRelativeURL"].as_str().unwrap_or_default();
    url.split_once("hash=").map_or(url, |(_, hash)| hash)
}

/// Merges the documents at `/openapi/v2`.
pub(crate) fn merge_v2(upstream: Value, own: Value, owned: &OwnedResources) -> Value {
    merge(upstream, own, owned, &["definitions"])
}

/// Merges the documents of a group version at `/openapi/v3/apis/<group>/<version>`.
pub(crate) fn merge_v3(upstream: Value, own: Value, owned: &OwnedResources) -> Value {
    merge(upstream, own, owned, &["components", "schemas"])
}

/// Merges two documents whose schemas are at `schemas`.
fn merge(mut upstream: Value, mut own: Value, owned: &OwnedResources, schemas: &[&str]) -> Value {
    let own_schemas = at_mut(&mut own, schemas).map(Value::take);
    let used_before = used(&upstream, schemas);
    let Some(Value::Object(paths)) = upstream.get_mut("paths") else {
        if let (Some(place), Some(taken)) = (at_mut(&mut own, schemas), own_schemas) {
            *place = taken;
        }
        return own;
    };
    paths.retain(|path, _| !owned.covers(path));
    for (path, item) in take(own, "paths") {
        // The paths of groups and versions stay those of the upstream.
        let is_of_group = group(&path).is_some_and(|group| owned.has_group(group));
        if resource_of(&path).is_some() && owned.covers(&path)
            || is_of_group && !paths.contains_key(&path)
        {
            paths.insert(path, item);
        }
    }
    if let Some(Value::Object(own_schemas)) = own_schemas {
        merge_schemas(&mut upstream, own_schemas, schemas, &used_before);
    }
    upstream
}

fn merge_schemas(
    upstream: &mut Value,
    own: Map<String, Value>,
    place: &[&str],
    used_before: &BTreeSet<String>,
) {
    let Some(Value::Object(theirs)) = at_mut(upstream, place) else {
        let mut parent = upstream;
        for key in place {
            parent = &mut parent[*key];
        }
        *parent = own.into();
        return;
    };
    for (name, schema) in own {
        // Types of an API group are those of hosted kinds; others are shared.
        if name.starts_with("io.k8s.api.") || !theirs.contains_key(&name) {
            theirs.insert(name, schema);
        }
    }
    // Types of versions that are not served here may not be used any more.
    let used_now = used(upstream, place);
    if let Some(Value::Object(theirs)) = at_mut(upstream, place) {
        theirs.retain(|name, _| used_now.contains(name) || !used_before.contains(name));
    }
}

/// Names of all schemas that the paths of a document refer to, directly or indirectly.
fn used(document: &Value, schemas: &[&str]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut pending = BTreeSet::new();
    for key in ["paths", "parameters", "responses"] {
        if let Some(part) = document.get(key) {
            references(part, &mut pending);
        }
    }
    let all = schemas
        .iter()
        .try_fold(document, |value, key| value.get(*key));
    while let Some(name) = pending.pop_first() {
        let schema = all.and_then(|all| all.get(&name));
        if used.insert(name)
            && let Some(schema) = schema
        {
            references(schema, &mut pending);
        }
    }
    used
}

fn at_mut<'v>(document: &'v mut Value, place: &[&str]) -> Option<&'v mut Value> {
    place
        .iter()
        .try_fold(document, |value, key| value.get_mut(*key))
}

/// The group of a path below `/apis/`.
fn group(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/apis/")?;
    rest.split('/').next().filter(|group| !group.is_empty())
}

fn take(mut document: Value, key: &str) -> Map<String, Value> {
    match document.get_mut(key).map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
