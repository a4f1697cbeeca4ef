//! Sets of a source whose calls are cancelled.

use bytes::Bytes;
use fairgate_base::clock::Clock;
use fairgate_objects::kinds::PRIORITY_LEVEL;
use fairgate_store::{
    HistoryLimits, Precondition, WriteOutcome,
    local::{LocalSettings, LocalStore},
};
use fairgate_testkit::store::TestStore;
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_change_that_a_cancelled_call_has_received_is_in_the_next_set() {
    let store = new_store("cancelled");
    let mut source = StoreSource::new(Arc::clone(&store) as Arc<dyn Store>);
    assert!(source.next().await.documents.is_empty());
    let key = format!("{}own", PRIORITY_LEVEL.key_prefix());
    let level = json!({"metadata": {"name": "own"}, "spec": {"type": "Exempt"}});
    let written = store
        .write(
            &key,
            Precondition::Absent,
            Some(Bytes::from(level.to_string())),
        )
        .await;
    assert!(matches!(written, Ok(WriteOutcome::Done { .. })));
    // A call that is cancelled while the object is read has come this far.
    let events = source.watch.as_mut().unwrap().next().await.unwrap();
    source.unread.extend(events);
    let next = tokio::time::timeout(std::time::Duration::from_secs(60), source.next()).await;
    assert_eq!(next.unwrap().documents.len(), 1);
}

/// A store, and its directory's name, which ends with `name`.
pub(crate) fn new_store(name: &str) -> Arc<TestStore> {
    let name = format!("fairgate-store-source-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let settings = LocalSettings {
        path: directory.join("store.redb"),
        limits: HistoryLimits::default(),
    };
    let local = LocalStore::open(settings, Clock::system()).unwrap();
    Arc::new(TestStore::in_directory(local, directory))
}

async fn put(store: &TestStore, name: &str, text: &str) {
    let key = format!("{}{name}", PRIORITY_LEVEL.key_prefix());
    let text = Bytes::from(text.to_owned());
    let entry = store.get(&key, ReadRevision::Cached).await.unwrap();
    let expected = entry.map_or(Precondition::Absent, |entry| {
        Precondition::At(entry.revision)
    });
    let written = store.write(&key, expected, Some(text)).await;
    assert!(matches!(written, Ok(WriteOutcome::Done { .. })));
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_an_error_of_its_set_until_it_is_mended() {
    let store = new_store("broken");
    let level = json!({"metadata": {"name": "own"}, "spec": {"type": "Exempt"}}).to_string();
    put(&store, "own", &level).await;
    let mut source = StoreSource::new(Arc::clone(&store) as Arc<dyn Store>);
    assert!(source.next().await.findings.is_empty());
    put(&store, "own", "{").await;
    let set = source.next().await;
    assert!(set.findings[0].is_error(), "{:?}", set.findings);
    let text = set.findings[0].to_string();
    assert!(text.contains("prioritylevelconfigurations/own"), "{text}");
    put(&store, "own", &level).await;
    assert!(source.next().await.findings.is_empty());
}

#[tokio::test]
async fn the_originals_of_a_set_are_read_again_at_its_revision() {
    let store = new_store("originals");
    let level = |kind: &str| {
        let status = json!({"conditions": []});
        json!({"metadata": {"name": "own"}, "spec": {"type": kind}, "status": status}).to_string()
    };
    put(&store, "own", &level("Exempt")).await;
    let source = StoreSource::new(Arc::clone(&store) as Arc<dyn Store>);
    let set = source.with_originals(true).next().await;
    put(&store, "own", "{").await;
    let originals = set.originals.unwrap().documents().await.unwrap();
    let expected = json!({"metadata": {"name": "own"}, "spec": {"type": "Exempt"}});
    assert_eq!(originals.len(), 1);
    assert_eq!(originals[0].object, expected);
}
