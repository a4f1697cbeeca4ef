//! Our groups in the discovery documents of an upstream server.
//!
//! A group of ours replaces the upstream's group of that name, or goes where its priority puts it;
//! all else stays as it is, in its order. An upstream document that is not of the expected shape
//! counts as one without groups.

use serde_json::Value;

use super::rank;

/// `/apis` of `upstream`, with the groups of `ours` in it.
///
/// Both are `APIGroupList`s.
pub(crate) fn merge_group_list(upstream: Value, ours: Value) -> Value {
    merge(upstream, ours, "groups", |group| group["name"].as_str())
}

/// The aggregated `/apis` or `/api` of `upstream`, with the groups of `ours` in it.
///
/// Both are `APIGroupDiscoveryList`s of the same version. The core group is one without a name.
pub(crate) fn merge_aggregated(upstream: Value, ours: Value) -> Value {
    merge(upstream, ours, "items", |item| {
        Some(item["metadata"]["name"].as_str().unwrap_or_default())
    })
}

fn merge(
    mut upstream: Value,
    mut ours: Value,
    list: &str,
    name: fn(&Value) -> Option<&str>,
) -> Value {
    let Some(Value::Array(entries)) = upstream.get_mut(list) else {
        return ours;
    };
    let Some(Value::Array(added)) = ours.get_mut(list).map(Value::take) else {
        return upstream;
    };
    for entry in added {
        let Some(group) = name(&entry) else { continue };
        if let Some(index) = entries.iter().position(|old| name(old) == Some(group)) {
            entries[index] = entry;
            continue;
        }
        let index = entries
            .iter()
            .position(|old| name(old).is_some_and(|old| rank(old) > rank(group)))
            .unwrap_or(entries.len());
        entries.insert(index, entry);
    }
    upstream
}
