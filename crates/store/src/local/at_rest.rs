//! Reads the file of a store that nobody has open, and changes nothing: for commands that look at a gateway that is stopped.
//!
//! The file is read into memory, and what a killed gateway left unfinished is undone there.

use std::{
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::Path,
    sync::Arc,
};

use redb::{StorageBackend as _, backends::InMemoryBackend};

use super::{
    database::{beside, corrupt, failed, guarded},
    file::{self, builder},
    migration,
};
use crate::{entry::StoreEntry, error::StoreError};

/// What a store holds.
#[derive(Clone, Debug)]
pub struct StoreAtRest {
    /// The revision of the last change.
    pub revision: u64,
    /// All entries, in the order of their keys.
    pub entries: Vec<Arc<StoreEntry>>,
}

/// Reads the file at `path`; `None` if there is none. It takes as much memory as the file and its contents.
///
/// # Errors
///
/// [`StoreError::Locked`] while a gateway has it open; those of [`LocalStore::open`](super::LocalStore::open).
pub fn read_at_rest(path: &Path) -> Result<Option<StoreAtRest>, StoreError> {
    let _lock = shared_lock(path)?;
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, "reading it", error)),
    };
    if bytes.is_empty() {
        return Err(corrupt(path, "it is empty"));
    }
    let contents = guarded(path, || {
        let backend = InMemoryBackend::new();
        backend.set_len(bytes.len() as u64)?;
        backend.write(0, &bytes)?;
        drop(bytes);
        let database = builder().create_with_backend(backend)?;
        if migration::format(&database)? == 1 {
            migration::from_format_1(&database)?;
        }
        file::contents(path, &database)
    })?;
    Ok(Some(StoreAtRest {
        revision: contents.revision,
        entries: contents.entries.into_values().collect(),
    }))
}

/// Keeps a gateway from opening the store meanwhile; `None` if no gateway ever has. Does not make the lock file: it would belong
/// to the user of this command.
fn shared_lock(path: &Path) -> Result<Option<File>, StoreError> {
    let name = beside(path, ".lock");
    let lock = match File::open(&name) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&name, "opening it", error)),
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed(&name, "locking it", error)),
    }
}
