//! Custom resources as their schemas have them.

use serde_json::json;

use super::*;

fn definition(schema: &Value) -> Value {
    json!({"spec": {"versions": [
        {"name": "v0", "schema": {"openAPIV3Schema": {"type": "object"}}},
        {"name": "v1", "schema": {"openAPIV3Schema": schema}},
    ]}})
}

/// What is made of a body by the schema of its `spec`.
fn read(spec: &Value, body: &Value) -> Value {
    let root = json!({"type": "object", "properties": {"spec": spec}});
    let schema = CustomSchema::of_version(&definition(&root), "v1").unwrap();
    let mut object = json!({"spec": body});
    as_read(&mut object, Some(&schema)).unwrap();
    object["spec"].take()
}

#[test]
fn metadata_goes_through_its_type_also_without_a_schema() {
    let mut object = json!({"metadata": {"name": "x", "labels": {"l": null}, "annotations": null, "finalizers": [null],
        "foo": 1, "apiVersion": {"a": 1}, "kind": "X", "generation": null, "creationTimestamp": null}, "spec": {"a": null}});
    as_read(&mut object, None).unwrap();
    let expected = json!({"metadata": {"name": "x", "labels": {"l": ""}, "finalizers": [""]}, "spec": {"a": null}});
    assert_eq!(object, expected);
    let mut object = json!({"metadata": null});
    as_read(&mut object, None).unwrap();
    assert_eq!(object, json!({"metadata": {}}));
    let mut wrong = json!({"metadata": {"labels": {"l": 1}}});
    let error = as_read(&mut wrong, None).unwrap_err().to_string();
    assert!(error.contains("cannot unmarshal number"), "{error}");
}

#[test]
fn nulls_are_dropped_where_the_schema_has_a_type_that_is_not_nullable() {
    let spec = json!({"type": "object", "properties": {
        "plain": {"type": "string"},
        "nullable": {"type": "string", "nullable": true},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "nulls": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "either": {"x-kubernetes-int-or-string": true},
    }});
    let body = json!({"plain": null, "nullable": null, "map": {"a": null, "b": ""}, "nulls": {"a": null},
        "list": [null, {"x": null}], "free": {"a": null}, "either": null});
    let expected = json!({"nullable": null, "map": {"b": ""}, "nulls": {"a": null}, "list": [null, {}], "free": {"a": null}});
    assert_eq!(read(&spec, &body), expected);
}

