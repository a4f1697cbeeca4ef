//! Reads of the newest and of old revisions.

use std::{collections::BTreeMap, sync::Arc};

use super::{TestStore, bytes, create, delete, done, fold, limit, put, shown, take, value};
use crate::{ListPage, Precondition, ReadRevision, StoreError};

pub(crate) async fn a_list_is_in_byte_order_and_ends_with_its_prefix(place: &mut dyn TestStore) {
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

pub(crate) async fn the_pages_of_a_revision_make_up_its_list(place: &mut dyn TestStore) {
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
    // Changes between two pages show in neither.
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

pub(crate) async fn old_revisions_can_be_read_down_to_the_floor(place: &mut dyn TestStore) {
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

pub(crate) async fn reads_of_an_old_revision_are_stable_while_others_write(
    place: &mut dyn TestStore,
) {
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

pub(crate) async fn an_acknowledged_write_is_read_at_once(place: &mut dyn TestStore) {
    let store = place.open().await.unwrap();
    let mut at = create(&*store, "/a/x", "0").await;
    for n in 1..30_u64 {
        let text = n.to_string();
        at = put(&*store, "/a/x", at, &text).await;
        // In memory too: the writer waits for it.
        for how in [ReadRevision::Newest, ReadRevision::Cached] {
            let read = store.get("/a/x", how).await.unwrap().unwrap();
            assert_eq!((read.revision, &read.bytes()[..]), (at, text.as_bytes()));
            let page = store.list("/a/", None, None, how).await.unwrap();
            assert_eq!(page.entries[0].revision, at);
            assert!(page.revision >= at);
        }
        assert!(store.revision().await.unwrap() >= at);
        assert!(store.cached_revision() >= at);
    }
}

pub(crate) async fn reads_and_events_share_entries_and_their_memos(place: &mut dyn TestStore) {
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
