//! The disk of the hosted objects is full: evictions and their budgets go on, and what was stored can be deleted.

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

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

/// The small file system.
fn disk() -> PathBuf {
    let disk = env::var_os("FAIRGATE_FULL_DISK");
    disk.expect("FAIRGATE_FULL_DISK names a small file system: `.ci/run full_disk_gateway`")
        .into()
}

/// Quotas that are no limit.
fn no_quota() -> Value {
    json!({"podDisruptionBudgets": {"bytes": 0}, "total": {"bytes": 0}})
}

/// A gateway whose objects are in `file` on the small file system, before a server with five pods of `shop`.
fn gateway_before(server: &ControlPlane, file: &str, quota: &Value) -> Gateway {
    for number in 0..5 {
        let name = format!("web-{number}");
        server.put(PODS, pod("shop", &name, &json!({"app": "web"})));
    }
    for name in [
        "shop", "fill", "fill-1", "fill-2", "fill-3", "fill-4", "fill-5",
    ] {
        let namespace =
            json!({"kind": "Namespace", "metadata": {"name": name, "namespace": "", "uid": name}});
        server.put(("/api/v1", "namespaces"), namespace);
    }
    let sections = json!({
        "mode": "standalone", "store": {"type": "local", "local": {"path": disk().join(file)}},
        "eviction": {"controller": "on", "mode": "authoritative"},
        "hostedApi": {"quota": quota},
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
    let gateway = gateway_before(&server, "evictions.redb", &no_quota());
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

    delete(&mut root, filled).await;
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
    drop(gateway);
    fs::remove_file(disk().join("evictions.redb")).unwrap();
}

/// Deletes what [`fill`] has stored.
async fn delete(root: &mut User, filled: usize) {
    for number in 0..filled {
        let path = format!("{}/b{number}", of("fill"));
        let got = root.ask(Method::DELETE, &path, &[], "").await;
        assert_eq!(got.code, 200, "{}", got.text());
    }
}

#[tokio::test]
#[ignore = "needs a small file system: .ci/run full_disk_gateway"]
async fn objects_are_deleted_after_a_restart_on_a_disk_that_others_have_filled() {
    let server = ControlPlane::start();
    let gateway = gateway_before(&server, "restarted.redb", &no_quota());
    let mut root = gateway.user("root").await;
    let filled = fill(&mut root).await;
    drop((gateway, root));
    // More than the file has from the start.
    let length = fs::metadata(disk().join("restarted.redb")).unwrap().len();
    assert!(length > 32 << 20, "{length} bytes, {filled} were stored");
    let mut others = File::create(disk().join("others")).unwrap();
    for length in (12..24).rev().map(|power| 1 << power) {
        while others.write_all(&vec![b'o'; length]).is_ok() {}
    }

    let gateway = gateway_before(&server, "restarted.redb", &no_quota());
    let mut root = gateway.user("root").await;
    let read = root.get(&format!("{}/b0", of("fill"))).await;
    assert_eq!(read.code, 200, "{}", read.text());
    delete(&mut root, filled).await;
    let got = root.get(&of("fill")).await;
    assert_eq!(got.json()["items"], json!([]));
    drop(gateway);
    fs::remove_file(disk().join("others")).unwrap();
    fs::remove_file(disk().join("restarted.redb")).unwrap();
}

/// What the attackers got.
#[derive(Debug, Default)]
struct Filling {
    tried_bytes: usize,
    stored: Vec<String>,
    /// Refusals for the quota, and for the disk.
    over_quota: usize,
    disk_full: usize,
}

/// Fills five namespaces in turn with budgets of 200 kB, on and on until `done`.
async fn fill_on(mut root: User, done: &AtomicBool) -> Filling {
    let note = "x".repeat(200_000);
    let mut filling = Filling::default();
    for number in 0.. {
        if done.load(Ordering::Relaxed) && filling.disk_full > 50 {
            break;
        }
        let namespace = format!("fill-{}", number % 5 + 1);
        let name = format!("b{number}");
        let body = budget(&namespace, &name, &note);
        let got = root.post(&of(&namespace), &body).await;
        filling.tried_bytes += note.len();
        match got.code {
            201 => filling.stored.push(format!("{}/{name}", of(&namespace))),
            403 => filling.over_quota += 1,
            500 => filling.disk_full += 1,
            _ => panic!("{}", got.text()),
        }
    }
    filling
}

/// The attack "fill the disk": budgets are stored in five namespaces, whose quotas are together as large as the disk. Others read, delete and
/// make smaller what they have, before the disk is full and afterwards.
#[tokio::test]
#[ignore = "needs a small file system: .ci/run full_disk_gateway"]
async fn others_read_and_delete_while_the_disk_is_filled() {
    let server = ControlPlane::start();
    let quota = json!({"podDisruptionBudgets": {"bytes": 20 << 20}});
    let gateway = gateway_before(&server, "attacked.redb", &quota);
    let mut others = gateway.user("root").await;
    for number in 0..60 {
        let kept = budget("shop", &format!("b{number}"), &"y".repeat(20_000));
        let got = others.post(&of("shop"), &kept).await;
        assert_eq!(got.code, 201, "{}", got.text());
    }
    let done = Arc::new(AtomicBool::new(false));
    let attackers = gateway.user("root").await;
    let filling = tokio::spawn({
        let done = Arc::clone(&done);
        async move { fill_on(attackers, &done).await }
    });
    let (mut read, mut deleted) = (0, 0);
    for number in 0..60 {
        let path = format!("{}/b{number}", of("shop"));
        let got = others.get(&path).await;
        assert_eq!(got.code, 200, "{}", got.text());
        read += 1;
        if number == 30 {
            // The second half when there is no room.
            soon(async {
                while gateway.metric("fairgate_store_up").await != 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        let got = others.ask(Method::DELETE, &path, &[], "").await;
        assert_eq!(got.code, 200, "{}", got.text());
        deleted += 1;
    }
    done.store(true, Ordering::Relaxed);
    let filling = filling.await.unwrap();
    let file = fs::metadata(disk().join("attacked.redb")).unwrap().len();
    println!(
        "fill-the-disk: others {read} reads, {deleted} deletions, 0 failures; attackers tried {} MB, stored {}, refused {} by quota, {} by \
         the disk; the file has {file} bytes",
        filling.tried_bytes / 1_000_000,
        filling.stored.len(),
        filling.over_quota,
        filling.disk_full
    );
    assert!(file < 100 << 20, "{file}");
    for path in &filling.stored {
        let got = others.ask(Method::DELETE, path, &[], "").await;
        assert_eq!(got.code, 200, "{}", got.text());
    }
    drop(gateway);
    fs::remove_file(disk().join("attacked.redb")).unwrap();
}
