//! The store in a file: the guarantees of all stores, and those of a file.

mod at_rest;
mod children;
mod damaged;
mod fan_out;
mod full_disk;
mod killed;
mod reserve;
mod sequences;
mod small_disk;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;

use super::{LocalSettings, LocalStore, database::beside, migration::back_to_format_1};
use crate::{
    HistoryLimits, Precondition, ReadRevision, Store, StoreError, StoreFuture, StoreHealth,
    WriteOutcome,
    conformance::{self, TestStore, conformance},
};
use fairgate_base::clock::Clock;

/// A directory for one test, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-store-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("deeper/store.redb")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct FilePlace(Scratch, Clock);

impl FilePlace {
    fn new() -> Self {
        Self(Scratch::new(), conformance::clock())
    }
}

impl TestStore for FilePlace {
    fn open(&mut self) -> StoreFuture<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let local = LocalStore::open(settings(&self.0.file()), self.1.clone())?;
            Ok(Arc::new(local) as Arc<dyn Store>)
        })
    }

    fn clock(&self) -> Clock {
        self.1.clone()
    }
}

conformance!(FilePlace::new());

fn settings(path: &Path) -> LocalSettings {
    LocalSettings {
        path: path.to_owned(),
        limits: HistoryLimits::default(),
    }
}

fn open(path: &Path) -> Result<LocalStore, StoreError> {
    LocalStore::open(settings(path), conformance::clock())
}

async fn write(
    store: &dyn Store,
    key: &str,
    expected: Precondition,
    value: &[u8],
) -> Result<u64, StoreError> {
    let value = Some(Bytes::copy_from_slice(value));
    match store.write(key, expected, value).await? {
        WriteOutcome::Done { revision, .. } => Ok(revision),
        WriteOutcome::Lost(found) => panic!("lost to {found:?}"),
    }
}

#[tokio::test]
async fn a_new_store_is_private_and_begins_at_revision_one() {
    let scratch = Scratch::new();
    let store = open(&scratch.file()).unwrap();
    assert_eq!(store.revision().await.unwrap(), 1);
    assert_eq!(store.floor(), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.file()), 0o600);
    assert_eq!(mode(scratch.file().parent().unwrap()), 0o700);
}

