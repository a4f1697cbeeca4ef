//! The file: its tables, and how it is created, opened, checked, read and written.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | `format`, `revision`, `floor` | a number |
//! | `state` | key of an entry | its revision, its value |
//! | `undo` | revision of a change | the key; its revision (0: none) and value before the change |
//!
//! `undo` is the history as an undo log: the value after a change is in the next `undo` row of the same
//! key, or in `state`. So each value is written twice: when it is stored, and when it is replaced or deleted.
//! [`Contents::check`] detects tables that contradict each other.
//!
//! A new file is created under another name and renamed, so a file under the right name is complete; an
//! empty file was truncated.
//!
//! Every page is compared with its checksum when the file is opened.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable};

use super::{
    database::{
        FORMAT, Failure, META, STATE, UNDO, begin, beside, corrupt, directory, failed,
        forget_cached, guarded, number, sync,
    },
    disk::{Disk, ReserveUse, ReservedFile, Space, pages_of},
    migration,
};
use crate::{
    entry::{StoreEntry, StoreEvent},
    error::StoreError,
};

/// The revision of a new store.
const FIRST_REVISION: u64 = 1;
/// Small, because the mirror has everything in memory.
const CACHE_BYTES: usize = 1 << 20;
/// About how much of the file every commit takes for the pages that lead to what it changes, in bytes.
const PAGES_OF_COMMIT: u64 = 64 << 10;

/// The open file, locked against other processes.
pub(super) struct StoreFile {
    // Fields are dropped in order: the database is closed before it is unlocked.
    database: Database,
    space: Space,
    path: PathBuf,
    lock: Lock,
}

/// The lock against other processes, until it is dropped.
///
/// The lock file holds the last committed revision. It is not flushed, so after a power cut it may be
/// behind the store, but never ahead. A store behind its lock file is an old copy, or has lost its last
/// commit in a way that checksums do not detect.
struct Lock(File);

impl Lock {
    /// Records that `revision` is durable.
    fn note(&self, revision: u64) {
        let mut note = [0; 16];
        note[..8].copy_from_slice(&revision.to_le_bytes());
        note[8..].copy_from_slice(&(!revision).to_le_bytes());
        // A failure only disables the check for an old copy.
        let _ = self.0.write_all_at(&note, 0);
    }

    /// The recorded revision; 0 if there is none or it is not valid.
    fn noted(&self) -> u64 {
        let (mut revision, mut inverse) = ([0; 8], [0; 8]);
        let read = self
            .0
            .read_exact_at(&mut revision, 0)
            .and_then(|()| self.0.read_exact_at(&mut inverse, 8));
        let (revision, inverse) = (u64::from_le_bytes(revision), u64::from_le_bytes(inverse));
        match read {
            Ok(()) if revision == !inverse => revision,
            _ => 0,
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone does not unlock if a child process has just inherited the descriptor.
        let _ = self.0.unlock();
    }
}

/// The contents of a file.
pub(super) struct Contents {
    pub(super) entries: BTreeMap<Arc<str>, Arc<StoreEntry>>,
    /// Ascending.
    pub(super) events: Vec<Arc<StoreEvent>>,
    pub(super) floor: u64,
    pub(super) revision: u64,
}

impl StoreFile {
    /// Opens or creates the file at `path`, and checks and reads all of it.
    pub(super) fn open(path: &Path, disk: &Arc<dyn Disk>) -> Result<(Self, Contents), StoreError> {
        let (file, contents) = Self::read(path, disk)?;
        let (seen, found) = (file.lock.noted(), contents.revision);
        if found < seen {
            return Err(StoreError::WentBack { seen, found });
        }
        file.lock.note(found);
        Ok((file, contents))
    }

