//! Hosted budgets and the namespaces of the upstream: a budget is in a namespace that exists, and goes with it.

use fairgate_testkit::client::soon;
use http::Method;
use serde_json::{Value, json};

use super::{
    control_plane::ControlPlane,
    gateway::{Gateway, User},
};
use crate::failures::until;

const NAMESPACES: (&str, &str) = ("/api/v1", "namespaces");
const LIST: &str = "/api/v1/namespaces?&limit=500";

fn hosting(server: &ControlPlane) -> Gateway {
    let sections = json!({
        "mode": "standalone", "store": {"type": "local", "local": {"path": "objects.redb"}},
        "eviction": {"mode": "authoritative"}, "drain": {"delay": "0s"},
    });
    Gateway::before(server.upstream.address, sections)
}

fn namespace(name: &str, uid: &str) -> Value {
    json!({"kind": "Namespace", "metadata": {"name": name, "namespace": "", "uid": uid},
        "status": {"phase": "Active"}})
}

fn collection(namespace: &str) -> String {
    format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
}

impl User {
    async fn create_budget(&mut self, namespace: &str, name: &str) {
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {}}});
        let got = self.post(&collection(namespace), &budget).await;
        assert_eq!(got.code, 201, "{}", got.text());
    }

    async fn count_budgets(&mut self, namespace: &str) -> usize {
        let got = self.ask(Method::GET, &collection(namespace), &[], "").await;
        got.json()["items"].as_array().unwrap().len()
    }

    async fn awaits_no_budgets(&mut self, namespace: &str) {
        soon(async { while self.count_budgets(namespace).await > 0 {} }).await;
    }
}

#[tokio::test]
async fn budgets_go_with_their_namespaces_and_no_others() {
    let server = ControlPlane::start();
    for name in ["deleted", "ending", "anew", "stays"] {
        server.put(NAMESPACES, namespace(name, &format!("first-{name}")));
    }
    let gateway = hosting(&server);
    until(|| server.watches() == 1).await;
    let mut root = gateway.user("root").await;
    for name in ["deleted", "ending", "anew", "stays"] {
        root.create_budget(name, "a").await;
        root.create_budget(name, "b").await;
    }

    server.delete_in("", NAMESPACES, "deleted");
    let mut ending = namespace("ending", "first-ending");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    server.put(NAMESPACES, ending);
    // Nobody looks in between.
    server.delete_in("", NAMESPACES, "anew");
    server.put(NAMESPACES, namespace("anew", "second-anew"));
    root.create_budget("anew", "c").await;

    root.awaits_no_budgets("deleted").await;
    root.awaits_no_budgets("ending").await;
    assert_eq!(root.count_budgets("anew").await, 1);
    assert_eq!(root.count_budgets("stays").await, 2);
    let lists = server.count(&Method::GET, LIST);
    assert_eq!((lists, server.watches()), (1, 1), "lists and watches");
}

#[tokio::test]
async fn a_namespace_made_anew_while_the_watch_was_broken_has_no_old_budgets() {
    let server = ControlPlane::start();
    server.put(NAMESPACES, namespace("anew", "first"));
    server.put(NAMESPACES, namespace("stays", "first"));
    let gateway = hosting(&server);
    until(|| server.watches() == 1).await;
    let mut root = gateway.user("root").await;
    root.create_budget("anew", "a").await;
    root.create_budget("stays", "a").await;

    server.fail(|_, target| target.contains("watch=true").then_some(503));
    server.break_watches("namespaces");
    server.delete_in("", NAMESPACES, "anew");
    server.put(NAMESPACES, namespace("anew", "second"));
    server.compact();
    server.fail(|_, _| None);
    root.awaits_no_budgets("anew").await;
    assert_eq!(root.count_budgets("stays").await, 1);
}

#[tokio::test]
async fn budgets_that_are_only_in_the_store_go_when_the_gateway_learns_that_their_namespace_is_gone()
 {
    let server = ControlPlane::start();
    server.put(NAMESPACES, namespace("stays", "first"));
    server.put(NAMESPACES, namespace("goes", "first"));
    // Neither list nor namespace can be read yet.
    server.fail(|_, target| target.contains("namespaces").then_some(503));
    let gateway = hosting(&server);
    let store = gateway.store();
    for name in ["stays", "goes"] {
        let key = format!("/policy/poddisruptionbudgets/{name}/a");
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "a", "namespace": name, "uid": "u"}, "spec": {"selector": {}}});
        let absent = fairgate_store::Precondition::Absent;
        let written = store.write(&key, absent, Some(budget.to_string().into()));
        written.await.unwrap();
    }
    server.delete_in("", NAMESPACES, "goes");
    until(|| server.count(&Method::GET, LIST) > 0).await;
    server.fail(|_, _| None);
    let mut root = gateway.user("root").await;
    root.awaits_no_budgets("goes").await;
    assert_eq!(root.count_budgets("stays").await, 1);
}
