//! Limits on what the entries below a prefix may take.

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{TestStore, bytes, create, delete, put};
use crate::{Precondition, StoreError, StoreLimit, StoreUsage, WriteBounds, WriteOutcome};

fn used(objects: u64, bytes: u64) -> StoreUsage {
    StoreUsage { objects, bytes }
}

/// At most so many entries and bytes below `/a/`.
fn within(objects: u64, bytes: u64) -> WriteBounds {
    let limit = StoreLimit {
        prefix: "/a/".to_owned(),
        most: used(objects, bytes),
    };
    WriteBounds {
        limits: vec![limit],
        is_essential: false,
    }
}

pub(crate) async fn what_is_used_is_counted_by_prefix_also_after_reopening(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    let first = create(&*store, "/a/n/x", "12345").await;
    create(&*store, "/a/m/y", "12").await;
    let third = create(&*store, "/b/z", "1").await;
    put(&*store, "/a/n/x", first, "123").await;
    delete(&*store, "/b/z", third).await;
    assert_eq!(store.usage("/a/n/"), used(1, 3));
    assert_eq!(store.usage("/a/"), used(2, 5));
    assert_eq!(store.usage("/b/"), used(0, 0));
    assert_eq!(store.usage("/"), used(2, 5));
    drop(store);
    let store = place.open().await.unwrap();
    store.revision().await.unwrap();
    store.wait_for(1).await.unwrap();
    let mut usages = store.usages();
    usages.sort_by(|one, other| one.0.cmp(&other.0));
    let usages: Vec<_> = usages.iter().map(|(key, used)| (&**key, *used)).collect();
    let expected = [
        ("/", used(2, 5)),
        ("/a/", used(2, 5)),
        ("/a/m/", used(1, 2)),
        ("/a/n/", used(1, 3)),
    ];
    assert_eq!(usages, expected);
}

pub(crate) async fn a_write_beyond_a_limit_is_refused_and_one_that_shrinks_is_not(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    let first = create(&*store, "/a/x", "1234").await;
    create(&*store, "/a/y", "1234").await;
    let refused = store
        .write_within(
            "/a/z",
            Precondition::Absent,
            Some(bytes("1")),
            within(2, 100),
        )
        .await;
    let Err(StoreError::OverLimit(exceeded)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(exceeded.used, used(2, 8));
    assert_eq!(exceeded.requested, used(1, 1));
    assert_eq!(exceeded.limit.most, used(2, 100));
    // It was not written, and is not counted.
    assert_eq!(store.usage("/a/"), used(2, 8));
    // Over the limit of bytes: no growth, but everything else.
    let write = async |at, text: &str, bounds| {
        let at = Precondition::At(at);
        match store
            .write_within("/a/x", at, Some(bytes(text)), bounds)
            .await
        {
            Ok(WriteOutcome::Done { revision, .. }) => Some(revision),
            Err(StoreError::OverLimit(_)) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(write(first, "12345", within(1, 6)).await, None);
    let same = write(first, "4321", within(1, 6)).await.unwrap();
    let shorter = write(same, "1", within(1, 6)).await.unwrap();
    assert_eq!(store.usage("/a/"), used(2, 5));
    let longer = write(shorter, "12", within(1, 6)).await.unwrap();
    assert_eq!(write(longer, "123", within(1, 6)).await, None);
    delete(&*store, "/a/x", longer).await;
    assert_eq!(store.usage("/a/"), used(1, 4));
}

pub(crate) async fn concurrent_writes_do_not_exceed_a_limit_together(place: &mut dyn TestStore) {
    const WRITERS: usize = 60;
    let store = place.open().await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            let key = format!("/a/{writer}");
            let value = Bytes::from(vec![b'x'; 10]);
            let written = store
                .write_within(&key, Precondition::Absent, Some(value), within(20, 205))
                .await;
            match written {
                Ok(WriteOutcome::Done { .. }) => true,
                Err(StoreError::OverLimit(_)) => false,
                other => panic!("{other:?}"),
            }
        });
    }
    let mut stored = 0;
    while let Some(ended) = writers.join_next().await {
        stored += usize::from(ended.unwrap());
    }
    assert!(stored <= 20, "{stored}");
    assert_eq!(store.usage("/a/").objects, stored as u64);
    // What failed holds nothing: there is room for exactly the rest.
    for writer in stored..20 {
        let key = format!("/a/later-{writer}");
        let value = Some(bytes("0123456789"));
        let written = store
            .write_within(&key, Precondition::Absent, value, within(20, 205))
            .await;
        assert!(
            matches!(written, Ok(WriteOutcome::Done { .. })),
            "{written:?}"
        );
    }
    assert_eq!(store.usage("/a/"), used(20, 200));
}
