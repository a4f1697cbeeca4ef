//! Settings of the local store.

use std::path::PathBuf;

use crate::history::HistoryLimits;

/// The path of the file, and the limits of its history.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// The file. It and its directory are created if missing, with access for the owner only. A second
    /// file with `.lock` appended is locked while the store is open, and holds the last revision.
    pub path: PathBuf,
    /// The limits of the history, in memory and in the file.
    pub limits: HistoryLimits,
}
