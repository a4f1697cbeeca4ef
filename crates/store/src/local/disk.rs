//! The space of the file on its disk: allocated before it is used, with a reserve.
//!
//! redb replaces pages by copies, so a deletion needs room before it makes room. The file therefore always has free pages
//! that belong to it already, and only writes that add nothing may use them:
//!
//! - [`ReservedFile`] allocates what redb adds to the file, so a page of the file is on the disk before anything is written
//!   to it. What redb would otherwise write to holes could fail at any commit. 32 MiB are allocated from the
//!   start, those beyond the end of the file included.
//! - When redb closes the file, it drops the free pages at the end. They are kept: otherwise others could take them before
//!   the file is opened again. redb finds the file longer than it left it, and takes the rest as free pages.
//! - A write that adds something succeeds only if it leaves room: in a file of at most half of that, redb can double
//!   it within what is allocated. In a larger file, [`prove_room`] allocates pages in the same transaction, and gives them
//!   back before it is committed.
//!
//! Nothing can be guaranteed on a file system that cannot allocate, or that writes copies itself (btrfs, ZFS).

use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redb::{StorageBackend, TableDefinition, WriteTransaction};
use rustix::{
    fs::{FallocateFlags, fallocate, fstatvfs},
    io::Errno,
};

use super::database::Failure;

/// The bytes of the pages for one value of the maximum length. A proof of room allocates such pieces.
const PIECE: u64 = 2 << 20;
/// How many pieces are allocated to the file at least.
const RESERVED: u64 = 16;
/// How many a write that adds something leaves free.
const LEFT: u64 = 8;
/// The same for an essential one: deletions still find room afterwards.
const LEFT_BY_ESSENTIAL: u64 = 2;
/// How many pieces may be written after a proof before the next one: half of what it found free.
const PROVED: u64 = 4;

/// Allocates the blocks of files.
pub(super) trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Allocates the first `bytes` bytes of `file`, whose length stays. What is allocated already stays so.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()>;

    /// Makes `file` as long as `length`, and gives back what is allocated beyond it.
    fn set_length(&self, file: &File, length: u64) -> io::Result<()> {
        file.set_len(length)
    }

    /// Writes all of `data` at `offset`.
    fn write(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        file.write_all_at(data, offset)
    }

    /// Makes durable what was written to `file`.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// The bytes of the pages for one value of the maximum length; a power of two.
    fn piece(&self) -> u64 {
        PIECE
    }

    /// The bytes that are allocated to a file at least.
    fn reserved(&self) -> u64 {
        RESERVED * self.piece()
    }
}

/// The disks of this system.
#[derive(Debug)]
pub(super) struct SystemDisk;

impl Disk for SystemDisk {
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        // An allocation that fails may keep a part, so it is not tried if it cannot succeed.
        let space = fstatvfs(file)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let metadata = file.metadata()?;
        let has = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
        if bytes.saturating_sub(has) > free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What the file is about its space.
#[derive(Debug, Default)]
pub(super) struct SpaceState {
    /// Whether the reserve is not allocated.
    lacks_reserve: AtomicBool,
    /// Whether the file does not get shorter.
    keeps_length: AtomicBool,
    /// The length of the file in bytes.
    length: AtomicU64,
    /// How much may have been written since the last proof of room, in bytes; at most `u64::MAX`: there is none.
    unproved: AtomicU64,
}

impl SpaceState {
    /// Gives back what is allocated beyond the end of the file, but for the reserve.
    ///
    /// The reserve is not given back for a moment either, as others could take it. So the file may stay longer than its
    /// database until it is opened again.
    fn give_back(&self, file: &File, disk: &dyn Disk) -> io::Result<()> {
        let length = self.length.load(Ordering::Relaxed);
        if self.lacks_reserve.load(Ordering::Relaxed) || length >= disk.reserved() {
            disk.set_length(file, length)
        } else if file.metadata()?.len() > disk.reserved() {
            disk.set_length(file, disk.reserved())
        } else {
            Ok(())
        }
    }
}

/// What a commit may take of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReserveUse {
    /// It adds something, so it leaves the reserve.
    Nothing,
    /// It is essential: it leaves what deletions need.
    Part,
    /// It makes room.
    All,
}

/// A file for redb that is allocated before it is written.
#[derive(Debug)]
pub(super) struct ReservedFile {
    file: File,
    disk: Arc<dyn Disk>,
    space: Arc<SpaceState>,
}

