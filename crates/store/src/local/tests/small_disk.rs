//! A disk that this test makes up: it counts the blocks of one file, and refuses what it has no room for.
//!
//! The blocks of the file are always its first ones. Writing beyond them takes further ones, as writing to a hole does.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::local::disk::Disk;

/// How much a file system allocates at once, in bytes.
const BLOCK: u64 = 4096;

/// A disk with one file of the store.
#[derive(Debug)]
pub(super) struct SmallDisk {
    piece: u64,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// The bytes that the file has.
    own: u64,
    /// The bytes that anybody may take.
    free: u64,
    /// Whether others take at once whatever becomes free.
    is_filled: bool,
    /// How often there was no room.
    refused: u64,
    /// What goes wrong, and after how many further calls.
    failure: Option<(u64, DiskFailure)>,
    /// Whether nothing is written any more.
    is_dead: bool,
}

/// What a test lets happen between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskFailure {
    /// One call fails.
    Once,
    /// All calls fail from now on: as if the process were killed.
    Death,
    /// Others fill the disk.
    Fill,
}

impl Blocks {
    /// To be called first in every call.
    fn call(&mut self) -> io::Result<()> {
        let failed = || Err(io::Error::other("a failure of this test"));
        let mut due = None;
        if let Some((calls, failure)) = &mut self.failure {
            match calls.checked_sub(1) {
                Some(left) => *calls = left,
                None => due = Some(*failure),
            }
        }
        match due {
            Some(DiskFailure::Fill) => (self.free, self.is_filled) = (0, true),
            Some(DiskFailure::Death) => self.is_dead = true,
            Some(DiskFailure::Once) | None => {}
        }
        if due.is_some() {
            self.failure = None;
        }
        if self.is_dead || due == Some(DiskFailure::Once) {
            return failed();
        }
        Ok(())
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        let missing = bytes.next_multiple_of(BLOCK).saturating_sub(self.own);
        if missing > self.free {
            self.refused += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.free -= missing;
        self.own += missing;
        Ok(())
    }
}

impl SmallDisk {
    /// An empty disk of so many bytes, for values whose pages take up to a `piece`.
    pub(super) fn new(piece: u64, bytes: u64) -> Arc<Self> {
        let blocks = Blocks {
            free: bytes,
            ..Blocks::default()
        };
        Arc::new(Self {
            piece,
            blocks: Mutex::new(blocks),
        })
    }

    /// Others fill the disk, and take what the file gives back.
    pub(super) fn fill(&self) {
        let mut blocks = self.blocks();
        (blocks.free, blocks.is_filled) = (0, true);
    }

    /// Others leave so many bytes.
    pub(super) fn free(&self, bytes: u64) {
        let mut blocks = self.blocks();
        (blocks.free, blocks.is_filled) = (bytes, false);
    }

    /// How often there was no room.
    pub(super) fn refused(&self) -> u64 {
        self.blocks().refused
    }

    /// Lets something go wrong after so many calls.
    pub(super) fn fail_after(&self, calls: u64, failure: DiskFailure) {
        self.blocks().failure = Some((calls, failure));
    }

    /// Ends what [`fail_after`](Self::fail_after) has started. Returns whether a call may have failed.
    pub(super) fn heal(&self) -> bool {
        let mut blocks = self.blocks();
        blocks.is_dead = false;
        blocks.failure.take().is_none()
    }

    /// The bytes that the file has.
    pub(super) fn own(&self) -> u64 {
        self.blocks().own
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap()
    }
}

impl Disk for SmallDisk {
    fn allocate(&self, _: &File, bytes: u64) -> io::Result<()> {
        let mut blocks = self.blocks();
        blocks.call()?;
        blocks.allocate(bytes)
    }

    fn set_length(&self, file: &File, length: u64) -> io::Result<()> {
        let mut blocks = self.blocks();
        blocks.call()?;
        let grows = length > file.metadata()?.len();
        file.set_len(length)?;
        if grows {
            return Ok(());
        }
        let given_back = blocks.own.saturating_sub(length.next_multiple_of(BLOCK));
        blocks.own -= given_back;
        if !blocks.is_filled {
            blocks.free += given_back;
        }
        Ok(())
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut blocks = self.blocks();
        blocks.call()?;
        blocks.allocate(offset + data.len() as u64)?;
        file.write_all_at(data, offset)
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        self.blocks().call()
    }

    fn piece(&self) -> u64 {
        self.piece
    }
}
