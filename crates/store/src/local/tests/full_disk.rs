//! A full disk: writes are refused until there is room.

use std::{
    fs::{self, OpenOptions},
    io::BufReader,
    os::unix::fs::FileExt as _,
};

use bytes::Bytes;
use fairgate_testkit::random::Random;

use super::{
    Scratch,
    children::{child, everything, named, next_report, report},
    open, write,
};
use crate::{Precondition, ReadRevision, Store as _, StoreError, StoreHealth, WriteOutcome};

#[tokio::test]
#[ignore = "runs in a process that another test starts"]
async fn child_fills_the_disk() {
    let (file, _) = named();
    let store = open(&file).unwrap();
    let mut random = Random::seeded(11);
    let mut kept = Vec::new();
    let mut refusals = 0;
    while refusals < 3 {
        let key = format!("/a/{}", kept.len() + refusals);
        let value: Vec<u8> = (0..40_000)
            .map(|_| u8::try_from(random.within(0..256)).unwrap())
            .collect();
        match write(&store, &key, Precondition::Absent, &value).await {
            Ok(revision) => kept.push((key, revision)),
            Err(error) => {
                assert!(matches!(error, StoreError::Full { .. }), "{error}");
                assert!(error.to_string().contains("make room"), "{error}");
                refusals += 1;
                // Stored objects are still served.
                assert!(matches!(store.health(), StoreHealth::Degraded(_)));
                assert!(
                    store
                        .get(&key, ReadRevision::Newest)
                        .await
                        .unwrap()
                        .is_none()
                );
                assert_eq!(everything(&store).await.len(), kept.len());
            }
        }
    }
    assert!(kept.len() > 5, "{}", kept.len());
    // A deletion may fit on the disk, and frees space.
    for (key, revision) in kept.drain(..3) {
        let deleted = store.write(&key, Precondition::At(revision), None).await;
        match deleted {
            Ok(_) => report(&format!("deleted {key}")),
            Err(error) => assert!(matches!(error, StoreError::Full { .. }), "{error}"),
        }
    }
    report(&format!("kept {}", kept.len()));
}

#[tokio::test]
async fn a_full_disk_is_reported_and_leaves_nothing_half_written() {
    let scratch = Scratch::new();
    let file = scratch.file();
    drop(open(&file).unwrap());
    let start = fs::metadata(&file).unwrap().len() / 1024;
    let mut writer = child(
        &format!("{}::child_fills_the_disk", module_path!()),
        &file,
        0,
        Some(start + 700),
    );
    let mut out = BufReader::new(writer.stdout.take().unwrap());
    let mut lines = Vec::new();
    while let Some(line) = next_report(&mut out) {
        lines.push(line);
    }
    assert!(writer.wait().unwrap().success());
    let kept: usize = lines
        .last()
        .unwrap()
        .strip_prefix("kept ")
        .unwrap()
        .parse()
        .unwrap();
    let deleted = lines.len() - 1;

    // Without the limit it accepts writes.
    let store = open(&file).unwrap();
    let entries = everything(&store).await;
    assert_eq!(entries.len(), kept + 3 - deleted);
    assert!(entries.iter().all(|(_, _, value)| value.len() == 40_000));
    write(&store, "/b", Precondition::Absent, b"1")
        .await
        .unwrap();
}

#[tokio::test]
async fn writes_succeed_again_once_there_is_room() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        panic!("this system has no /dev/full")
    };
    // The error of the kernel for a full disk is the one that the store expects.
    let error = full.write_all_at(b"x", 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    drop(full);
    // Only a child can raise its limit again.
    let scratch = Scratch::new();
    let file = scratch.file();
    drop(open(&file).unwrap());
    let start = fs::metadata(&file).unwrap().len() / 1024;
    let mut writer = child(
        &format!("{}::child_fills_the_disk_and_gets_room", module_path!()),
        &file,
        start,
        None,
    );
    assert!(writer.wait().unwrap().success());
    let store = open(&file).unwrap();
    assert_eq!(everything(&store).await.len(), 1);
}

#[tokio::test]
#[ignore = "runs in a process that another test starts"]
async fn child_fills_the_disk_and_gets_room() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (file, start) = named();
    let store = open(&file).unwrap();
    let before = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: Some((start + 8) * 1024),
        maximum: before.maximum,
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    let value = Bytes::from(vec![7; 1_000_000]);
    let full = store
        .write("/a", Precondition::Absent, Some(value.clone()))
        .await;
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert!(matches!(store.health(), StoreHealth::Degraded(_)));
    setrlimit(Resource::Fsize, before).unwrap();
    // The store notices it by itself.
    while store.health() != StoreHealth::Ready {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let done = store
        .write("/a", Precondition::Absent, Some(value))
        .await
        .unwrap();
    assert!(
        matches!(done, WriteOutcome::Done { revision: 2, .. }),
        "{done:?}"
    );
    assert_eq!(store.health(), StoreHealth::Ready);
}
