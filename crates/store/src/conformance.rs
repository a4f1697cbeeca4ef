//! What every store must keep, whichever it is.
//!
//! [`conformance!`] makes a test of each function below for one kind of store. They know nothing of it
//! but a [`TestStore`]: where one set of objects lives, and can be opened again.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    ListPage, Precondition, ReadRevision, Store, StoreEntry, StoreError, StoreEvent, StoreFuture,
    StoreHealth, Watch, WriteOutcome, entry::MAX_VALUE_BYTES,
};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// Where one set of objects lives.
pub(super) trait TestStore: Send {
    /// Opens it, again if need be; the store opened before has been dropped.
    fn open(&mut self) -> StoreFuture<'_, Arc<dyn Store>>;
    /// The clock of the stores opened.
    fn clock(&self) -> Clock;
}

/// Makes a test of everything here for the [`TestStore`]s that an expression makes.
macro_rules! conformance {
    ($place:expr => $($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::conformance::$name(&mut $place).await;
            }
        )*
    };
    ($place:expr) => {
        $crate::conformance::conformance! { $place =>
            every_change_gets_the_next_revision_across_kinds
            a_write_that_changes_nothing_gets_no_revision
            writes_compare_before_they_swap
            of_racing_writers_one_wins_each_round
            lists_are_in_byte_order_and_do_not_run_into_neighbours
            pages_of_one_revision_make_up_its_list
            the_past_can_be_read_down_to_the_floor
            reads_of_the_past_hold_while_others_write
            a_watch_tells_every_change_with_what_was_before
            every_watch_sees_every_change_once_and_in_order
            a_watch_below_the_floor_is_told_so
            a_slow_watch_ends_when_the_floor_overtakes_it
            progress_goes_up_without_changes_below_the_prefix
            a_dropped_wait_loses_nothing
            what_was_acknowledged_is_read_at_once
            everything_is_there_after_reopening
            a_watch_resumes_after_reopening_or_is_told
            the_longest_value_fits_and_a_longer_one_is_refused
            what_is_no_key_is_refused
            entries_and_changes_are_shared_with_their_memos
        }
    };
}
pub(super) use conformance;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// What `write` gave, which has to be done: revision, before, after.
fn done(written: WriteOutcome) -> (u64, Option<Arc<StoreEntry>>, Option<Arc<StoreEntry>>) {
    match written {
        WriteOutcome::Done {
            revision,
            before,
            after,
        } => (revision, before, after),
        WriteOutcome::Lost(found) => panic!("lost to {found:?}"),
    }
}

fn lost(written: WriteOutcome) -> Option<Arc<StoreEntry>> {
    match written {
        WriteOutcome::Lost(found) => found,
        done @ WriteOutcome::Done { .. } => panic!("{done:?}"),
    }
}

async fn create(store: &dyn Store, key: &str, value: &str) -> u64 {
    let written = store
        .write(key, Precondition::Absent, Some(bytes(value)))
        .await;
    done(written.unwrap()).0
}

async fn put(store: &dyn Store, key: &str, at: u64, value: &str) -> u64 {
    let written = store
        .write(key, Precondition::At(at), Some(bytes(value)))
        .await;
    done(written.unwrap()).0
}

async fn delete(store: &dyn Store, key: &str, at: u64) -> u64 {
    done(store.write(key, Precondition::At(at), None).await.unwrap()).0
}

fn limit(entries: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(entries)
}

/// `key=value@revision`, for comparing.
fn shown(entries: &[Arc<StoreEntry>]) -> Vec<String> {
    let show = |entry: &Arc<StoreEntry>| {
        let value = String::from_utf8_lossy(&entry.value);
        format!("{}={value}@{}", entry.key, entry.revision)
    };
    entries.iter().map(show).collect()
}

fn value(entry: Option<&Arc<StoreEntry>>) -> Option<&[u8]> {
    entry.map(|entry| &entry.value[..])
}

/// The next `count` changes of a watch.
async fn take(watch: &mut Watch, count: usize) -> Vec<Arc<StoreEvent>> {
    let mut events = Vec::new();
    while events.len() < count {
        let more = tokio::time::timeout(Duration::from_secs(30), watch.next());
        events.extend(more.await.expect("changes stay away").unwrap());
    }
    assert_eq!(events.len(), count, "{events:?}");
    events
}

