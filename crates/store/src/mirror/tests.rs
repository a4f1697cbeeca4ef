//! Reads, watches and maintenance of a mirror.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::watch::Watch;

/// A mirror at revision 1 with nothing in it.
fn empty() -> Arc<Mirror> {
    let mirror = Mirror::new();
    mirror.load(Time::ZERO, BTreeMap::new(), Vec::new(), 1, 1);
    Arc::new(mirror)
}

/// Puts or deletes `key`.
fn change(mirror: &Mirror, revision: u64, key: &str, put: bool) -> Arc<StoreEvent> {
    let key: Arc<str> = key.into();
    let before = mirror.get(&key).unwrap();
    let value = Bytes::from(revision.to_string());
    let after = put.then(|| Arc::new(StoreEntry::new(key.clone(), value, revision)));
    Arc::new(StoreEvent::new(revision, key, before, after))
}

fn shown(page: &ListPage) -> Vec<(Arc<str>, u64)> {
    let entries = page.entries.iter();
    entries.map(|e| (e.key.clone(), e.revision)).collect()
}

#[test]
fn unused_memos_are_dropped() {
    let mirror = empty();
    let keys: Vec<String> = (0..SCAN + 10).map(|i| format!("/a/{i}")).collect();
    for (revision, key) in (2..).zip(&keys) {
        mirror.apply(Time::ZERO, &[change(&mirror, revision, key, true)]);
        let entry = mirror.get(key).unwrap().unwrap();
        entry.memo.get_or_make(|| 7_u32);
    }
    let memo = |key: &str| {
        let entry = mirror.get(key).unwrap().unwrap();
        entry.memo.get::<u32>().as_deref().copied()
    };
    mirror.forget_stale(Time::ZERO);
    let used = &keys[keys.len() / 2];
    assert_eq!(memo(used), Some(7));
    mirror.forget_stale(Time::ZERO);
    let left = keys.iter().filter(|key| memo(key).is_some());
    assert_eq!(left.collect::<Vec<_>>(), [used]);
}

/// Counted twin of `tests/memory.rs`, which measures a whole gateway.
#[test]
fn after_maintenance_an_entry_takes_less_memory_than_its_text() {
    const ENTRIES: u64 = 2000;
    let mirror = empty();
    let text = |n: u64| format!("{{\"name\":\"tenant-{n}\",{}}}", "described. ".repeat(85));
    let counted = allocation_counter::measure(|| {
        for revision in 2..ENTRIES + 2 {
            let key: Arc<str> = format!("/g/schemas/tenant-{revision:05}").into();
            let value = Bytes::from(text(revision));
            let after = Arc::new(StoreEntry::new(key.clone(), value, revision));
            // What a reader decodes of an entry takes many times its text.
            after.memo.get_or_make(|| vec![0_u8; 16 << 10]);
            let event = StoreEvent::new(revision, key, None, Some(after));
            mirror.apply(Time::ZERO, &[Arc::new(event)]);
        }
        for round in 1..=2 {
            mirror.forget_stale(Time::ZERO.plus(Duration::from_secs(11 * round)));
        }
    });
    let each = counted.bytes_current / i64::try_from(ENTRIES).unwrap();
    let least = i64::try_from(text(0).len()).unwrap();
    assert!(each < least, "{each} bytes for an entry of {least}");
}

#[test]
fn maintenance_compresses_present_and_replaced_values_which_then_read_the_same() {
    let mirror = empty();
    let text = |revision: u64| format!("{revision}: {}", "the same text. ".repeat(60));
    for (revision, key) in (2..).zip(["/g/a/x", "/g/a/y", "/g/a/x"]) {
        let before = mirror.get(key).unwrap();
        let after = StoreEntry::new(key.into(), text(revision).into(), revision);
        let event = StoreEvent::new(revision, key.into(), before, Some(Arc::new(after)));
        mirror.apply(Time::ZERO, &[Arc::new(event)]);
    }
    let all = || {
        let now = mirror.list("/g/", None, None).unwrap();
        let then = mirror.list_at("/g/", None, None, 3).unwrap();
        [now.entries, then.entries].concat()
    };
    assert!(all().iter().all(|entry| entry.value.is_plain()));
    mirror.forget_stale(Time::ZERO.plus(Duration::from_secs(60)));
    assert!(!all().iter().any(|entry| entry.value.is_plain()));
    let texts: Vec<_> = all().iter().map(|entry| entry.bytes()).collect();
    assert_eq!(texts, [4, 3, 2, 3].map(text));
}

#[test]
fn every_page_of_every_revision_is_as_it_was_then() {
    let mirror = empty();
    let mut past = vec![];
    let mut draw = 12_345_u32;
    for revision in 2..120 {
        draw = draw.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let key = format!("/a/{}", (draw >> 16) % 12);
        let put = mirror.get(&key).unwrap().is_none() || (draw >> 8).is_multiple_of(3);
        mirror.apply(Time::ZERO, &[change(&mirror, revision, &key, put)]);
        past.push(mirror.list("/a/", None, None).unwrap());
    }
    for then in &past {
        let limit = NonZeroUsize::new(5);
        let mut after: Option<Arc<str>> = None;
        let mut read = Vec::new();
        loop {
            let page = mirror
                .list_at("/a/", after.as_deref(), limit, then.revision)
                .unwrap();
            read.extend(shown(&page));
            assert_eq!(
                read.len() as u64 + page.remaining,
                then.entries.len() as u64
            );
            if !page.more() {
                break;
            }
            after = page.entries.last().map(|entry| entry.key.clone());
        }
        assert_eq!(read, shown(then));
        for n in 0..12 {
            let key = format!("/a/{n}");
            let got = mirror.get_at(&key, then.revision).unwrap();
            let listed = then.entries.iter().find(|entry| *entry.key == *key);
            assert_eq!(got.map(|e| e.revision), listed.map(|e| e.revision));
        }
    }
}

