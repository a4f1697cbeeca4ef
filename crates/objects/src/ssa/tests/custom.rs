//! Custom resources: what is owned as the schema of their definition says.

use std::{cell::Cell, sync::Arc};

use serde_json::{Value, json};

use super::super::{ApplyError, ManagedKind, ObjectType, WriteContext, apply, track_update};
use crate::{
    codec::json::{self, MAX_DEPTH},
    custom::{CustomDefinition, CustomSchema, CustomType},
    deep_documents::on_half_of_the_stack,
};

/// A custom kind in the versions of its definition, all of which have the same objects.
struct Widgets {
    schema: CustomSchema,
    /// How often an object was converted.
    conversions: Cell<usize>,
}

impl ManagedKind for Widgets {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let version = api_version.strip_prefix("example.com/")?;
        let root = self.schema.object_type(version)?;
        let kind = "Widget";
        Some(ObjectType::Custom { kind, root })
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        self.conversions.set(self.conversions.get() + 1);
        let mut object = object.clone();
        object["apiVersion"] = json!(to);
        self.object_type(to).map(|_| object)
    }

    fn reset_fields(&self, _: &str, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            _ => &["metadata", "spec"],
        }
    }
}

fn text_type() -> Value {
    json!({"type": "string"})
}

/// Version v1 has everything, v2 has but `map`, and v3 keeps what it does not know.
fn widgets() -> Widgets {
    let rule = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "verbs": {"type": "array", "items": text_type()},
    }});
    let spec = json!({"type": "object", "properties": {
        "rules": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "name"], "items": rule},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text_type()},
        "list": {"type": "array", "items": text_type()},
        "box": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text_type()}},
        "map": {"type": "object", "additionalProperties": text_type()},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"a": text_type()}}}},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object", "properties": {"a": text_type()}}}},
        "pods": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["kind"], "items": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}},
    }});
    let of = |spec: Value| {
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"type": "object", "properties": {"spec": spec, "status": status}})
    };
    let few = json!({"type": "object", "properties": {"map": spec["properties"]["map"], "size": {"type": "integer"}}});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        |name: &str, spec: Value| json!({"name": name, "schema": {"openAPIV3Schema": of(spec)}});
    let versions = [version("v1", spec), version("v2", few), version("v3", open)];
    let definition = json!({"spec": {"versions": versions}});
    let definition = Arc::new(CustomDefinition::new(&definition));
    Widgets {
        schema: definition.version("v1").unwrap(),
        conversions: Cell::new(0),
    }
}

fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

fn context<'a>(manager: &'a str, subresource: &'a str, api_version: &'a str) -> WriteContext<'a> {
    WriteContext {
        manager,
        subresource,
        api_version,
        now: "2026-01-01T00:00:00Z",
    }
}

/// The widget with its owners after a write in v1.
fn written(kinds: &Widgets, live: Option<&Value>, new: &Value, manager: &str) -> Value {
    let mut new = new.clone();
    track_update(
        kinds,
        live,
        &mut new,
        &context(manager, "", "example.com/v1"),
    );
    new
}

/// What each manager owns.
fn owned(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten();
    let owned = entries.map(|entry| {
        let manager = entry["manager"].as_str().unwrap().to_owned();
        (manager, entry["fieldsV1"].clone())
    });
    owned.collect()
}

