//! Requests for tokens: policies see the UID of the service account, and a denied request gets what the server says first.

use fairgate_admission::AdmissionMode;
use serde_json::{Value, json};

use super::world::{World, policy};

const ACCOUNT: &str = "/api/v1/namespaces/ns/serviceaccounts/robot";

fn request(metadata: &Value, seconds: i64) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata,
        "spec": {"audiences": ["a"], "expirationSeconds": seconds}})
}

/// A world with the account, in which a policy holds for requests for tokens.
fn world(expression: &str) -> World {
    let world = World::new(AdmissionMode::Enforce);
    world.store(
        ACCOUNT,
        json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "u-1"}}),
    );
    world.enforce(&[policy("p", " serviceaccounts/token", expression)]);
    world
}

#[test]
fn policies_see_the_name_and_the_uid_of_the_service_account() {
    World::run(|| async {
        let world = world(
            "object.metadata.uid == 'u-1' && object.metadata.name == 'robot' && object.metadata.namespace == 'ns' && \
             has(object.metadata.creationTimestamp)",
        );
        for metadata in [json!({}), json!({"name": "robot", "uid": "u-1"})] {
            let path = format!("{ACCOUNT}/token");
            let got = world.json("POST", &path, &request(&metadata, 900)).await;
            assert_eq!(got.code, 200, "{metadata}: {got:?}");
        }
        assert_eq!(world.sent().len(), 2);
    });
}

#[test]
fn what_go_writes_as_null_is_there_for_policies() {
    World::run(|| async {
        let path = format!("{ACCOUNT}/token");
        for (expression, code) in [
            (
                "has(object.spec.boundObjectRef) && object.spec.boundObjectRef == null",
                200,
            ),
            (
                "!has(object.spec.boundObjectRef) || object.spec.boundObjectRef.kind == 'Pod'",
                422,
            ),
        ] {
            let world = world(expression);
            let got = world.json("POST", &path, &request(&json!({}), 900)).await;
            assert_eq!(got.code, code, "{expression}: {got:?}");
        }
        let world = World::new(AdmissionMode::Enforce);
        let claims = "/api/v1/namespaces/ns/persistentvolumeclaims";
        let expression = "!has(object.spec.dataSource.apiGroup) || object.spec.dataSource.apiGroup == 'snapshot.storage.k8s.io'";
        world.enforce(&[policy("p", " persistentvolumeclaims", expression)]);
        for (source, code) in [
            (json!({"kind": "PersistentVolumeClaim", "name": "c"}), 422),
            (
                json!({"kind": "VolumeSnapshot", "name": "s", "apiGroup": "snapshot.storage.k8s.io"}),
                200,
            ),
        ] {
            let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "n"}, "spec": {"dataSource": source}});
            let got = world.json("POST", claims, &body).await;
            assert_eq!(got.code, code, "{source}: {got:?}");
        }
    });
}

#[test]
fn what_a_server_says_of_the_account_comes_before_a_denial() {
    World::run(|| async {
        let world = world("false");
        let path = format!("{ACCOUNT}/token");
        for (path, metadata, seconds, code, message) in [
            (
                &*path,
                json!({"name": "other"}),
                900,
                422,
                r#"TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": must match the service account name if specified"#,
            ),
            (
                &path.replace("robot", "none"),
                json!({}),
                5,
                404,
                r#"serviceaccounts "none" not found"#,
            ),
            (
                &path,
                json!({"uid": "u-2"}),
                5,
                409,
                r#"Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request (u-2) does not match the UID of the service account (u-1)"#,
            ),
            (
                &path,
                json!({}),
                5,
                422,
                r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"#,
            ),
            (
                &path,
                json!({"namespace": "elsewhere"}),
                900,
                400,
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
        ] {
            let got = world.json("POST", path, &request(&metadata, seconds)).await;
            assert_eq!((got.code, &*got.message()), (code, message));
        }
        let got = world.json("POST", &path, &request(&json!({}), 900)).await;
        assert!(got.message().contains("denied request"), "{got:?}");
        assert!(world.sent().is_empty());
    });
}
