//! Watches that one task tells of changes see what others see.

use std::{collections::BTreeMap, future::poll_fn, pin::pin, sync::Arc, task::Poll};

use tokio::task::JoinSet;

use super::{TestStore, age, bytes, create, done, fold, put};
use crate::{FanOut, FollowedWatch, Precondition, ReadRevision, Store, StoreError};
use fairgate_testkit::client::soon;

fn fan_out(store: &Arc<dyn Store>) -> Arc<FanOut> {
    let (fan_out, task) = FanOut::new(Arc::clone(store)).unwrap();
    tokio::spawn(task);
    fan_out
}

pub(crate) async fn followed_watches_see_every_change_once_and_in_order(place: &mut dyn TestStore) {
    const WRITERS: usize = 4;
    const WRITES: usize = 40;
    const PREFIXES: [&str; 3] = ["/", "/a/", "/a/1/"];
    let store = place.open().await.unwrap();
    let start = store.revision().await.unwrap();
    let fan_out = fan_out(&store);
    let mut watches = JoinSet::new();
    for n in 0..18 {
        let prefix = PREFIXES[n % 3];
        let mut watch = fan_out.follow(store.watch(prefix, start).unwrap());
        watches.spawn(async move {
            let (mut seen, mut state) = (Vec::new(), BTreeMap::new());
            loop {
                for event in soon(watch.next()).await.unwrap() {
                    if event.key.starts_with("/end/") || event.key.ends_with("/end") {
                        return (prefix, seen);
                    }
                    assert!(seen.last().is_none_or(|(_, last)| *last < event.revision));
                    seen.push((Arc::clone(&event.key), event.revision));
                    fold(&mut state, &event);
                    assert!(watch.progress() >= event.revision);
                }
                if n % 2 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let mut written = Vec::new();
            for n in 0..WRITES {
                let group = if n % 3 == 0 { "a" } else { "b" };
                let key = format!("/{group}/{}/{writer}-{}", n % 2, n % 6);
                let entry = store.get(&key, ReadRevision::Newest).await.unwrap();
                let expected = entry.map_or(Precondition::Absent, |e| Precondition::At(e.revision));
                let new = (n % 5 != 4).then(|| bytes(&n.to_string()));
                let (revision, before, after) =
                    done(store.write(&key, expected, new).await.unwrap());
                // A deletion of what is absent changes nothing.
                if before.is_some() || after.is_some() {
                    written.push((Arc::from(key), revision));
                }
            }
            written
        });
    }
    let mut written: Vec<(Arc<str>, u64)> = Vec::new();
    while let Some(of_writer) = writers.join_next().await {
        written.extend(of_writer.unwrap());
    }
    written.sort_unstable_by_key(|(_, revision)| *revision);
    create(&*store, "/a/1/end", "").await;
    while let Some(watched) = watches.join_next().await {
        let (prefix, seen) = watched.unwrap();
        let expected = written.iter().filter(|(key, _)| key.starts_with(prefix));
        assert_eq!(seen, expected.cloned().collect::<Vec<_>>(), "{prefix}");
    }
}

pub(crate) async fn a_followed_watch_misses_nothing_though_it_waits_below_the_floor(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    let fan_out = fan_out(&store);
    let start = store.revision().await.unwrap();
    let mut watch = fan_out.follow(store.watch("/a/", start).unwrap());
    assert!(waits(&mut watch).await);
    for n in 0..20 {
        let revision = create(&*store, &format!("/b/{n}"), "").await;
        // What happens elsewhere counts as seen.
        soon(progress(&watch, revision)).await;
    }
    age(place, &*store).await;
    assert!(
        store.floor() > start,
        "a watch that were still there would end"
    );
    let revision = create(&*store, "/a/x", "").await;
    let events = soon(watch.next()).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].revision, revision);
    assert!(waits(&mut watch).await);
}

async fn progress(watch: &FollowedWatch, revision: u64) {
    while watch.progress() < revision {
        tokio::task::yield_now().await;
    }
}

/// Whether nothing has changed below its prefix.
async fn waits(watch: &mut FollowedWatch) -> bool {
    let mut next = pin!(watch.next());
    poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await
}

pub(crate) async fn a_followed_watch_ends_when_the_floor_overtakes_what_it_did_not_read(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    let fan_out = fan_out(&store);
    let first = create(&*store, "/a/x", "1").await;
    let mut slow = fan_out.follow(store.watch("/a/", first).unwrap());
    let mut quick = fan_out.follow(store.watch("/a/", first).unwrap());
    put(&*store, "/a/x", first, "2").await;
    soon(quick.next()).await.unwrap();
    age(place, &*store).await;
    let third = create(&*store, "/a/y", "3").await;
    for _ in 0..2 {
        let ended = soon(slow.next()).await;
        assert!(
            matches!(ended, Err(StoreError::Compacted { .. })),
            "{ended:?}"
        );
    }
    assert_eq!(soon(quick.next()).await.unwrap()[0].revision, third);
}

pub(crate) async fn followed_watches_end_when_changes_are_lost_before_they_were_noted(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    let (fan_out, task) = FanOut::new(Arc::clone(&store)).unwrap();
    let start = store.revision().await.unwrap();
    let mut watch = fan_out.follow(store.watch("/a/", start).unwrap());
    assert!(waits(&mut watch).await);
    let lost = create(&*store, "/a/x", "").await;
    age(place, &*store).await;
    tokio::spawn(task);
    let ended = soon(watch.next()).await;
    assert!(
        matches!(ended, Err(StoreError::Compacted { .. })),
        "{ended:?}"
    );
    // The next ones are noted again.
    let mut watch = fan_out.follow(store.watch("/a/", lost).unwrap());
    assert!(waits(&mut watch).await);
    let revision = create(&*store, "/a/y", "").await;
    assert_eq!(soon(watch.next()).await.unwrap()[0].revision, revision);
}
