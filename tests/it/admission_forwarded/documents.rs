//! What is evaluated is what the upstream receives.

use http::{HeaderMap, Method};
use serde_json::json;

use super::{MAPS, World, policy};

/// The headers of the last write that the upstream has received.
fn sent(world: &World) -> HeaderMap {
    let seen = world.upstream.seen();
    let writes = seen.into_iter().filter(|one| one.method == Method::POST);
    let last = writes.filter(|one| one.target.starts_with(MAPS)).last();
    last.unwrap().headers
}

#[tokio::test]
async fn the_upstream_receives_the_json_that_was_evaluated() {
    let expression = "!has(object.data.bad)";
    let all = [policy(["p", "configmaps", expression, "Deny", "completed"])];
    let world = World::new("enforce", "documents", &all);
    let mut alice = world.alice().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "defaulted": "no"}});
    for (media, body) in [
        (
            "application/yaml",
            "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  a: '1'\n  defaulted: \"no\"\n",
        ),
        (
            "application/json",
            "{ \"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\":\"m\"},\n \"data\": {\"a\": \"0\", \"defaulted\": \"no\", \"a\": \"1\"} }",
        ),
    ] {
        let headers = [("content-type", media)];
        let got = alice
            .ask(Method::POST, MAPS, &headers, body.to_owned())
            .await;
        assert_eq!((got.code, got.json()), (201, object.clone()));
        let headers = sent(&world);
        assert_eq!(headers["content-type"], "application/json");
        let length =
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"1","defaulted":"no"}}"#
                .len();
        assert_eq!(headers["content-length"], length.to_string());
        assert!(!headers.contains_key("transfer-encoding"));
    }
}

#[tokio::test]
async fn a_key_that_only_the_upstream_could_decode_is_refused() {
    let expression = "!has(object.data.bad)";
    for fidelity in ["asSent", "completed", "dryRun"] {
        let all = [policy(["p", "configmaps", expression, "Deny", fidelity])];
        let world = World::new("enforce", &format!("documents-{fidelity}"), &all);
        let mut alice = world.alice().await;
        let hidden = "metadata: {name: m}\ndata: {!!binary YmFk: x}\n".to_owned();
        let headers = [("content-type", "application/yaml")];
        let got = alice.ask(Method::POST, MAPS, &headers, hidden).await;
        assert_eq!(
            (got.code, got.header("x-fairgate-reason")),
            (400, "admission-malformed")
        );
        assert!(got.text().contains("line 2: a tag (!)"), "{}", got.text());
        assert!(world.writes().is_empty());
    }
}

#[tokio::test]
async fn in_audit_mode_the_upstream_receives_what_was_sent() {
    let all = [policy(["p", "configmaps", "true", "Deny", "completed"])];
    let world = World::new("audit", "documents-audit", &all);
    let mut alice = world.alice().await;
    let body = "metadata: {name: m}\n";
    let headers = [("content-type", "application/yaml")];
    let got = alice
        .ask(Method::POST, MAPS, &headers, body.to_owned())
        .await;
    assert_eq!(got.code, 201);
    let headers = sent(&world);
    assert_eq!(headers["content-type"], "application/yaml");
    assert_eq!(headers["content-length"], body.len().to_string());
}
