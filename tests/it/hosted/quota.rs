//! Quotas of hosted objects.

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    Home, SCHEMAS, Server,
    api::{APPLY, Api, MERGE},
    budgets::{POLICY, web},
};
use crate::{
    client::raw,
    process::{GatewayProcess, ProcessOptions, wait_until},
};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const SHOP: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";

/// A gateway at `home` with a quota of budgets.
async fn with_quota(home: &Home, objects: u32, bytes: u32) -> Server {
    let quota = format!("podDisruptionBudgets: {{objects: {objects}, bytes: {bytes}}}");
    Server::start(home.config_with(&format!("hostedApi: {{quota: {{{quota}}}}}\n"))).await
}

/// A change that adds so many bytes to an object.
fn longer(bytes: usize) -> Value {
    json!({"metadata": {"annotations": {"note": "x".repeat(bytes)}}})
}

async fn apply(api: &Api, target: &str, object: &Value) -> super::api::ApiResponse {
    let target = format!("{target}?fieldManager=tests&force=true");
    api.call(Method::PATCH, &target, APPLY, object.to_string())
        .await
}

#[tokio::test]
async fn every_write_that_adds_an_object_beyond_the_quota_is_refused() {
    let home = Home::new();
    let server = with_quota(&home, 2, 0).await;
    let api = server.root().await;
    for name in ["a", "b"] {
        api.post(SHOP, &web(name)).await.object();
    }
    let refused = api.post(SHOP, &web("c")).await;
    assert_eq!(refused.header("x-fairgate-reason"), "exceeded-quota");
    assert_eq!(
        refused.refused(403, "Forbidden"),
        "poddisruptionbudgets.policy \"c\" is forbidden: exceeded quota: hostedApi.quota.podDisruptionBudgets, \
         requested: count/poddisruptionbudgets.policy=1, used: count/poddisruptionbudgets.policy=2, \
         limited: count/poddisruptionbudgets.policy=2"
    );
    let dry = api.post(&format!("{SHOP}?dryRun=All"), &web("c")).await;
    assert!(dry.refused(403, "Forbidden").contains("exceeded quota"));
    let applied = apply(&api, &format!("{SHOP}/c"), &web("c")).await;
    assert!(applied.refused(403, "Forbidden").contains("exceeded quota"));
    // A name that is taken is still that, and other namespaces have a quota of their own.
    api.post(SHOP, &web("a"))
        .await
        .refused(409, "AlreadyExists");
    let bank = format!("{POLICY}/namespaces/bank/poddisruptionbudgets");
    api.post(&bank, &web("a")).await.object();
    // Changes and deletions are no growth of the number.
    api.merge(&format!("{SHOP}/a"), &longer(5000))
        .await
        .object();
    api.delete(&format!("{SHOP}/a")).await.object();
    apply(&api, &format!("{SHOP}/c"), &web("c")).await.object();
}

#[tokio::test]
async fn growth_in_bytes_is_refused_and_shrinking_is_not() {
    let home = Home::new();
    let server = with_quota(&home, 0, 8000).await;
    let api = server.root().await;
    let one = format!("{SHOP}/a");
    api.post(SHOP, &web("a")).await.object();
    let grown = api.merge(&one, &longer(6000)).await.object();
    let refused = api.merge(&one, &longer(9000)).await;
    let message = refused.refused(403, "Forbidden");
    assert!(
        message.contains("requested: bytes/poddisruptionbudgets.policy="),
        "{message}"
    );
    assert!(
        message.ends_with("limited: bytes/poddisruptionbudgets.policy=8000"),
        "{message}"
    );
    let mut put = grown.clone();
    put["metadata"]["annotations"]["note"] = json!("y".repeat(9000));
    api.put(&one, &put).await.refused(403, "Forbidden");
    let strategic = "application/strategic-merge-patch+json";
    for how in [MERGE, strategic] {
        let patch = longer(9000).to_string();
        let refused = api.call(Method::PATCH, &one, how, patch).await;
        refused.refused(403, "Forbidden");
    }
    let json_patch =
        json!([{"op": "add", "path": "/metadata/annotations/note", "value": "z".repeat(9000)}]);
    let how = "application/json-patch+json";
    let refused = api
        .call(Method::PATCH, &one, how, json_patch.to_string())
        .await;
    refused.refused(403, "Forbidden");
    let mut applied = web("a");
    applied["metadata"]["annotations"] = json!({"note": "w".repeat(9000)});
    apply(&api, &one, &applied).await.refused(403, "Forbidden");
    // A client's status may take half as much more.
    let condition = |length: usize| {
        json!({"status": {"conditions": [{
            "type": "DisruptionAllowed", "status": "True", "reason": "Tests",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m".repeat(length),
        }]}})
    };
    let status = format!("{one}/status");
    api.merge(&status, &condition(3000)).await.object();
    api.merge(&status, &condition(9000))
        .await
        .refused(403, "Forbidden");
    // Over the quota now: it may shrink, also to what is over it still.
    api.merge(&one, &longer(5900)).await.object();
    api.merge(&one, &longer(5950))
        .await
        .refused(403, "Forbidden");
    api.merge(&one, &longer(10)).await.object();
    api.post(SHOP, &web("b")).await.object();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_creations_do_not_exceed_the_quota() {
    const QUOTA: u32 = 10;
    let home = Home::new();
    let server = with_quota(&home, QUOTA, 0).await;
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let api = server.root().await;
        clients.spawn(async move {
            let mut stored = 0;
            for object in 0..8 {
                let name = format!("b-{client}-{object}");
                let response = api.post(SHOP, &web(&name)).await;
                match response.status.as_u16() {
                    201 => stored += 1,
                    403 => assert!(response.text().contains("exceeded quota")),
                    other => panic!("{other}"),
                }
            }
            stored
        });
    }
    let mut stored = 0;
    while let Some(ended) = clients.join_next().await {
        stored += ended.unwrap();
    }
    assert_eq!(stored, QUOTA);
    let api = server.root().await;
    let list = api.get(SHOP).await.object();
    assert_eq!(list["items"].as_array().unwrap().len(), QUOTA as usize);
}

