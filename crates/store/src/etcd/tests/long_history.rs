//! An etcd with more history than a store may keep in memory.

use std::time::Duration;

use super::{create, open, prefix, settings, shared, until_ready};
use crate::{
    HistoryLimits, ReadRevision, Store, StoreError, StoreHealth, conformance, etcd::EtcdStore,
};
use fairgate_testkit::{client::soon, etcd::EtcdServer};

use super::replicas::oldest_revision;

#[tokio::test]
async fn a_store_that_starts_keeps_no_more_history_than_its_limit() {
    const WRITES: usize = 300;
    const VALUE: usize = 512 << 10;
    let prefix = prefix();
    let other = open(settings(shared().endpoint(), &prefix)).await;
    create(&*other, "/a", "first").await;
    drop(other);
    let mut client = shared().client().await;
    let key = format!("{prefix}/a");
    for n in 0..WRITES {
        let value = vec![u8::try_from(n % 250).unwrap(); VALUE];
        client.put(&*key, value, None).await.unwrap();
    }
    let mut settings = settings(shared().endpoint(), &prefix);
    settings.limits = HistoryLimits {
        bytes: 8 << 20,
        ..HistoryLimits::default()
    };
    let store = open(settings).await;
    assert_eq!(until_ready(&*store, true).await, StoreHealth::Ready);
    let size = store.size();
    assert!(size.history_bytes <= 8 << 20, "{size:?}");
    assert!(
        size.events >= 10,
        "what fits is there to be resumed from: {size:?}"
    );
    let entry = store.get("/a", ReadRevision::Cached).await.unwrap();
    let entry = entry.expect("it is there");
    let last = vec![u8::try_from((WRITES - 1) % 250).unwrap(); VALUE];
    assert!(entry.bytes() == last);
    // The floor is where the history begins.
    let mut earlier = store.watch("/", store.floor()).unwrap();
    assert!(!soon(earlier.next()).await.unwrap().is_empty());
    let mut watch = store.watch("/", entry.revision).unwrap();
    let next = create(&*store, "/b", "1").await;
    assert_eq!(soon(watch.next()).await.unwrap()[0].revision, next);
}

#[tokio::test]
async fn a_store_that_cannot_follow_the_changes_compacts_all_the_same() {
    let server = EtcdServer::start();
    let clock = conformance::clock();
    let mut settings = settings(server.endpoint(), "/fairgate");
    settings.compaction = Some(Duration::from_secs(300));
    let store = EtcdStore::start(&settings, clock.clone()).unwrap();
    soon(store.wait_for(1)).await.unwrap();
    create(&store, "/a", "1").await;
    store.maintain(clock.now()).await.unwrap();
    let mut client = server.client().await;
    assert_eq!(oldest_revision(&client).await, 0);
    // Nothing feeds the mirror from now on.
    let EtcdStore {
        shared,
        _tasks: mut tasks,
    } = store;
    tasks.shutdown().await;
    let store = EtcdStore {
        shared,
        _tasks: tasks,
    };
    client.put("/fairgate/a", "2", None).await.unwrap();
    clock.advance(Duration::from_secs(300));
    let maintained = store.maintain(clock.now()).await;
    assert!(
        matches!(maintained, Err(StoreError::Unavailable(_))),
        "{maintained:?}"
    );
    assert!(oldest_revision(&client).await > 0);
}
