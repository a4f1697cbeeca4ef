//! Where a local store keeps its file.

use std::path::PathBuf;

use crate::history::HistoryLimits;

/// Where the file is, and how much it keeps.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// The file. It and its directory are made if missing, readable by their owner alone; beside it
    /// lies one with `.lock` appended, which the process that has the store open has locked, and which
    /// notes its revision.
    pub path: PathBuf,
    /// How much history.
    pub limits: HistoryLimits,
}
