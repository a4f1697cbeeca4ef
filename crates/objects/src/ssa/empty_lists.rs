//! Empty lists that a client sends inside an atomic list.
//!
//! The canonical form of an object has none: readers do not distinguish empty and absent lists.
//! kube-apiserver distinguishes them in one place: an atomic list counts as changed, and moves to the
//! writer, if one of its items was sent with an empty list where nothing is stored. So empty lists are
//! carried over from the request, and dropped once ownership has been tracked.

use serde_json::Value;

use crate::schema::{Field, List, Presence, Struct, Topology, Type};

/// Copies the empty lists inside atomic lists of the request's object to the canonical `object` that
/// was decoded from it. Call it before [`track_update`](super::track_update).
pub fn carry_empty_lists(shape: &Struct, sent: &Value, object: &mut Value) {
    carry_fields(shape, sent, object, false);
}

/// Removes what [`carry_empty_lists`] added. Call it after ownership was tracked.
pub fn drop_empty_lists(shape: &Struct, object: &mut Value) {
    drop_fields(shape, object, false);
}

fn carry_fields(shape: &Struct, sent: &Value, object: &mut Value, whole: bool) {
    for field in shape.fields {
        let sent = &sent[field.name];
        let found = object.get_mut(field.name);
        match (field.ty, found) {
            (Type::Object(shape), Some(found)) => carry_fields(shape, sent, found, whole),
            (Type::List(list), Some(Value::Array(items))) => {
                let whole = whole || is_whole(list);
                let sent = sent.as_array().into_iter().flatten();
                if let Type::Object(shape) = list.item {
                    for (sent, item) in sent.zip(items) {
                        carry_fields(shape, sent, item, whole);
                    }
                }
            }
            (Type::List(_), None | Some(Value::Null)) if whole && is_empty(sent) => {
                object[field.name] = sent.clone();
            }
            _ => {}
        }
    }
}

fn drop_fields(shape: &Struct, object: &mut Value, whole: bool) {
    for field in shape.fields {
        match (field.ty, object.get_mut(field.name)) {
            (Type::Object(shape), Some(found)) => drop_fields(shape, found, whole),
            (Type::List(list), Some(Value::Array(items))) => {
                let within = whole || is_whole(list);
                if let Type::Object(shape) = list.item {
                    for item in &mut *items {
                        drop_fields(shape, item, within);
                    }
                }
                if whole && items.is_empty() {
                    empty(field, object);
                }
            }
            _ => {}
        }
    }
}

fn is_whole(list: &List) -> bool {
    list.topology == Topology::Atomic
}

/// Puts an empty list into its canonical form.
fn empty(field: &Field, object: &mut Value) {
    if field.presence == Presence::Always {
        object[field.name] = Value::Null;
    } else if let Value::Object(fields) = object {
        fields.remove(field.name);
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{canonical, flowcontrol_v1::FLOW_SCHEMA};

    #[test]
    fn empty_lists_within_rules_are_carried_over_and_dropped() {
        let sent = json!({
            "metadata": {"name": "a", "finalizers": [], "managedFields": []},
            "spec": {"rules": [
                {"subjects": [{"kind": "User"}], "resourceRules": [], "nonResourceRules": null},
                {"resourceRules": [{"verbs": [], "namespaces": []}]},
            ]},
        });
        let plain = canonical::decode_version(&FLOW_SCHEMA, "v1", &sent)
            .unwrap()
            .value;
        let mut object = plain.clone();

        carry_empty_lists(&FLOW_SCHEMA, &sent, &mut object);

        let rules = &object["spec"]["rules"];
        assert_eq!(rules[0]["resourceRules"], json!([]));
        assert_eq!(rules[0].get("nonResourceRules"), None);
        assert_eq!(rules[1]["resourceRules"][0]["namespaces"], json!([]));
        assert_eq!(object["metadata"], plain["metadata"]);

        drop_empty_lists(&FLOW_SCHEMA, &mut object);

        assert_eq!(object, plain);
    }
}
