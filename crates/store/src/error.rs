//! Why a store does not do as asked: which thing, and what to do.

use std::{io, path::PathBuf, sync::Arc};

/// Why a store does not do as asked.
///
/// Cheap to clone: one failure answers all writes that it failed.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StoreError {
    /// The history that was asked for is gone; list anew. HTTP says 410 Expired.
    #[error("revision {asked} is older than the history, which begins at {floor}; list again")]
    Compacted { asked: u64, floor: u64 },

    /// A revision that does not exist yet.
    #[error("revision {asked} does not exist yet; the newest is {newest}")]
    Future { asked: u64, newest: u64 },

    /// The store cannot be reached, or was not read yet. A write may have happened or not.
    #[error("the store is not available: {0}")]
    Unavailable(String),

    /// There is no room. Nothing was written.
    #[error("{place} is full and nothing was written; make room there")]
    Full { place: String },

    /// The value, or the request that holds it, exceeds what the store takes. Nothing was written.
    #[error(
        "the value of {key} has {bytes} bytes, more than the {limit} that fit; make it smaller"
    )]
    TooLarge {
        key: String,
        bytes: usize,
        limit: usize,
    },

    /// Not a key, or not a prefix: a mistake of the caller's.
    #[error("{0:?} is no key or prefix of the store; segments after a slash, none empty or hidden")]
    BadKey(String),

    /// What is stored does not read as what was written.
    #[error("{path} is damaged: {what}; restore it from a backup, or move it away to begin anew", path = path.display())]
    Corrupt { path: PathBuf, what: String },

    /// Another process has the file.
    #[error("{path} is in use by another process; stop that, or name another file", path = path.display())]
    Locked { path: PathBuf },

    /// The disk failed. A write may have happened or not.
    #[error("{path}: {doing} failed; check the disk, the path and its permissions", path = path.display())]
    Io {
        path: PathBuf,
        doing: &'static str,
        source: Arc<io::Error>,
    },

    /// What is under the prefix is not ours, or of a format we do not know.
    #[error("{what}; name a prefix that is empty or fairgate's own")]
    Foreign { what: String },

    /// The store refuses our credentials.
    #[error("the store refuses access: {0}; check user, password, certificate and role")]
    Denied(String),

    /// The store forgot what it had acknowledged.
    #[error(
        "the store went back from revision {seen} to {found}: it is an old backup, or damaged; if it is to be used as it is, raise its revision far beyond that (of etcd: etcdutl snapshot restore --bump-revision --mark-compacted)"
    )]
    WentBack { seen: u64, found: u64 },

    /// The store answers what it never should.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    pub(super) fn bad_key(key: &str) -> Self {
        // Long enough to recognise it by, whatever a client sent.
        Self::BadKey(key.chars().take(200).collect())
    }
}
