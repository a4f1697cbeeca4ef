//! The built-in objects, and the conditions that the gateway writes into FlowSchemas.

use std::collections::BTreeMap;

use fairgate_core::apf::objects::bootstrap;
use http::Method;
use serde_json::{Value, json};

use super::{
    Home, LEVELS, SCHEMAS, Server,
    api::{APPLY, Api},
    condition, level, name, schema, until, version,
};

const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The objects of a kind by name.
async fn objects(api: &Api, path: &str) -> BTreeMap<String, Value> {
    let list = api.get(path).await.object();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| (name(item).to_owned(), item.clone()))
        .collect()
}

/// Built-in objects by name, as JSON.
fn built_in<T: serde::Serialize>(objects: &[T]) -> BTreeMap<String, Value> {
    let objects = objects
        .iter()
        .map(|object| serde_json::to_value(object).unwrap());
    objects
        .map(|object| (name(&object).to_owned(), object))
        .collect()
}

/// The value without empty lists, nulls and flags that are false.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| (key.clone(), plain(value)));
            let nothing = [Value::Null, json!([]), json!(false)];
            let says = |(_, value): &(String, Value)| !nothing.contains(value);
            Value::Object(entries.filter(says).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        value => value.clone(),
    }
}

fn shares(object: &Value) -> &Value {
    &object["spec"]["limited"]["nominalConcurrencyShares"]
}

/// The status of a condition of a FlowSchema; empty if there is none.
async fn condition_status(api: &Api, schema: &str, ty: &str) -> String {
    let object = api.get(&format!("{SCHEMAS}/{schema}")).await.object();
    let status = condition(&object, ty).map(|condition| condition["status"].clone());
    status.map_or(String::new(), |status| status.as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_new_store_has_the_built_in_objects_and_nothing_more_is_written() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let of = [
        (SCHEMAS, built_in(bootstrap::flow_schemas())),
        (LEVELS, built_in(bootstrap::priority_levels())),
    ];
    for (path, expected) in of {
        let found = objects(&api, path).await;
        assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
        for (name, object) in found {
            assert_eq!(
                plain(&object["spec"]),
                plain(&expected[&name]["spec"]),
                "{name}"
            );
            assert_eq!(object["metadata"]["generation"], 1, "{name}");
            let annotations = &object["metadata"]["annotations"];
            assert_eq!(annotations, &json!({AUTOUPDATE: "true"}), "{name}");
        }
    }
    assert_eq!(server.metric("fairgate_store_up", "").await, Some(1.0));

    // The objects are checked after every change, here forty times. Nothing else is written.
    let created = api.post(LEVELS, &level("poked", 1)).await.object();
    for shares in 2..42 {
        let patch = json!({"spec": {"limited": {"nominalConcurrencyShares": shares}}});
        api.merge(&format!("{LEVELS}/poked"), &patch).await.object();
    }
    server.reconciled().await;
    let expected = version(&created) + 40 + Server::WRITES_TO_RECONCILE;
    assert_eq!(server.store().revision().await.unwrap(), expected);
    // They are checked at start-up, too.
    server.stop().await;
    let server = home.start().await;
    assert_eq!(server.store().revision().await.unwrap(), expected);
    server.reconciled().await;
    let expected = expected + Server::WRITES_TO_RECONCILE;
    assert_eq!(server.store().revision().await.unwrap(), expected);
}

#[tokio::test]
async fn a_mandatory_object_is_created_again_and_cannot_be_changed() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for target in [
        format!("{LEVELS}/catch-all"),
        format!("{LEVELS}/exempt"),
        format!("{SCHEMAS}/exempt"),
        format!("{SCHEMAS}/catch-all"),
    ] {
        let before = api.get(&target).await.object();
        api.delete(&target).await.object();
        until(async || api.get(&target).await.status == 200).await;
        let after = api.get(&target).await.object();
        assert_eq!(after["spec"], before["spec"], "{target}");
        assert_ne!(
            after["metadata"]["uid"], before["metadata"]["uid"],
            "{target}"
        );
    }
    // It cannot be changed, either, whatever its annotation says.
    let target = format!("{LEVELS}/catch-all");
    let edit = json!({"spec": {"limited": {"nominalConcurrencyShares": 77}}});
    let message = api.merge(&target, &edit).await.refused(422, "Invalid");
    assert!(
        message.ends_with("spec of 'catch-all' must equal the fixed value"),
        "{message}"
    );
    let annotation = json!({"metadata": {"annotations": {AUTOUPDATE: "false"}}});
    api.merge(&target, &annotation).await.object();
    until(async || {
        let object = api.get(&target).await.object();
        object["metadata"]["annotations"][AUTOUPDATE] == "true"
    })
    .await;
}

