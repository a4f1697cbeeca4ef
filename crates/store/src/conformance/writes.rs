//! Writes compare, swap and number their changes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{TestStore, bytes, create, delete, done, lost, put, take, value};
use crate::{
    Precondition, ReadRevision, StoreError, StoreHealth, WriteOutcome, entry::MAX_VALUE_BYTES,
};

pub(crate) async fn every_change_gets_the_next_revision_whatever_its_prefix(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    let start = store.revision().await.unwrap();
    assert!(start >= 1);
    let first = create(&*store, "/a/x", "1").await;
    let second = create(&*store, "/b/ns/y", "2").await;
    let third = put(&*store, "/a/x", first, "3").await;
    let fourth = delete(&*store, "/b/ns/y", second).await;
    assert!(start < first && first < second && second < third && third < fourth);
    assert!(store.revision().await.unwrap() >= fourth);
    assert_eq!(store.health(), StoreHealth::Ready);
}

pub(crate) async fn a_write_that_changes_nothing_gets_no_revision(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let first = create(&*store, "/a/x", "same").await;
    let mut watch = store.watch("/a/", first).unwrap();
    assert_eq!(put(&*store, "/a/x", first, "same").await, first);
    let nothing = store
        .write("/a/y", Precondition::Absent, None)
        .await
        .unwrap();
    let (_, before, after) = done(nothing);
    assert!(before.is_none() && after.is_none());
    let next = put(&*store, "/a/x", first, "other").await;
    assert_eq!(take(&mut watch, 1).await[0].revision, next);
}

pub(crate) async fn writes_compare_before_they_swap(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let absent = store
        .write("/a/x", Precondition::At(7), Some(bytes("1")))
        .await
        .unwrap();
    assert!(lost(absent).is_none());
    let absent = store
        .write("/a/x", Precondition::At(7), None)
        .await
        .unwrap();
    assert!(lost(absent).is_none());

    let first = create(&*store, "/a/x", "1").await;
    for (expected, new) in [
        (Precondition::Absent, Some(bytes("2"))),
        (Precondition::Absent, None),
        (Precondition::At(first + 1), Some(bytes("2"))),
        (Precondition::At(first - 1), None),
    ] {
        let found = lost(store.write("/a/x", expected, new).await.unwrap());
        let found = found.expect("it is there");
        assert_eq!((found.revision, &found.bytes()[..]), (first, &b"1"[..]));
    }

    let second = store
        .write("/a/x", Precondition::At(first), Some(bytes("2")))
        .await
        .unwrap();
    let (second, before, after) = done(second);
    assert_eq!(value(before.as_ref()).as_deref(), Some(&b"1"[..]));
    assert_eq!(value(after.as_ref()).as_deref(), Some(&b"2"[..]));
    assert_eq!(after.map(|after| after.revision), Some(second));
    let gone = store
        .write("/a/x", Precondition::At(second), None)
        .await
        .unwrap();
    let (_, before, after) = done(gone);
    assert_eq!(value(before.as_ref()).as_deref(), Some(&b"2"[..]));
    assert!(after.is_none());
    assert!(
        store
            .get("/a/x", ReadRevision::Newest)
            .await
            .unwrap()
            .is_none()
    );
    create(&*store, "/a/x", "again").await;
}

pub(crate) async fn one_of_several_racing_writers_wins_each_round(place: &mut dyn TestStore) {
    const WRITERS: u64 = 8;
    const ROUNDS: u64 = 20;
    let store = place.open().await.unwrap();
    create(&*store, "/counter", "0").await;
    let losses = Arc::new(AtomicU64::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (store, losses) = (store.clone(), losses.clone());
        writers.spawn(async move {
            let mut current = store
                .get("/counter", ReadRevision::Cached)
                .await
                .unwrap()
                .unwrap();
            for _ in 0..ROUNDS {
                loop {
                    let count: u64 = String::from_utf8_lossy(&current.bytes()).parse().unwrap();
                    let next = bytes(&(count + 1).to_string());
                    let expected = Precondition::At(current.revision);
                    match store.write("/counter", expected, Some(next)).await.unwrap() {
                        WriteOutcome::Done { after, .. } => {
                            current = after.unwrap();
                            break;
                        }
                        WriteOutcome::Lost(found) => {
                            losses.fetch_add(1, Ordering::Relaxed);
                            current = found.unwrap();
                        }
                    }
                }
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let end = store.get("/counter", ReadRevision::Newest).await.unwrap();
    let expected = (WRITERS * ROUNDS).to_string();
    assert_eq!(value(end.as_ref()).as_deref(), Some(expected.as_bytes()));
    assert!(losses.load(Ordering::Relaxed) > 0, "they did not race");
}

pub(crate) async fn a_value_of_the_maximum_length_is_stored_and_a_longer_one_refused(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    // etcd limits the whole request, and the value is only a part of it.
    let longest = Bytes::from(vec![b'x'; MAX_VALUE_BYTES - 4096]);
    let written = store
        .write("/a/x", Precondition::Absent, Some(longest.clone()))
        .await;
    let (first, _, _) = done(written.unwrap());
    let read = store.get("/a/x", ReadRevision::Newest).await.unwrap();
    assert_eq!(read.unwrap().bytes(), longest);
    let longer = Bytes::from(vec![b'x'; MAX_VALUE_BYTES + 1]);
    let refused = store
        .write("/a/x", Precondition::At(first), Some(longer))
        .await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused}");
    put(&*store, "/a/x", first, "").await;
    let read = store.get("/a/x", ReadRevision::Newest).await.unwrap();
    assert_eq!(value(read.as_ref()).as_deref(), Some(&b""[..]));
}

pub(crate) async fn an_invalid_key_is_refused(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    for key in ["", "/", "a", "/a/", "/a//b", "/.hidden"] {
        let written = store
            .write(key, Precondition::Absent, Some(bytes("1")))
            .await;
        assert!(matches!(written, Err(StoreError::BadKey(_))), "{key}");
        let read = store.get(key, ReadRevision::Newest).await;
        assert!(matches!(read, Err(StoreError::BadKey(_))), "{key}");
    }
    let read = store.list("/a", None, None, ReadRevision::Newest).await;
    assert!(matches!(read, Err(StoreError::BadKey(_))));
    let watched = store.watch("/a", store.cached_revision());
    assert!(matches!(watched, Err(StoreError::BadKey(_))));
}
