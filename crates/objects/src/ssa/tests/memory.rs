//! What ownership costs: no name is copied once for each field, and no level once for each of those above it.
//!
//! All figures are bytes that are allocated in total, so work counts as well as what is held at a time.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    super::{ApplyError, ManagedKind, ObjectType, WriteContext, apply, track_update},
    custom::Unknown,
    tables::Served,
};
use crate::{
    custom::{CustomDefinition, CustomSchema},
    deep_documents::on_half_of_the_stack,
};

/// The length of a long name in bytes.
const LONG: usize = 100_000;

/// The number of fields that would each copy it.
const FIELDS: usize = 10_000;

const VERSION: &str = "example.com/v2";

const CONTEXT: WriteContext<'_> = WriteContext {
    manager: "me",
    subresource: "",
    api_version: VERSION,
    now: "2026-01-01T00:00:00Z",
};

fn allocated(run: impl FnOnce()) -> usize {
    let bytes = allocation_counter::measure(run).bytes_total;
    usize::try_from(bytes).unwrap()
}

fn widget(metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": VERSION, "kind": "Widget", "metadata": metadata, "spec": spec})
}

/// An object with so many members that have this value.
fn members(prefix: &str, value: &Value) -> Value {
    let names = (0..FIELDS).map(|number| format!("{prefix}a{number}"));
    let members: Map<_, _> = names.map(|name| (name, value.clone())).collect();
    Value::Object(members)
}