#[tokio::test]
async fn the_annotation_says_who_maintains_a_suggested_object() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = format!("{LEVELS}/workload-low");
    let edit = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    api.merge(&target, &edit).await.object();
    until(async || *shares(&api.get(&target).await.object()) == 100).await;

    let mine = json!({
        "metadata": {"annotations": {AUTOUPDATE: "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 7}},
    });
    let mine = api.merge(&target, &mine).await.object();
    let schema_target = format!("{SCHEMAS}/service-accounts");
    api.merge(
        &schema_target,
        &json!({"metadata": {"annotations": {AUTOUPDATE: "false"}}}),
    )
    .await
    .object();
    // A deleted object is created again.
    api.delete(&format!("{SCHEMAS}/probes")).await.object();
    until(async || api.get(&format!("{SCHEMAS}/probes")).await.status == 200).await;

    server.stop().await;
    let server = home.start().await;
    let api = server.root().await;
    assert_eq!(api.get(&target).await.object(), mine);
    // With the annotation changed back, it gets its built-in spec again.
    api.merge(
        &target,
        &json!({"metadata": {"annotations": {AUTOUPDATE: "true"}}}),
    )
    .await
    .object();
    until(async || *shares(&api.get(&target).await.object()) == 100).await;
}

#[tokio::test]
async fn an_object_with_the_annotation_that_is_not_built_in_is_removed_with_a_warning() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for (path, mut object) in [
        (LEVELS, level("pretender", 1)),
        (SCHEMAS, schema("pretender", "exempt", 3, "x")),
    ] {
        object["metadata"]["annotations"] = json!({AUTOUPDATE: "true"});
        let response = api.post(path, &object).await;
        assert_eq!(response.status, 201);
        let warnings = response.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("299 - \""), "{warnings:?}");
        assert!(warnings[0].contains(AUTOUPDATE), "{warnings:?}");
        let target = format!("{path}/pretender");
        until(async || api.get(&target).await.status == 404).await;
    }
}

#[tokio::test]
async fn the_condition_dangling_says_if_the_level_exists_and_foreign_conditions_stay() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let object = schema("lost", "nowhere", 200, "x");
    api.post(SCHEMAS, &object).await.object();
    until(async || condition_status(&api, "lost", "Dangling").await == "True").await;
    let foreign = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": "lost"},
        "status": {"conditions": [{
            "type": "Mine", "status": "True", "reason": "Because",
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }]},
    });
    let target = format!("{SCHEMAS}/lost/status?fieldManager=me");
    api.call(Method::PATCH, &target, APPLY, foreign.to_string())
        .await
        .object();

    api.post(LEVELS, &level("nowhere", 1)).await.object();
    until(async || condition_status(&api, "lost", "Dangling").await == "False").await;
    let found = api.get(&format!("{SCHEMAS}/lost")).await.object();
    let dangling = condition(&found, "Dangling").unwrap();
    assert_eq!(dangling["reason"], "Found");
    assert!(dangling["lastTransitionTime"].is_string());
    assert_eq!(found["metadata"]["generation"], 1);

    api.delete(&format!("{LEVELS}/nowhere")).await.object();
    until(async || condition_status(&api, "lost", "Dangling").await == "True").await;
    let found = api.get(&format!("{SCHEMAS}/lost")).await.object();
    let mine = condition(&found, "Mine").unwrap();
    assert_eq!(mine["lastTransitionTime"], "2020-01-01T00:00:00Z");
    assert_eq!(condition(&found, "Dangling").unwrap()["reason"], "NotFound");
}

#[tokio::test]
async fn the_condition_unreachable_exists_while_another_schema_matches_all_its_requests_first() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    api.post(SCHEMAS, &schema("wide", "global-default", 300, "same"))
        .await
        .object();
    api.post(SCHEMAS, &schema("hidden", "global-default", 301, "same"))
        .await
        .object();
    until(async || condition_status(&api, "hidden", "Unreachable").await == "True").await;
    let found = api.get(&format!("{SCHEMAS}/hidden")).await.object();
    let message = condition(&found, "Unreachable").unwrap()["message"]
        .as_str()
        .unwrap();
    assert!(message.contains("wide"), "{message}");
    assert_eq!(condition_status(&api, "wide", "Unreachable").await, "");

    api.delete(&format!("{SCHEMAS}/wide")).await.object();
    until(async || {
        condition_status(&api, "hidden", "Unreachable")
            .await
            .is_empty()
    })
    .await;
    assert_eq!(condition_status(&api, "hidden", "Dangling").await, "False");
}

#[tokio::test]
async fn a_condition_is_removed_even_if_it_has_lost_its_field_manager() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for (name, precedence) in [("wide", 300), ("hidden", 301)] {
        let made = schema(name, "global-default", precedence, "same");
        api.post(SCHEMAS, &made).await.object();
    }
    until(async || condition_status(&api, "hidden", "Unreachable").await == "True").await;
    let forget = json!({"metadata": {"managedFields": [{}]}});
    let item = format!("{SCHEMAS}/hidden");
    let forgotten = api.merge(&item, &forget).await.object();
    assert!(forgotten["metadata"].get("managedFields").is_none());

    api.delete(&format!("{SCHEMAS}/wide")).await.object();
    until(async || {
        condition_status(&api, "hidden", "Unreachable")
            .await
            .is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_second_gateway_on_the_same_store_changes_no_objects() {
    let home = Home::new();
    let server = home.start().await;
    let before = all(&server).await;
    server.stop().await;
    let server = home.start().await;
    assert_eq!(all(&server).await, before);
}

async fn all(server: &Server) -> [BTreeMap<String, Value>; 2] {
    let api = server.root().await;
    [objects(&api, SCHEMAS).await, objects(&api, LEVELS).await]
}