#[tokio::test]
async fn a_second_process_gets_an_error_or_waits_for_the_file() {
    let scratch = Scratch::new();
    let first = open(&scratch.file()).unwrap();
    let refused = open(&scratch.file()).unwrap_err();
    assert!(matches!(refused, StoreError::Locked { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("store.local.path"), "{text}");
    assert!(text.contains(scratch.file().to_str().unwrap()), "{text}");

    let second = LocalStore::start(settings(&scratch.file()), conformance::clock()).unwrap();
    let unavailable = write(&second, "/a", Precondition::Absent, b"1")
        .await
        .unwrap_err();
    assert!(
        matches!(unavailable, StoreError::Locked { .. }),
        "{unavailable}"
    );
    let read = second.get("/a", ReadRevision::Newest).await.unwrap_err();
    assert!(read.to_string().contains("another process"), "{read}");
    assert!(matches!(second.health(), StoreHealth::Degraded(_)));
    assert!(second.watch("/", 1).is_err());
    drop(first);
    // The next write opens it; without one it would be opened within about a second.
    write(&second, "/a", Precondition::Absent, b"1")
        .await
        .unwrap();
    assert_eq!(second.health(), StoreHealth::Ready);
}

#[tokio::test]
async fn a_store_started_without_its_directory_serves_once_it_can_create_it() {
    let scratch = Scratch::new();
    // A file where the directory should be.
    fs::write(&scratch.0, "in the way").unwrap();
    let store = LocalStore::start(settings(&scratch.file()), conformance::clock()).unwrap();
    let failed = write(&store, "/a", Precondition::Absent, b"1")
        .await
        .unwrap_err();
    assert!(matches!(failed, StoreError::Io { .. }), "{failed}");
    fs::remove_file(&scratch.0).unwrap();
    // Without any write, the store retries by itself.
    store.wait_for(1).await.unwrap();
    write(&store, "/a", Precondition::Absent, b"1")
        .await
        .unwrap();
}

#[tokio::test]
async fn history_beyond_its_limits_is_dropped_by_writes_too() {
    let scratch = Scratch::new();
    let mut settings = settings(&scratch.file());
    settings.limits.events = 16;
    let store = LocalStore::open(settings.clone(), conformance::clock()).unwrap();
    let mut last = write(&store, "/a", Precondition::Absent, b"0")
        .await
        .unwrap();
    for n in 0..100_u32 {
        let value = n.to_le_bytes();
        last = write(&store, "/a", Precondition::At(last), &value)
            .await
            .unwrap();
        assert!(last - store.floor() <= 20, "{last} {}", store.floor());
    }
    let floor = store.floor();
    assert!(floor > 50);
    drop(store);
    let store = LocalStore::open(settings, conformance::clock()).unwrap();
    assert_eq!(store.floor(), floor);
    assert_eq!(store.revision().await.unwrap(), last);
}

#[tokio::test]
async fn a_backup_that_is_older_than_the_lock_file_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.file();
    let store = open(&file).unwrap();
    let kept = write(&store, "/a", Precondition::Absent, b"kept")
        .await
        .unwrap();
    drop(store);
    let backup = scratch.0.join("backup");
    fs::copy(&file, &backup).unwrap();
    let store = open(&file).unwrap();
    let lost = write(&store, "/b", Precondition::Absent, b"lost")
        .await
        .unwrap();
    drop(store);
    fs::copy(&backup, &file).unwrap();

    let refused = open(&file).unwrap_err();
    assert!(
        matches!(refused, StoreError::WentBack { seen, found } if seen == lost && found == kept),
        "{refused}"
    );
}

#[tokio::test]
async fn a_file_of_the_first_format_is_migrated_with_its_history_and_a_copy_is_kept() {
    let scratch = Scratch::new();
    let file = scratch.file();
    let store = open(&file).unwrap();
    let key = "/flowcontrol.apiserver.k8s.io/flowschemas/a";
    let first = write(&store, key, Precondition::Absent, b"1").await;
    let first = first.unwrap();
    let second = write(&store, key, Precondition::At(first), b"2").await;
    let second = second.unwrap();
    drop(store);
    back_to_format_1(&file);

    let store = open(&file).unwrap();
    let entry = store.get(key, ReadRevision::Newest).await.unwrap().unwrap();
    assert_eq!((&entry.bytes()[..], entry.revision), (&b"2"[..], second));
    let mut watch = store
        .watch("/flowcontrol.apiserver.k8s.io/", first)
        .unwrap();
    let events = watch.next().await.unwrap();
    assert_eq!((&*events[0].key, events[0].revision), (key, second));
    let third = write(&store, key, Precondition::At(second), b"3").await;
    let third = third.unwrap();
    drop(store);
    assert_eq!(open(&file).unwrap().revision().await.unwrap(), third);

    // The copy is a file of the first format.
    let copy = beside(&file, ".format-1");
    fs::rename(&copy, scratch.0.join("store.redb")).unwrap();
    let old = open(&scratch.0.join("store.redb")).unwrap();
    assert_eq!(old.revision().await.unwrap(), second);
    assert!(beside(&scratch.0.join("store.redb"), ".format-1").exists());
}

#[tokio::test]
async fn a_file_of_a_newer_format_is_refused() {
    let scratch = Scratch::new();
    drop(open(&scratch.file()).unwrap());
    {
        let database = redb::Database::open(scratch.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        let mut table = transaction.open_table(meta).unwrap();
        table.insert("format", 3).unwrap();
        drop(table);
        transaction.commit().unwrap();
    }
    let refused = open(&scratch.file()).unwrap_err();
    assert!(matches!(refused, StoreError::Foreign { .. }), "{refused}");
}