/// Applies a change to a state, and checks that it follows from it.
fn fold(state: &mut BTreeMap<Arc<str>, Arc<StoreEntry>>, event: &StoreEvent) {
    let before = match &event.after {
        Some(after) => {
            assert_eq!(after.revision, event.revision);
            state.insert(event.key.clone(), after.clone())
        }
        None => state.remove(&event.key),
    };
    let seen = |entry: Option<&Arc<StoreEntry>>| entry.map(|e| (e.revision, e.value.clone()));
    assert_eq!(seen(before.as_ref()), seen(event.before.as_ref()));
}

/// Lets the history grow so old that all of it goes.
async fn age(place: &dyn TestStore, store: &dyn Store) {
    place.clock().advance(Duration::from_secs(3600));
    store.maintain(place.clock().now()).await.unwrap();
}

pub(super) async fn every_change_gets_the_next_revision_across_kinds(place: &mut dyn TestStore) {
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

pub(super) async fn a_write_that_changes_nothing_gets_no_revision(place: &mut dyn TestStore) {
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

pub(super) async fn writes_compare_before_they_swap(place: &mut dyn TestStore) {
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
        assert_eq!((found.revision, &found.value[..]), (first, &b"1"[..]));
    }

    let second = store
        .write("/a/x", Precondition::At(first), Some(bytes("2")))
        .await
        .unwrap();
    let (second, before, after) = done(second);
    assert_eq!(value(before.as_ref()), Some(&b"1"[..]));
    assert_eq!(value(after.as_ref()), Some(&b"2"[..]));
    assert_eq!(after.map(|after| after.revision), Some(second));
    let gone = store
        .write("/a/x", Precondition::At(second), None)
        .await
        .unwrap();
    let (_, before, after) = done(gone);
    assert_eq!(value(before.as_ref()), Some(&b"2"[..]));
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

pub(super) async fn of_racing_writers_one_wins_each_round(place: &mut dyn TestStore) {
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
                    let count: u64 = String::from_utf8_lossy(&current.value).parse().unwrap();
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
    assert_eq!(value(end.as_ref()), Some(expected.as_bytes()));
    assert!(losses.load(Ordering::Relaxed) > 0, "they did not race");
}

pub(super) async fn lists_are_in_byte_order_and_do_not_run_into_neighbours(
    place: &mut dyn TestStore,
) {
    let store = place.open().await.unwrap();
    for key in [
        "/pods/b",
        "/podsx/a",
        "/pods/a-b",
        "/pods/a/b",
        "/pod/a",
        "/pods/aé",
        "/pods/B",
    ] {
        create(&*store, key, "").await;
    }
    let keys = |page: ListPage| -> Vec<String> {
        page.entries
            .iter()
            .map(|entry| entry.key.to_string())
            .collect()
    };
    for at in [ReadRevision::Newest, ReadRevision::Cached] {
        let page = store.list("/pods/", None, None, at).await.unwrap();
        let expected = ["/pods/B", "/pods/a-b", "/pods/a/b", "/pods/aé", "/pods/b"];
        assert_eq!(keys(page), expected);
    }
    let all = store
        .list("/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert_eq!(all.entries.len(), 7);
    let none = store
        .list("/po/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert_eq!(keys(none), [""; 0]);
}

pub(super) async fn pages_of_one_revision_make_up_its_list(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let mut revisions = Vec::new();
    for n in 0..10 {
        revisions.push(create(&*store, &format!("/a/{n}"), "old").await);
    }
    let whole = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert_eq!(whole.remaining, 0);
    let first = store
        .list("/a/", None, limit(4), ReadRevision::Newest)
        .await
        .unwrap();
    assert_eq!((first.entries.len(), first.remaining), (4, 6));
    assert!(first.more());
    // What happens between two pages shows in none.
    delete(&*store, "/a/5", revisions[5]).await;
    put(&*store, "/a/6", revisions[6], "new").await;
    create(&*store, "/a/55", "new").await;
    create(&*store, "/a/99", "new").await;

    let at = ReadRevision::Exactly(first.revision);
    let mut entries = first.entries;
    loop {
        let last = entries.last().unwrap().key.clone();
        let page = store.list("/a/", Some(&last), limit(4), at).await.unwrap();
        assert_eq!(page.revision, first.revision);
        let more = page.more();
        entries.extend(page.entries);
        if !more {
            break;
        }
    }
    assert_eq!(shown(&entries), shown(&whole.entries));
}

pub(super) async fn the_past_can_be_read_down_to_the_floor(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let mut state = BTreeMap::new();
    let mut past = Vec::new();
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/a/", start).unwrap();
    let first = create(&*store, "/a/x", "1").await;
    create(&*store, "/b/z", "1").await;
    let second = put(&*store, "/a/x", first, "2").await;
    create(&*store, "/a/y", "1").await;
    delete(&*store, "/a/x", second).await;
    create(&*store, "/a/x", "3").await;
    for event in take(&mut watch, 5).await {
        fold(&mut state, &event);
        past.push((event.revision, state.clone()));
    }
    for (revision, state) in &past {
        let at = ReadRevision::Exactly(*revision);
        let page = store.list("/a/", None, None, at).await.unwrap();
        let expected: Vec<_> = state.values().cloned().collect();
        assert_eq!(shown(&page.entries), shown(&expected), "at {revision}");
        assert_eq!(page.revision, *revision);
        let x = store.get("/a/x", at).await.unwrap();
        assert_eq!(value(x.as_ref()), value(state.get("/a/x")));
    }
    let newest = store.revision().await.unwrap();
    let beyond = ReadRevision::Exactly(newest + 1000);
    let future = store.list("/a/", None, None, beyond).await;
    assert!(
        matches!(future, Err(StoreError::Future { .. })),
        "{future:?}"
    );
}

pub(super) async fn reads_of_the_past_hold_while_others_write(place: &mut dyn TestStore) {
    const WRITES: usize = 60;
    let store = place.open().await.unwrap();
    for n in 0..5 {
        create(&*store, &format!("/a/{n}"), "old").await;
    }
    let page = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 0..WRITES {
                let key = format!("/a/{}", n % 7);
                let current = store.get(&key, ReadRevision::Newest).await.unwrap();
                let expected =
                    current.map_or(Precondition::Absent, |e| Precondition::At(e.revision));
                let new = (n % 3 > 0 || expected == Precondition::Absent)
                    .then(|| bytes(&format!("new {n}")));
                store.write(&key, expected, new).await.unwrap();
            }
        }
    });
    let mut read = 0;
    while !writer.is_finished() || read == 0 {
        let at = ReadRevision::Exactly(page.revision);
        let again = store.list("/a/", None, None, at).await.unwrap();
        assert_eq!(shown(&again.entries), shown(&page.entries));
        read += 1;
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
}

pub(super) async fn a_watch_tells_every_change_with_what_was_before(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let zero = create(&*store, "/a/x", "0").await;
    let mut live = store.watch("/a/", zero).unwrap();
    let one = put(&*store, "/a/x", zero, "1").await;
    create(&*store, "/ax/y", "elsewhere").await;
    let two = delete(&*store, "/a/x", one).await;
    let three = create(&*store, "/a/x", "3").await;
    let mut later = store.watch("/a/", zero).unwrap();
    let mut middle = store.watch("/a/", one).unwrap();

    let told = |events: &[Arc<StoreEvent>]| -> Vec<(u64, Option<String>, Option<String>)> {
        let text = |entry: &Option<Arc<StoreEntry>>| {
            let entry = entry.as_ref()?;
            Some(String::from_utf8_lossy(&entry.value).into_owned())
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
    assert_eq!(told(&take(&mut live, 3).await), expected);
    assert_eq!(told(&take(&mut later, 3).await), expected);
    assert_eq!(told(&take(&mut middle, 2).await), expected[1..]);
}

pub(super) async fn every_watch_sees_every_change_once_and_in_order(place: &mut dyn TestStore) {
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

pub(super) async fn a_watch_below_the_floor_is_told_so(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let first = create(&*store, "/a/x", "1").await;
    let second = put(&*store, "/a/x", first, "2").await;
    assert!(store.floor() <= first);
    age(place, &*store).await;
    assert!(store.floor() >= second);
    let compacted = store.watch("/a/", first).unwrap_err();
    assert!(
        matches!(compacted, StoreError::Compacted { asked, floor } if asked == first && floor >= second),
        "{compacted}"
    );
    store.watch("/a/", store.floor()).unwrap();
    // Going on is possible, and the floor stays.
    let third = put(&*store, "/a/x", second, "3").await;
    let mut watch = store.watch("/a/", second.max(store.floor())).unwrap();
    assert_eq!(take(&mut watch, 1).await[0].revision, third);
}

pub(super) async fn a_slow_watch_ends_when_the_floor_overtakes_it(place: &mut dyn TestStore) {
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

pub(super) async fn progress_goes_up_without_changes_below_the_prefix(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/a/", start).unwrap();
    let elsewhere = create(&*store, "/b/x", "1").await;
    store.wait_for(elsewhere).await.unwrap();
    assert_eq!(watch.progress(), start);
    assert!(watch.ready().unwrap().is_empty());
    assert!(watch.progress() >= elsewhere);
    // While it waits, too: the wait sees what happens elsewhere and goes on waiting.
    let further = create(&*store, "/b/y", "1").await;
    store.wait_for(further).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(1), watch.next()).await;
    assert!(waited.is_err());
    assert!(watch.progress() >= further);
}

pub(super) async fn a_dropped_wait_loses_nothing(place: &mut dyn TestStore) {
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

pub(super) async fn what_was_acknowledged_is_read_at_once(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let mut at = create(&*store, "/a/x", "0").await;
    for n in 1..30_u64 {
        let text = n.to_string();
        at = put(&*store, "/a/x", at, &text).await;
        // In memory too: the writer waits for it.
        for how in [ReadRevision::Newest, ReadRevision::Cached] {
            let read = store.get("/a/x", how).await.unwrap().unwrap();
            assert_eq!((read.revision, &read.value[..]), (at, text.as_bytes()));
            let page = store.list("/a/", None, None, how).await.unwrap();
            assert_eq!(page.entries[0].revision, at);
            assert!(page.revision >= at);
        }
        assert!(store.revision().await.unwrap() >= at);
        assert!(store.cached_revision() >= at);
    }
}

pub(super) async fn everything_is_there_after_reopening(place: &mut dyn TestStore) {
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

pub(super) async fn a_watch_resumes_after_reopening_or_is_told(place: &mut dyn TestStore) {
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
    // Both stores keep the history, so nobody has to be told here.
    assert!(store.floor() <= revisions[0], "{}", store.floor());
}

pub(super) async fn the_longest_value_fits_and_a_longer_one_is_refused(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    // etcd's limit is for the request; what is around the value needs some of it.
    let longest = Bytes::from(vec![b'x'; MAX_VALUE_BYTES - 4096]);
    let written = store
        .write("/a/x", Precondition::Absent, Some(longest.clone()))
        .await;
    let (first, _, _) = done(written.unwrap());
    let read = store.get("/a/x", ReadRevision::Newest).await.unwrap();
    assert_eq!(read.unwrap().value, longest);
    let longer = Bytes::from(vec![b'x'; MAX_VALUE_BYTES + 1]);
    let refused = store
        .write("/a/x", Precondition::At(first), Some(longer))
        .await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused}");
    put(&*store, "/a/x", first, "").await;
    let read = store.get("/a/x", ReadRevision::Newest).await.unwrap();
    assert_eq!(value(read.as_ref()), Some(&b""[..]));
}

pub(super) async fn what_is_no_key_is_refused(place: &mut dyn TestStore) {
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

pub(super) async fn entries_and_changes_are_shared_with_their_memos(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let start = store.revision().await.unwrap();
    let mut one = store.watch("/a/", start).unwrap();
    let mut other = store.watch("/", start).unwrap();
    let written = store
        .write("/a/x", Precondition::Absent, Some(bytes("1")))
        .await;
    let (_, _, after) = done(written.unwrap());
    let after = after.unwrap();
    after.memo.get_or_make(|| 42_u32);
    let (one, other) = (take(&mut one, 1).await, take(&mut other, 1).await);
    assert!(Arc::ptr_eq(&one[0], &other[0]));
    assert!(Arc::ptr_eq(one[0].after.as_ref().unwrap(), &after));
    let listed = store
        .list("/a/", None, None, ReadRevision::Newest)
        .await
        .unwrap();
    assert!(Arc::ptr_eq(&listed.entries[0], &after));
    let got = store
        .get("/a/x", ReadRevision::Newest)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(got.memo.get::<u32>().as_deref(), Some(&42));
}

/// A clock that a test moves.
pub(super) fn clock() -> Clock {
    Clock::manual(Time::ZERO.plus(Duration::from_secs(1)))
}
