//! Whether the rules of a policy are for a resource.

use serde_json::Value;

use crate::documents::items;

/// Whether a rule is for one of these operations on a resource, given as group, resource and subresource, whatever its name and version.
pub(super) fn takes(rule: &Value, operations: &[&str], resource: [&str; 3]) -> bool {
    let [group, resource, subresource] = resource;
    let any = |list: &Value, wanted: &[&str]| {
        items(list).any(|item| item == "*" || wanted.iter().any(|one| item == one))
    };
    let is_named = |pattern: &Value| {
        let pattern = pattern.as_str().unwrap_or_default();
        let (main, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
        (main == "*" || main == resource) && (sub == "*" || sub == subresource)
    };
    any(&rule["operations"], operations)
        && any(&rule["apiGroups"], &[group])
        && items(&rule["resources"]).any(is_named)
}