fn entry(manager: &str, fields: &Value) -> Value {
    json!([{"manager": manager, "operation": "Update", "apiVersion": VERSION, "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

/// A widget whose labels all have this value, and belong to this manager.
fn labelled(manager: &str, value: &str) -> Value {
    let labels = members("", &json!(value));
    let fields = json!({"f:metadata": {"f:labels": members("f:", &json!({}))}});
    widget(
        &json!({"labels": labels, "managedFields": entry(manager, &fields)}),
        &json!({}),
    )
}

/// A widget of an unknown kind, with a member of this name whose members all have this value and belong to somebody.
fn named(name: &str, value: &str) -> Value {
    let fields = json!({"f:spec": {format!("f:{name}"): members("f:", &json!({}))}});
    widget(
        &json!({"managedFields": entry("one", &fields)}),
        &json!({name: members("", &json!(value))}),
    )
}

/// A widget of an unknown kind, with a leaf of this value in each of so many levels, which all belong to somebody.
fn deep(levels: usize, value: &str) -> Value {
    let (mut spec, mut fields) = (json!({}), json!({}));
    for _ in 0..levels {
        spec = within("x", json!(value), "a", spec);
        fields = within("f:x", json!({}), "f:a", fields);
    }
    let fields = within("f:metadata", json!({}), "f:spec", fields);
    widget(&json!({"managedFields": entry("one", &fields)}), &spec)
}

/// Without `json!`, which copies.
fn within(leaf: &str, value: Value, name: &str, below: Value) -> Value {
    let members = [(leaf.to_owned(), value), (name.to_owned(), below)];
    Value::Object(members.into_iter().collect())
}

fn without_entries(mut object: Value) -> Value {
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    object
}

/// What the creation of an object costs that comes with entries.
fn cost_of_create(mut object: Value) -> usize {
    allocated(|| track_update(&Unknown, None, &mut object, &CONTEXT))
}

/// What an apply costs that conflicts, with the response's texts; and the length of these.
fn cost_of_conflict(live: &Value, applied: &Value) -> [usize; 2] {
    let mut text = 0;
    let cost = allocated(|| {
        let error = apply(&Unknown, Some(live), applied, &CONTEXT, false).unwrap_err();
        text = text_of(&error);
    });
    [cost, text]
}

fn text_of(error: &ApplyError) -> usize {
    let status = super::status(error);
    assert_eq!(status["code"], 409);
    status.to_string().len()
}

#[test]
fn a_long_name_of_a_manager_is_not_copied_for_each_field_that_it_loses() {
    let kinds = Served::of_kind("Widget");
    let cost = |manager: &str| {
        let mut object = labelled(manager, "v");
        let cost = allocated(|| track_update(&kinds, None, &mut object, &CONTEXT));
        let owners = object["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(owners[0]["manager"], "me");
        cost
    };
    let (short, long) = (cost("m"), cost(&"m".repeat(LONG)));
    assert!(long < short + 20 * LONG, "{short} {long}");
}

#[test]
fn a_long_name_of_a_member_is_not_copied_for_each_field_below_it() {
    let short = cost_of_create(named("m", "v"));
    let long = cost_of_create(named(&"m".repeat(LONG), "v"));
    assert!(long < short + 20 * LONG, "{short} {long}");
}

#[test]
fn each_level_of_a_deep_object_costs_the_same() {
    on_half_of_the_stack(|| {
        let half = cost_of_create(deep(4_990, "v"));
        let all = cost_of_create(deep(9_980, "v"));
        assert!(all < half * 5 / 2, "{half} {all}");
    });
}

#[test]
fn an_update_that_takes_many_fields_copies_no_long_name_for_each() {
    let cost = |name: &str, manager: &str| {
        let mut old = named(name, "v");
        old["metadata"]["managedFields"][0]["manager"] = json!(manager);
        let mut new = named(name, "w");
        new["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone();
        allocated(|| track_update(&Unknown, Some(&old), &mut new, &CONTEXT))
    };
    let long_name = "m".repeat(LONG);
    let (short, long) = (cost("m", "m"), cost(&long_name, &long_name));
    assert!(long < short + 40 * LONG, "{short} {long}");
}

#[test]
fn many_conflicts_with_a_manager_of_a_long_name_are_reported_in_a_bounded_text() {
    let applied = without_entries(labelled("", "w"));
    let cost = |manager: &str| cost_of_conflict(&labelled(manager, "v"), &applied);
    let ([short, _], [long, text]) = (cost("m"), cost(&"m".repeat(LONG)));
    assert!(text < 4 << 20, "{text}");
    assert!(long < short + 40 * LONG, "{short} {long}");
}

#[test]
fn many_conflicts_below_a_long_name_are_reported_in_a_bounded_text() {
    let cost = |name: &str| {
        let [live, applied] = ["v", "w"].map(|value| named(name, value));
        cost_of_conflict(&live, &without_entries(applied))
    };
    let ([short, _], [long, text]) = (cost("m"), cost(&"m".repeat(LONG)));
    assert!(text < 4 << 20, "{text}");
    assert!(long < short + 40 * LONG, "{short} {long}");
}

#[test]
fn conflicts_in_each_level_of_a_deep_object_are_reported_in_a_bounded_text() {
    on_half_of_the_stack(|| {
        let cost = |levels: usize| {
            let [live, applied] = ["v", "w"].map(|value| deep(levels, value));
            cost_of_conflict(&live, &without_entries(applied))
        };
        let ([half, _], [all, text]) = (cost(2_000), cost(4_000));
        assert!(text < 4 << 20, "{text}");
        assert!(all < half * 5 / 2, "{half} {all}");
    });
}

/// A kind that tells the items of a list apart by their names, and in an older version also by a member with a long default.
struct Keyed(CustomSchema);

impl Keyed {
    fn with_default(default: &str) -> Self {
        let version = |name: &str, keys: &[&str]| {
            let text = |default: &str| json!({"type": "string", "default": default});
            let item =
                json!({"type": "object", "properties": {"a": text(default), "name": text("")}});
            let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": item});
            let spec = json!({"type": "object", "properties": {"list": list}});
            let schema = json!({"type": "object", "properties": {"spec": spec}});
            json!({"name": name, "schema": {"openAPIV3Schema": schema}})
        };
        let versions = [version("v2", &["name"]), version("v1", &["a", "name"])];
        let definition = CustomDefinition::new(&json!({"spec": {"versions": versions}}));
        Self(Arc::new(definition).version("v2").unwrap())
    }
}

impl ManagedKind for Keyed {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let root = self
            .0
            .object_type(api_version.strip_prefix("example.com/")?)?;
        let kind = "Widget";
        Some(ObjectType::Custom { kind, root })
    }

    fn convert(&self, object: &Value, to: &str) -> Option<Value> {
        let mut object = object.clone();
        object["apiVersion"] = json!(to);
        Some(object)
    }

    fn reset_fields(&self, _: &str, _: &str) -> &'static [&'static str] {
        &[]
    }
}

#[test]
fn a_long_default_of_a_key_is_not_copied_for_each_item_without_it() {
    let cost = |default: &str| {
        let kinds = Keyed::with_default(default);
        let items = (0..FIELDS / 10).map(|number| json!({"name": format!("i{number}")}));
        let mut entries = entry("one", &json!({"f:spec": {"f:list": {}}}));
        entries[0]["apiVersion"] = json!("example.com/v1");
        let list: Value = items.collect();
        let mut object = widget(&json!({"managedFields": entries}), &json!({"list": list}));
        allocated(|| track_update(&kinds, None, &mut object, &CONTEXT))
    };
    let (short, long) = (cost("d"), cost(&"d".repeat(LONG)));
    assert!(long < short + 20 * LONG, "{short} {long}");
}

#[test]
fn an_apply_merges_and_prunes_each_level_of_a_deep_object_once() {
    on_half_of_the_stack(|| {
        let cost = |levels: usize| {
            let live = deep(levels, "v");
            let applied = without_entries(deep(levels, "w"));
            let mut context = CONTEXT;
            let run = |live: &Value, applied: &Value, context: &WriteContext<'_>| {
                apply(&Unknown, Some(live), applied, context, true).unwrap()
            };
            context.manager = "one";
            let first = run(&live, &applied, &context);
            let fewer = without_entries(deep(levels / 2, "w"));
            allocated(|| {
                run(&first, &applied, &context);
                run(&first, &fewer, &context);
            })
        };
        let (half, all) = (cost(500), cost(1_000));
        assert!(all < half * 5 / 2, "{half} {all}");
    });
}
