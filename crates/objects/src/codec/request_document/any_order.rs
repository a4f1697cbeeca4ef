//! Strategic merge patches that kube-apiserver applies in one way or another.
//!
//! It goes through the members of a patch as through any Go map, in any order. `$deleteFromPrimitiveList/x` and `x` are two members about one list: if
//! both name a value, it is chance whether that is in the list afterwards. So what a policy was shown need not be what is stored.

use std::collections::HashSet;

use serde_json::{Map, Value};

const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// A list of the patch whose contents are left to chance.
pub(super) fn list_in_any_order(patch: &Value) -> Option<&str> {
    match patch {
        Value::Array(items) => items.iter().find_map(list_in_any_order),
        Value::Object(members) => {
            let mut deleted = members.iter();
            deleted
                .find_map(|(key, value)| {
                    let list = key.strip_prefix(DELETE)?;
                    is_in_any_order(members, list, value).then_some(list)
                })
                .or_else(|| members.values().find_map(list_in_any_order))
        }
        _ => None,
    }
}

/// Whether the members of a patch delete from a list what they set, too. With an order for the list, that comes first.
fn is_in_any_order(members: &Map<String, Value>, list: &str, deleted: &Value) -> bool {
    let has_order = || members.contains_key(&format!("{ORDER}{list}"));
    let Some(set) = members.get(list).filter(|set| !set.is_null()) else {
        return false;
    };
    let (Some(set), Some(deleted)) = (set.as_array(), deleted.as_array()) else {
        return !has_order();
    };
    // Other values than texts may be equal to the server although they are written otherwise.
    let is_plain = |all: &[Value]| all.iter().all(Value::is_string);
    let is_apart = is_plain(set) && is_plain(deleted) && {
        let set: HashSet<&str> = set.iter().filter_map(Value::as_str).collect();
        let mut deleted = deleted.iter().filter_map(Value::as_str);
        !deleted.any(|one| set.contains(one))
    };
    !is_apart && !has_order()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Comparing each with each would take longer than anybody waits for a test.
    #[test]
    fn long_lists_are_compared_in_linear_time() {
        let many = |letter: &str| vec![json!(letter); 500_000];
        let patch =
            json!({"$deleteFromPrimitiveList/finalizers": many("a"), "finalizers": many("b")});
        assert_eq!(list_in_any_order(&patch), None);
    }

    #[test]
    fn a_list_is_left_to_chance_where_what_is_set_is_deleted() {
        let container = |capabilities: Value| json!({"spec": {"containers": [{"name": "c", "securityContext": {"capabilities": capabilities}}]}});
        let drop = "$deleteFromPrimitiveList/drop";
        for (patch, found) in [
            (
                container(json!({drop: ["ALL"], "drop": ["ALL"]})),
                Some("drop"),
            ),
            (
                container(json!({drop: ["ALL"], "drop": ["NET_RAW", "ALL"]})),
                Some("drop"),
            ),
            (container(json!({drop: [1], "drop": [1.0]})), Some("drop")),
            (
                container(json!({drop: "ALL", "drop": ["ALL"]})),
                Some("drop"),
            ),
            (container(json!({drop: ["ALL"], "drop": ["NET_RAW"]})), None),
            (container(json!({drop: ["ALL"], "drop": null})), None),
            (container(json!({drop: ["ALL"], "add": ["ALL"]})), None),
            (
                json!({"$setElementOrder/finalizers": ["a"], "$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["a"]}),
                None,
            ),
            (json!([]), None),
        ] {
            assert_eq!(list_in_any_order(&patch), found, "{patch}");
        }
    }
}
