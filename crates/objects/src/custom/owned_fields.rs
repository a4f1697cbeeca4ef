//! Who owns the fields of a new custom resource: all that is in it, in the form of `FieldsV1`.
//!
//! The schema says which lists have items that are owned one by one (`x-kubernetes-list-type`: `map` by their keys, `set` by themselves), and
//! which objects are owned as a whole (`x-kubernetes-map-type: atomic`). Lists without a type are owned as a whole, and so is a list for which
//! there is no schema.
//!
//! Not here: metadata, and changes of stored objects.

use serde_json::{Map, Value};

use super::{CustomSchema, Member, SchemaNode};
use crate::go;

/// How a value is owned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum OwnedParts {
    /// An object member by member, a list as a whole.
    #[default]
    Usual,
    /// As a whole.
    None,
    /// A list item by item; the item is its own key.
    Items,
    /// A list item by item, by these of their members.
    Keys(Box<[Box<str>]>),
}

impl OwnedParts {
    pub(super) fn of(schema: &Value) -> Self {
        let keys = || {
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            keys.map(Box::from).collect()
        };
        match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Self::Items,
            Some("map") => Self::Keys(keys()),
            _ if schema["x-kubernetes-map-type"] == "atomic" => Self::None,
            _ => Self::Usual,
        }
    }
}

/// The owned fields of a member of a new object, and what its own name is among those of the object.
///
/// Costs time linear in the size of the value.
pub fn owned_member(schema: Option<&CustomSchema>, name: &str, value: &Value) -> (String, Value) {
    let schema = schema.filter(|schema| !schema.keeps_all);
    let node = schema.and_then(|schema| schema.root.known(name));
    (format!("f:{name}"), Value::Object(below(node, value)))
}

fn below(node: Option<&SchemaNode>, value: &Value) -> Map<String, Value> {
    let parts = node.map_or(&OwnedParts::Usual, |node| &node.parts);
    let mut fields = Map::new();
    match (value, parts) {
        (Value::Object(members), parts) if *parts != OwnedParts::None => {
            for (name, value) in members {
                let node = node.and_then(|node| node.known(name));
                fields.insert(format!("f:{name}"), Value::Object(below(node, value)));
            }
        }
        (Value::Array(items), OwnedParts::Items | OwnedParts::Keys(_)) => {
            let node = node.and_then(|node| node.items.as_deref());
            for item in items {
                fields.insert(step(parts, item), Value::Object(below(node, item)));
            }
        }
        _ => {}
    }
    if !fields.is_empty() {
        fields.insert(".".to_owned(), Value::Object(Map::new()));
    }
    fields
}

/// The name of an item of a list.
fn step(parts: &OwnedParts, item: &Value) -> String {
    let OwnedParts::Keys(keys) = parts else {
        return format!("v:{}", go::json(item));
    };
    let key = keys.iter().filter_map(|key| {
        let value = item.get(&**key)?;
        Some((key.to_string(), value.clone()))
    });
    format!("k:{}", go::json(&Value::Object(key.collect())))
}

impl SchemaNode {
    /// The schema of a member, if there is one.
    fn known(&self, name: &str) -> Option<&Self> {
        match self.member(name) {
            Member::Of(schema) => Some(schema),
            Member::Any | Member::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_and_members_are_owned_as_the_schema_says() {
        let text = json!({"type": "string"});
        let rule = json!({"type": "object", "properties": {"name": text, "port": {"type": "integer"}, "verbs": {"type": "array", "items": text}}});
        let spec = json!({"type": "object", "properties": {
            "rules": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "name"], "items": rule},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "list": {"type": "array", "items": text},
            "box": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text}},
            "map": {"type": "object", "additionalProperties": text},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let definition =
            json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
        let schema = CustomSchema::of_version(&definition, "v1").unwrap();
        let value = json!({
            "rules": [{"name": "<a>", "port": 1, "verbs": ["get"]}], "tags": ["x", "y"], "list": ["x"], "box": {"a": "b"}, "map": {"k": "v"},
            "free": {"a": {"b": []}, "empty": {}},
        });
        let (name, owned) = owned_member(Some(&schema), "spec", &value);
        assert_eq!(name, "f:spec");
        let wanted = json!({
            ".": {},
            "f:rules": {".": {}, r#"k:{"name":"\u003ca\u003e","port":1}"#: {".": {}, "f:name": {}, "f:port": {}, "f:verbs": {}}},
            "f:tags": {".": {}, r#"v:"x""#: {}, r#"v:"y""#: {}},
            "f:list": {}, "f:box": {}, "f:map": {".": {}, "f:k": {}}, "f:free": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:empty": {}},
        });
        assert_eq!(owned, wanted);
        // Without a schema, lists are owned as a whole.
        let (_, owned) = owned_member(None, "spec", &value);
        assert_eq!(owned["f:rules"], json!({}));
        assert_eq!(owned["f:box"], json!({".": {}, "f:a": {}}));
    }
}
