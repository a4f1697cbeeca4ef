//! What a store still has after it was closed.

use super::{TestStore, create, delete, put, shown, take};
use crate::{ReadRevision, StoreError};

pub(crate) async fn everything_is_there_after_reopening(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let first = create(&*store, "/a/x", "1").await;
    let second = create(&*store, "/a/y", "2").await;
    put(&*store, "/a/x", first, "3").await;
    let last = delete(&*store, "/a/y", second).await;
    let before = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    drop(store);
    let store = place.open().await.unwrap();
    let after = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert_eq!(shown(&after.entries), shown(&before.entries));
    assert!(after.revision >= last);
    assert!(create(&*store, "/a/z", "4").await > last);
}

pub(crate) async fn a_watch_resumes_after_reopening_or_is_refused(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let mut revisions = vec![create(&*store, "/a/x", "0").await];
    for n in 1..6 {
        let last = *revisions.last().unwrap();
        revisions.push(put(&*store, "/a/x", last, &n.to_string()).await);
    }
    drop(store);
    let store = place.open().await.unwrap();
    for (n, &from) in revisions.iter().enumerate() {
        let later = &revisions[n + 1..];
        match store.watch("/a/", from) {
            Ok(mut watch) => {
                let events = take(&mut watch, later.len()).await;
                let seen: Vec<_> = events.iter().map(|event| event.revision).collect();
                assert_eq!(seen, later);
                for event in &events {
                    let before = event.before.as_ref().map(|before| before.revision);
                    let index = revisions.iter().position(|&r| r == event.revision);
                    assert_eq!(before, Some(revisions[index.unwrap() - 1]));
                }
            }
            Err(error) => assert!(matches!(error, StoreError::Compacted { .. }), "{error}"),
        }
    }
    // Both stores keep the history, so no watch ends here.
    assert!(store.floor() <= revisions[0], "{}", store.floor());
}
