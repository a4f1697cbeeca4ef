//! The store in etcd: the guarantees of all stores, and those specific to etcd. The tests start the
//! etcd program that `FAIRGATE_ETCD` names.

mod formats;
mod full;
mod history;
mod long_history;
mod lost_responses;
mod members;
mod outages;
mod replicas;
mod security;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use super::{EtcdSettings, EtcdStore};
use crate::{
    HistoryLimits, Precondition, ReadRevision, Store, StoreError, StoreFuture, StoreHealth,
    WriteOutcome,
    conformance::{self, TestStore, conformance},
};
use fairgate_base::clock::Clock;
use fairgate_testkit::{
    client::{HANG, soon},
    etcd::EtcdServer,
};

/// The etcd server of tests that neither stop nor compact it.
fn shared() -> &'static EtcdServer {
    static SHARED: OnceLock<EtcdServer> = OnceLock::new();
    SHARED.get_or_init(EtcdServer::start)
}

fn settings(endpoint: String, prefix: &str) -> EtcdSettings {
    EtcdSettings {
        endpoints: vec![endpoint],
        prefix: prefix.to_owned(),
        tls: None,
        user: None,
        limits: HistoryLimits::default(),
        compaction: None,
    }
}

/// A prefix that no other test has.
fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("/fairgate/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn open(settings: EtcdSettings) -> Arc<dyn Store> {
    let store = EtcdStore::start(&settings, conformance::clock()).unwrap();
    let loaded = tokio::time::timeout(HANG, store.wait_for(1)).await;
    assert!(loaded.is_ok(), "etcd was not read: {:?}", store.health());
    Arc::new(store)
}

struct EtcdPlace(String, Clock);

impl EtcdPlace {
    fn new() -> Self {
        Self(prefix(), conformance::clock())
    }
}

impl TestStore for EtcdPlace {
    fn open(&mut self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let settings = settings(shared().endpoint(), &self.0);
            let store = EtcdStore::start(&settings, self.1.clone())?;
            store.wait_for(1).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn clock(&self) -> Clock {
        self.1.clone()
    }
}

conformance!(EtcdPlace::new());

async fn create(store: &dyn Store, key: &str, value: &str) -> u64 {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    match store.write(key, Precondition::Absent, value).await.unwrap() {
        WriteOutcome::Done { revision, .. } => revision,
        WriteOutcome::Lost(found) => panic!("lost to {found:?}"),
    }
}

/// Waits until the store is ready, or until it is not.
async fn until_ready(store: &dyn Store, ready: bool) -> StoreHealth {
    soon(async {
        loop {
            let health = store.health();
            if (health == StoreHealth::Ready) == ready {
                return health;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

#[tokio::test]
async fn writes_outside_the_prefix_advance_the_revision_and_nothing_else() {
    let store = open(settings(shared().endpoint(), &prefix())).await;
    let first = create(&*store, "/a", "1").await;
    let mut watch = store.watch("/", first).unwrap();
    let mut client = shared().client().await;
    client.put("/elsewhere", "1", None).await.unwrap();
    let page = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert!(page.revision > first);
    assert!(watch.ready().unwrap().is_empty());
    assert!(watch.progress() > first);
}

#[tokio::test]
async fn a_transaction_over_many_keys_is_one_revision() {
    let prefix = prefix();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    let mut last = 0;
    for n in 0..300 {
        last = create(&*store, &format!("/a/{n}"), "1").await;
    }
    let mut watch = store.watch("/", last).unwrap();
    // An operator deletes everything, including the marker.
    let mut client = shared().client().await;
    let all = etcd_client::DeleteOptions::new().with_prefix();
    client
        .delete(format!("{prefix}/"), Some(all))
        .await
        .unwrap();
    let events = watch.next().await.unwrap();
    assert_eq!(events.len(), 300);
    assert!(
        events
            .iter()
            .all(|event| event.revision == events[0].revision)
    );
    let past = store
        .list("/a/", None, None, ReadRevision::Exactly(last))
        .await
        .unwrap();
    assert_eq!(past.entries.len(), 300);
    // The store claims the prefix again, and continues.
    store.wait_for(events[0].revision + 1).await.unwrap();
    until_ready(&*store, true).await;
    create(&*store, "/a/0", "again").await;
}

#[tokio::test]
async fn pages_of_revisions_before_the_start_come_from_etcd() {
    let mut server = EtcdServer::start();
    let mut client = server.client().await;
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    for n in 0..250 {
        create(&*store, &format!("/a/{n:03}"), "1").await;
    }
    let then = store.revision().await.unwrap();
    create(&*store, "/a/later", "1").await;
    // The history is dropped in memory, not in etcd.
    let clock = conformance::clock();
    clock.advance(Duration::from_secs(3600));
    store.maintain(clock.now()).await.unwrap();
    assert!(store.floor() > then);
    let at = ReadRevision::Exactly(then);
    let mut keys = Vec::new();
    for prefix in ["/a/", "/"] {
        let page = store.list(prefix, None, None, at).await.unwrap();
        assert_eq!((page.entries.len(), page.remaining), (250, 0));
        keys = page.entries.iter().map(|entry| entry.key.clone()).collect();
    }
    let limit = std::num::NonZeroUsize::new(7);
    let page = store.list("/a/", Some(&keys[99]), limit, at).await.unwrap();
    let part: Vec<_> = page.entries.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!((part, page.remaining), (keys[100..107].to_vec(), 143));
    assert!(store.get("/a/later", at).await.unwrap().is_none());

    let compact = i64::try_from(then).unwrap() + 1;
    client.compact(compact, None).await.unwrap();
    let gone = store.list("/a/", None, None, at).await;
    assert!(matches!(gone, Err(StoreError::Compacted { requested, .. }) if requested == then));
    server.stop();
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let start = |settings: EtcdSettings| {
        EtcdStore::start(&settings, conformance::clock())
            .err()
            .unwrap()
            .to_string()
    };
    let good = settings("http://127.0.0.1:1".to_owned(), "/fairgate");
    let mut none = good.clone();
    none.endpoints.clear();
    assert!(start(none).contains("name one"));
    let mut secure = good.clone();
    secure.endpoints = vec!["https://127.0.0.1:1".to_owned()];
    assert!(start(secure).contains("http://"));
    let mut root = good.clone();
    root.prefix = "/".to_owned();
    assert!(start(root).contains("not a valid key or prefix"));
}
