//! Several versions of one kind, and lists and maps that the recorded kinds lack.

use serde_json::{Value, json};

use super::{
    super::{ApplyError, WriteContext, apply, track_update},
    tables::Served,
};
use crate::schema::canonical;

const V1: &str = "example.com/v1";
const V2: &str = "example.com/v2";
const NOW: &str = "2026-01-01T00:00:01Z";

fn actor(manager: &'static str, api_version: &'static str) -> WriteContext<'static> {
    WriteContext {
        manager,
        subresource: "",
        api_version,
        now: NOW,
    }
}

fn widget(version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": version, "kind": "Widget", "metadata": {"name": "w"}, "spec": spec,
    })
}

fn stored(object: &Value) -> Value {
    let kinds = Served::of_kind("Widget");
    let shape = kinds.shape_of(object["apiVersion"].as_str().unwrap());
    canonical::decode(shape, object).unwrap().value
}

fn applied(
    live: Option<&Value>,
    manager: &'static str,
    version: &'static str,
    spec: &Value,
) -> Value {
    try_apply(live, manager, version, spec, true).unwrap()
}

fn try_apply(
    live: Option<&Value>,
    manager: &'static str,
    version: &'static str,
    spec: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    let kinds = Served::of_kind("Widget");
    let config = widget(version, spec);
    apply(&kinds, live, &config, &actor(manager, version), force).map(|object| stored(&object))
}

fn updated(
    live: Option<&Value>,
    manager: &'static str,
    version: &'static str,
    spec: &Value,
) -> Value {
    let mut new = stored(&widget(version, spec));
    track_update(
        &Served::of_kind("Widget"),
        live,
        &mut new,
        &actor(manager, version),
    );
    new
}

fn entries(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let text = |entry: &Value, name| entry[name].as_str().unwrap().to_owned();
    entries
        .into_iter()
        .flatten()
        .map(|entry| {
            let version = text(entry, "apiVersion");
            let version = version.trim_start_matches("example.com/").to_owned();
            (text(entry, "manager"), version, entry["fieldsV1"].clone())
        })
        .collect()
}

#[test]
fn an_applier_has_one_entry_which_moves_to_the_version_it_uses() {
    let first = applied(None, "a", V1, &json!({"oldSize": 1}));
    assert_eq!(
        entries(&first),
        [(
            "a".into(),
            "v1".into(),
            json!({"f:spec": {"f:oldSize": {}}})
        )]
    );
    let second = applied(Some(&first), "a", V2, &json!({"size": 2}));
    assert_eq!(second["spec"], json!({"size": 2}));
    assert_eq!(
        entries(&second),
        [("a".into(), "v2".into(), json!({"f:spec": {"f:size": {}}}))]
    );
}

#[test]
fn fields_owned_in_another_version_are_released_too() {
    let first = applied(None, "a", V1, &json!({"oldSize": 1, "numbers": [1]}));
    let second = applied(Some(&first), "a", V2, &json!({"numbers": [1]}));
    assert_eq!(second["spec"], json!({"numbers": [1]}));
    let shared = applied(Some(&first), "b", V2, &json!({"size": 1}));
    let kept = applied(Some(&shared), "a", V1, &json!({}));
    assert_eq!(kept["spec"], json!({"oldSize": 1}));
}

#[test]
fn conflicts_are_reported_in_the_owners_version() {
    let live = updated(None, "u", V1, &json!({"oldSize": 1}));
    let error = try_apply(Some(&live), "a", V2, &json!({"size": 2}), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"u\" using example.com/v1: .spec.oldSize"
    );
}

#[test]
fn updaters_have_an_entry_for_each_version() {
    let first = updated(None, "u", V1, &json!({"oldSize": 1}));
    let second = updated(Some(&first), "u", V2, &json!({"size": 1, "numbers": [2]}));
    let numbers = json!({"f:spec": {"f:numbers": {".": {}, "v:2": {}}}});
    assert_eq!(
        entries(&second),
        [
            (
                "u".into(),
                "v1".into(),
                json!({"f:spec": {"f:oldSize": {}}})
            ),
            ("u".into(), "v2".into(), numbers),
        ]
    );
}

