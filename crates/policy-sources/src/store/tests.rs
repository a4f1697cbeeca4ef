//! Sets of a source whose calls are cancelled.

use bytes::Bytes;
use fairgate_base::clock::Clock;
use fairgate_store::{
    HistoryLimits, Precondition, WriteOutcome,
    local::{LocalSettings, LocalStore},
};
use fairgate_testkit::store::TestStore;
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_change_that_a_cancelled_call_has_received_is_in_the_next_set() {
    let name = format!("fairgate-store-source-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let settings = LocalSettings {
        path: directory.join("store.redb"),
        limits: HistoryLimits::default(),
    };
    let local = LocalStore::open(settings, Clock::system()).unwrap();
    let store = Arc::new(TestStore::in_directory(local, directory));
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
