//! Watches see every change, once and in order.

use std::{collections::BTreeMap, future::poll_fn, sync::Arc, task::Poll};

use tokio::task::JoinSet;

use super::{TestStore, age, bytes, create, delete, done, fold, put, shown, take};
use crate::{Precondition, ReadRevision, StoreEntry, StoreError, StoreEvent};

pub(crate) async fn a_watch_sends_every_change_with_the_entry_before_it(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let zero = create(&*store, "/a/x", "0").await;
    let mut live = store.watch("/a/", zero).unwrap();
    let one = put(&*store, "/a/x", zero, "1").await;
    create(&*store, "/ax/y", "elsewhere").await;
    let two = delete(&*store, "/a/x", one).await;
    let three = create(&*store, "/a/x", "3").await;
    let mut later = store.watch("/a/", zero).unwrap();
    let mut middle = store.watch("/a/", one).unwrap();

    let reported = |events: &[Arc<StoreEvent>]| -> Vec<(u64, Option<String>, Option<String>)> {
        let text = |entry: &Option<Arc<StoreEntry>>| {
            let entry = entry.as_ref()?;
            Some(String::from_utf8_lossy(&entry.bytes()).into_owned())
        };
        events
            .iter()
            .map(|e| (e.revision, text(&e.before), text(&e.after)))
            .collect()
    };
    let some = |text: &str| Some(text.to_owned());
    let expected = [
        (one, some("0"), some("1")),
        (two, some("1"), None),
        (three, None, some("3")),
    ];
    assert_eq!(reported(&take(&mut live, 3).await), expected);
    assert_eq!(reported(&take(&mut later, 3).await), expected);
    assert_eq!(reported(&take(&mut middle, 2).await), expected[1..]);
}

pub(crate) async fn every_watch_sees_every_change_once_and_in_order(place: &mut dyn TestStore) {
    const WRITERS: usize = 4;
    const WRITES: usize = 40;
    const WATCHES: usize = 20;
    let store = place.open().await.unwrap();
    let start = store.revision().await.unwrap();
    let mut watches = JoinSet::new();
    for n in 0..WATCHES {
        let mut watch = store.watch("/a/", start).unwrap();
        watches.spawn(async move {
            let mut seen = Vec::new();
            let mut state = BTreeMap::new();
            while seen.len() < WRITERS * WRITES {
                for event in watch.next().await.unwrap() {
                    assert!(seen.last().is_none_or(|&last| last < event.revision));
                    seen.push(event.revision);
                    fold(&mut state, &event);
                    assert!(watch.progress() >= event.revision);
                }
                if n % 2 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            (seen, state)
        });
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            let mut revisions = Vec::new();
            let mut at = None;
            for n in 0..WRITES {
                let key = format!("/a/{writer}");
                let expected = at.map_or(Precondition::Absent, Precondition::At);
                let new = (n % 5 != 4).then(|| bytes(&n.to_string()));
                let (revision, _, after) = done(store.write(&key, expected, new).await.unwrap());
                at = after.map(|after| after.revision);
                revisions.push(revision);
            }
            revisions
        });
    }
    let mut written = Vec::new();
    while let Some(revisions) = writers.join_next().await {
        written.extend(revisions.unwrap());
    }
    written.sort_unstable();
    let end = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    while let Some(watched) = watches.join_next().await {
        let (seen, state) = watched.unwrap();
        assert_eq!(seen, written);
        let state: Vec<_> = state.into_values().collect();
        assert_eq!(shown(&state), shown(&end.entries));
    }
}

pub(crate) async fn a_watch_below_the_floor_is_refused(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let first = create(&*store, "/a/x", "1").await;
    let second = put(&*store, "/a/x", first, "2").await;
    assert!(store.floor() <= first);
    age(place, &*store).await;
    assert!(store.floor() >= second);
    let compacted = store.watch("/a/", first).unwrap_err();
    assert!(
        matches!(compacted, StoreError::Compacted { requested, floor } if requested == first && floor >= second),
        "{compacted}"
    );
    store.watch("/a/", store.floor()).unwrap();
    // A new watch can begin at the floor.
    let third = put(&*store, "/a/x", second, "3").await;
    let mut watch = store.watch("/a/", second.max(store.floor())).unwrap();
    assert_eq!(take(&mut watch, 1).await[0].revision, third);
}

pub(crate) async fn a_slow_watch_ends_when_the_floor_overtakes_it(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let first = create(&*store, "/a/x", "1").await;
    let mut slow = store.watch("/a/", first).unwrap();
    let mut quick = store.watch("/a/", first).unwrap();
    put(&*store, "/a/x", first, "2").await;
    take(&mut quick, 1).await;
    age(place, &*store).await;
    let third = create(&*store, "/a/y", "3").await;
    for _ in 0..2 {
        let ended = slow.next().await;
        assert!(
            matches!(ended, Err(StoreError::Compacted { .. })),
            "{ended:?}"
        );
    }
    assert_eq!(take(&mut quick, 1).await[0].revision, third);
}

pub(crate) async fn the_progress_of_a_watch_includes_changes_elsewhere(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/a/", start).unwrap();
    let elsewhere = create(&*store, "/b/x", "1").await;
    store.wait_for(elsewhere).await.unwrap();
    assert_eq!(watch.progress(), start);
    assert!(watch.ready().unwrap().is_empty());
    assert!(watch.progress() >= elsewhere);
    // While it waits, too: the wait sees the change elsewhere and continues.
    let further = create(&*store, "/b/y", "1").await;
    store.wait_for(further).await.unwrap();
    let mut waiting = Box::pin(watch.next());
    let waits = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await;
    assert!(waits);
    drop(waiting);
    assert!(watch.progress() >= further);
}

pub(crate) async fn a_dropped_wait_loses_nothing(place: &mut dyn TestStore) {
    const WRITES: usize = 30;
    let store = place.open().await.unwrap();
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/a/", start).unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            let mut revisions = Vec::new();
            for n in 0..WRITES {
                revisions.push(create(&*store, &format!("/a/{n}"), "").await);
            }
            revisions
        }
    });
    let mut seen = Vec::new();
    while seen.len() < WRITES {
        tokio::select! {
            biased;
            events = watch.next() => seen.extend(events.unwrap().iter().map(|e| e.revision)),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(seen, writer.await.unwrap());
}
