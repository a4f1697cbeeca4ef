//! Errors of the stores. Each message names the object or file concerned, and a remedy.

use std::{io, path::PathBuf, sync::Arc};

use crate::usage::ExceededLimit;

/// Why an operation of a store failed.
///
/// Cheap to clone: one failed commit is the result of every write in it.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StoreError {
    /// The requested history was dropped; list again. Clients get 410 `Expired`.
    #[error("revision {requested} is older than the history, which begins at {floor}; list again")]
    Compacted { requested: u64, floor: u64 },

    /// A revision that does not exist yet.
    #[error("revision {requested} does not exist yet; the newest is {newest}")]
    Future { requested: u64, newest: u64 },

    /// The store cannot be reached, or was not read yet. A write may have taken place.
    #[error("the store is not available: {0}")]
    Unavailable(String),

    /// The disk is full. Nothing was written.
    #[error("{place} is full and nothing was written; make room there")]
    Full { place: String },

    /// The database of etcd has reached its quota. The write may have taken place: etcd compares with the quota before it
    /// applies a write and once more while it does, and then refuses a write that it has applied.
    #[error(
        "etcd's database is full: raise --quota-backend-bytes, or compact, defragment and disarm its alarm; the write may have taken place"
    )]
    DatabaseFull,

    /// The value, or the request with it, exceeds the limit of the store. Nothing was written.
    #[error(
        "the value of {key} has {bytes} bytes, more than the limit of {limit} bytes; make it smaller"
    )]
    TooLarge {
        key: String,
        bytes: usize,
        limit: usize,
    },

    /// The write would exceed a limit that it was given. Nothing was written.
    #[error(transparent)]
    OverLimit(Box<ExceededLimit>),

    /// Not a valid key or prefix: an error of the caller.
    #[error(
        "{0:?} is not a valid key or prefix of the store; use segments after slashes, none empty, none with a leading dot"
    )]
    BadKey(String),

    /// The stored data is inconsistent, or a checksum is wrong.
    #[error("{path} is damaged: {what}; restore it from a backup, or move it and its .lock file away to start with an empty store", path = path.display())]
    Corrupt { path: PathBuf, what: String },

    /// Another process has locked the file.
    #[error("{path} is in use by another process; stop that, or name another file in store.local.path", path = path.display())]
    Locked { path: PathBuf },

    /// The disk failed. A write may have taken place.
    #[error("{path}: {doing} failed; check the disk, the path and its permissions", path = path.display())]
    Io {
        path: PathBuf,
        doing: &'static str,
        source: Arc<io::Error>,
    },

    /// The keys below the prefix are not those of fairgate, or of an unknown format.
    #[error("{what}; name a prefix that is empty or fairgate's own")]
    Foreign { what: String },

    /// The store rejects the credentials.
    #[error("the store refuses access: {0}; check user, password, certificate and role")]
    Denied(String),

    /// The store has lost acknowledged writes.
    #[error(
        "the store went back from revision {seen} to {found}: it is an old backup, or damaged; restore a newer backup. To use an old backup of etcd, restore it with etcdutl snapshot restore --bump-revision --mark-compacted. To start with an empty file, move it and its .lock file away"
    )]
    WentBack { seen: u64, found: u64 },

    /// An internal error, or an invalid setting or response.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    pub(super) fn bad_key(key: &str) -> Self {
        // Bounded, because clients choose keys.
        Self::BadKey(key.chars().take(200).collect())
    }
}
