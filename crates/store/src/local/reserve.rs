//! Space on the disk that is kept for what makes room.
//!
//! The database writes new pages before it frees old ones, also for a deletion. So on a full disk nothing could be deleted, and
//! the store would stay full for good. A file next to the store holds some space. When the disk is full, it is removed, and a
//! deletion has room. While it is missing, nothing that adds to the store is written: it is made again first.
//!
//! Another process may take the space at that moment. On a disk that is shared with others this helps, but guarantees nothing.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use super::database::beside;

/// The space that is kept: several times the pages that the deletion of the longest value needs.
const BYTES: u64 = 16 << 20;

/// The space that is kept for a store.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    state: ReserveState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReserveState {
    /// Nobody has looked yet, or there was no room for it.
    Missing,
    Kept,
    /// The file system cannot keep space. Then there is none, and nothing waits for it.
    Unsupported,
}

impl Reserve {
    /// The reserve of the store at `path`, which is not made yet.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: beside(path, ".reserve"),
            state: ReserveState::Missing,
        }
    }

    /// Makes it if it is missing. Returns `false` if there is no room for it.
    pub(super) fn ensure(&mut self) -> bool {
        if self.state != ReserveState::Missing {
            return true;
        }
        self.state = match make(&self.path) {
            Ok(()) => ReserveState::Kept,
            Err(error) => {
                let _ = fs::remove_file(&self.path);
                if is_full(&error) {
                    ReserveState::Missing
                } else {
                    tracing::warn!(
                        %error,
                        path = %self.path.display(),
                        "cannot reserve space for deletions; on a full disk they will fail, too"
                    );
                    ReserveState::Unsupported
                }
            }
        };
        self.state != ReserveState::Missing
    }

    /// Whether it is missing.
    pub(super) fn is_missing(&self) -> bool {
        self.state == ReserveState::Missing
    }

    /// Frees the space, for what makes room. Returns `false` if there was none.
    pub(super) fn release(&mut self) -> bool {
        if self.state != ReserveState::Kept {
            return false;
        }
        self.state = ReserveState::Missing;
        match fs::remove_file(&self.path) {
            Ok(()) => {
                tracing::warn!(
                    "the disk is full: the space that is reserved for deletions is in use; writes that add to the store are refused until there is room for it again"
                );
                true
            }
            Err(_) => false,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Makes a file that has all its space on the disk.
fn make(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, BYTES) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(&file)?,
        Err(error) => return Err(error.into()),
    }
    file.sync_all()
}

/// The same for file systems that cannot allocate space without writing.
fn fill(mut file: &File) -> io::Result<()> {
    let zeros = vec![0; 1 << 16];
    for _ in 0..BYTES / (1 << 16) {
        file.write_all(&zeros)?;
    }
    Ok(())
}