    /// As [`open`](Self::open), but does not compare the revision with that of the lock file.
    fn read(path: &Path, disk: &Arc<dyn Disk>) -> Result<(Self, Contents), StoreError> {
        let lock = locked(path)?;
        match fs::metadata(path) {
            Ok(metadata) if metadata.len() == 0 => {
                return Err(corrupt(path, "it is empty"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => make(path, disk)?,
            Err(error) => return Err(failed(path, "reading it", error)),
        }
        let (mut database, mut space) = checked(path, disk)?;
        if guarded(path, || migration::format(&database))? == 1 {
            drop(database);
            let copy = migration::keep_copy(path)?;
            (database, space) = checked(path, disk)?;
            guarded(path, || migration::from_format_1(&database))?;
            tracing::info!(
                path = %path.display(),
                copy = %copy.display(),
                "migrated the store to format {FORMAT}; an older fairgate can open the copy only"
            );
        }
        let file = Self {
            database,
            space,
            path: path.to_owned(),
            lock,
        };
        let contents = guarded(path, || contents(path, &file.database))?;
        file.space.may_shorten();
        Ok((file, contents))
    }

    /// Commits `events`, in ascending order, and drops the history up to `floor`, atomically; it `takes` so much of the
    /// reserve. After a failure the commit may have taken place: close the file and open it again to find out.
    pub(super) fn commit(
        &self,
        events: &[Arc<StoreEvent>],
        floor: u64,
        takes: ReserveUse,
    ) -> Result<(), StoreError> {
        if takes == ReserveUse::Nothing {
            let reserved = self.space.reserve();
            reserved.map_err(|error| failed(&self.path, "reserving space for it", error))?;
        }
        guarded(&self.path, || write(self, events, floor, takes))?;
        if let Some(last) = events.last() {
            self.lock.note(last.revision);
        }
        Ok(())
    }

    /// Commits `events` with as little space as possible: without any history, also the one that is there.
    ///
    /// It is followed by an empty commit, after which redb uses again what this one has freed.
    pub(super) fn commit_frugally(
        &self,
        events: &[Arc<StoreEvent>],
        floor: u64,
        takes: ReserveUse,
    ) -> Result<(), StoreError> {
        let last = events.last().map_or(floor, |last| last.revision);
        self.commit(events, last, takes)?;
        self.commit(&[], 0, ReserveUse::All)
    }

    /// Whether the file could grow, as far as the disk is concerned.
    pub(super) fn can_grow(&self) -> bool {
        self.space.can_grow()
    }

    /// Closes the file in any state.
    pub(super) fn close(self) {
        let path = self.path.clone();
        // Closing may write again, on a disk that has just failed.
        let closed = guarded(&path, move || {
            drop(self);
            Ok(())
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "closing the store failed");
        }
        forget_cached(&path);
    }
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        self.space.keep_length();
    }
}

impl fmt::Debug for StoreFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Locks `path` against other processes, and creates its directory.
fn locked(path: &Path) -> Result<Lock, StoreError> {
    let directory = directory(path);
    if !directory.is_dir() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| failed(directory, "making the directory", error))?;
    }
    let name = beside(path, ".lock");
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&name)
        .map_err(|error| failed(&name, "opening it", error))?;
    match lock.try_lock() {
        Ok(()) => Ok(Lock(lock)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed(&name, "locking it", error)),
    }
}

/// Creates an empty store at `path`, atomically.
fn make(path: &Path, disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
    let name = beside(path, ".new");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&name)
        .map_err(|error| failed(&name, "making it", error))?;
    let file = ReservedFile::new(file, disk).and_then(|(file, space)| {
        space.reserve()?;
        Ok(file)
    });
    let file = file.map_err(|error| failed(&name, "reserving space for it", error))?;
    guarded(&name, || {
        let database = builder().create_with_backend(file)?;
        let transaction = begin(&database)?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert("format", FORMAT)?;
            meta.insert("revision", FIRST_REVISION)?;
            meta.insert("floor", FIRST_REVISION)?;
            transaction.open_table(STATE)?;
            transaction.open_table(UNDO)?;
        }
        Ok(transaction.commit()?)
    })?;
    // The parents first: with a failure there is no file, so the next start tries again.
    let named = sync(&name)
        .and_then(|()| sync_parents(path))
        .and_then(|()| fs::rename(&name, path))
        .and_then(|()| sync(directory(path)));
    named.map_err(|error| failed(path, "making it", error))
}

