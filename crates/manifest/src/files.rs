//! Files of documents: which files of a directory are read, and how much of them.
//!
//! Not here: what the files contain ([`yaml`](crate::yaml)), and waiting for changes.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// The size limit of a file, in bytes: 16 MiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The total size of the files that are read together: 64 MiB.
const MAX_TOTAL_BYTES: usize = 64 << 20;

/// The name of a file, and its contents.
pub type FileText = (String, io::Result<Vec<u8>>);

/// Reads a file of at most 16 MiB.
///
/// # Errors
///
/// When it cannot be read, or is longer.
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    fs::File::open(path)?
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

/// The contents of a file, or of the [`manifest_files`] of a directory. For a caller that may block.
pub fn file_texts(path: &Path) -> Vec<FileText> {
    if !path.is_dir() {
        return read_files(&[path.to_owned()]);
    }
    match manifest_files(path) {
        Ok(paths) => read_files(&paths),
        Err(error) => vec![(path.display().to_string(), Err(error))],
    }
}

/// The files of `directory` that may hold documents, in the order of their names: `*.yaml`, `*.yml` and `*.json`, without hidden
/// ones and [`kustomize_files`].
///
/// # Errors
///
/// When the directory cannot be read.
pub fn manifest_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    files_that(directory, |path| {
        is_manifest_name(path) && !is_of_kustomize(path)
    })
}

/// The files of `directory` that are for kustomize, and describe no object: those that have the name by which it finds them.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn kustomize_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    files_that(directory, is_of_kustomize)
}

fn files_that(directory: &Path, is_wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if is_wanted(&path) && !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_of_kustomize(path: &Path) -> bool {
    const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
    path.file_name()
        .is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

fn is_manifest_name(path: &Path) -> bool {
    let hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let known = |extension: &OsStr| {
        ["yaml", "yml", "json"]
            .iter()
            .any(|known| extension == *known)
    };
    !path.file_name().is_none_or(hidden) && path.extension().is_some_and(known)
}

/// Reads `paths`, up to 64 MiB in total. For a caller that may block.
pub fn read_files(paths: &[PathBuf]) -> Vec<FileText> {
    let mut left = MAX_TOTAL_BYTES;
    let read = |path: &PathBuf| {
        let contents = read_bounded(path).and_then(|contents| {
            left = left.checked_sub(contents.len()).ok_or_else(|| {
                let limit = MAX_TOTAL_BYTES >> 20;
                io::Error::other(format!("the directory holds more than {limit} MiB"))
            })?;
            Ok(contents)
        });
        (path.display().to_string(), contents)
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_files_of_a_directory_are_read_in_order() {
        let name = format!("fairgate-manifest-files-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(directory.join("d.yaml")).unwrap();
        for name in [
            "c.json",
            "b.yml",
            "a.yaml",
            ".hidden.yaml",
            "a.yaml~",
            "README.md",
            "kustomization.yaml",
            "Kustomization",
        ] {
            fs::write(directory.join(name), name).unwrap();
        }

        let texts = file_texts(&directory);
        let of_kustomize = kustomize_files(&directory).unwrap();
        let missing = file_texts(&directory.join("absent.yaml"));

        fs::remove_dir_all(&directory).unwrap();
        let contents: Vec<_> = texts
            .into_iter()
            .map(|(_, text)| String::from_utf8(text.unwrap()).unwrap())
            .collect();
        assert_eq!(contents, ["a.yaml", "b.yml", "c.json"]);
        let names = of_kustomize.iter().map(|path| path.file_name().unwrap());
        let names: Vec<&OsStr> = names.collect();
        assert_eq!(names, ["Kustomization", "kustomization.yaml"]);
        assert!(matches!(missing.as_slice(), [(name, Err(_))] if name.ends_with("absent.yaml")));
    }
}
