//! Merges the hosted resources into the OpenAPI documents of an upstream.
//!
//! The paths of hosted resources are replaced in all versions, and so are the schemas of their types; the
//! rest keeps its text and its place. Types that both have, such as `ObjectMeta`, stay those of the upstream.
//! An upstream document of an unexpected shape counts as empty.

use std::collections::BTreeSet;

use serde_json::{Value, value::RawValue};

use super::definitions::references;
use crate::{
    discovery::hash,
    ownership::{OwnedResources, resource_of},
    raw_json::{Raw, RawMembers, raw},
};

/// Merges the indexes at `/openapi/v3`.
///
/// The hash of a merged document is that of [`merged_hash`], because the upstream's document is not known
/// here.
pub(crate) fn merge_v3_index(upstream: &RawValue, own: &RawValue) -> Raw {
    let Some((mut document, mut paths)) = with_paths(upstream) else {
        return own.to_owned();
    };
    let (_, own) = with_paths(own).unwrap_or_default();
    for (key, entry) in own {
        // Such as `apis/policy/v1`; only documents of group versions are merged.
        if !key.starts_with("apis/") {
            continue;
        }
        let is_version = key.split('/').count() == 3;
        match paths.get(&key) {
            Some(old) if is_version => {
                let merged = merged_hash(&hash_in(old), &hash_in(&entry));
                let url = format!("/openapi/v3/{key}?hash={merged}");
                let mut old = RawMembers::parse(old).unwrap_or_default();
                old.set("serverRelativeURL", raw(&url));
                paths.set(&key, old.raw());
            }
            Some(_) => {}
            None => paths.set_sorted(&key, entry),
        }
    }
    document.set("paths", paths.raw());
    document.raw()
}

/// The hash of a merged OpenAPI v3 document, from the hashes of its two parts.
pub(crate) fn merged_hash(upstream: &str, own: &str) -> String {
    hash(&format!("{upstream} {own}"))
}

/// The hash in the URL of an entry of the index.
fn hash_in(entry: &RawValue) -> String {
    let entry = RawMembers::parse(entry).unwrap_or_default();
    let url = entry.text("serverRelativeURL");
    match url.split_once("hash=") {
        Some((_, hash)) => hash.to_owned(),
        None => url,
    }
}

/// Merges the documents at `/openapi/v2`.
pub(crate) fn merge_v2(upstream: &RawValue, own: &RawValue, owned: &OwnedResources) -> Raw {
    merge(upstream, own, owned, &["definitions"])
}

/// Merges the documents of a group version at `/openapi/v3/apis/<group>/<version>`.
pub(crate) fn merge_v3(upstream: &RawValue, own: &RawValue, owned: &OwnedResources) -> Raw {
    merge(upstream, own, owned, &["components", "schemas"])
}

/// Merges two documents whose schemas are at `schemas`.
fn merge(upstream: &RawValue, own: &RawValue, owned: &OwnedResources, schemas: &[&str]) -> Raw {
    let Some((mut document, mut paths)) = with_paths(upstream) else {
        return own.to_owned();
    };
    paths.retain(|path| !owned.covers(path));
    let (own, own_paths) = with_paths(own).unwrap_or_default();
    for (path, item) in own_paths {
        // The paths of groups and versions stay those of the upstream.
        let is_of_group = group(&path).is_some_and(|group| owned.has_group(group));
        if resource_of(&path).is_some() && owned.covers(&path)
            || is_of_group && paths.get(&path).is_none()
        {
            paths.set_sorted(&path, item);
        }
    }
    document.set("paths", paths.raw());
    if let Some(own_schemas) = object_at(&own, schemas) {
        merge_schemas(
            &mut document,
            own_schemas,
            schemas,
            &used(upstream, schemas),
        );
    }
    document.raw()
}

fn merge_schemas(
    document: &mut RawMembers,
    own: RawMembers,
    place: &[&str],
    used_before: &BTreeSet<String>,
) {
    let mut schemas = object_at(document, place).unwrap_or_default();
    for (name, schema) in own {
        // Types of an API group are those of hosted kinds; others are shared.
        if name.starts_with("io.k8s.api.") || schemas.get(&name).is_none() {
            schemas.set_sorted(&name, schema);
        }
    }
    set_at(document, place, &schemas);
    // Types of versions that are not served here may not be used any more.
    let used_now = used(&document.raw(), place);
    schemas.retain(|name| used_now.contains(name) || !used_before.contains(name));
    set_at(document, place, &schemas);
}

/// Names of all schemas that the paths of a document refer to, directly or indirectly.
fn used(document: &RawValue, schemas: &[&str]) -> BTreeSet<String> {
    let document: Value = serde_json::from_str(document.get()).unwrap_or_default();
    let mut used = BTreeSet::new();
    let mut pending = BTreeSet::new();
    for key in ["paths", "parameters", "responses"] {
        if let Some(part) = document.get(key) {
            references(part, &mut pending);
        }
    }
    let all = schemas
        .iter()
        .try_fold(&document, |value, key| value.get(*key));
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

/// A document, and its paths.
fn with_paths(document: &RawValue) -> Option<(RawMembers, RawMembers)> {
    let document = RawMembers::parse(document)?;
    let paths = document.object("paths")?;
    Some((document, paths))
}

fn object_at(document: &RawMembers, place: &[&str]) -> Option<RawMembers> {
    let (first, rest) = place.split_first()?;
    let object = document.object(first)?;
    if rest.is_empty() {
        Some(object)
    } else {
        object_at(&object, rest)
    }
}

/// Replaces the object at `place`, and makes those above it if there are none.
fn set_at(document: &mut RawMembers, place: &[&str], object: &RawMembers) {
    match place {
        [] => {}
        [key] => document.set(key, object.raw()),
        [key, rest @ ..] => {
            let mut inner = document.object(key).unwrap_or_default();
            set_at(&mut inner, rest, object);
            document.set(key, inner.raw());
        }
    }
}

/// The group of a path below `/apis/`.
fn group(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/apis/")?;
    rest.split('/').next().filter(|group| !group.is_empty())
}
