//! Disruption budgets: hosted where the gateway decides about evictions, else the upstream's.

use http::Method;
use serde_json::json;

use super::{Server, client_of, gateway_before, gateway_with, names};

fn budget_in(namespace: &str) -> (String, String) {
    let target = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    (target, budget.to_string())
}

#[tokio::test]
async fn budgets_are_hosted_in_authoritative_mode() {
    let server = Server::start();
    let gateway = gateway_with(&server, "authoritative");
    let mut root = client_of(&gateway, "root").await;
    let json = [("content-type", "application/json")];
    for (namespace, status, message) in [
        ("shop", 201, ""),
        ("gone", 404, "namespaces \"gone\" not found"),
        (
            "ending",
            403,
            "poddisruptionbudgets.policy \"web\" is forbidden: unable to create new content in namespace \
             ending because it is being terminated",
        ),
    ] {
        let (target, body) = budget_in(namespace);
        let got = root.send(Method::POST, &target, &json, body).await;
        assert_eq!(got.status, status, "{namespace}");
        if !message.is_empty() {
            assert_eq!(got.message(), message);
        }
    }

    let resources = root.get("/apis/policy/v1", &[]).await.json();
    assert_eq!(resources["resources"][0]["shortNames"], json!(["pdb"]));
    let core = root.get("/api/v1", &[]).await.json();
    let found = names(&core["resources"], |resource| &resource["name"]);
    assert_eq!(found, ["pods", "pods/eviction", "pods/log"]);
    assert_eq!(core["resources"][1]["kind"], "Eviction");

    // The hosted budget decides: its status is not computed yet.
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "shop"}});
    let target = "/api/v1/namespaces/shop/pods/p/eviction";
    let got = root
        .send(Method::POST, target, &json, eviction.to_string())
        .await;
    assert_eq!(got.status, 429);
    assert_eq!(
        got.json()["details"]["causes"][0]["message"],
        "The disruption budget web is still being processed by the server."
    );
    // With a computed budget, the eviction charges it and deletes the pod.
    let (budgets, _) = budget_in("shop");
    let mut budget = root.get(&format!("{budgets}/web"), &[]).await.json();
    budget["status"] = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2});
    let status = format!("{budgets}/web/status");
    let got = root
        .send(Method::PUT, &status, &json, budget.to_string())
        .await;
    assert_eq!(got.status, 200);
    let got = root
        .send(Method::POST, target, &json, eviction.to_string())
        .await;
    assert_eq!(got.status, 201, "{}", got.text());
    let charged = root.get(&format!("{budgets}/web"), &[]).await.json();
    assert_eq!(charged["status"]["disruptionsAllowed"], 0);
    assert!(charged["status"]["disruptedPods"]["p"].is_string());
    let theirs = server.seen();
    assert!(
        theirs
            .iter()
            .all(|seen| !seen.target.contains("poddisruptionbudgets"))
    );
}

#[tokio::test]
async fn budgets_are_the_upstreams_in_relay_mode() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut root = client_of(&gateway, "root").await;
    let (target, _) = budget_in("shop");
    let got = root.get(&target, &[]).await;
    assert_eq!((got.status, &*got.text()), (200, "the upstream's"));
}
