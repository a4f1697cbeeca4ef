//! A tenant with many large budgets: what the gateway computes for it is bounded, and others get theirs.

use fairgate_testkit::client::soon;
use serde_json::{Value, json};

use super::{control_plane::ControlPlane, gateway::Gateway};

pub(super) const PODS: (&str, &str) = ("/api/v1", "pods");

pub(super) fn pod(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-of-{name}"), "labels": labels},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A budget of the hosted API, whose selector has so many values.
fn budget(namespace: &str, name: &str, values: std::ops::Range<usize>) -> Value {
    let values: Vec<_> = values.map(|number| format!("v{number}")).collect();
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "minAvailable": 1,
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]},
        },
    })
}

/// A server with pods of two tenants.
fn with_pods() -> ControlPlane {
    let server = ControlPlane::start();
    for number in 0..5 {
        server.put(
            PODS,
            pod("mallory", &format!("p{number}"), &json!({"app": "v1"})),
        );
    }
    server.put(PODS, pod("mallory", "lone", &json!({"app": "v3000"})));
    for number in 0..2 {
        server.put(
            PODS,
            pod("alice", &format!("web-{number}"), &json!({"app": "v0"})),
        );
    }
    server
}

fn gateway(server: &ControlPlane) -> Gateway {
    for name in ["mallory", "alice"] {
        let namespace =
            json!({"kind": "Namespace", "metadata": {"name": name, "namespace": "", "uid": name}});
        server.put(("/api/v1", "namespaces"), namespace);
    }
    let sections = json!({
        "mode": "standalone", "store": {"type": "local", "local": {"path": "objects.redb"}},
        "eviction": {"controller": "on", "mode": "authoritative", "selectorTerms": 10_000},
        "drain": {"delay": "0s"},
    });
    Gateway::before(server.upstream.address, sections)
}

pub(super) fn of(namespace: &str) -> String {
    format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
}

async fn status(gateway: &Gateway, namespace: &str, name: &str) -> Value {
    let mut root = gateway.user("root").await;
    let got = root.get(&format!("{}/{name}", of(namespace))).await;
    assert_eq!(got.code, 200, "{}", got.text());
    got.json()["status"].clone()
}

pub(super) async fn settles(gateway: &Gateway, namespace: &str, name: &str, allowed: i64) {
    soon(async {
        while status(gateway, namespace, name).await["disruptionsAllowed"] != allowed {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn budgets_over_the_limit_of_selectors_allow_no_eviction_and_label_changes_cost_little() {
    let server = with_pods();
    let gateway = gateway(&server);
    let mut root = gateway.user("root").await;
    // Three have room within 10 000, the limit, since each has 3 000 values.
    for number in 0..20 {
        let budget = budget("mallory", &format!("large-{number:02}"), 0..3000);
        let got = root.post(&of("mallory"), &budget).await;
        assert_eq!(got.code, 201, "{}", got.text());
    }
    let last = budget("mallory", "last", 3000..6000);
    assert_eq!(root.post(&of("mallory"), &last).await.code, 201);
    let got = root.post(&of("alice"), &budget("alice", "web", 0..1)).await;
    assert_eq!(got.code, 201, "{}", got.text());
    settles(&gateway, "alice", "web", 1).await;
    let over = async || {
        gateway
            .metric("fairgate_disruption_budgets_over_limit ")
            .await
    };
    soon(async { while over().await != 18 {} }).await;
    let told = async || {
        let last = status(&gateway, "mallory", "last").await;
        last["conditions"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .contains("exceed the limit")
    };
    soon(async { while !told().await {} }).await;

    // The budget of this pod is over the limit.
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "lone", "namespace": "mallory"},
    });
    let path = "/api/v1/namespaces/mallory/pods/lone/eviction";
    let got = root.post(path, &eviction).await;
    assert_eq!(got.code, 429, "{}", got.text());
    assert_eq!(
        got.cause(),
        "The disruption budget last is still being processed by the server."
    );

    let looked_up = async || {
        gateway
            .metric("fairgate_disruption_label_lookups_total ")
            .await
    };
    let before = looked_up().await;
    for flap in 0..100 {
        let labels = json!({"app": "v1", "flap": flap.to_string()});
        server.put(PODS, pod("mallory", &format!("p{}", flap % 5), &labels));
    }
    // Others still have their budgets computed.
    server.put(PODS, pod("alice", "web-2", &json!({"app": "v0"})));
    settles(&gateway, "alice", "web", 2).await;
    let each = (looked_up().await - before) / 100;
    assert!(each <= 60, "{each} look-ups a change");
    let longest = gateway
        .metric("fairgate_disruption_longest_slice_lookups ")
        .await;
    assert!(longest <= 4200, "{longest}");
}
