//! A file that is appended to and replaced by a new one before it becomes too large.
//!
//! `FILE` is renamed to `FILE.1`, `FILE.1` to `FILE.2`, and so on; the oldest is removed. A file that somebody else moved
//! away or removed, such as logrotate, is created again. Files can be read by their owner alone. A symbolic link is not followed:
//! whoever can create one in the directory could otherwise have another file appended to.
//!
//! A line is whole or not there: what a failed write has left is cut off again, and lines never continue a torn one, as a process that
//! was killed may leave. A file that cannot be renamed grows: lines that are too many are better than lines that are missing.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

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
    /// `None` if it could not be opened or written.
    open: Option<File>,
    /// Whether the open file ends within a line.
    is_torn: bool,
    /// The size at which it is renamed: `max_size`, or more if it could not be renamed at that size.
    rotate_at: u64,
    /// Whether it could not be renamed, which has been logged.
    is_stuck: bool,
}

impl RotatedFile {
    /// Opens the file, or creates it. Logs a warning if it cannot be renamed in its directory.
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
            is_torn: false,
            rotate_at: max_size,
            is_stuck: false,
        };
        file.reopen()?;
        if let Err(error) = access(directory(&file.path), Access::WRITE_OK) {
            file.warn_of_size(&error.into());
        }
        Ok(file)
    }

    /// Appends whole lines. Where the file cannot be renamed, it becomes larger than it should, which is logged once.
    ///
    /// # Errors
    ///
    /// When they cannot be written: then none of them are in the file, unless it cannot be shortened either. The next call opens the
    /// file anew.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.append(lines, |mut file| file.write_all(lines))
    }

    /// The same, where `write` writes the lines.
    fn append(
        &mut self,
        lines: &[u8],
        write: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.is_in_place() {
            self.reopen()?;
        }
        let size = self.size()?;
        if size > 0 && size.saturating_add(lines.len() as u64) > self.rotate_at {
            self.rotate(size)?;
        }
        if self.is_torn {
            self.file()?.write_all(b"\n")?;
            self.is_torn = false;
        }
        let size = self.size()?;
        let written = write(self.file()?);
        if written.is_err() {
            // Their caller counts them as missing.
            let _ = self.file().and_then(|file| file.set_len(size));
            self.open = None;
        }
        written
    }

    fn file(&self) -> io::Result<&File> {
        let closed = || io::Error::other("the file is not open");
        self.open.as_ref().ok_or_else(closed)
    }

    /// The size of the open file. Not kept, since others may shorten it.
    fn size(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    /// Whether the open file is still the one at the path.
    fn is_in_place(&self) -> bool {
        let Some(file) = &self.open else {
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
        self.is_torn = is_torn(&self.path, &file)?;
        self.open = Some(file);
        self.rotate_at = self.max_size;
        Ok(())
    }

    /// Begins a new file. If the present one of `size` bytes cannot be renamed, it is continued until it has grown by its maximum again.
    fn rotate(&mut self, size: u64) -> io::Result<()> {
        match self.set_aside() {
            Ok(()) => {
                self.is_stuck = false;
                self.reopen()
            }
            Err(error) => {
                self.rotate_at = size.saturating_add(self.max_size);
                self.warn_of_size(&error);
                Ok(())
            }
        }
    }

    /// Renames or removes the file.
    fn set_aside(&self) -> io::Result<()> {
        if self.max_files == 0 {
            return fs::remove_file(&self.path);
        }
        // Only those up to the first that is missing: an attempt after one that failed must not move them further.
        let last = (1..self.max_files).find(|number| is_absent(&older(&self.path, *number)));
        for number in (1..last.unwrap_or(self.max_files)).rev() {
            fs::rename(older(&self.path, number), older(&self.path, number + 1))?;
        }
        fs::rename(&self.path, older(&self.path, 1))
    }

    fn warn_of_size(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_stuck, true) {
            tracing::warn!(
                file = %self.path.display(), %error,
                "the file cannot be renamed or removed, so it will exceed its maximum size; check the permissions of its directory"
            );
        }
    }
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    let parent = path.parent();
    let named = parent.filter(|parent| !parent.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

fn is_absent(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether the file ends within a line.
fn is_torn(path: &Path, file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(false);
    }
    // One that may be written and not be read is taken for torn: an empty line does no harm.
    let mut last = [0];
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(NO_FOLLOW).open(path);
    let read = opened.and_then(|mut file| {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)
    });
    Ok(read.is_err() || last != *b"\n")
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
    fn lines_are_whole_or_missing_whatever_a_failed_write_has_left() {
        let scratch = Scratch::new("torn");
        let mut file = scratch.open(100, 1);
        file.write(b"a\n").unwrap();
        let lines = b"dropped\ndropped\n";
        let full = file.append(lines, |mut file| {
            file.write_all(&lines[..10])?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.write(b"b\n").unwrap();
        assert_eq!(scratch.text("log").as_deref(), Some("a\nb\n"));
        // Of a process that was killed.
        fs::write(scratch.0.join("log"), "a\nhalf").unwrap();
        scratch.open(100, 1).write(b"b\n").unwrap();
        assert_eq!(scratch.text("log").as_deref(), Some("a\nhalf\nb\n"));
    }

    #[test]
    fn a_file_that_cannot_be_renamed_is_continued_until_it_can() {
        let scratch = Scratch::new("stuck");
        for (max_files, in_the_way) in [(1, "log.1"), (2, "log.2")] {
            let in_the_way = scratch.0.join(in_the_way);
            fs::create_dir(&in_the_way).unwrap();
            let mut file = scratch.open(12, max_files);
            let lines = ["line0\n", "line1\n", "line2\n", "line3\n"];
            for line in lines {
                file.write(line.as_bytes()).unwrap();
            }
            let text = scratch.text("log").unwrap();
            assert!(text.ends_with(&lines.concat()), "{text}");
            fs::remove_dir(&in_the_way).unwrap();
            file.write(b"line4\n").unwrap();
            // Soon it is tried again.
            file.write(b"line5\n").unwrap();
            let all = scratch.text("log.1").unwrap() + &scratch.text("log").unwrap();
            assert!(all.ends_with("line3\nline4\nline5\n"), "{all}");
        }
    }

    #[test]
    fn older_files_are_not_moved_on_by_attempts_that_fail() {
        let scratch = Scratch::new("attempts");
        let mut file = scratch.open(10, 3);
        for number in 0..3 {
            file.write(format!("line{number}\n").as_bytes()).unwrap();
        }
        assert_eq!(scratch.names(), ["log", "log.1", "log.2"]);
        // As after an attempt that moved the older ones and could not rename the file itself.
        fs::rename(scratch.0.join("log.2"), scratch.0.join("log.3")).unwrap();
        fs::rename(scratch.0.join("log.1"), scratch.0.join("log.2")).unwrap();
        file.write(b"line3\n").unwrap();
        let names = ["log", "log.1", "log.2", "log.3"];
        assert_eq!(scratch.names(), names);
        let kept = ["line3\n", "line2\n", "line1\n", "line0\n"].map(|line| Some(line.to_owned()));
        assert_eq!(names.map(|name| scratch.text(name)), kept);
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