/// Makes the directories durable in which the directory of `path` is: each may be new, from now or from a start
/// that was interrupted.
fn sync_parents(path: &Path) -> io::Result<()> {
    // A directory that is not new: this process may not read it, or its file system has nothing to sync.
    let is_old = |error: &io::Error| {
        matches!(
            error.kind(),
            ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::InvalidInput
                | ErrorKind::Unsupported
        )
    };
    parents(path).try_for_each(|parent| match sync(parent) {
        Err(error) if !is_old(&error) => Err(error),
        _ => Ok(()),
    })
}

/// The parent of the directory of `path`, the parent of that, and so on.
fn parents(path: &Path) -> impl Iterator<Item = &Path> {
    let parents = directory(path).ancestors().skip(1);
    parents.map(|parent| {
        if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        }
    })
}

/// Opens the database and compares every page with its checksum.
fn checked(path: &Path, disk: &Arc<dyn Disk>) -> Result<(Database, Space), StoreError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let reserved = file.and_then(|file| ReservedFile::new(file, disk));
    let (file, space) = reserved.map_err(|error| failed(path, "opening it", error))?;
    let database = guarded(path, || {
        let mut database = builder().create_with_backend(file)?;
        // If the check fails, the database is closed here.
        space.keep_length();
        if !database.check_integrity()? {
            return Err(Failure::Damaged("a checksum is wrong".to_owned()));
        }
        Ok(database)
    })?;
    Ok((database, space))
}

pub(super) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn write(
    file: &StoreFile,
    events: &[Arc<StoreEvent>],
    floor: u64,
    takes: ReserveUse,
) -> Result<(), Failure> {
    let transaction = begin(&file.database)?;
    let mut written = PAGES_OF_COMMIT;
    {
        let mut meta = transaction.open_table(META)?;
        let mut state = transaction.open_table(STATE)?;
        let mut undo = transaction.open_table(UNDO)?;
        for event in events {
            match &event.after {
                Some(entry) => state.insert(&*event.key, (entry.revision, &*entry.bytes()))?,
                None => state.remove(&*event.key)?,
            };
            let length = event.after.as_ref().map_or(0, |after| after.length());
            written += pages_of(length) + pages_of(0);
            if event.revision <= floor {
                continue;
            }
            let before = event.before.as_ref();
            let (revision, value) = before.map_or((0, Bytes::new()), |b| (b.revision, b.bytes()));
            written += pages_of(value.len());
            undo.insert(event.revision, (&*event.key, revision, &*value))?;
        }
        if let Some(last) = events.last() {
            meta.insert("revision", last.revision)?;
        }
        let known = number(&meta, "floor")?;
        // Always written: an empty commit checks whether the disk works.
        meta.insert("floor", floor.max(known))?;
        if floor > known {
            undo.retain_in(..=floor, |_, _| false)?;
        }
    }
    file.space.check(&transaction, written, takes)?;
    Ok(transaction.commit()?)
}

/// All that a database holds, checked.
pub(super) fn contents(path: &Path, database: &Database) -> Result<Contents, Failure> {
    let transaction = database.begin_read()?;
    let meta = transaction.open_table(META)?;
    match number(&meta, "format")? {
        FORMAT => {}
        other => {
            return Err(Failure::Foreign(format!(
                "{} has format {other}, but this fairgate supports formats 1 to {FORMAT} only; use a newer fairgate",
                path.display()
            )));
        }
    }
    let (floor, revision) = (number(&meta, "floor")?, number(&meta, "revision")?);
    let mut entries = BTreeMap::new();
    for row in transaction.open_table(STATE)?.iter()? {
        let (key, row) = row?;
        let (written_at, value) = row.value();
        let key: Arc<str> = key.value().into();
        let entry = StoreEntry::new(key.clone(), Bytes::copy_from_slice(value), written_at);
        entries.insert(key, Arc::new(entry));
    }
    let events = replay(&transaction.open_table(UNDO)?, &entries)?;
    let contents = Contents {
        entries,
        events,
        floor,
        revision,
    };
    contents.check().map_err(Failure::Damaged)?;
    Ok(contents)
}

