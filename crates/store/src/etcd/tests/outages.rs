//! etcd that is unavailable, restarted, compacted, or replaced by another.

use std::{fs, time::Duration};

use bytes::Bytes;

use super::{create, open, settings, until_ready};
use crate::{
    Precondition, ReadRevision, Store as _, StoreError, StoreHealth, conformance, etcd::EtcdStore,
};
use fairgate_testkit::{client::soon, etcd::EtcdServer, ports, relay::TcpRelay};

#[tokio::test]
async fn while_etcd_is_unavailable_cached_reads_are_served_and_writes_fail() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let first = create(&*store, "/a/x", "1").await;
    let mut watch = store.watch("/", first).unwrap();
    server.stop();
    let StoreHealth::Degraded(why) = until_ready(&*store, false).await else {
        unreachable!()
    };
    let expected = "the store is not available: ";
    assert!(why.starts_with(expected) && why.contains("etcd"), "{why}");
    let cached = store
        .list("/a/", None, None, ReadRevision::Cached)
        .await
        .unwrap();
    assert_eq!(cached.entries.len(), 1);
    let reported = store
        .write("/a/y", Precondition::Absent, Some(Bytes::new()))
        .await;
    assert!(
        matches!(reported, Err(StoreError::Unavailable(_))),
        "{reported:?}"
    );
    let reported = store.list("/a/", None, None, ReadRevision::Newest).await;
    assert!(
        matches!(reported, Err(StoreError::Unavailable(_))),
        "{reported:?}"
    );

    server.restart();
    until_ready(&*store, true).await;
    let second = create(&*store, "/a/z", "2").await;
    // The watch has continued from its last event.
    let mut seen = Vec::new();
    while seen.last() != Some(&second) {
        seen.extend(
            watch
                .next()
                .await
                .unwrap()
                .iter()
                .map(|event| event.revision),
        );
    }
    assert_eq!(watch.progress(), second);
}

#[tokio::test]
async fn a_store_started_before_etcd_serves_once_etcd_is_there() {
    let mut server = EtcdServer::start();
    server.stop();
    let store = EtcdStore::start(
        &settings(server.endpoint(), "/fairgate"),
        conformance::clock(),
    )
    .unwrap();
    let reported = store.get("/a", ReadRevision::Cached).await;
    assert!(
        matches!(reported, Err(StoreError::Unavailable(_))),
        "{reported:?}"
    );
    assert!(matches!(
        store.watch("/", 1),
        Err(StoreError::Unavailable(_))
    ));
    server.restart();
    store.wait_for(1).await.unwrap();
    create(&store, "/a", "1").await;
}

#[tokio::test]
async fn after_a_compaction_beyond_what_it_has_seen_the_store_reads_again_and_watches_end() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let first = create(&*store, "/a/kept", "1").await;
    let gone = create(&*store, "/a/gone", "1").await;
    let mut watch = store.watch("/", gone).unwrap();
    // The store loses etcd, which moves on without it.
    server.stop();
    until_ready(&*store, false).await;
    let ports = server.ports;
    server.ports.0 = ports::unused().port();
    server.restart();
    let mut client = server.client().await;
    client.delete("/fairgate/a/gone", None).await.unwrap();
    let put = client.put("/fairgate/a/new", "1", None).await.unwrap();
    let newest = put.header().unwrap().revision();
    client.compact(newest, None).await.unwrap();
    server.stop();
    server.ports = ports;
    server.restart();

    store
        .wait_for(u64::try_from(newest).unwrap())
        .await
        .unwrap();
    let ended = watch.next().await;
    assert!(
        matches!(ended, Err(StoreError::Compacted { .. })),
        "{ended:?}"
    );
    let page = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    let keys: Vec<_> = page.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["/a/kept", "/a/new"]);
    let past = store.get("/a/kept", ReadRevision::Exactly(first)).await;
    assert!(
        matches!(past, Err(StoreError::Compacted { .. })),
        "{past:?}"
    );
    until_ready(&*store, true).await;
}

