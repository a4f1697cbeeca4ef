//! Resources that somebody waits for.

use super::*;

const PARTS: &str = "parts";

/// Serves a resource in these versions.
fn serve(api: &StandIn, versions: &[&str]) {
    let version = |version: &&str| {
        let kind = json!({"group": "x.io", "version": version, "kind": "Part"});
        let parts = json!({"resource": PARTS, "scope": "Cluster", "responseKind": kind});
        json!({"version": version, "resources": [parts]})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let group = json!({"metadata": {"name": "x.io"}, "versions": versions});
    api.document(
        "/apis",
        json!({"kind": "APIGroupDiscoveryList", "items": [group]}),
    );
}

fn readings(upstream: &TestUpstream) -> usize {
    let seen = upstream.seen();
    seen.iter().filter(|seen| seen.target == "/apis").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_the_resources_shares_a_reading_that_begins_later() {
    let (api, upstream) = usual();
    serve(&api, &["v1"]);
    let state = follow(&upstream);
    until("the resources are read", || {
        state.resource("x.io", "v1", PARTS, "").is_some()
    })
    .await;
    for version in ["v2", "v3"] {
        serve(&api, &["v1", version]);
        let before = readings(&upstream);
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let state = Arc::clone(&state);
            waiting.spawn(async move {
                state.resources_read().await.unwrap();
                state.resource("x.io", version, PARTS, "").is_some()
            });
        }
        while let Some(is_known) = waiting.join_next().await {
            assert!(is_known.unwrap(), "{version}");
        }
        let readings = readings(&upstream) - before;
        assert!((1..=2).contains(&readings), "{readings}");
        let known = state.resource("x.io", "v1", PARTS, "").unwrap();
        assert_eq!(known.equivalents.len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_told_why_the_resources_cannot_be_read() {
    let (api, upstream) = usual();
    serve(&api, &["v1"]);
    let state = follow(&upstream);
    state.resources_read().await.unwrap();
    api.with(|state| {
        state.documents.remove("/apis");
        state.collection("/apis").is_forbidden = true;
    });
    let why = state.resources_read().await.unwrap_err();
    assert_eq!(why, "/apis: the upstream answered 403 Forbidden");
    // What was known is still known.
    assert!(state.resource("x.io", "v1", PARTS, "").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_defined_is_known_although_nobody_asks_for_it() {
    let (api, upstream) = usual();
    serve(&api, &["v1"]);
    let state = follow(&upstream);
    state.resources_read().await.unwrap();
    // Of the known version, which misses nothing.
    let versions = || {
        let known = state.resource("x.io", "v1", PARTS, "").unwrap();
        known.equivalents.len()
    };
    assert_eq!(versions(), 1);
    until("the upstream is asked whether they have changed", || {
        let seen = upstream.seen();
        let mut seen = seen.iter();
        seen.any(|seen| seen.headers.contains_key(IF_NONE_MATCH))
    })
    .await;
    let before = readings_of_all(&upstream);
    serve(&api, &["v1", "v2"]);
    until("the version is known", || versions() == 2).await;
    // The documents are also read every 30 seconds.
    let readings = readings_of_all(&upstream) - before;
    assert!((1..=2).contains(&readings), "{readings}");
}

/// How often the documents were asked for whatever their version.
fn readings_of_all(upstream: &TestUpstream) -> usize {
    let seen = upstream.seen();
    let all = seen.iter().filter(|seen| seen.target == "/apis");
    all.filter(|seen| !seen.headers.contains_key(IF_NONE_MATCH))
        .count()
}
