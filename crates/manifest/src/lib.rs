//! Reads YAML and JSON documents that people write, and finds the lines of their keys for error messages.

pub mod yaml;

use std::{io, io::Read as _, path::Path};

/// The size limit of a file, in bytes: 16 MiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads a file of at most 16 MiB.
///
/// # Errors
///
/// When it cannot be read, or is longer.
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut contents)?;
    if contents.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {} MiB", MAX_FILE_BYTES >> 20),
        ));
    }
    Ok(contents)
}