#[test]
fn what_is_missing_gets_its_default() {
    let item =
        json!({"type": "object", "properties": {"t": {"type": "string", "default": "item"}}});
    let spec = json!({"type": "object", "properties": {
        "t": {"type": "string", "default": "text"},
        "n": {"type": "string", "nullable": true, "default": "text"},
        "o": {"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}}},
        "inner": {"type": "object", "properties": {"b": {"type": "integer", "default": 2}}},
        "list": {"type": "array", "items": item},
        "texts": {"type": "array", "items": {"type": "string", "default": "item"}},
        "map": {"type": "object", "additionalProperties": {"type": "string", "default": "each"}},
    }});
    let expected = json!({"t": "text", "n": "text", "o": {"a": 1, "b": 2}});
    assert_eq!(read(&spec, &json!({})), expected);
    let body = json!({"t": null, "n": null, "o": null, "inner": {}, "list": [{}, null, {"t": "own"}], "texts": [null, "own"],
        "map": {"a": null, "b": "own"}});
    let expected = json!({"t": "text", "n": null, "o": {"a": 1, "b": 2}, "inner": {"b": 2}, "list": [{"t": "item"}, null, {"t": "own"}],
        "texts": ["item", "own"], "map": {"a": "each", "b": "own"}});
    assert_eq!(read(&spec, &body), expected);
    let body = json!({"t": "own", "n": "own", "o": {"b": 7}, "inner": null});
    let expected = json!({"t": "own", "n": "own", "o": {"b": 7}});
    assert_eq!(read(&spec, &body), expected);
    assert_eq!(read(&spec, &json!("text")), json!("text"));
}

#[test]
fn defaults_take_bounded_memory() {
    // Names count as well as values.
    for (name, default, fits) in [
        ("t", "x".repeat(1 << 10), 2_000),
        (&*"n".repeat(100), String::new(), 20_000),
    ] {
        let item =
            json!({"type": "object", "properties": {name: {"type": "string", "default": default}}});
        let root = json!({"properties": {"spec": {"type": "array", "items": item}}});
        let schema = CustomSchema::of_version(&definition(&root), "v1").unwrap();
        assert!(schema.repeats_defaults());
        for items in [fits, 2 * fits] {
            let mut object = json!({"spec": vec![json!({}); items]});
            let read = as_read(&mut object, Some(&schema));
            assert_eq!(read.is_ok(), items == fits, "{items}: {read:?}");
        }
    }
    let root = json!({"properties": {"spec": {"type": "object", "default": {}, "properties": {"a": {"type": "array", "items": {"type": "string"}}}}}});
    let schema = CustomSchema::of_version(&definition(&root), "v1").unwrap();
    assert!(!schema.repeats_defaults());
}

#[test]
fn unknown_members_are_pruned_unless_the_schema_preserves_them() {
    let item = json!({"type": "object", "properties": {"x": {"type": "object", "properties": {"y": {"type": "string"}}}}});
    let spec = json!({"type": "object", "properties": {
        "closed": item,
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": item}},
        "list": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": item},
        "any": {"type": "object", "additionalProperties": true},
        "bare": {"type": "array"},
    }});
    let body = json!({
        "unknown": 1,
        "closed": {"x": {"y": "", "z": 1}, "z": 1},
        "open": {"x": {"x": {"z": 1}, "z": 1}, "z": {"z": 1}},
        "list": [{"x": {"y": "", "z": 1}, "z": 1}],
        "any": {"a": {"b": 1}, "c": [{"d": 1}], "e": 1},
        "bare": [{"a": 1}, 1],
    });
    let expected = json!({
        "closed": {"x": {"y": ""}},
        "open": {"x": {"x": {}}, "z": {"z": 1}},
        "list": [{"x": {"y": ""}, "z": 1}],
        "any": {"a": {}, "c": [{}], "e": 1},
        "bare": [{}, 1],
    });
    assert_eq!(read(&spec, &body), expected);
}

#[test]
fn an_embedded_resource_keeps_its_type_and_has_its_metadata_read() {
    let spec = json!({"type": "object", "properties": {"template": {"type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {"spec": {"type": "object"}}}}});
    let body = json!({"template": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": null}, "foo": 1}, "spec": {"a": 1}, "more": 1}});
    let expected = json!({"template": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": ""}}, "spec": {}}});
    assert_eq!(read(&spec, &body), expected);
    let root = json!({"properties": {"spec": spec}});
    let schema = CustomSchema::of_version(&definition(&root), "v1").unwrap();
    let mut wrong = json!({"spec": {"template": {"kind": 1}}});
    let error = as_read(&mut wrong, Some(&schema)).unwrap_err();
    assert_eq!(error, CustomObjectError::NotText("kind"));
}

#[test]
fn a_version_without_a_schema_keeps_only_what_every_resource_has() {
    assert!(CustomSchema::of_version(&definition(&json!({})), "v2").is_none());
    let bare = json!({"spec": {"versions": [{"name": "v2"}]}});
    let schema = CustomSchema::of_version(&bare, "v2").unwrap();
    let mut object =
        json!({"apiVersion": "x/v2", "kind": "X", "metadata": {"name": "x"}, "spec": {}});
    as_read(&mut object, Some(&schema)).unwrap();
    let expected = json!({"apiVersion": "x/v2", "kind": "X", "metadata": {"name": "x"}});
    assert_eq!(object, expected);
    let old = json!({"spec": {"preserveUnknownFields": true, "versions": [{"name": "v1"}]}});
    let schema = CustomSchema::of_version(&old, "v1").unwrap();
    let mut object = json!({"spec": {"a": null}});
    as_read(&mut object, Some(&schema)).unwrap();
    assert_eq!(object, json!({"spec": {"a": null}}));
}

/// What strict decoding says of an object whose schema has only these members in its `spec`.
fn unknown_in(object: &Value) -> Vec<String> {
    let root = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": {"type": "string"}}}},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"z": {"type": "string"}}},
    }}}});
    let schema = CustomSchema::of_version(&definition(&root), "v1").unwrap();
    as_read(&mut object.clone(), Some(&schema)).unwrap()
}

#[test]
fn unknown_fields_are_listed_as_strict_decoding_lists_them() {
    let object = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "n", "no": 1, "kind": 2, "ownerReferences": [{"no": 3}]},
        "spec": {"size": 1, "sizes": {"a": 1}, "list": [{"x": "1"}, {"w": 1}], "map": {"k": {"y": "1", "w": 2}}, "free": {"a": {"b": 1}},
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "no": 1}, "w": 1}}, "what": 1});
    let expected = [
        "metadata.kind",
        "metadata.no",
        "metadata.ownerReferences[0].no",
        "spec.list[1].w",
        "spec.map.k.w",
        "spec.pod.w",
        "spec.sizes",
        "what",
        "spec.pod.metadata.no",
    ];
    assert_eq!(
        unknown_in(&object),
        expected.map(|path| format!("unknown field \"{path}\""))
    );
    assert!(unknown_in(&json!({"spec": {"size": 1}})).is_empty());
}

#[test]
fn the_texts_of_unknown_fields_are_bounded() {
    let key = "k".repeat(50_000);
    let many: Map<String, Value> = (0..1_000)
        .map(|number| (format!("u{number}"), json!(1)))
        .collect();
    let unknown = unknown_in(&json!({"spec": {"map": {key: many}}}));
    assert_eq!(unknown.len(), 2, "each is 50 KB long");
}
