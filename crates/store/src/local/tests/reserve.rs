//! A full disk, on a file system that this test makes up: what makes room always succeeds.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    Scratch,
    children::everything,
    settings,
    small_disk::{DiskFailure, SmallDisk},
};
use crate::{
    Precondition, ReadRevision, Store, StoreError, StoreHealth, WriteBounds, WriteOutcome,
    conformance,
    local::{
        LocalStore,
        disk::{Disk, SystemDisk},
    },
};

/// The bytes of the pages for the longest value of these tests, a sixteenth of the real one: filling a disk takes time.
const PIECE: u64 = 128 << 10;
/// How many bytes a disk has.
const BYTES: u64 = 40 * PIECE;

fn open(scratch: &Scratch, disk: &Arc<SmallDisk>) -> Result<LocalStore, StoreError> {
    let disk = Arc::clone(disk) as Arc<dyn Disk>;
    LocalStore::open_on(disk, settings(&scratch.file()), conformance::clock())
}

/// Stores values of so many bytes, many at a time, until one is refused. Returns how many were stored.
async fn fill(store: &Arc<LocalStore>, round: usize, bytes: usize) -> usize {
    let at_once = if bytes > 20_000 { 4 } else { 256 };
    let mut stored = 0;
    loop {
        let mut writes = JoinSet::new();
        for number in stored..stored + at_once {
            let store = Arc::clone(store);
            let key = format!("/a/{round}-{number}");
            let value = Some(Bytes::from(vec![b'x'; bytes]));
            writes.spawn(async move { store.write(&key, Precondition::Absent, value).await });
        }
        let mut refused = 0;
        for ended in writes.join_all().await {
            match ended {
                Ok(WriteOutcome::Done { .. }) => {}
                Err(StoreError::Full { .. }) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        stored += at_once;
        if refused > 0 {
            return stored - refused;
        }
    }
}

/// Deletes every object, many at a time; each deletion must succeed.
async fn delete_all(store: &Arc<LocalStore>) {
    let mut deletions = JoinSet::new();
    for (key, revision, _) in everything(&**store).await {
        let store = Arc::clone(store);
        deletions.spawn(async move { store.write(&key, Precondition::At(revision), None).await });
    }
    for ended in deletions.join_all().await {
        assert!(matches!(ended, Ok(WriteOutcome::Done { .. })), "{ended:?}");
    }
    assert!(everything(&**store).await.is_empty());
}

/// Fills a disk and deletes everything, again and again.
async fn fill_and_delete(piece: u64, bytes: usize, rounds: usize) {
    let scratch = Scratch::new();
    let disk = SmallDisk::new(piece, BYTES / PIECE * piece);
    let refused = || disk.refused();
    fill_and_delete_on(disk.clone(), &scratch.file(), (bytes, rounds), refused).await;
}

/// The same on any disk, which was `refused` so often to give more.
async fn fill_and_delete_on(
    disk: Arc<dyn Disk>,
    file: &Path,
    (bytes, rounds): (usize, usize),
    refused: impl Fn() -> u64,
) {
    let open = || {
        let disk = Arc::clone(&disk);
        LocalStore::open_on(disk, settings(file), conformance::clock())
    };
    let store = Arc::new(open().unwrap());
    let mut stored = Vec::new();
    for round in 0..rounds {
        stored.push(fill(&store, round, bytes).await);
        assert!(matches!(store.health(), StoreHealth::Degraded(_)));
        let before = refused();
        delete_all(&store).await;
        // No deletion was tried in a way that failed first.
        assert_eq!(refused(), before);
    }
    // What was deleted can be used again. The file grows by doubling, so up to half of the disk may be left, less what
    // is reserved.
    let least = stored.iter().min().unwrap();
    assert!(*least * 4 >= stored[0], "{stored:?}");
    println!("values of {bytes} bytes stored in each round: {stored:?}");
    // It is all in the file.
    let last = store.revision().await.unwrap();
    drop(store);
    let store = open().unwrap();
    assert_eq!(store.revision().await.unwrap(), last);
    assert!(everything(&store).await.is_empty());
}

#[tokio::test]
async fn the_longest_values_can_be_deleted_on_a_full_disk_in_every_round() {
    fill_and_delete(PIECE, 93_000, 5).await;
}

#[tokio::test]
async fn values_of_middling_length_can_be_deleted_on_a_full_disk_in_every_round() {
    fill_and_delete(PIECE, 9_000, 3).await;
}

#[tokio::test]
async fn short_values_can_be_deleted_on_a_full_disk_in_every_round() {
    fill_and_delete(PIECE, 500, 2).await;
}

#[tokio::test]
#[ignore = "fills 80 MiB in each round: .ci/run full_disk"]
async fn values_of_the_maximum_length_can_be_deleted_on_a_full_disk_in_every_round() {
    fill_and_delete(SystemDisk.piece(), 1_500_000, 6).await;
}

/// Not on a disk that is made up, but on a small file system of this system.
#[tokio::test]
#[ignore = "needs a file system of about 100 MiB: .ci/run full_disk"]
async fn a_real_file_system_is_filled_and_everything_deleted_in_every_round() {
    let directory =
        std::env::var_os("FAIRGATE_FULL_DISK").expect("FAIRGATE_FULL_DISK names a directory");
    let file = PathBuf::from(directory).join("store.redb");
    for (bytes, rounds) in [(1_500_000, 4), (40_000, 3), (1_000, 2)] {
        let disk = Arc::new(SystemDisk);
        fill_and_delete_on(disk, &file, (bytes, rounds), || 0).await;
    }
    fs::remove_file(file).unwrap();
}

/// As [`SystemDisk`], but with others who take at once all that is free there.
#[derive(Debug)]
struct CrowdedDisk(File);

impl CrowdedDisk {
    fn take_all(&self) {
        // From large pieces to single blocks.
        for length in (12..24).rev().map(|power| 1 << power) {
            let block = vec![b'o'; length];
            while (&self.0).write_all(&block).is_ok() {}
        }
    }
}

impl Disk for CrowdedDisk {
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.take_all();
        SystemDisk.allocate(file, bytes)
    }

    fn set_length(&self, file: &File, length: u64) -> io::Result<()> {
        SystemDisk.set_length(file, length)?;
        self.take_all();
        Ok(())
    }
}

#[tokio::test]
#[ignore = "needs a file system of about 100 MiB: .ci/run full_disk"]
async fn on_a_real_file_system_that_others_have_filled_a_store_opens_and_everything_is_deleted() {
    let directory =
        std::env::var_os("FAIRGATE_FULL_DISK").expect("FAIRGATE_FULL_DISK names a directory");
    let directory = PathBuf::from(directory);
    for bytes in [1_000, 60_000, 900_000] {
        let (file, others) = (directory.join("kept.redb"), directory.join("others"));
        let store = LocalStore::open(settings(&file), conformance::clock()).unwrap();
        let store = Arc::new(store);
        store_about(&store, SystemDisk.reserved() * 3 / 4, bytes).await;
        drop(store);
        // With what is left free it is longer than what is reserved from the start, in whatever order values were written.
        assert!(fs::metadata(&file).unwrap().len() > SystemDisk.reserved());
        let disk = CrowdedDisk(File::create(&others).unwrap());
        disk.take_all();
        let store = LocalStore::open_on(Arc::new(disk), settings(&file), conformance::clock());
        let store = Arc::new(store.unwrap());
        assert!(everything(&*store).await.len() > 20);
        delete_all(&store).await;
        drop(store);
        fs::remove_file(others).unwrap();
        fs::remove_file(file).unwrap();
        fs::remove_file(directory.join("kept.redb.lock")).unwrap();
    }
}

/// Stores values of so many bytes, so many in all, or as many as there is room for.
///
/// How full the pages of short values are depends on which writes share a commit.
async fn store_about(store: &Arc<LocalStore>, total: u64, bytes: usize) {
    let mut writes = JoinSet::new();
    for number in 0..total / bytes as u64 {
        let store = Arc::clone(store);
        let value = Some(Bytes::from(vec![b'x'; bytes]));
        writes.spawn(async move {
            let key = format!("/a/{number}");
            store.write(&key, Precondition::Absent, value).await
        });
    }
    for ended in writes.join_all().await {
        let is_expected = matches!(
            ended,
            Ok(WriteOutcome::Done { .. }) | Err(StoreError::Full { .. })
        );
        assert!(is_expected, "{ended:?}");
    }
}

#[tokio::test]
async fn values_shrink_and_essential_ones_grow_on_a_full_disk() {
    let scratch = Scratch::new();
    let disk = SmallDisk::new(PIECE, BYTES);
    let store = Arc::new(open(&scratch, &disk).unwrap());
    fill(&store, 0, 90_000).await;
    let entries = everything(&*store).await;
    let (key, mut revision, _) = entries[0].clone();
    for length in (0..30).map(|step| 90_000 - step * 500) {
        let value = Some(Bytes::from(vec![b'y'; length]));
        let at = Precondition::At(revision);
        match store.write(&key, at, value).await {
            Ok(WriteOutcome::Done { revision: now, .. }) => revision = now,
            other => panic!("{length}: {other:?}"),
        }
    }
    // As an eviction adds a pod to the status of a large budget.
    let (key, mut revision, value) = entries[1].clone();
    let essential = || WriteBounds {
        limits: Vec::new(),
        is_essential: true,
    };
    let mut value = value.to_vec();
    for _ in 0..100 {
        value.extend_from_slice(&[b'z'; 100]);
        let at = Precondition::At(revision);
        let written = store
            .write_within(&key, at, Some(value.clone().into()), essential())
            .await;
        match written {
            Ok(WriteOutcome::Done { revision: now, .. }) => revision = now,
            other => panic!("{other:?}"),
        }
    }
    // Still, nothing else may grow, and everything can be deleted.
    let (key, revision, mut value) = {
        let (key, revision, value) = entries[2].clone();
        (key, revision, value.to_vec())
    };
    value.push(b'x');
    let grown = store
        .write(&key, Precondition::At(revision), Some(value.into()))
        .await;
    assert!(matches!(grown, Err(StoreError::Full { .. })), "{grown:?}");
    delete_all(&store).await;
}

#[tokio::test]
async fn a_refused_write_on_a_full_disk_does_not_read_the_file_again() {
    let scratch = Scratch::new();
    let disk = SmallDisk::new(PIECE, BYTES);
    let store = Arc::new(open(&scratch, &disk).unwrap());
    fill(&store, 0, 90_000).await;
    let before = disk.refused();
    for number in 0..200 {
        let key = format!("/b/{number}");
        let value = Some(Bytes::from_static(b"x"));
        let refused = store.write(&key, Precondition::Absent, value).await;
        assert!(
            matches!(refused, Err(StoreError::Full { .. })),
            "{refused:?}"
        );
    }
    // Within a second nothing was tried; a slow machine may have asked the disk a few times.
    assert!(disk.refused() - before < 20);
}

#[tokio::test]
async fn nor_does_an_essential_one_for_which_the_reserve_has_no_room() {
    let scratch = Scratch::new();
    let disk = SmallDisk::new(PIECE, BYTES);
    let store = Arc::new(open(&scratch, &disk).unwrap());
    fill(&store, 0, 90_000).await;
    let essential = || WriteBounds {
        limits: Vec::new(),
        is_essential: true,
    };
    let write = async |number: usize, length| {
        let key = format!("/b/{number}");
        let value = Some(Bytes::from(vec![b'x'; length]));
        let written = store.write_within(&key, Precondition::Absent, value, essential());
        match written.await {
            Ok(WriteOutcome::Done { .. }) => true,
            Err(StoreError::Full { .. }) => false,
            other => panic!("{other:?}"),
        }
    };
    let mut stored = 0;
    while write(stored, 90_000).await {
        stored += 1;
    }
    let before = disk.refused();
    for number in 0..200 {
        assert!(!write(stored + number, 90_000).await);
    }
    // One is tried in a second; a slow machine may have asked the disk a few times.
    let asked = disk.refused() - before;
    assert!(asked < 20, "{asked}");
    delete_all(&store).await;
    assert!(write(stored, 90_000).await, "there is room again");
}

#[tokio::test]
async fn a_store_whose_disk_is_full_opens_and_what_it_has_can_be_deleted() {
    let scratch = Scratch::new();
    let disk = SmallDisk::new(PIECE, BYTES);
    let store = Arc::new(open(&scratch, &disk).unwrap());
    fill(&store, 0, 60_000).await;
    drop(store);
    // Others have taken what was free; only what the file has is left.
    disk.fill();
    let store = Arc::new(open(&scratch, &disk).unwrap());
    fill(&store, 1, 60_000).await;
    let value = Some(Bytes::from_static(b"x"));
    delete_all(&store).await;
    disk.free(BYTES * 2);
    // The store notices by itself that there is room.
    while store.health() != StoreHealth::Ready {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let written = store.write("/b", Precondition::Absent, value).await;
    assert!(
        matches!(written, Ok(WriteOutcome::Done { .. })),
        "{written:?}"
    );
    let read = store.get("/b", ReadRevision::Newest).await.unwrap();
    assert!(read.is_some());
}

#[tokio::test]
async fn a_store_does_not_open_on_a_disk_that_has_failed_meanwhile() {
    let scratch = Scratch::new();
    let disk = SmallDisk::new(PIECE, BYTES);
    let store = open(&scratch, &disk).unwrap();
    let value = Bytes::from(vec![b'x'; 9_000]);
    let written = store
        .write("/a/1", Precondition::Absent, Some(value))
        .await
        .unwrap();
    let WriteOutcome::Done { mut revision, .. } = written else {
        panic!("{written:?}");
    };
    drop(store);
    let mut opened = 0;
    for calls in 0.. {
        disk.fail_after(calls, DiskFailure::Death);
        let store = open(&scratch, &disk);
        let has_failed = disk.heal();
        if let Ok(store) = store {
            assert!(!has_failed, "{calls}");
            opened += 1;
            let value = Some(Bytes::from(format!("{calls}")));
            let written = store.write("/a/1", Precondition::At(revision), value).await;
            match written {
                Ok(WriteOutcome::Done { revision: now, .. }) => revision = now,
                other => panic!("{calls}: {other:?}"),
            }
        }
        if !has_failed {
            break;
        }
    }
    assert!(opened > 0);
}
