//! The disk of the hosted objects is full: evictions and their budgets go on, and what was stored can be deleted.

use std::env;

use fairgate_testkit::client::soon;
use http::Method;
use serde_json::{Value, json};

use super::{
    control_plane::ControlPlane,
    gateway::{Gateway, User},
    large_budgets::{PODS, of, pod, settles},
};

fn budget(namespace: &str, name: &str, note: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"note": note}},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    })
}

/// A gateway whose objects are on the file system that `FAIRGATE_FULL_DISK` names, before a server with five pods of `shop`.
fn gateway_before(server: &ControlPlane) -> Gateway {
    let disk = env::var("FAIRGATE_FULL_DISK")
        .expect("FAIRGATE_FULL_DISK names a small file system: `.ci/run full_disk_gateway`");
    for number in 0..5 {
        let name = format!("web-{number}");
        server.put(PODS, pod("shop", &name, &json!({"app": "web"})));
    }
    for name in ["shop", "fill"] {
        let namespace =
            json!({"kind": "Namespace", "metadata": {"name": name, "namespace": "", "uid": name}});
        server.put(("/api/v1", "namespaces"), namespace);
    }
    let sections = json!({
        "mode": "standalone", "store": {"type": "local", "local": {"path": format!("{disk}/evictions.redb")}},
        "eviction": {"controller": "on", "mode": "authoritative"},
        "hostedApi": {"quota": {"podDisruptionBudgets": {"bytes": 0}, "total": {"bytes": 0}}},
        "drain": {"delay": "0s"},
    });
    Gateway::before(server.upstream.address, sections)
}

/// Stores budgets of 200 kB until the disk is full. Returns how many there are.
async fn fill(root: &mut User) -> usize {
    let note = "x".repeat(200_000);
    for number in 0.. {
        let got = root
            .post(&of("fill"), &budget("fill", &format!("b{number}"), &note))
            .await;
        if got.code != 201 {
            assert_eq!(got.code, 500, "{}", got.text());
            assert!(
                got.text()
                    .contains("is full and nothing was written; make room there"),
                "{}",
                got.text()
            );
            return number;
        }
    }
    unreachable!("a disk has an end")
}

#[tokio::test]
#[ignore = "needs a small file system: .ci/run full_disk_gateway"]
async fn pods_are_evicted_and_objects_deleted_on_a_full_disk() {
    let server = ControlPlane::start();
    let gateway = gateway_before(&server);
    let mut root = gateway.user("root").await;
    let got = root.post(&of("shop"), &budget("shop", "web", "")).await;
    assert_eq!(got.code, 201, "{}", got.text());
    settles(&gateway, "shop", "web", 4).await;

    let filled = fill(&mut root).await;
    assert!(filled > 50, "{filled} were stored");
    for number in 0..4 {
        let name = format!("web-{number}");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "shop"},
        });
        let got = root
            .post(
                &format!("/api/v1/namespaces/shop/pods/{name}/eviction"),
                &eviction,
            )
            .await;
        assert_eq!(got.code, 201, "{}", got.text());
        // The controller stores what is left.
        settles(&gateway, "shop", "web", 3 - number).await;
    }
    assert_eq!(
        root.post(&of("fill"), &budget("fill", "more", &"x".repeat(200_000)))
            .await
            .code,
        500
    );

    for number in 0..filled {
        let got = root
            .ask(
                Method::DELETE,
                &format!("{}/b{number}", of("fill")),
                &[],
                "",
            )
            .await;
        assert_eq!(got.code, 200, "{}", got.text());
    }
    // The gateway notices by itself that there is room.
    soon(async {
        while root
            .post(&of("fill"), &budget("fill", "again", ""))
            .await
            .code
            != 201
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