#[tokio::test]
async fn an_etcd_whose_history_went_back_is_refused() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    for n in 0..5 {
        create(&*store, &format!("/a/{n}"), "1").await;
    }
    server.stop();
    fs::remove_dir_all(&server.directory).unwrap();
    server.restart();
    let reported = loop {
        let written = store
            .write("/b", Precondition::Absent, Some(Bytes::new()))
            .await;
        match written {
            Err(StoreError::Unavailable(_)) => {}
            other => break other,
        }
    };
    assert!(
        matches!(reported, Err(StoreError::WentBack { .. })),
        "{reported:?}"
    );
    // The cached entries are still served.
    let cached = store
        .list("/a/", None, None, ReadRevision::Cached)
        .await
        .unwrap();
    assert_eq!(cached.entries.len(), 5);
}

#[tokio::test]
async fn a_member_that_went_back_is_not_believed_by_any_read() {
    let (current, backup) = (EtcdServer::start(), EtcdServer::start());
    let relay = TcpRelay::to(([127, 0, 0, 1], backup.ports.0).into()).await;
    relay.cut();
    let mut settings = settings(current.endpoint(), "/fairgate");
    settings.endpoints.push(format!("http://{}", relay.address));
    let store = open(settings).await;
    let mut last = 0;
    for n in 0..5 {
        last = create(&*store, &format!("/a/{n}"), "1").await;
    }
    // The backup has none of these.
    backup.client().await;
    relay.mend();
    let has_left =
        || matches!(store.health(), StoreHealth::Impaired(why) if why.contains("went back"));
    let refused = soon(async {
        loop {
            match store.get("/a/4", ReadRevision::Newest).await {
                Ok(found) => assert_eq!(found.map(|found| found.revision), Some(last)),
                Err(error) => break Some(error),
            }
            if has_left() {
                // A probe has found it before a read came to it.
                break None;
            }
            tokio::task::yield_now().await;
        }
    });
    if let Some(refused) = refused.await {
        assert!(
            matches!(refused, StoreError::WentBack { seen, found } if seen == last && found < seen),
            "{refused:?}"
        );
    }
    // It is left like one that is dead.
    soon(async {
        while !has_left() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    for _ in 0..10 {
        let found = store.get("/a/4", ReadRevision::Newest).await.unwrap();
        assert_eq!(found.map(|found| found.revision), Some(last));
    }
}

#[tokio::test]
async fn another_cluster_at_the_same_address_is_read_again() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let last = create(&*store, "/a/old", "1").await;
    let mut watch = store.watch("/", last).unwrap();
    server.stop();
    until_ready(&*store, false).await;
    // The revision is as high, so it does not show that this is another etcd.
    let ports = server.ports;
    let mut other = EtcdServer::with(Vec::new());
    let elsewhere = open(settings(other.endpoint(), "/fairgate")).await;
    for n in 0..20 {
        create(&*elsewhere, &format!("/a/new{n}"), "1").await;
    }
    let newest = elsewhere.revision().await.unwrap();
    assert!(newest > last);
    drop(elsewhere);
    other.stop();
    other.ports.0 = ports.0;
    other.restart();
    let ended = watch.next().await;
    assert!(
        matches!(ended, Err(StoreError::Compacted { .. })),
        "{ended:?}"
    );
    until_ready(&*store, true).await;
    let page = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert_eq!(page.entries.len(), 20);
}

#[tokio::test]
async fn an_emptied_etcd_is_read_again_once_its_revision_is_past_the_last_one_seen() {
    let mut server = EtcdServer::start();
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let mut last = 0;
    for n in 0..5 {
        last = create(&*store, &format!("/a/old{n}"), "1").await;
    }
    let mut watch = store.watch("/", last).unwrap();
    server.stop();
    until_ready(&*store, false).await;
    // With the same name and address, etcd has the same cluster ID.
    fs::remove_dir_all(&server.directory).unwrap();
    server.restart();
    let other = open(settings(server.endpoint(), "/fairgate")).await;
    for n in 0..20 {
        create(&*other, &format!("/a/new{n}"), "1").await;
    }
    assert!(other.revision().await.unwrap() > last);
    let ended = watch.next().await;
    assert!(
        matches!(ended, Err(StoreError::Compacted { .. })),
        "{ended:?}"
    );
    until_ready(&*store, true).await;
    let page = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    let keys: Vec<_> = page.entries.iter().map(|entry| &*entry.key).collect();
    assert!(keys.iter().all(|key| key.starts_with("/a/new")), "{keys:?}");
    assert_eq!(keys.len(), 20);
}
