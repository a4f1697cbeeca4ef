//! Policies in files that can no longer be read: after `admission.policies.maxStaleness`, writes are refused until they can.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use fairgate_testkit::client::soon;
use serde_json::json;

use super::{MAPS, World, map, policy, policy_file};
use crate::eviction::gateway::User;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

/// Sends writes until one has this code. Returns how many were accepted, the last one included.
async fn writes_until(alice: &mut User, code: u16) -> usize {
    soon(async {
        let mut accepted = 0;
        loop {
            let got = alice.post(MAPS, &map("m")).await;
            accepted += usize::from(got.code == 201);
            assert!([201, 503].contains(&got.code), "{}", got.text());
            if got.code == 503 {
                assert_eq!(got.header("x-fairgate-reason"), "admission-stale");
            }
            if got.code == code {
                return accepted;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn writes_are_refused_while_the_files_have_been_unreadable_for_too_long() {
    let file = policy_file("stale");
    let admission = json!({"mode": "enforce", "policies": {"files": [file], "maxStaleness": "5s"}});
    let policies = [policy(["p", "secrets", "false", "Deny", "dryRun"])];
    let world = World::with(
        "enforce",
        "stale",
        &policies,
        json!({"admission": admission}),
    );
    let mut alice = world.alice().await;
    let mut accepted = writes_until(&mut alice, 201).await;
    let good = file.with_extension("good");
    fs::rename(&file, &good).unwrap();
    let unreadable: [fn(&Path); 3] = [
        |_| (),
        |path| symlink(path, path).unwrap(),
        |path| fs::write(path, "this: [is not").unwrap(),
    ];
    for make in unreadable {
        make(&file);
        accepted += writes_until(&mut alice, 503).await;
        // Reads go on, and an administrator can still mend policies.
        assert_eq!(alice.get(MAPS).await.code, 404);
        let mended = alice
            .post(POLICIES, &json!({"metadata": {"name": "q"}}))
            .await;
        assert_eq!(mended.code, 201);
        let _ = fs::remove_file(&file);
        fs::copy(&good, &file).unwrap();
        accepted += writes_until(&mut alice, 201).await;
        // The policies are those of before.
        let secret = json!({"metadata": {"name": "s"}});
        let denied = alice.post("/api/v1/namespaces/ns/secrets", &secret).await;
        assert_eq!(denied.code, 422);
        fs::remove_file(&file).unwrap();
    }
    let writes = world.writes();
    let maps = writes.iter().filter(|write| write.ends_with(MAPS));
    assert_eq!(maps.count(), accepted);
}
