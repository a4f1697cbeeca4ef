//! Gateways that restart, and gateways whose store cannot be used.

use serde_json::{Value, json};

use super::{
    Home, LEVELS, SCHEMAS, Server,
    api::{Api, ApiResponse},
    level, name, schema, until, version,
};
use crate::client::soon;

async fn shares_of(api: &Api, name: &str, shares: u32) -> Value {
    let patch = json!({"spec": {"limited": {"nominalConcurrencyShares": shares}}});
    let target = format!("{LEVELS}/{name}");
    api.merge(&target, &patch).await.object()
}

/// Ends a gateway without draining.
async fn kill(server: Server) {
    let store = std::sync::Arc::downgrade(server.store());
    drop(server);
    until(async || store.strong_count() == 0).await;
}

#[tokio::test]
async fn a_watch_continues_after_a_restart_without_a_gap() {
    let home = Home::new();
    let mut server = home.start().await;
    let api = server.root().await;
    let mut expected = Vec::new();
    let first = api.post(LEVELS, &level("lasting", 1)).await.object();
    for round in 0..4 {
        let api = server.root().await;
        for shares in 0..3 {
            expected.push(shares_of(&api, "lasting", 10 * round + shares + 2).await);
        }
        if round % 2 == 0 {
            server.stop().await;
        } else {
            kill(server).await;
        }
        server = home.start().await;
    }
    // This gateway has time to end its watches.
    server.stop().await;
    let server = Server::start(home.config_with("drain: {delay: 0s, grace: 3s}\n")).await;
    let api = server.root().await;
    expected.push(shares_of(&api, "lasting", 99).await);
    let from = version(&first);
    let target = format!("{LEVELS}?watch=true&resourceVersion={from}");
    let mut watch = api.watch(&target).await;
    for object in expected {
        assert_eq!(watch.event().await, ("MODIFIED".to_owned(), object));
    }
    // The open watch ended cleanly.
    server.stop().await;
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_list_continues_after_a_restart_at_its_revision() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let whole = api.get(SCHEMAS).await.object();
    let page = api.get(&format!("{SCHEMAS}?limit=3")).await.object();
    api.delete(&format!("{SCHEMAS}/service-accounts"))
        .await
        .object();
    api.post(SCHEMAS, &schema("zzz", "exempt", 9, "x"))
        .await
        .object();
    server.stop().await;
    let server = home.start().await;
    let api = server.root().await;

    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = api
        .get(&format!("{SCHEMAS}?continue={token}"))
        .await
        .object();

    assert_eq!(version(&rest), version(&whole));
    let mut items = page["items"].as_array().unwrap().clone();
    items.extend(rest["items"].as_array().unwrap().iter().cloned());
    assert_eq!(json!(items), whole["items"]);
}

#[tokio::test]
async fn a_policy_takes_effect_again_after_a_restart() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let level = api.post(LEVELS, &level("kept", 7)).await.object();
    let schema = api
        .post(SCHEMAS, &schema("kept", "kept", 50, "noxu"))
        .await
        .object();
    server.stop().await;
    let server = home.start().await;
    let api = server.as_user("noxu").await;
    // A gateway waits only so long for its store before it serves with the built-in policy.
    let mut response = api.get("/version").await;
    soon(async {
        while response.header("x-kubernetes-pf-flowschema-uid") != schema["metadata"]["uid"] {
            response = api.get("/version").await;
        }
    })
    .await;
    assert_eq!(
        response.header("x-kubernetes-pf-prioritylevel-uid"),
        level["metadata"]["uid"]
    );
}

fn unavailable(response: &ApiResponse, why: &str) {
    let message = response.refused(503, "ServiceUnavailable");
    assert!(message.contains(why), "{message}");
}

/// Asserts that a gateway serves although it cannot use its store, and reports why.
async fn serves_without(server: &Server, why: &str) {
    let api = server.root().await;
    let item = format!("{LEVELS}/x");
    for response in [
        api.get(SCHEMAS).await,
        api.get(&item).await,
        api.post(LEVELS, &level("x", 1)).await,
        api.put(&item, &level("x", 1)).await,
        api.merge(&item, &json!({})).await,
        api.delete(&item).await,
        api.delete(LEVELS).await,
    ] {
        unavailable(&response, why);
    }
    let (ty, status) = api
        .watch(&format!("{LEVELS}?watch=true"))
        .await
        .event()
        .await;
    assert_eq!((ty.as_str(), &status["code"]), ("ERROR", &json!(503)));

    // The built-in policy is in force.
    let response = server.as_user("alice").await.get("/version").await;
    assert_eq!(response.status, 200);
    assert!(!response.header("x-kubernetes-pf-flowschema-uid").is_empty());
    api.get("/apis").await.object();
    assert_eq!(api.get("/livez").await.text(), "ok");
    let ready = api.get("/readyz?verbose").await;
    assert_eq!(ready.status, 200);
    let text = ready.text();
    assert!(text.contains("\n[!]store: "), "{text}");
    assert_eq!(server.metric("fairgate_store_up", "").await, Some(0.0));
    assert_eq!(
        server.metric("fairgate_bootstrap_ensured", "").await,
        Some(0.0)
    );
    let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
    assert!(api.get(dump).await.text().contains("workload-low"));
}

#[tokio::test]
async fn a_gateway_serves_without_its_store_and_uses_it_once_it_is_there() {
    let (broken, misplaced) = (Home::new(), Home::new());
    let directory = broken.path().join("store");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("store.redb"), "no store at all".repeat(1000)).unwrap();
    let below_a_file = "store: {local: {path: tokens/store.redb}}\n";
    let (broken_one, misplaced_one) = tokio::join!(
        Server::start(broken.config()),
        Server::start(misplaced.config_with(below_a_file)),
    );
    serves_without(&broken_one, "store.redb is damaged").await;
    serves_without(&misplaced_one, "tokens: making the directory failed").await;

    std::fs::remove_file(directory.join("store.redb")).unwrap();

    let api = broken_one.root().await;
    until(async || api.get(&format!("{SCHEMAS}/exempt")).await.status == 200).await;
    broken_one.settled().await;
    let made = api.post(LEVELS, &level("x", 1)).await.object();
    assert_eq!(name(&made), "x");
    assert_eq!(broken_one.metric("fairgate_store_up", "").await, Some(1.0));
    until(async || broken_one.metric("fairgate_bootstrap_ensured", "").await == Some(1.0)).await;
    let text = api.get("/readyz?verbose").await.text();
    assert!(
        text.contains("[+]store ok") && !text.contains("[!]"),
        "{text}"
    );
    until(async || {
        let dump = "/debug/api_priority_and_fairness/dump_priority_levels";
        api.get(dump).await.text().contains("\nx,")
    })
    .await;
}
