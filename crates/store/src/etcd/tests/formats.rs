//! What is stored below the prefix: the marker of the format, and migrations.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::GetOptions;

use super::{create, open, prefix, settings, shared};
use crate::{Precondition, ReadRevision, Store, StoreHealth, conformance, etcd::EtcdStore};

#[tokio::test]
async fn objects_are_below_the_prefix_beside_the_marker() {
    let prefix = prefix();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    create(&*store, "/policy/poddisruptionbudgets/default/web", "value").await;
    let mut client = shared().client().await;
    let all = GetOptions::new().with_prefix();
    let found = client.get(format!("{prefix}/"), Some(all)).await.unwrap();
    let found: Vec<_> = found
        .kvs()
        .iter()
        .map(|kv| (kv.key_str().unwrap(), kv.value_str().unwrap()))
        .collect();
    let key = format!("{prefix}/policy/poddisruptionbudgets/default/web");
    let marker = format!("{prefix}/.format");
    assert_eq!(found, [(&*marker, "fairgate 2"), (&*key, "value")]);
}

/// Writes the keys of a store of the first format, with `marker` as its marker.
async fn first_format(prefix: &str, marker: &str, objects: u32) {
    let mut client = shared().client().await;
    client
        .put(format!("{prefix}/{marker}"), "fairgate 1", None)
        .await
        .unwrap();
    for n in 0..objects {
        let key = format!("{prefix}/flowschemas/{n}");
        client.put(key, format!("{n}"), None).await.unwrap();
    }
}

async fn is_migrated(store: &dyn Store, prefix: &str, objects: usize) {
    let schemas = "/flowcontrol.apiserver.k8s.io/flowschemas/";
    let page = store.list(schemas, None, None, ReadRevision::Newest).await;
    assert_eq!(page.unwrap().entries.len(), objects);
    let all = store.list("/", None, None, ReadRevision::Newest).await;
    assert_eq!(all.unwrap().entries.len(), objects);
    let mut client = shared().client().await;
    let marker = client.get(format!("{prefix}/.format"), None).await.unwrap();
    assert_eq!(marker.kvs()[0].value_str().unwrap(), "fairgate 2");
    let migrating = client.get(format!("{prefix}/.migrating"), None).await;
    assert!(migrating.unwrap().kvs().is_empty());
}

#[tokio::test]
async fn keys_of_the_first_format_are_migrated_by_replicas_that_start_at_once() {
    let prefix = prefix();
    first_format(&prefix, ".format", 250).await;
    let open = || open(settings(shared().endpoint(), &prefix));
    let (a, b, c) = tokio::join!(open(), open(), open());
    for store in [a, b, c] {
        is_migrated(&*store, &prefix, 250).await;
        let key = format!(
            "/flowcontrol.apiserver.k8s.io/flowschemas/{}",
            store.cached_revision()
        );
        create(&*store, &key, "new").await;
        let created = store
            .get(&key, ReadRevision::Newest)
            .await
            .unwrap()
            .unwrap();
        let at = Precondition::At(created.revision);
        store.write(&key, at, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_migration_that_was_interrupted_is_finished() {
    let prefix = prefix();
    first_format(&prefix, ".migrating", 5).await;
    let mut client = shared().client().await;
    let moved = format!("{prefix}/flowcontrol.apiserver.k8s.io/flowschemas/moved");
    client.put(moved, "1", None).await.unwrap();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    is_migrated(&*store, &prefix, 6).await;
}

#[tokio::test]
async fn a_write_fails_once_a_newer_version_has_changed_the_format() {
    let prefix = prefix();
    let store = open(settings(shared().endpoint(), &prefix)).await;
    create(&*store, "/g/a/b", "1").await;
    let mut client = shared().client().await;
    let marker = format!("{prefix}/.format");
    client.put(marker, "fairgate 3", None).await.unwrap();
    let value = Some(Bytes::from_static(b"2"));
    let refused = store.write("/g/a/c", Precondition::Absent, value).await;
    assert!(refused.is_err(), "{refused:?}");
    let key = format!("{prefix}/g/a/c");
    assert!(client.get(key, None).await.unwrap().kvs().is_empty());
}

#[tokio::test]
async fn foreign_data_is_refused_and_left_alone() {
    let mut client = shared().client().await;
    for (prefix, key, value) in [
        (prefix(), "/pods/default/web", "theirs"),
        (prefix(), "/.format", "fairgate 3"),
    ] {
        let key = format!("{prefix}{key}");
        client.put(&*key, value, None).await.unwrap();
        let settings = settings(shared().endpoint(), &prefix);
        let store = EtcdStore::start(&settings, conformance::clock()).unwrap();
        loop {
            match store.health() {
                StoreHealth::Degraded(why) if why.contains("empty or fairgate's own") => break,
                StoreHealth::Ready => panic!("the store accepts the foreign data below {prefix}"),
                StoreHealth::Unread
                | StoreHealth::Impaired(_)
                | StoreHealth::ReadOnly(_)
                | StoreHealth::Degraded(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let refused = store
            .write("/a", Precondition::Absent, Some(Bytes::new()))
            .await;
        assert!(refused.is_err());
        assert!(store.get("/a", ReadRevision::Newest).await.is_err());
        assert!(store.watch("/", 1).is_err());
        let all = GetOptions::new().with_prefix();
        let left = client.get(format!("{prefix}/"), Some(all)).await.unwrap();
        assert_eq!(left.kvs().len(), 1);
        assert_eq!(left.kvs()[0].value_str().unwrap(), value);
    }
}