#[test]
fn a_new_resource_is_owned_by_member_and_by_item_as_its_schema_says() {
    let spec = json!({
        "rules": [{"name": "<a>", "port": 1, "verbs": ["get"]}, {"name": "b"}], "tags": ["x", "y"], "list": ["x"], "box": {"a": "b"}, "map": {"k": "v"},
        "free": {"a": {"b": []}, "empty": {}, "known": {"a": "b"}}, "any": [{"a": 1}],
    });
    let wanted = json!({
        ".": {},
        "f:rules": {
            ".": {},
            r#"k:{"name":"\u003ca\u003e","port":1}"#: {".": {}, "f:name": {}, "f:port": {}, "f:verbs": {}},
            // The default of a key counts.
            r#"k:{"name":"b","port":80}"#: {".": {}, "f:name": {}},
        },
        "f:tags": {".": {}, r#"v:"x""#: {}, r#"v:"y""#: {}},
        "f:list": {}, "f:box": {}, "f:map": {".": {}, "f:k": {}}, "f:any": {},
        "f:free": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:empty": {}, "f:known": {".": {}, "f:a": {}}},
    });
    let created = written(&widgets(), None, &widget(&spec), "one");
    assert_eq!(owned(&created), json!({"one": {"f:spec": wanted}}));
}

#[test]
fn the_metadata_of_embedded_resources_is_owned_as_that_of_all_objects() {
    let metadata = json!({"name": "p", "labels": {"l": "v"}, "finalizers": ["f"], "ownerReferences": [{"uid": "u", "name": "n"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"a": "b"}});
    let owners = json!({
        ".": {}, "f:name": {}, "f:labels": {".": {}, "f:l": {}}, "f:finalizers": {".": {}, r#"v:"f""#: {}},
        "f:ownerReferences": {".": {}, r#"k:{"uid":"u"}"#: {}},
    });
    let parts = json!({".": {}, "f:apiVersion": {}, "f:kind": {}, "f:metadata": owners, "f:spec": {".": {}, "f:a": {}}});
    let spec = widget(&json!({"pod": pod, "pods": [pod]}));
    let created = written(&widgets(), None, &spec, "one");
    let wanted =
        json!({".": {}, "f:pod": parts, "f:pods": {".": {}, r#"k:{"kind":"Pod"}"#: parts}});
    assert_eq!(owned(&created), json!({"one": {"f:spec": wanted}}));
}

#[test]
fn who_changes_a_part_owns_it_and_the_others_keep_theirs() {
    let kinds = widgets();
    let first = json!({"rules": [{"name": "a", "port": 1, "verbs": ["get"]}, {"name": "b", "port": 1}], "tags": ["x"], "box": {"a": "b"},
        "map": {"k": "v", "l": "v"}, "any": "text"});
    let created = written(&kinds, None, &widget(&first), "one");
    let mut changed = created.clone();
    changed["spec"] = json!({"rules": [{"name": "a", "port": 1, "verbs": ["put"]}, {"name": "c", "port": 1}], "tags": ["y", "x"], "box": {"a": "c"},
        "map": {"k": "w", "l": "v"}, "any": {"a": "b"}});
    let changed = written(&kinds, Some(&created), &changed, "two");
    let one = json!({
        ".": {}, "f:map": {".": {}, "f:l": {}}, "f:tags": {".": {}, r#"v:"x""#: {}},
        "f:rules": {".": {}, r#"k:{"name":"a","port":1}"#: {".": {}, "f:name": {}, "f:port": {}}},
    });
    let two = json!({
        "f:any": {".": {}, "f:a": {}}, "f:box": {}, "f:map": {"f:k": {}}, "f:tags": {r#"v:"y""#: {}},
        "f:rules": {r#"k:{"name":"a","port":1}"#: {"f:verbs": {}}, r#"k:{"name":"c","port":1}"#: {".": {}, "f:name": {}, "f:port": {}}},
    });
    // What was a scalar and is an object by now (`any`) was changed itself, too.
    assert_eq!(
        owned(&changed),
        json!({"one": {"f:spec": one}, "two": {"f:spec": two}})
    );
}

#[test]
fn the_status_belongs_to_who_writes_the_subresource() {
    let kinds = widgets();
    let mut sent = widget(&json!({"map": {"k": "v"}}));
    sent["status"] = json!({"phase": "x"});
    let created = written(&kinds, None, &sent, "one");
    assert_eq!(
        owned(&created),
        json!({"one": {"f:spec": {".": {}, "f:map": {".": {}, "f:k": {}}}}})
    );
    let mut of_status = created.clone();
    of_status["status"] = json!({"phase": "y"});
    of_status["spec"]["map"]["k"] = json!("w");
    let context = context("two", "status", "example.com/v1");
    track_update(&kinds, Some(&created), &mut of_status, &context);
    assert_eq!(
        owned(&of_status)["two"],
        json!({"f:status": {"f:phase": {}}})
    );
}

#[test]
fn entries_of_another_version_stay_if_the_object_can_be_read_in_it_and_else_all_are_forgotten() {
    let kinds = widgets();
    let entry = |version: &str, fields: Value| json!({"manager": version, "operation": "Update", "apiVersion": format!("example.com/{version}"), "fieldsType": "FieldsV1", "fieldsV1": fields});
    let map = json!({"f:spec": {"f:map": {"f:k": {}, "f:l": {}}}});
    for (version, spec, kept) in [
        ("v2", json!({"map": {"k": "w", "l": "v"}}), true),
        ("v3", json!({"map": {"k": "w", "l": "v"}}), true),
        // It does not have the field, and does not keep it either.
        (
            "v2",
            json!({"map": {"k": "w", "l": "v"}, "tags": ["x"]}),
            false,
        ),
        (
            "v3",
            json!({"map": {"k": "w", "l": "v"}, "tags": ["x"]}),
            true,
        ),
        ("v9", json!({"map": {"k": "w", "l": "v"}}), false),
    ] {
        let mut live = widget(&json!({"map": {"k": "v", "l": "v"}}));
        live["metadata"]["managedFields"] = json!([entry(version, map.clone())]);
        let changed = written(&kinds, Some(&live), &widget(&spec), "me");
        let owners = owned(&changed);
        if kept {
            assert_eq!(
                owners[version],
                json!({"f:spec": {"f:map": {"f:l": {}}}}),
                "{spec}"
            );
            assert!(
                owners["me"]["f:spec"]["f:map"]["f:k"].is_object(),
                "{owners}"
            );
        } else {
            assert_eq!(owners, json!({}), "{version} {spec}");
        }
    }
}

#[test]
fn many_entries_of_another_version_cost_no_more_conversions_than_one() {
    let conversions = |entries: usize| {
        let kinds = widgets();
        let entry = |number: usize| json!({"manager": format!("m{number}"), "operation": "Update", "apiVersion": "example.com/v2", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:map": {"f:k": {}}}}});
        let mut live = widget(&json!({"map": {"k": "v"}}));
        live["metadata"]["managedFields"] = (0..entries).map(entry).collect();
        let changed = written(
            &kinds,
            Some(&live),
            &widget(&json!({"map": {"k": "w"}})),
            "me",
        );
        assert!(owned(&changed)["me"].is_object());
        kinds.conversions.get()
    };
    assert_eq!(conversions(100), conversions(1));
}

#[test]
fn the_text_about_values_that_do_not_fit_is_bounded() {
    let (name, verbs) = ("n".repeat(10_000), vec![1; 10_000]);
    let kinds = widgets();
    let applied = widget(&json!({"rules": [{"name": name, "verbs": verbs}]}));
    let context = context("me", "", "example.com/v1");
    let refused = apply(&kinds, None, &applied, &context, false);
    let Err(ApplyError::BadRequest(why) | ApplyError::Internal(why)) = refused else {
        panic!("{:?}", refused.map(|_| ()));
    };
    assert!(why.contains("expected string"), "{}", &why[..200]);
    assert!(why.len() < 1 << 20, "{} bytes", why.len());
}

#[test]
fn what_does_not_fit_the_schema_has_no_owners() {
    for wrong in [
        json!({"map": {"k": 1}}),
        json!({"map": "x"}),
        json!({"unknown": 1}),
        json!({"rules": [{"verbs": []}, {"name": "a", "port": "x"}]}),
        json!({"tags": [{}]}),
        json!({"list": {}}),
        json!({"list": [1]}),
    ] {
        let created = written(&widgets(), None, &widget(&wrong), "one");
        assert_eq!(owned(&created), json!({}), "{wrong}");
    }
}

#[test]
fn paths_into_what_is_owned_as_a_whole_by_now_are_shortened_and_those_into_free_values_stay() {
    let kinds = widgets();
    let spec =
        json!({"box": {"a": "b"}, "list": ["x"], "any": {"a": {"b": "c"}}, "map": {"k": "v"}});
    let fields = json!({"f:spec": {"f:box": {"f:a": {}}, "f:list": {r#"v:"x""#: {}}, "f:any": {"f:a": {"f:b": {}}}}});
    let mut live = widget(&spec);
    live["metadata"]["managedFields"] = json!([{"manager": "one", "operation": "Update", "apiVersion": "example.com/v1",
        "fieldsType": "FieldsV1", "fieldsV1": fields}]);
    let mut new = widget(&spec);
    new["spec"]["map"]["k"] = json!("w");
    let changed = written(&kinds, Some(&live), &new, "two");
    let wanted = json!({"f:spec": {"f:box": {}, "f:list": {}, "f:any": {"f:a": {"f:b": {}}}}});
    assert_eq!(owned(&changed)["one"], wanted);
}

#[test]
fn an_apply_merges_by_the_schema_and_conflicts_with_owners() {
    let kinds = widgets();
    let live = widget(&json!({"rules": [{"name": "a", "port": 1}], "tags": ["x"], "list": ["x"]}));
    let live = written(&kinds, None, &live, "one");
    let config = widget(&json!({"rules": [{"name": "b", "port": 2}], "tags": ["y"]}));
    let context = context("two", "", "example.com/v1");
    let applied = apply(&kinds, Some(&live), &config, &context, false).unwrap();
    let rules = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
    assert_eq!(applied["spec"]["rules"], rules);
    assert_eq!(applied["spec"]["tags"], json!(["x", "y"]));
    assert_eq!(applied["kind"], "Widget");

    let config = widget(&json!({"list": ["y"]}));
    let refused = apply(&kinds, Some(&applied), &config, &context, false).unwrap_err();
    let ApplyError::Conflicts(conflicts) = refused else {
        panic!("{refused}");
    };
    assert_eq!((conflicts.listed.len(), conflicts.unlisted), (1, 0));
    assert_eq!(
        (&*conflicts.listed[0].manager, &*conflicts.listed[0].path),
        ("one", ".spec.list")
    );
    // What is no longer applied is gone.
    let applied = apply(&kinds, Some(&applied), &config, &context, true).unwrap();
    assert_eq!(applied["spec"]["tags"], json!(["x"]));
}

#[test]
fn values_without_a_schema_may_be_as_deep_as_they_can_be_read() {
    on_half_of_the_stack(|| {
        let nested = |open: &str, close: &str| {
            let levels = MAX_DEPTH - 4;
            format!("{}1{}", open.repeat(levels), close.repeat(levels))
        };
        for deep in [nested("[", "]"), nested(r#"{"a":"#, "}")] {
            let deep = json::parse(deep.as_bytes()).unwrap().value;
            for root in [None, Some(widgets())] {
                let kinds = root.map_or_else(
                    || Box::new(Unknown) as Box<dyn ManagedKind>,
                    |kinds| Box::new(kinds),
                );
                let created = widget(&json!({"any": deep}));
                let context = context("one", "", "example.com/v1");
                let mut live = created.clone();
                track_update(&*kinds, None, &mut live, &context);
                assert!(owned(&live)["one"]["f:spec"]["f:any"].is_object());
                let mut new = widget(&json!({"any": [deep]}));
                track_update(&*kinds, Some(&live), &mut new, &context);
                assert_eq!(owned(&new)["one"]["f:spec"]["f:any"], json!({}));
            }
        }
    });
}

/// A kind without a definition.
pub(super) struct Unknown;

impl ManagedKind for Unknown {
    fn object_type(&self, _: &str) -> Option<ObjectType<'_>> {
        let (kind, root) = ("Widget", CustomType::RESOURCE);
        Some(ObjectType::Custom { kind, root })
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }

    fn reset_fields(&self, _: &str, _: &str) -> &'static [&'static str] {
        &[]
    }
}
