//! An etcd whose database is full: what its alarm stops, and what it does not.

use bytes::Bytes;
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions};

use super::{create, open, settings};
use crate::{Precondition, ReadRevision, Store, StoreError, StoreHealth, WriteOutcome};
use fairgate_core::time::Time;
use fairgate_testkit::etcd::EtcdServer;

async fn write(
    store: &dyn Store,
    key: &str,
    at: Precondition,
    length: usize,
) -> Result<WriteOutcome, StoreError> {
    let value = Bytes::from(vec![b'x'; length]);
    store.write(key, at, Some(value)).await
}

/// Ends the alarm, as an operator does once there is room.
async fn disarm(client: &mut Client) {
    let alarms = client
        .alarm(AlarmAction::Get, AlarmType::Nospace, None)
        .await
        .unwrap();
    for alarm in alarms.alarms() {
        let mut of = AlarmOptions::new();
        of.with_member(alarm.member_id());
        client
            .alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn the_alarm_of_a_full_etcd_stops_whatever_stores_a_value_and_no_deletion() {
    let quota = ["--quota-backend-bytes", "4194304"].map(str::to_owned);
    let server = EtcdServer::with(quota.into());
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    let first = create(&*store, "/a/first", "1").await;
    let mut revisions = Vec::new();
    let refused = loop {
        let key = format!("/a/{}", revisions.len());
        match write(&*store, &key, Precondition::Absent, 100_000).await {
            Ok(WriteOutcome::Done { revision, .. }) => revisions.push((key, revision)),
            other => break other,
        }
    };
    let Err(error @ StoreError::DatabaseFull) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.to_string().contains("disarm its alarm"), "{error}");
    assert!(revisions.len() > 10, "{}", revisions.len());
    let StoreHealth::ReadOnly(why) = store.health() else {
        panic!("{:?}", store.health())
    };
    assert_eq!(*why, *error.to_string());
    // A change that makes an object smaller stores a value, too.
    let (key, revision) = &revisions[0];
    let smaller = write(&*store, key, Precondition::At(*revision), 1).await;
    assert!(
        matches!(smaller, Err(StoreError::DatabaseFull)),
        "{smaller:?}"
    );
    // So does one that would lose.
    let lost = write(&*store, key, Precondition::At(first), 1).await;
    assert!(matches!(lost, Err(StoreError::DatabaseFull)), "{lost:?}");
    for (key, revision) in &revisions {
        let deleted = store.write(key, Precondition::At(*revision), None).await;
        assert!(
            matches!(deleted, Ok(WriteOutcome::Done { .. })),
            "{deleted:?}"
        );
    }
    assert!(matches!(store.health(), StoreHealth::ReadOnly(_)));
    // The write that raised the alarm may have taken place.
    let list = store.list("/a/", None, None, ReadRevision::Newest).await;
    let refused = format!("/a/{}", revisions.len());
    let mut left = list.unwrap().entries;
    left.retain(|entry| *entry.key != *refused);
    assert_eq!((left.len(), &*left[0].key), (1, "/a/first"));
    // Deletions alone make no room: the history has the values.
    let still = write(&*store, "/a/later", Precondition::Absent, 1).await;
    assert!(matches!(still, Err(StoreError::DatabaseFull)), "{still:?}");

    let mut client = server.client().await;
    let newest = i64::try_from(store.revision().await.unwrap()).unwrap();
    let physical = Some(CompactionOptions::new().with_physical());
    client.compact(newest, physical).await.unwrap();
    client.defragment().await.unwrap();
    let still = write(&*store, "/a/later", Precondition::Absent, 1).await;
    assert!(matches!(still, Err(StoreError::DatabaseFull)), "{still:?}");
    disarm(&mut client).await;
    // Nobody writes. The store notices that there is room, and changes nothing to find out.
    let newest = store.revision().await.unwrap();
    assert!(matches!(store.health(), StoreHealth::ReadOnly(_)));
    store.maintain(Time::ZERO).await.unwrap();
    assert_eq!(store.health(), StoreHealth::Ready);
    assert_eq!(store.revision().await.unwrap(), newest);
    let stored = write(&*store, "/a/later", Precondition::Absent, 1).await;
    assert!(
        matches!(stored, Ok(WriteOutcome::Done { .. })),
        "{stored:?}"
    );
}

#[tokio::test]
async fn a_full_etcd_is_noticed_before_somebody_writes() {
    let quota = ["--quota-backend-bytes", "4194304"].map(str::to_owned);
    let server = EtcdServer::with(quota.into());
    let store = open(settings(server.endpoint(), "/fairgate")).await;
    store.maintain(Time::ZERO).await.unwrap();
    assert_eq!(store.health(), StoreHealth::Ready);
    // Another user of etcd fills it.
    let mut client = server.client().await;
    for number in 0.. {
        let key = format!("/elsewhere/{number}");
        if client.put(key, vec![b'x'; 100_000], None).await.is_err() {
            break;
        }
    }
    let refused = store.maintain(Time::ZERO).await;
    assert!(
        matches!(refused, Err(StoreError::DatabaseFull)),
        "{refused:?}"
    );
    assert!(matches!(store.health(), StoreHealth::ReadOnly(_)));
    let found = store.get("/a/absent", ReadRevision::Newest).await;
    assert!(matches!(found, Ok(None)), "{found:?}");
}
