//! An upstream whose discovery fails, or does not answer.

use fairgate_objects::{
    codec::{envelope, protobuf},
    schema::core_v1,
};

use super::*;

const WIDGETS: &str = "/apis/x.io/v1/namespaces/ns/widgets";

async fn world(name: &str, discovery: Value) -> (World, User) {
    let policies = [
        policy([
            "maps",
            "configmaps",
            "object.data.a == '1'",
            "Deny",
            "completed",
        ]),
        policy(["widgets", "widgets", "true", "Deny", "completed"]),
    ];
    let world = World::of(
        "enforce",
        name,
        &policies,
        json!({}),
        &[("/apis", discovery)],
    );
    let alice = world.alice().await;
    (world, alice)
}

async fn post_map(alice: &mut User, value: &str) -> Got {
    let mut object = map("m");
    object["data"]["a"] = json!(value);
    let message = protobuf::encode(&core_v1::CONFIG_MAP, &object);
    let body = envelope::seal("v1", "ConfigMap", &message);
    let media = [("content-type", "application/vnd.kubernetes.protobuf")];
    alice.ask(Method::POST, MAPS, &media, body).await
}

/// Writes of built-in kinds are evaluated, whatever the upstream's discovery does.
async fn evaluates_built_in_kinds(world: &World, alice: &mut User) {
    let denied = post_map(alice, "2").await;
    assert_eq!(denied.code, 422, "{}", denied.text());
    let allowed = post_map(alice, "1").await;
    assert_eq!(allowed.code, 201, "{}", allowed.text());
    assert_eq!(world.writes(), [format!("POST {MAPS}")]);
}

#[tokio::test]
async fn built_in_kinds_are_evaluated_and_others_refused_while_discovery_fails() {
    let (world, mut alice) = world("discovery-fails", json!("fails")).await;
    evaluates_built_in_kinds(&world, &mut alice).await;
    let widget = json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let got = alice.post(WIDGETS, &widget).await;
    assert_eq!(got.code, 503, "{}", got.text());
    let text =
        "fairgate: the resources of the upstream cannot be read: /apis: the upstream answered 500";
    assert!(got.text().contains(text), "{}", got.text());
    assert_eq!(world.writes().len(), 1);
}

#[tokio::test]
async fn built_in_kinds_are_evaluated_and_others_refused_while_discovery_hangs() {
    let (world, mut alice) = world("discovery-hangs", json!(HANGS)).await;
    evaluates_built_in_kinds(&world, &mut alice).await;
    let widget = json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let got = alice.post(WIDGETS, &widget).await;
    assert_eq!(got.code, 503, "{}", got.text());
    let text = "fairgate: the resources of the upstream have not been read yet";
    assert!(got.text().contains(text), "{}", got.text());
    assert_eq!(world.writes().len(), 1);
}