#[test]
fn entries_of_versions_that_are_not_served_are_dropped() {
    let mut live = updated(None, "u", V2, &json!({"size": 1}));
    let mut old = live["metadata"]["managedFields"][0].clone();
    old["apiVersion"] = json!("example.com/v0");
    live["metadata"]["managedFields"]
        .as_array_mut()
        .unwrap()
        .push(old);
    assert_eq!(entries(&live).len(), 2);
    assert_eq!(
        entries(&updated(Some(&live), "w", V2, &json!({"size": 1}))).len(),
        1
    );
    let applied = entries(&applied(Some(&live), "a", V2, &json!({})));
    let managers: Vec<_> = applied.iter().map(|entry| (&*entry.0, &*entry.1)).collect();
    assert_eq!(managers, [("a", "v2"), ("u", "v2")]);
}

#[test]
fn list_items_are_identified_by_all_their_keys() {
    let port = |protocol: &str, name: &str| json!({"protocol": protocol, "port": 1, "name": name});
    let live = applied(
        None,
        "a",
        V2,
        &json!({"ports": [port("T", "x"), {"port": 1, "name": "x"}]}),
    );
    let ports = json!({
        "k:{\"port\":1}": {".": {}, "f:name": {}, "f:port": {}},
        "k:{\"port\":1,\"protocol\":\"T\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}},
    });
    assert_eq!(entries(&live)[0].2, json!({"f:spec": {"f:ports": ports}}));
    let error = try_apply(
        Some(&live),
        "b",
        V2,
        &json!({"ports": [port("T", "y")]}),
        false,
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .ends_with(".spec.ports[port=1,protocol=\"T\"].name")
    );
}

#[test]
fn repeated_items_of_a_stored_list_are_one_value_without_parts() {
    let mut live = stored(&widget(V2, &json!({"numbers": [1, 1, 2]})));
    let kinds = Served::of_kind("Widget");
    track_update(&kinds, None, &mut live, &actor("u", V2));
    let numbers = json!({".": {}, "v:1": {}, "v:2": {}});
    assert_eq!(
        entries(&live)[0].2,
        json!({"f:spec": {"f:numbers": numbers}})
    );
    // Whoever applies the item replaces all of its copies.
    let merged = applied(Some(&live), "a", V2, &json!({"numbers": [3, 1]}));
    assert_eq!(merged["spec"]["numbers"], json!([3, 1, 2]));
    let untouched = applied(Some(&live), "a", V2, &json!({"numbers": [3]}));
    assert_eq!(untouched["spec"]["numbers"], json!([1, 1, 2, 3]));
}

#[test]
fn new_and_shared_items_come_in_the_applied_order() {
    let numbers = |live: Value, applied_numbers: Value| {
        let live = updated(None, "u", V2, &json!({"numbers": live}));
        applied(Some(&live), "a", V2, &json!({"numbers": applied_numbers}))["spec"]["numbers"]
            .clone()
    };
    assert_eq!(numbers(json!([1, 2, 3]), json!([3, 1])), json!([2, 3, 1]));
    assert_eq!(
        numbers(json!([1, 2, 3]), json!([4, 2])),
        json!([1, 4, 2, 3])
    );
    assert_eq!(numbers(json!([1, 2, 3]), json!([])), json!([1, 2, 3]));
}

#[test]
fn an_entry_below_a_value_that_is_now_atomic_is_moved_up_to_it() {
    let kinds = Served::of_kind("PodDisruptionBudget");
    let mut live = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "x", "managedFields": [{
            "manager": "a", "operation": "Apply", "apiVersion": "policy/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:selector": {"f:matchLabels": {"f:a": {}}}}},
        }]},
        "spec": {"selector": {"matchLabels": {"a": "b"}}},
    });
    canonical::complete(kinds.shape_of("policy/v1"), live.as_object_mut().unwrap());
    let mut new = live.clone();
    let by = WriteContext {
        manager: "u",
        subresource: "",
        api_version: "policy/v1",
        now: NOW,
    };
    track_update(&kinds, Some(&live), &mut new, &by);
    assert_eq!(entries(&new)[0].2, json!({"f:spec": {"f:selector": {}}}));
}