#[test]
fn a_watch_gets_the_changes_of_one_revision_together() {
    let mirror = empty();
    let mut watch = Watch::new(&mirror, "/a/", 1).unwrap();
    let many = BATCH + 10;
    let events: Vec<_> = (0..many)
        .map(|n| change(&mirror, 2, &format!("/a/{n:04}"), true))
        .collect();
    mirror.apply(Time::ZERO, &events);
    mirror.apply(Time::ZERO, &[change(&mirror, 3, "/a/x", true)]);
    assert_eq!(watch.ready().unwrap().len(), many);
    assert_eq!(watch.progress(), 2);
    assert_eq!(watch.ready().unwrap().len(), 1);
}

#[test]
fn a_watch_gets_few_changes_at_once_if_their_values_are_long_but_whole_revisions() {
    let mirror = empty();
    let long = |revision: u64, key: String| {
        let key: Arc<str> = key.into();
        let value = Bytes::from(vec![b'x'; BATCH_BYTES / 4]);
        let after = Some(Arc::new(StoreEntry::new(key.clone(), value, revision)));
        Arc::new(StoreEvent::new(revision, key, None, after))
    };
    let mut watch = Watch::new(&mirror, "/a/", 1).unwrap();
    for revision in 2..9 {
        // What is elsewhere does not count.
        let elsewhere = long(revision, format!("/b/{revision}"));
        let event = long(revision, format!("/a/{revision}"));
        mirror.apply(Time::ZERO, &[elsewhere, event]);
    }
    let many: Vec<_> = (0..10).map(|n| long(9, format!("/a/9-{n}"))).collect();
    mirror.apply(Time::ZERO, &many);
    let read: [usize; 3] = std::array::from_fn(|_| watch.ready().unwrap().len());
    assert_eq!((read, watch.progress()), ([4, 3 + 10, 0], 9));
}

#[test]
fn a_watch_skips_more_foreign_changes_than_one_scan_covers() {
    let mirror = empty();
    let mut watch = Watch::new(&mirror, "/a/", 1).unwrap();
    let foreign = SCAN as u64 * 2;
    for revision in 2..2 + foreign {
        mirror.apply(Time::ZERO, &[change(&mirror, revision, "/b/x", true)]);
    }
    let last = 2 + foreign;
    mirror.apply(Time::ZERO, &[change(&mirror, last, "/a/x", true)]);
    let events = watch.ready().unwrap();
    assert_eq!((events.len(), events[0].revision), (1, last));
    assert_eq!(watch.progress(), last);
}

#[test]
fn loading_again_keeps_unchanged_entries() {
    let mirror = empty();
    mirror.apply(Time::ZERO, &[change(&mirror, 2, "/a", true)]);
    let known = mirror.get("/a").unwrap().unwrap();
    let again = Arc::new(StoreEntry::new("/a".into(), known.bytes(), 2));
    let new = Arc::new(StoreEntry::new("/b".into(), Bytes::new(), 9));
    let entries = [again, new].map(|entry| (entry.key.clone(), entry));
    let mut watch = Watch::new(&mirror, "/", 2).unwrap();
    mirror.load(Time::ZERO, entries.into(), Vec::new(), 9, 9);
    assert!(Arc::ptr_eq(&mirror.get("/a").unwrap().unwrap(), &known));
    assert!(matches!(
        watch.ready(),
        Err(StoreError::Compacted {
            requested: 2,
            floor: 9
        })
    ));
    assert_eq!(mirror.size().entries, 2);
    assert_eq!(mirror.size().watches, 1);
}

#[test]
fn lengths_are_compared_of_one_entry_and_of_all_below_a_prefix() {
    let mirror = empty();
    assert!(!mirror.has_more_than(0, "/a/"));
    let entries = [("/a/x", 6), ("/a/y", 5), ("/b/x", 100)].map(|(key, length)| {
        let value = Bytes::from(vec![b'x'; length]);
        (key.into(), Arc::new(StoreEntry::new(key.into(), value, 2)))
    });
    mirror.load(Time::ZERO, entries.into(), Vec::new(), 9, 9);
    let more = |bytes, key| mirror.has_more_than(bytes, key);
    assert!(more(5, "/a/x") && !more(6, "/a/x") && !more(0, "/a/z"));
    assert!(more(10, "/a/") && !more(11, "/a/") && more(110, "/") && !more(111, "/"));
}

#[test]
fn reads_before_the_first_load_report_why_they_fail() {
    let mirror = Arc::new(Mirror::new());
    mirror.set_health(StoreHealth::Degraded("the disk is gone".into()));
    let reported = mirror.list("/", None, None).unwrap_err().to_string();
    assert!(reported.contains("the disk is gone"), "{reported}");
    assert!(Watch::new(&mirror, "/", 0).is_err());
    assert_eq!(mirror.revision(), 0);
}

#[test]
fn an_error_that_was_the_health_of_the_store_is_not_prefixed_twice() {
    let error = StoreError::Unavailable("etcd does not answer".to_owned());
    let health = StoreHealth::Degraded(error.to_string().into());
    let again = unread(&health);
    assert_eq!(again.to_string(), error.to_string());
    let other = unread(&StoreHealth::Degraded("damaged".into()));
    assert_eq!(other.to_string(), format!("{UNAVAILABLE}damaged"));
}
