//! Hosted budgets and the namespaces of the upstream: budgets are deleted with their namespace.

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
async fn budgets_are_deleted_with_their_namespaces_and_no_others_are() {
    let server = ControlPlane::start();
    for name in ["deleted", "ending", "recreated", "stays"] {
        server.put(NAMESPACES, namespace(name, &format!("first-{name}")));
    }
    let gateway = hosting(&server);
    until(|| server.watches() == 1).await;
    let mut root = gateway.user("root").await;
    for name in ["deleted", "ending", "recreated", "stays"] {
        root.create_budget(name, "a").await;
        root.create_budget(name, "b").await;
    }

    server.delete_in("", NAMESPACES, "deleted");
    let mut ending = namespace("ending", "first-ending");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    server.put(NAMESPACES, ending);
    // Deleted and created again at once.
    server.delete_in("", NAMESPACES, "recreated");
    server.put(NAMESPACES, namespace("recreated", "second-recreated"));
    root.create_budget("recreated", "c").await;

    root.awaits_no_budgets("deleted").await;
    root.awaits_no_budgets("ending").await;
    assert_eq!(root.count_budgets("recreated").await, 1);
    assert_eq!(root.count_budgets("stays").await, 2);
    let lists = server.count(&Method::GET, LIST);
    assert_eq!((lists, server.watches()), (1, 1), "lists and watches");
}

#[tokio::test]
async fn a_namespace_recreated_while_the_watch_was_broken_has_no_old_budgets() {
    let server = ControlPlane::start();
    server.put(NAMESPACES, namespace("recreated", "first"));
    server.put(NAMESPACES, namespace("stays", "first"));
    let gateway = hosting(&server);
    until(|| server.watches() == 1).await;
    let mut root = gateway.user("root").await;
    root.create_budget("recreated", "a").await;
    root.create_budget("stays", "a").await;

    server.fail(|_, target| target.contains("watch=true").then_some(503));
    server.break_watches("namespaces");
    server.delete_in("", NAMESPACES, "recreated");
    server.put(NAMESPACES, namespace("recreated", "second"));
    server.compact();
    server.fail(|_, _| None);
    root.awaits_no_budgets("recreated").await;
    assert_eq!(root.count_budgets("stays").await, 1);
}

#[tokio::test]
async fn budgets_in_the_store_are_deleted_once_the_gateway_learns_that_their_namespace_is_gone() {
    let server = ControlPlane::start();
    server.put(NAMESPACES, namespace("stays", "first"));
    server.put(NAMESPACES, namespace("deleted", "first"));
    // Neither list nor namespace can be read yet.
    server.fail(|_, target| target.contains("namespaces").then_some(503));
    let gateway = hosting(&server);
    let store = gateway.store();
    for name in ["stays", "deleted"] {
        let key = format!("/policy/poddisruptionbudgets/{name}/a");
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "a", "namespace": name, "uid": "u"}, "spec": {"selector": {}}});
        let absent = fairgate_store::Precondition::Absent;
        let written = store.write(&key, absent, Some(budget.to_string().into()));
        written.await.unwrap();
    }
    server.delete_in("", NAMESPACES, "deleted");
    until(|| server.count(&Method::GET, LIST) > 0).await;
    server.fail(|_, _| None);
    let mut root = gateway.user("root").await;
    root.awaits_no_budgets("deleted").await;
    assert_eq!(root.count_budgets("stays").await, 1);
}
