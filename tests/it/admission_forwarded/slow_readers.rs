//! Clients that do not read the responses to audited writes keep no seat.

use http::Method;
use serde_json::json;

use super::{MAPS, World, map, policy};
use crate::{
    client::{self, TestClient, soon},
    upstream::full,
};

/// Waits until a metric has this value.
async fn until(world: &World, metric: &str, value: u64) {
    soon(async {
        while world.gateway.metric(metric).await != value {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn in_audit_the_response_to_a_patch_is_spooled_for_a_client_that_does_not_read() {
    let all = [policy(["p", "configmaps", "true", "Deny", "completed"])];
    let world = World::new("audit", "slow-readers", &all);
    let mut alice = world.alice().await;
    let evaluated = "fairgate_admission_requests_total{decision=\"allowed\"";
    // Until policies are known, writes are forwarded without an audit.
    soon(async {
        while world.gateway.metric(evaluated).await == 0 {
            alice.post(MAPS, &map("first")).await;
        }
    })
    .await;
    let target = format!("{MAPS}/m");
    world.store(&target, map("m"));
    // The response repeats it: more than the window and buffers take, and less than a spooled response may have.
    let patch =
        json!({"kind": "ConfigMap", "data": {"a": "x".repeat(900 << 10), "defaulted": "no"}});
    let patch = patch.to_string();

    let mut client = TestClient::http2_with_window(world.gateway.address(), 65_535).await;
    let request = client
        .request(Method::PATCH, &target)
        .header("authorization", "Bearer alice-token")
        .header("content-type", "application/merge-patch+json")
        .body(full(patch.clone()))
        .unwrap();
    let response = soon(client.send(request)).await.unwrap();
    until(&world, "fairgate_spooled_answers_total", 1).await;
    until(&world, "apiserver_flowcontrol_current_executing_seats", 0).await;

    assert_eq!(client::body(response).await, patch);
    until(&world, "fairgate_spool_bytes", 0).await;
}
