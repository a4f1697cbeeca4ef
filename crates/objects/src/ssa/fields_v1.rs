//! Sets of paths as `FieldsV1`: the JSON that `managedFields` stores them in.
//!
//! A set is an object with a key for each step, `f:` and a name, `k:` and the key fields, `v:` and the item,
//! `i:` and the index. The value of a key is the set below it; `{}` is a member without anything below, and
//! `".":{}` means that a node with members below is a member too.
//!
//! The JSON here is a [`Value`], whose keys are sorted by byte. kube-apiserver sorts `k:` and `v:`
//! by value instead; the two differ only for keys that are prefixes of one another and for numbers.

use serde_json::{Map, Value};

use super::{
    path::{PathElement, Scalar},
    path_set::PathSet,
};
use crate::go;

/// Why stored fields cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldsError {
    /// Something other than an object, where a set should be.
    #[error("a set of fields must be an object, not {0}")]
    NotAnObject(&'static str),
    /// A key without a type.
    #[error("key must be 2 characters long")]
    ShortKey,
    /// A key whose second character is not a colon.
    #[error("missing colon: {0}")]
    NoColon(String),
    /// A key whose value does not fit its type.
    #[error("{0} is not a path element")]
    BadKey(String),
    /// More levels than the kind allows.
    #[error("a set of fields must not be deeper than {0} levels")]
    TooDeep(usize),
}

/// Reads a set of at most `deepest` levels; null is the empty one. Keys of unknown types are left out, with all below them.
///
/// # Errors
///
/// [`FieldsError`] for the first error.
pub(super) fn decode(fields: &Value, deepest: usize) -> Result<PathSet, FieldsError> {
    let level = decode_level(fields, deepest).map_err(|error| match error {
        FieldsError::TooDeep(_) => FieldsError::TooDeep(deepest),
        other => other,
    });
    level.map(|level| level.set)
}

/// The set below one step, and whether the step itself is a member.
struct StoredLevel {
    member: bool,
    set: PathSet,
}

fn decode_level(fields: &Value, depth: usize) -> Result<StoredLevel, FieldsError> {
    let empty = Map::new();
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => &empty,
        other => return Err(FieldsError::NotAnObject(go::type_name(other))),
    };
    let below = depth.checked_sub(1).ok_or(FieldsError::TooDeep(0))?;
    let mut level = StoredLevel {
        member: false,
        set: PathSet::default(),
    };
    for (key, value) in fields {
        if key == "." {
            level.member = true;
        } else if let Some(step) = decode_step(key)? {
            let lower = decode_level(value, below)?;
            level.set.add(step, lower.member, lower.set);
        }
    }
    level.member |= level.set.is_empty();
    Ok(level)
}

fn decode_step(key: &str) -> Result<Option<PathElement>, FieldsError> {
    if key.len() < 2 {
        return Err(FieldsError::ShortKey);
    }
    if key.as_bytes()[1] != b':' {
        return Err(FieldsError::NoColon(key.to_owned()));
    }
    let (prefix, content) = key.split_at(2);
    let bad = || FieldsError::BadKey(key.to_owned());
    Ok(Some(match prefix {
        "f:" => PathElement::name(content),
        "k:" => {
            let fields: Map<String, Value> = serde_json::from_str(content).map_err(|_| bad())?;
            PathElement::Key(fields.into_iter().map(|(k, v)| (k, Scalar(v))).collect())
        }
        "v:" => PathElement::Item(Scalar(serde_json::from_str(content).map_err(|_| bad())?)),
        "i:" => PathElement::Index(content.parse().map_err(|_| bad())?),
        _ => return Ok(None),
    }))
}

/// Writes a set.
pub(super) fn encode(set: &PathSet) -> Value {
    Value::Object(encode_level(set))
}

fn encode_level(set: &PathSet) -> Map<String, Value> {
    let mut fields = Map::new();
    for (step, node) in set.iter() {
        let mut below = encode_level(&node.below);
        if node.member && !below.is_empty() {
            below.insert(".".to_owned(), Value::Object(Map::new()));
        }
        fields.insert(encode_step(step), Value::Object(below));
    }
    fields
}

