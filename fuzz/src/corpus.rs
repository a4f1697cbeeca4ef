//! The kept inputs of a target.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Outcome, Target};

/// The directory of this crate.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The inputs in `corpus/NAME/`, in the order of their names.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn read(target: &Target) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let directory = root().join("corpus").join(target.name);
    let mut paths = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let read = |path: PathBuf| fs::read(&path).map(|data| (path, data));
    paths.into_iter().map(read).collect()
}

/// Writes an input to `DIRECTORY/NAME/`, under a name that follows from its content.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(directory: &str, target: &Target, prefix: &str, data: &[u8]) -> io::Result<PathBuf> {
    let directory = root().join(directory).join(target.name);
    fs::create_dir_all(&directory)?;
    let Outcome(hash) = Outcome::of(data);
    let path = directory.join(format!("{prefix}{hash:016x}"));
    fs::write(&path, data)?;
    Ok(path)
}
