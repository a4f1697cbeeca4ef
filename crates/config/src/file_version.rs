//! Which version of a file was read.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::values::InvalidValue;

/// A file, and the digest of what was read from it, which shows whether it has changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// The path of the file.
    pub path: PathBuf,
    /// The SHA-256 of the contents that were read.
    pub digest: FileDigest,
}

/// The SHA-256 of a file's contents.
pub type FileDigest = [u8; 32];

impl FileVersion {
    pub(super) fn new(path: &Path, contents: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            digest: file_digest(contents),
        }
    }

    /// Why other contents of the file cannot be used, for the log.
    pub(super) fn cannot_be_used(&self, invalid: &InvalidValue) -> String {
        format!("{}: {}", self.path.display(), invalid.problem)
    }
}

/// The SHA-256 of `contents`.
pub fn file_digest(contents: &[u8]) -> FileDigest {
    Sha256::digest(contents).into()
}
