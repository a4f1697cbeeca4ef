//! A file that is appended to and replaced by a new one before it becomes too large.
//!
//! `FILE` is renamed to `FILE.1`, `FILE.1` to `FILE.2`, and so on; the oldest is removed. A file that somebody else moved
//! away or removed, such as logrotate, is created again. Files can be read by their owner alone. A symbolic link is not followed:
//! whoever can create one in the directory could otherwise have another file appended to.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// The permissions of new files.
const MODE: u32 = 0o600;

/// Fails if the file is a symbolic link.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// See the module.
#[derive(Debug)]
pub struct RotatedFile {
    path: PathBuf,
    /// In bytes. A single write may be longer.
    max_size: u64,
    /// Older files that are kept.
    max_files: u32,
    /// The open file, and its size; `None` if it could not be opened or written.
    open: Option<(File, u64)>,
}

impl RotatedFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    ///
    /// When that is not possible.
    pub fn open(path: PathBuf, max_size: u64, max_files: u32) -> io::Result<Self> {
        let mut file = Self {
            path,
            max_size,
            max_files,
            open: None,
        };
        file.reopen()?;
        Ok(file)
    }

    /// Appends whole lines.
    ///
    /// # Errors
    ///
    /// When they cannot be written. The next call opens the file anew.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if !self.is_in_place() {
            self.reopen()?;
        }
        let size = self.open.as_ref().map_or(0, |(_, size)| *size);
        let new_size = size.saturating_add(lines.len() as u64);
        if size > 0 && new_size > self.max_size {
            self.rotate()?;
        }
        let Some((file, size)) = &mut self.open else {
            return Err(io::Error::other("the file is not open"));
        };
        let written = file.write_all(lines);
        *size = size.saturating_add(lines.len() as u64);
        if written.is_err() {
            self.open = None;
        }
        written
    }

    /// Whether the open file is still the one at the path.
    fn is_in_place(&self) -> bool {
        let Some((file, _)) = &self.open else {
            return false;
        };
        let identity = |of: fs::Metadata| (of.dev(), of.ino());
        match (file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(open), Ok(named)) => identity(open) == identity(named),
            _ => false,
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.open = None;
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .append(true)
            .mode(MODE)
            .custom_flags(NO_FOLLOW)
            .open(&self.path)?;
        let size = file.metadata()?.len();
        self.open = Some((file, size));
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        if self.max_files == 0 {
            fs::remove_file(&self.path)?;
            return self.reopen();
        }
        for number in (1..self.max_files).rev() {
            let (from, to) = (older(&self.path, number), older(&self.path, number + 1));
            match fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, older(&self.path, 1))?;
        self.reopen()
    }
}

/// The path of an older file.
fn older(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("fairgate-rotated-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn open(&self, max_size: u64, max_files: u32) -> RotatedFile {
            RotatedFile::open(self.0.join("log"), max_size, max_files).unwrap()
        }

        fn text(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.0.join(name)).ok()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_full_file_is_renamed_and_only_so_many_are_kept() {
        let scratch = Scratch::new("full");
        let mut file = scratch.open(10, 2);
        for number in 0..9 {
            file.write(format!("line{number}\n").as_bytes()).unwrap();
        }
        assert_eq!(scratch.names(), ["log", "log.1", "log.2"]);
        assert_eq!(scratch.text("log.2").as_deref(), Some("line6\n"));
        assert_eq!(scratch.text("log.1").as_deref(), Some("line7\n"));
        assert_eq!(scratch.text("log").as_deref(), Some("line8\n"));
        let mut none = scratch.open(10, 0);
        none.write(b"longer than ten bytes\n").unwrap();
        assert_eq!(
            scratch.text("log").as_deref(),
            Some("longer than ten bytes\n")
        );
    }

    #[test]
    fn a_file_is_continued_and_its_owner_alone_may_read_it() {
        let scratch = Scratch::new("continued");
        scratch.open(100, 1).write(b"a\n").unwrap();
        scratch.open(100, 1).write(b"b\n").unwrap();
        assert_eq!(scratch.text("log").as_deref(), Some("a\nb\n"));
        let mode = fs::metadata(scratch.0.join("log")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let scratch = Scratch::new("link");
        let (log, other) = (scratch.0.join("log"), scratch.0.join("other"));
        fs::write(&other, "untouched\n").unwrap();
        std::os::unix::fs::symlink(&other, &log).unwrap();
        assert!(RotatedFile::open(log.clone(), 100, 1).is_err());
        fs::remove_file(&log).unwrap();
        let mut file = scratch.open(100, 1);
        file.write(b"a\n").unwrap();
        // Somebody replaces the open file by a link, also one to that very file.
        for target in ["other", "moved"] {
            fs::rename(&log, scratch.0.join("moved")).unwrap();
            std::os::unix::fs::symlink(scratch.0.join(target), &log).unwrap();
            assert!(file.write(b"b\n").is_err(), "{target}");
            fs::remove_file(&log).unwrap();
            file.write(b"c\n").unwrap();
        }
        assert_eq!(scratch.text("other").as_deref(), Some("untouched\n"));
        assert_eq!(scratch.text("log").as_deref(), Some("c\n"));
    }

    #[test]
    fn a_file_that_was_moved_away_or_removed_is_created_again() {
        let scratch = Scratch::new("moved");
        let mut file = scratch.open(100, 1);
        file.write(b"a\n").unwrap();
        fs::rename(scratch.0.join("log"), scratch.0.join("elsewhere")).unwrap();
        file.write(b"b\n").unwrap();
        assert_eq!(scratch.text("elsewhere").as_deref(), Some("a\n"));
        assert_eq!(scratch.text("log").as_deref(), Some("b\n"));
        fs::remove_file(scratch.0.join("log")).unwrap();
        file.write(b"c\n").unwrap();
        assert_eq!(scratch.text("log").as_deref(), Some("c\n"));
    }

    #[test]
    fn a_directory_that_is_gone_is_an_error_until_it_is_back() {
        let scratch = Scratch::new("gone");
        let mut file = scratch.open(100, 1);
        fs::remove_dir_all(&scratch.0).unwrap();
        assert!(file.write(b"a\n").is_err());
        fs::create_dir_all(&scratch.0).unwrap();
        file.write(b"b\n").unwrap();
        assert_eq!(scratch.text("log").as_deref(), Some("b\n"));
    }
}
