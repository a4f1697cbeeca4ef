//! Hosted policies whose store no longer works: after `admission.policies.maxStaleness`, writes are refused until it does.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::{Client, SCHEMAS, Server, TOKENS, client_of};
use crate::{
    client::soon,
    process::{GatewayProcess, ProcessOptions},
};

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
/// Less than a file of the store has from the start.
const SHORT: u64 = 4096;

fn gateway_before(server: &Server) -> GatewayProcess {
    let configuration = json!({
        "mode": "overlay",
        "upstream": {"url": format!("http://{}", server.upstream.as_ref().unwrap().address)},
        "authentication": {"tokenFile": "tokens", "tokenReview": {"enabled": false}},
        "admission": {"mode": "enforce", "policies": {"source": "hosted", "maxStaleness": "5s"}},
    });
    let options = ProcessOptions {
        tokens: TOKENS,
        may_exceed_files: true,
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

/// Sends writes until one has this status. Returns how many were accepted, the last one included.
async fn writes_until(root: &mut Client, status: u16) -> usize {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    soon(async {
        let mut accepted = 0;
        loop {
            let json = [("content-type", "application/json")];
            let got = root.send(Method::POST, MAPS, &json, map.to_string()).await;
            accepted += usize::from(got.status == 200);
            assert!([200, 503].contains(&got.status), "{}", got.text());
            if got.status == 503 {
                assert_eq!(got.headers["x-fairgate-reason"], "admission-stale");
            }
            if got.status == status {
                return accepted;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn writes_are_refused_while_the_store_has_not_worked_for_too_long() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut root = client_of(&gateway, "root").await;
    let mut accepted = writes_until(&mut root, 200).await;
    for round in 0..2 {
        gateway.limit_files(Some(SHORT));
        // The first write finds out.
        let refused = root.create_schema(&format!("s{round}")).await;
        assert!(refused.status >= 500, "{}", refused.text());
        accepted += writes_until(&mut root, 503).await;
        // Reads go on, those of hosted objects included.
        for target in [MAPS, SCHEMAS] {
            assert_eq!(root.get(target, &[]).await.status, 200, "{target}");
        }
        gateway.limit_files(None);
        accepted += writes_until(&mut root, 200).await;
        assert_eq!(root.create_schema(&format!("t{round}")).await.status, 201);
    }
    let seen = server.of(MAPS);
    let written = seen.iter().filter(|seen| seen.method == Method::POST);
    assert_eq!(written.count(), accepted);
}
