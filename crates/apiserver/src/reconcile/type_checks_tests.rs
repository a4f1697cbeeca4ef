//! Policies whose status cannot be written.

use std::sync::Mutex;

use bytes::Bytes;
use fairgate_base::clock::Clock;
use fairgate_call::ResponseMemory;
use fairgate_core::time::Time;
use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;
use fairgate_store::{Precondition, ReadRevision, Store};
use fairgate_testkit::store::TestStore;

use super::*;
use crate::test_api;

/// The longest value of the store.
const LONGEST: usize = 1_572_864;

/// The kind that policies are about, which never changes. Remembers which policies were checked.
#[derive(Debug, Default)]
struct Kinds {
    asked: Mutex<Vec<String>>,
    changes: watch::Sender<u64>,
}

impl Kinds {
    /// The policies that were checked since the last call, in order.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl PolicyKindSource for Kinds {
    fn kinds_of(&self, policy: &Value) -> Result<KnownPolicyKinds, String> {
        let name = metadata::name(policy).to_owned();
        self.asked.lock().unwrap().push(name);
        let kinds: Vec<&'static Kind> = vec![&POD_DISRUPTION_BUDGET];
        Ok(KnownPolicyKinds {
            kinds: Arc::new(kinds),
            version: None,
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// A policy with a mistake in its expression. Its message fills it up to so many bytes.
fn policy(name: &str, length: usize) -> Bytes {
    let of = |message: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "uid": "u", "generation": 1, "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                    "resourceRules": [{
                        "apiGroups": ["policy"], "apiVersions": ["v1"], "operations": ["CREATE"],
                        "resources": ["poddisruptionbudgets"], "scope": "*",
                    }],
                },
                "validations": [{"expression": "object.spec.nope == 1", "message": message}],
            },
        })
        .to_string()
    };
    let short = of("no").len();
    of(&format!("no{}", "x".repeat(length.saturating_sub(short)))).into()
}

fn key(name: &str) -> String {
    format!("{}{name}", VALIDATING_ADMISSION_POLICY.key_prefix())
}

async fn stored(store: &TestStore, name: &str) -> Option<Value> {
    let entry = store.get(&key(name), ReadRevision::Cached).await.unwrap();
    entry.map(|entry| serde_json::from_slice(&entry.bytes()).unwrap())
}

/// Stores a policy.
async fn put(store: &TestStore, name: &str, policy: Bytes) -> u64 {
    let written = store
        .write(&key(name), Precondition::Absent, Some(policy))
        .await;
    written.unwrap();
    let revision = store.revision().await.unwrap();
    store.wait_for(revision).await.unwrap();
    revision
}

#[tokio::test]
async fn a_policy_whose_status_cannot_be_written_delays_no_other_and_is_not_checked_all_the_time() {
    let clock = Clock::manual(Time::ZERO);
    let store = test_api::store(&clock);
    // As long as a value may be: there is no room for a status.
    let long = put(&store, "aaa", policy("aaa", LONGEST)).await;
    put(&store, "bbb", policy("bbb", 0)).await;
    let hosted = test_api::hosted(
        &store,
        vec![&VALIDATING_ADMISSION_POLICY],
        clock.clone(),
        ResponseMemory::new(64 << 20),
    );
    let kinds = Arc::<Kinds>::default();
    let mut checks = TypeCheckWriter::new(hosted, Arc::clone(&kinds) as Arc<dyn PolicyKindSource>);
    let refused = |outcome: Result<Option<String>, ReconcileError>| match outcome {
        Err(ReconcileError::Refused { path, status, .. }) => {
            assert!(path.ends_with("/aaa/status"), "{path}");
            assert_eq!(status, http::StatusCode::PAYLOAD_TOO_LARGE);
        }
        other => panic!("{other:?}"),
    };
    refused(checks.reconcile().await);
    assert_eq!(kinds.asked(), ["aaa", "bbb"]);
    let checked = stored(&store, "bbb").await.unwrap();
    assert_eq!(stored_warnings(&checked).len(), 1, "{checked}");
    // The other one has changed, by its status.
    refused(checks.reconcile().await);
    assert_eq!(kinds.asked(), ["bbb"]);

    // It is tried again, each time after a longer pause, up to a minute.
    let mut pauses = Vec::new();
    let mut pause = 0;
    while pauses.len() < 9 {
        clock.advance(FIRST_PAUSE);
        pause += FIRST_PAUSE.as_secs();
        refused(checks.reconcile().await);
        if !kinds.asked().is_empty() {
            pauses.push(std::mem::take(&mut pause));
        }
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);

    // Once it has changed, it is checked at once.
    let deleted = store.write(&key("aaa"), Precondition::At(long), None).await;
    deleted.unwrap();
    put(&store, "aaa", policy("aaa", 0)).await;
    assert_eq!(checks.reconcile().await.unwrap(), None);
    assert_eq!(kinds.asked(), ["aaa"]);
    let checked = stored(&store, "aaa").await.unwrap();
    assert_eq!(stored_warnings(&checked).len(), 1, "{checked}");
}