#[tokio::test]
async fn a_store_that_is_over_a_quota_is_served_and_may_shrink() {
    let home = Home::new();
    let server = Server::start(home.config()).await;
    let api = server.root().await;
    for name in ["a", "b", "c", "d"] {
        api.post(SHOP, &web(name)).await.object();
    }
    server.settled().await;
    drop(api);
    server.stop().await;

    let quotas = "flowSchemas: {objects: 1}, podDisruptionBudgets: {objects: 2, bytes: 10}, total: {bytes: 100}";
    let config = home.config_with(&format!("hostedApi: {{quota: {{{quotas}}}}}\n"));
    let server = Server::start(config).await;
    let api = server.root().await;
    let list = api.get(SHOP).await.object();
    assert_eq!(list["items"].as_array().unwrap().len(), 4);
    api.post(SHOP, &web("e")).await.refused(403, "Forbidden");
    // Without its annotations and labels it is smaller.
    let patch = json!({"metadata": {"labels": null}});
    api.merge(&format!("{SHOP}/a"), &patch).await.object();
    for name in ["a", "b", "c", "d"] {
        api.delete(&format!("{SHOP}/{name}")).await.object();
    }
    api.post(SHOP, &web("e")).await.refused(403, "Forbidden");
    // The gateway restores its own objects, over any quota, with their conditions.
    api.delete(&format!("{SCHEMAS}/probes")).await.object();
    server.settled().await;
}

#[test]
fn a_store_that_is_over_a_quota_when_it_is_opened_is_in_the_log() {
    let home = Home::new();
    let gateway = |quota: Value| {
        let configuration = json!({
            "mode": "standalone",
            "authentication": {"tokenFile": "tokens", "tokenReview": {"enabled": false}},
            "store": {"type": "local", "local": {"path": home.path().join("objects.redb")}},
            "hostedApi": {"quota": quota},
        });
        let options = ProcessOptions {
            tokens: "secret,admin,1,system:masters\n",
            ..ProcessOptions::default()
        };
        GatewayProcess::with(configuration, &options)
    };
    let exceeded = "stored objects exceed their quota";
    // The gateway stores its own objects; they are over no quota of the first start.
    let first = gateway(json!({}));
    let stored = |resource: &str| {
        let head = "HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nConnection: close";
        let request = format!("GET {GROUP}/{resource} {head}\r\n\r\n");
        let list = raw(first.address, request.as_bytes());
        list.matches("\"creationTimestamp\"").count()
    };
    wait_until("the built-in objects are stored", || {
        stored("flowschemas") > 1 && stored("prioritylevelconfigurations") > 1
    });
    assert_eq!(first.logged(exceeded), [""; 0]);
    drop(first);
    let second = gateway(json!({
        "flowSchemas": {"objects": 1, "bytes": 0}, "priorityLevelConfigurations": {"objects": 0, "bytes": 10},
    }));
    wait_until("both are named", || second.logged(exceeded).len() == 2);
    let lines = second.logged(exceeded);
    for (key, used, limits) in [
        (
            "hostedApi.quota.flowSchemas",
            "used_objects=",
            "limit_objects=1 limit_bytes=none",
        ),
        (
            "hostedApi.quota.priorityLevelConfigurations",
            "used_bytes=",
            "limit_objects=none limit_bytes=10",
        ),
    ] {
        let line = lines.iter().find(|line| line.contains(key));
        let line = line.unwrap_or_else(|| panic!("{lines:?}"));
        assert!(
            line.contains("WARN") && line.contains(used) && line.contains(limits),
            "{line}"
        );
    }
}