impl ReservedFile {
    /// Takes over an open file, and allocates its reserve if there is room.
    pub(super) fn new(file: File, disk: &Arc<dyn Disk>) -> io::Result<(Self, Space)> {
        let length = file.metadata()?.len();
        let state = Arc::new(SpaceState::default());
        state.length.store(length, Ordering::Relaxed);
        state.unproved.store(u64::MAX, Ordering::Relaxed);
        let space = Space {
            file: file.try_clone()?,
            disk: Arc::clone(disk),
            state: Arc::clone(&state),
        };
        // The store is opened on a full disk as well: it can be read, and objects deleted.
        state.lacks_reserve.store(true, Ordering::Relaxed);
        let _ = space.reserve();
        let file = Self {
            file,
            disk: Arc::clone(disk),
            space: state,
        };
        Ok((file, space))
    }
}

impl StorageBackend for ReservedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.space.length.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if length >= self.len()? {
            self.disk
                .allocate(&self.file, length.max(self.disk.reserved()))?;
            if length > self.file.metadata()?.len() {
                self.disk.set_length(&self.file, length)?;
            }
            self.space.length.store(length, Ordering::Relaxed);
        } else if !self.space.keeps_length.load(Ordering::Relaxed) {
            self.space.length.store(length, Ordering::Relaxed);
            // What was found free may be what is gone.
            self.space.unproved.store(u64::MAX, Ordering::Relaxed);
            self.space.give_back(&self.file, &*self.disk)?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync(&self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(&self.file, offset, data)
    }
}

/// The space of an open file, as its store sees it.
#[derive(Debug)]
pub(super) struct Space {
    file: File,
    disk: Arc<dyn Disk>,
    state: Arc<SpaceState>,
}

impl Space {
    /// Allocates the reserve if it is not.
    pub(super) fn reserve(&self) -> io::Result<()> {
        if self.state.lacks_reserve.load(Ordering::Relaxed) {
            let length = self.state.length.load(Ordering::Relaxed);
            self.disk
                .allocate(&self.file, length.max(self.disk.reserved()))?;
            self.state.lacks_reserve.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Keeps the file as long as it is. To be called before the database is closed.
    pub(super) fn keep_length(&self) {
        self.state.keeps_length.store(true, Ordering::Relaxed);
    }

    /// Lets the file get shorter again.
    pub(super) fn may_shorten(&self) {
        self.state.keeps_length.store(false, Ordering::Relaxed);
    }

    /// Whether the file could grow, as far as the disk is concerned.
    pub(super) fn can_grow(&self) -> bool {
        let length = self.state.length.load(Ordering::Relaxed);
        let grown = length.saturating_mul(2).max(self.disk.reserved());
        let can = self.disk.allocate(&self.file, grown).is_ok();
        if can {
            // Given back, as the file may not need it.
            let _ = self.state.give_back(&self.file, &*self.disk);
        }
        can
    }

    /// Makes sure that `transaction`, which writes about so many bytes, leaves what it has to leave.
    pub(super) fn check(
        &self,
        transaction: &WriteTransaction,
        bytes: u64,
        takes: ReserveUse,
    ) -> Result<(), Failure> {
        let unproved = self.state.unproved.load(Ordering::Relaxed);
        let unproved = unproved.saturating_add(bytes);
        let length = self.state.length.load(Ordering::Relaxed);
        let pieces = match takes {
            ReserveUse::All => 0,
            ReserveUse::Part => LEFT_BY_ESSENTIAL,
            ReserveUse::Nothing => LEFT,
        };
        let is_proved = takes == ReserveUse::Nothing && unproved <= PROVED * self.disk.piece();
        if is_proved || pieces == 0 || length <= self.disk.reserved() / 2 {
            self.state.unproved.store(unproved, Ordering::Relaxed);
            return Ok(());
        }
        prove_room(transaction, pieces, self.disk.piece())?;
        let now = if takes == ReserveUse::Nothing {
            0
        } else {
            u64::MAX
        };
        self.state.unproved.store(now, Ordering::Relaxed);
        Ok(())
    }
}

/// Allocates pages for `pieces` values of the maximum length in `transaction`, and frees them again.
fn prove_room(transaction: &WriteTransaction, pieces: u64, bytes: u64) -> Result<(), Failure> {
    const ROOM: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("room");
    // With the header of its page it takes all of the piece.
    let length = usize::try_from(bytes - 4096).unwrap_or(usize::MAX);
    {
        let mut room = transaction.open_table(ROOM)?;
        for piece in 0..pieces {
            drop(room.insert_reserve(piece, length)?);
        }
    }
    transaction.delete_table(ROOM)?;
    Ok(())
}

/// About how much of the file a value of so many bytes takes: pages are powers of two.
pub(super) fn pages_of(bytes: usize) -> u64 {
    (bytes as u64 + 512).next_power_of_two().max(4096)
}