/// Computes the history in ascending order from the undo log.
fn replay(
    undo: &impl ReadableTable<u64, (&'static str, u64, &'static [u8])>,
    entries: &BTreeMap<Arc<str>, Arc<StoreEntry>>,
) -> Result<Vec<Arc<StoreEvent>>, Failure> {
    let mut events = Vec::new();
    // The entry of each key right before the changes processed so far.
    let mut then: BTreeMap<Arc<str>, Option<Arc<StoreEntry>>> = BTreeMap::new();
    for row in undo.iter()?.rev() {
        let (revision, row) = row?;
        let (key, before_revision, before) = row.value();
        let (key, after) = match (then.get_key_value(key), entries.get_key_value(key)) {
            (Some((key, after)), _) => (key.clone(), after.clone()),
            (None, Some((key, entry))) => (key.clone(), Some(entry.clone())),
            (None, None) => (key.into(), None),
        };
        let before = (before_revision > 0).then(|| {
            let value = Bytes::copy_from_slice(before);
            Arc::new(StoreEntry::new(key.clone(), value, before_revision))
        });
        then.insert(key.clone(), before.clone());
        events.push(Arc::new(StoreEvent::new(
            revision.value(),
            key,
            before,
            after,
        )));
    }
    events.reverse();
    Ok(events)
}

impl Contents {
    /// Checks the invariants of committed data; the error describes the violation.
    pub(super) fn check(&self) -> Result<(), String> {
        let (floor, revision) = (self.floor, self.revision);
        if floor < FIRST_REVISION {
            return Err(format!(
                "the floor {floor} is below {FIRST_REVISION}, the first revision"
            ));
        }
        if revision < floor {
            return Err(format!("revision {revision} is below the floor {floor}"));
        }
        // One change per revision, without gaps.
        let expected = floor + 1..=revision;
        if !expected.eq(self.events.iter().map(|event| event.revision)) {
            return Err(format!("the history from {floor} to {revision} has gaps"));
        }
        for event in &self.events {
            let made = event.after.as_ref().map(|after| after.revision);
            let had = event.before.as_ref().map(|before| before.revision);
            let fits = made.is_none_or(|made| made == event.revision)
                && had.is_none_or(|had| had < event.revision)
                && (made.is_some() || had.is_some());
            if !fits {
                return Err(format!(
                    "change {} does not fit the entries before and after it",
                    event.revision
                ));
            }
        }
        let recent = |entry: &&Arc<StoreEntry>| entry.revision > floor;
        for entry in self.entries.values().filter(recent) {
            let index = usize::try_from(entry.revision - floor - 1).ok();
            let event = index.and_then(|index| self.events.get(index));
            if event.is_none_or(|event| event.key != entry.key) {
                return Err(format!("no change led to the entry {}", entry.key));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parents_of_a_new_directory_are_synced() {
        let synced = |path| parents(Path::new(path)).collect::<Vec<_>>();
        assert_eq!(synced("/a/b/c/store"), ["/a/b", "/a", "/"].map(Path::new));
        assert_eq!(synced("data/x/store"), ["data", "."].map(Path::new));
        assert_eq!(synced("../x/store"), ["..", "."].map(Path::new));
        assert_eq!(synced("data/store"), [Path::new(".")]);
    }

    #[test]
    fn what_is_wrong_with_the_revisions_is_said() {
        let check = |floor, revision| {
            let contents = Contents {
                entries: BTreeMap::new(),
                events: Vec::new(),
                floor,
                revision,
            };
            contents.check().unwrap_err()
        };
        assert_eq!(check(0, 5), "the floor 0 is below 1, the first revision");
        assert_eq!(check(5, 4), "revision 4 is below the floor 5");
    }
}
