//! The tables of the database, and the errors of what is done with it.
//!
//! Some damage makes redb panic before it compares checksums; such panics are caught and reported as damage.

use std::{
    fs::File,
    io::{self, ErrorKind},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use redb::{Database, ReadableTable, TableDefinition};

use crate::error::StoreError;

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const STATE: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("state");
pub(super) const UNDO: TableDefinition<'_, u64, (&str, u64, &[u8])> = TableDefinition::new("undo");

pub(super) const FORMAT: u64 = 2;

pub(super) fn begin(database: &Database) -> Result<redb::WriteTransaction, Failure> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

pub(super) fn number(
    meta: &impl ReadableTable<&'static str, u64>,
    name: &str,
) -> Result<u64, Failure> {
    match meta.get(name)? {
        Some(number) => Ok(number.value()),
        None => Err(Failure::Damaged(format!("it has no {name}"))),
    }
}

/// Why a step on the database failed.
pub(super) enum Failure {
    Redb(redb::Error),
    Damaged(String),
    Foreign(String),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Redb(error.into())
    }
}

/// Runs a step on the database at `path`, and maps its failure or panic to a store error.
pub(super) fn guarded<T>(
    path: &Path,
    step: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, StoreError> {
    // What a panic leaves behind is dropped, never used.
    match catch_unwind(AssertUnwindSafe(step)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(failure)) => Err(explain(path, failure)),
        Err(_) => Err(corrupt(path, "the database library failed to read it")),
    }
}

pub(super) fn explain(path: &Path, failure: Failure) -> StoreError {
    match failure {
        Failure::Damaged(what) => corrupt(path, what),
        Failure::Foreign(what) => StoreError::Foreign { what },
        Failure::Redb(redb::Error::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => {
            corrupt(path, "it ends too early")
        }
        // The file is not a database.
        Failure::Redb(redb::Error::Io(error)) if error.kind() == ErrorKind::InvalidData => {
            corrupt(path, error.to_string())
        }
        Failure::Redb(redb::Error::Io(error)) => failed(path, "reading or writing it", error),
        Failure::Redb(redb::Error::DatabaseAlreadyOpen) => StoreError::Locked {
            path: path.to_owned(),
        },
        Failure::Redb(redb::Error::PreviousIo) => failed(
            path,
            "reading or writing it",
            io::Error::other("an earlier failure"),
        ),
        Failure::Redb(other) => corrupt(path, other.to_string()),
    }
}

pub(super) fn corrupt(path: &Path, what: impl Into<String>) -> StoreError {
    StoreError::Corrupt {
        path: path.to_owned(),
        what: what.into(),
    }
}

pub(super) fn failed(path: &Path, doing: &'static str, error: io::Error) -> StoreError {
    let full = [
        ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded,
        ErrorKind::FileTooLarge,
    ];
    if full.contains(&error.kind()) {
        let place = format!("the disk below {}", path.display());
        return StoreError::Full { place };
    }
    StoreError::Io {
        path: path.to_owned(),
        doing,
        source: Arc::new(error),
    }
}

/// The directory of `path`.
pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

pub(super) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Drops the file from the page cache: after a failed flush the cache may differ from the disk.
pub(super) fn forget_cached(path: &Path) {
    if let Ok(file) = File::open(path) {
        // Best effort.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// `path` with `suffix` appended to its last part.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
