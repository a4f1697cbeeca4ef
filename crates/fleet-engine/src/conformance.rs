//! What every engine must do. Each engine's tests call [`check_engine`].

use fairgate_fleet::identity::KeyRevision;
use http::Method;
use serde_json::json;

use crate::engine::{FleetEngine, FleetKey, StoreOutcome, StoredRecord};

/// Checks an engine whose fleet has no keys yet.
///
/// # Panics
///
/// If the engine does not do what [`FleetEngine`] says.
pub async fn check_engine(engine: &impl FleetEngine) {
    check_compare_and_swap(engine).await;
    check_reports(engine).await;
    check_lease(engine).await;
    check_hash_key(engine).await;
}

async fn stored(
    engine: &impl FleetEngine,
    key: &FleetKey,
    expected: KeyRevision,
    value: &str,
) -> KeyRevision {
    let outcome = engine.write(key, expected, value.as_bytes().to_vec()).await;
    match outcome.expect("the engine answers") {
        StoreOutcome::Stored(revision) => revision,
        StoreOutcome::Conflict => panic!("{key:?} has the revision {expected:?}"),
    }
}

async fn check_compare_and_swap(engine: &impl FleetEngine) {
    let key = FleetKey::Ledger;
    let read = engine.read(&key).await.expect("the engine answers");
    assert_eq!(read, None, "there is no ledger yet");
    let first = stored(engine, &key, KeyRevision(0), "{\"one\": 1}").await;
    assert!(first > KeyRevision(0));
    for (expected, why) in [
        (KeyRevision(0), "it exists"),
        (KeyRevision(first.0 + 1_000_000), "it has another revision"),
    ] {
        let refused = engine.write(&key, expected, b"{}".to_vec()).await;
        assert_eq!(refused, Ok(StoreOutcome::Conflict), "{why}");
    }
    let second = stored(engine, &key, first, "{\"two\": \"ü\"}").await;
    assert!(second > first, "revisions rise");
    let refused = engine.write(&key, first, b"{}".to_vec()).await;
    assert_eq!(refused, Ok(StoreOutcome::Conflict), "it was overwritten");
    let read = engine.read(&key).await.expect("the engine answers");
    let record = StoredRecord {
        value: "{\"two\": \"ü\"}".into(),
        revision: second,
    };
    assert_eq!(read, Some(record));
}

async fn check_reports(engine: &impl FleetEngine) {
    let [one, two] = ["gw-1", "gw-2"].map(|name| FleetKey::Report(name.to_owned()));
    stored(engine, &two, KeyRevision(0), "{\"n\": 2}").await;
    let revision = stored(engine, &one, KeyRevision(0), "{\"n\": 1}").await;
    stored(engine, &one, revision, "{\"n\": 3}").await;
    let reports = engine.read_reports().await.expect("the engine answers");
    let mut values: Vec<_> = reports.into_iter().map(|report| report.value).collect();
    values.sort();
    assert_eq!(
        values,
        [b"{\"n\": 2}", b"{\"n\": 3}"],
        "reports alone, the last of each"
    );
}

async fn check_lease(engine: &impl FleetEngine) {
    let code = |called: Result<_, fairgate_election::LeaseCallError>| {
        called.expect_err("it is refused").code
    };
    assert_eq!(code(engine.lease_call(Method::GET, None).await), Some(404));
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "coordinator", "namespace": "x"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    });
    let created = engine.lease_call(Method::POST, Some(&lease)).await;
    let created = created.expect("there was no lease");
    let again = engine.lease_call(Method::POST, Some(&lease)).await;
    assert_eq!(code(again), Some(409));
    let mut mine = created.clone();
    mine["spec"]["holderIdentity"] = json!("b");
    let updated = engine.lease_call(Method::PUT, Some(&mine)).await;
    let updated = updated.expect("the version is the last");
    let late = engine.lease_call(Method::PUT, Some(&created)).await;
    assert_eq!(code(late), Some(409));
    let read = engine
        .lease_call(Method::GET, None)
        .await
        .expect("it exists");
    assert_eq!(read["spec"]["holderIdentity"], "b");
    let version = |lease: &serde_json::Value| -> u64 {
        let text = lease["metadata"]["resourceVersion"].as_str();
        text.and_then(|text| text.parse().ok()).expect("a number")
    };
    assert_eq!(version(&read), version(&updated));
    assert!(version(&updated) > version(&created));
}

async fn check_hash_key(engine: &impl FleetEngine) {
    let key = engine.hash_key([7; 16]).await;
    assert_eq!(key, Ok([7; 16]), "the first proposal");
    let key = engine.hash_key([8; 16]).await;
    assert_eq!(key, Ok([7; 16]), "it stays");
}
