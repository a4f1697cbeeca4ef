//! Policies in front of an upstream evaluate writes to the objects that the gateway hosts itself, too.

use http::Method;
use serde_json::{Value, json};

use super::{World, policy, warnings};
use crate::{client::soon, eviction::gateway::User};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const REQUESTS: &str = "fairgate_admission_requests_total";

/// A schema for requests of a user with its name. No other schema makes it unreachable, so its status is written once.
fn schema(name: &str) -> Value {
    let rule = json!({
        "subjects": [{"kind": "User", "user": {"name": name}}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}],
    });
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": 50, "priorityLevelConfiguration": {"name": "workload-low"}, "rules": [rule],
        },
    })
}

/// A gateway that hosts FlowSchemas, with policies about these from files or from another source.
fn world(mode: &str, name: &str, source: &str) -> World {
    let all = [
        policy([
            "names",
            "flowschemas",
            "object == null || object.metadata.name != 'bad'",
            "Deny",
            "completed",
        ]),
        policy([
            "warns",
            "flowschemas",
            "oldObject == null",
            "Warn",
            "completed",
        ]),
    ];
    let hosted =
        json!({"mode": "overlay", "store": {"type": "local", "local": {"path": "objects.redb"}}});
    World::with(mode, name, &all, sections(hosted, mode, source))
}

/// With the configuration of policies from `source`, if they are not those of files.
fn sections(mut further: Value, mode: &str, source: &str) -> Value {
    if source != "files" {
        further["admission"] = json!({"mode": mode, "policies": {"source": source}});
    }
    further
}

async fn label(user: &mut User, name: &str) -> (u16, Vec<String>) {
    let path = format!("{SCHEMAS}/{name}");
    let merge = [("content-type", "application/merge-patch+json")];
    let body = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let got = user.ask(Method::PATCH, &path, &merge, body).await;
    (got.code, warnings(&got))
}

/// Waits until the gateway has written in the status of a schema that its level exists, which it does not change any more. A patch
/// that meets such a write is tried, evaluated and counted again.
async fn has_level(user: &mut User, name: &str) {
    let path = format!("{SCHEMAS}/{name}");
    let written = async {
        loop {
            let schema = user.ask(Method::GET, &path, &[], "").await.json();
            if schema["status"]["conditions"][0]["status"] == "False" {
                break;
            }
        }
    };
    soon(written).await;
}

/// Waits until so many evaluated requests with this decision are counted.
async fn counted(world: &World, decision: &str, number: u64) {
    let series = format!("{REQUESTS}{{decision=\"{decision}\"");
    let counted = async {
        while world.gateway.metric(&series).await != number {
            tokio::task::yield_now().await;
        }
    };
    soon(counted).await;
}

#[tokio::test]
async fn policies_of_the_gateway_are_enforced_on_what_it_hosts() {
    let world = world("enforce", "hosted-objects", "files");
    let mut alice = world.alice().await;
    let got = alice.post(SCHEMAS, &schema("good")).await;
    assert_eq!(got.code, 201, "{}", got.text());
    let got = alice.post(SCHEMAS, &schema("bad")).await;
    assert_eq!(
        (got.code, got.header("x-fairgate-reason")),
        (422, "admission-denied")
    );
    let message = got.json()["message"].to_string();
    assert!(
        message.contains("ValidatingAdmissionPolicy 'names' with binding 'names-b' denied request"),
        "{message}"
    );
    has_level(&mut alice, "good").await;
    let (code, warnings) = label(&mut alice, "good").await;
    assert_eq!(
        (code, &*warnings),
        (
            200,
            &["299 - \"Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns-b': failed expression: oldObject == null\"".to_owned()][..]
        )
    );
    counted(&world, "denied", 1).await;
    counted(&world, "allowed", 2).await;
    // Who may not write the object at all learns nothing of policies.
    let mut mallory = world.gateway.user("mallory").await;
    let got = mallory.post(SCHEMAS, &schema("bad")).await;
    assert_eq!(got.code, 403, "{}", got.text());
    assert!(
        !got.text().contains("ValidatingAdmissionPolicy"),
        "{}",
        got.text()
    );
    assert!(world.writes().is_empty());
}

#[tokio::test]
async fn in_audit_writes_to_hosted_objects_are_only_recorded() {
    let world = world("audit", "hosted-objects-audit", "files");
    let mut alice = world.alice().await;
    // Nothing waits for policies, so these have to be there first.
    let known = async {
        while world.gateway.metric("fairgate_admission_policies ").await != 2 {
            tokio::task::yield_now().await;
        }
    };
    soon(known).await;
    for name in ["good", "bad"] {
        let got = alice.post(SCHEMAS, &schema(name)).await;
        assert_eq!((got.code, warnings(&got)), (201, Vec::new()), "{name}");
    }
    has_level(&mut alice, "good").await;
    assert_eq!(label(&mut alice, "good").await, (200, Vec::new()));
    counted(&world, "denied", 1).await;
    counted(&world, "allowed", 2).await;
}

#[tokio::test]
async fn writes_to_hosted_objects_wait_until_policies_are_known() {
    // The upstream has no policies, nor their kind.
    let world = world("enforce", "hosted-objects-unknown", "upstream");
    let mut alice = world.alice().await;
    let got = alice.post(SCHEMAS, &schema("good")).await;
    assert_eq!(
        (got.code, got.header("x-fairgate-reason")),
        (403, "admission-not-ready")
    );
    assert_eq!(
        got.json()["message"],
        "flowschemas.flowcontrol.apiserver.k8s.io \"Unknown\" is forbidden: not yet ready to handle request"
    );
    let got = alice.ask(Method::GET, SCHEMAS, &[], "").await;
    assert_eq!(got.code, 200, "{}", got.text());
}

#[tokio::test]
async fn in_audit_no_write_waits_for_policies() {
    let world = world("audit", "hosted-objects-audit-unknown", "upstream");
    let mut alice = world.alice().await;
    let got = alice.post(SCHEMAS, &schema("bad")).await;
    assert_eq!(got.code, 201, "{}", got.text());
    counted(&world, "notJudged", 1).await;
}