fn encode_step(step: &PathElement) -> String {
    match step {
        PathElement::Name(name) => format!("f:{name}"),
        PathElement::Key(fields) => {
            let fields: Map<_, _> = fields
                .iter()
                .map(|(name, value)| (name.clone(), value.0.clone()))
                .collect();
            format!("k:{}", go::json(&Value::Object(fields)))
        }
        PathElement::Item(value) => format!("v:{}", go::json(&value.0)),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{codec::json::MAX_DEPTH, deep_documents::on_half_of_the_stack};

    #[test]
    fn a_stored_set_is_written_as_it_was_read() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x.y/z\"": {}}},
            "f:status": {"f:conditions": {
                "k:{\"type\":\"a\\u003cb\"}": {".": {}, "f:type": {}},
                "k:{\"port\":80,\"protocol\":\"TCP\"}": {},
            }},
            "i:3": {},
        });
        assert_eq!(encode(&decode(&fields, MAX_DEPTH).unwrap()), fields);
    }

    #[test]
    fn keys_of_unknown_types_are_left_out_with_all_below() {
        let set = decode(&json!({"f:a": {"x:y": {"5": 5}}, "z:": {}}), MAX_DEPTH).unwrap();
        assert_eq!(encode(&set), json!({"f:a": {}}));
    }

    #[test]
    fn null_and_an_empty_object_are_the_empty_set() {
        for nothing in [json!(null), json!({}), json!({".": {}})] {
            assert!(decode(&nothing, MAX_DEPTH).unwrap().is_empty());
        }
    }

    #[test]
    fn an_invalid_field_set_is_refused() {
        for (fields, why) in [
            (json!([]), FieldsError::NotAnObject("[]interface {}")),
            (json!({"f:a": "x"}), FieldsError::NotAnObject("string")),
            (json!({"f": {}}), FieldsError::ShortKey),
            (json!({"name": {}}), FieldsError::NoColon("name".to_owned())),
            (json!({"v:{": {}}), FieldsError::BadKey("v:{".to_owned())),
            (
                json!({"v:1 2": {}}),
                FieldsError::BadKey("v:1 2".to_owned()),
            ),
            (json!({"k:5": {}}), FieldsError::BadKey("k:5".to_owned())),
            (json!({"i:x": {}}), FieldsError::BadKey("i:x".to_owned())),
            (json!({"é": {}}), FieldsError::NoColon("é".to_owned())),
        ] {
            assert_eq!(decode(&fields, MAX_DEPTH), Err(why), "{fields}");
        }
    }

    #[test]
    fn a_set_deeper_than_any_document_is_refused() {
        on_half_of_the_stack(|| {
            let mut fields = json!({});
            for _ in 0..MAX_DEPTH {
                fields = Value::Object([("f:a".to_owned(), fields)].into_iter().collect());
            }
            assert_eq!(
                decode(&fields, MAX_DEPTH),
                Err(FieldsError::TooDeep(MAX_DEPTH))
            );
            let deepest = decode(&fields["f:a"], MAX_DEPTH).unwrap();
            assert_eq!(deepest, deepest.clone());
            assert_eq!(encode(&deepest), fields["f:a"]);
            let mut both = deepest.clone();
            both.unite(deepest.clone());
            assert_eq!(both, deepest);
        });
    }

    fn step() -> impl Strategy<Value = PathElement> {
        let scalar = prop_oneof![
            ".{0,3}".prop_map(|text| json!(text)),
            any::<i32>().prop_map(|number| json!(number)),
            any::<bool>().prop_map(|flag| json!(flag)),
        ]
        .prop_map(Scalar);
        prop_oneof![
            ".{0,3}".prop_map(PathElement::Name),
            prop::collection::btree_map("[a-c]", scalar.clone(), 1..3)
                .prop_map(|fields| PathElement::Key(fields.into_iter().collect())),
            scalar.prop_map(PathElement::Item),
            any::<i8>().prop_map(|index| PathElement::Index(index.into())),
        ]
    }

    proptest! {
        #[test]
        fn every_set_round_trips_through_json(
            paths in prop::collection::vec(prop::collection::vec(step(), 1..5), 0..9)
        ) {
            let mut set = PathSet::default();
            for path in &paths {
                set.insert(path);
            }
            let fields = encode(&set);
            prop_assert_eq!(decode(&fields, MAX_DEPTH), Ok(set));
            // Through text as well: keys hold JSON of their own.
            let text = fields.to_string();
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), fields);
        }
    }
}
