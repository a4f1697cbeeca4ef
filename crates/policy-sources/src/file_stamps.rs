//! Whether files have to be read to know that they have not changed.
//!
//! Files are compared by content, twice a second, which for many policies is most of what an idle gateway does. So a reading
//! is left out while the file system tells that nothing was written: each change of a file sets the time of its last change.
//! Times are not exact, and two changes may have the same; so files are read until their stamps are old, and only a later
//! change can be told from them. And they are read every few seconds all the same, since some file systems have no such times.
//!
//! Not here: reading ([`files`](crate::files)).

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use fairgate_base::clock::Clock;
use fairgate_core::time::Time;
use fairgate_manifest::manifest_files;

/// From this age on no later change has the same time: those of FAT are exact to two seconds.
const OLD: Duration = Duration::from_millis(2_500);

/// After this time files are read, whatever their stamps are.
const READ_ANYWAY: Duration = Duration::from_secs(10);

/// What a file system tells of some files, without their contents; `None` for a file of which it tells nothing.
#[derive(Debug, PartialEq, Eq)]
struct FileStamps(Vec<(PathBuf, Option<Stamp>)>);

/// Device and number of a file, its length, and when its contents and its entry were changed, in seconds and nanoseconds.
type Stamp = (u64, u64, u64, [i64; 4]);

impl FileStamps {
    /// Those of files, and of the files of directories. For a caller that may block.
    fn of(paths: &[PathBuf]) -> Self {
        let mut stamps = Vec::new();
        for path in paths {
            // The links of a directory are followed, as readers do.
            match manifest_files(path) {
                Ok(files) => stamps.extend(files.into_iter().map(stamped)),
                Err(_) => stamps.push(stamped(path.clone())),
            }
        }
        Self(stamps)
    }

    /// Whether each file has a stamp.
    fn are_complete(&self) -> bool {
        self.0.iter().all(|(_, stamp)| stamp.is_some())
    }
}

fn stamped(path: PathBuf) -> (PathBuf, Option<Stamp>) {
    let stamp = stamp(&path);
    (path, stamp)
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    let times = [
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec(),
    ];
    Some((file.dev(), file.ino(), file.len(), times))
}

/// Knows which reading of some files can be left out.
#[derive(Debug, Default)]
pub(super) struct ChangeWatch(Option<LastReading>);

/// The last reading.
#[derive(Debug)]
struct LastReading {
    /// The stamps of the files before it, which they also had after it.
    stamps: FileStamps,
    /// Since when they are known to have these.
    since: Time,
    /// When it began.
    at: Time,
}

impl ChangeWatch {
    /// Reads the files of `paths` by `read`, unless they are those of the last reading: then `None`. Also returns what is known for
    /// the next time. For a caller that may block.
    pub(super) fn read_changed<T>(
        mut self,
        paths: &[PathBuf],
        clock: &Clock,
        read: impl FnOnce() -> T,
    ) -> (Self, Option<T>) {
        let (at, before) = (clock.now(), FileStamps::of(paths));
        if self.is_unchanged(&before, at) {
            return (self, None);
        }
        let contents = read();
        self.note_reading(at, before, &FileStamps::of(paths));
        (self, Some(contents))
    }

    /// Whether the files, which have these stamps at `now`, are those of the last reading.
    fn is_unchanged(&self, stamps: &FileStamps, now: Time) -> bool {
        self.0.as_ref().is_some_and(|last| {
            last.at.since(last.since) >= OLD
                && now.since(last.at) < READ_ANYWAY
                && last.stamps == *stamps
        })
    }

    /// The files were read. The reading began at `at`, when they had the stamps `before`; now they have the stamps `after`.
    fn note_reading(&mut self, at: Time, before: FileStamps, after: &FileStamps) {
        if before != *after || !before.are_complete() {
            self.0 = None;
            return;
        }
        let known = self.0.take().filter(|last| last.stamps == before);
        self.0 = Some(LastReading {
            since: known.map_or(at, |last| last.since),
            stamps: before,
            at,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::tests::Scratch;

    const SECOND: Duration = Duration::from_secs(1);

    fn stamps(number: u64) -> FileStamps {
        FileStamps(vec![("a".into(), Some((0, 0, number, [0; 4])))])
    }

    /// Each second the files are read unless that can be left out. Returns the seconds in which they were.
    fn readings(seconds: u32, stamps_at: impl Fn(u32) -> FileStamps) -> Vec<u32> {
        let mut watch = ChangeWatch::default();
        let mut read = Vec::new();
        for second in 0..seconds {
            let now = Time::ZERO.plus(second * SECOND);
            if !watch.is_unchanged(&stamps_at(second), now) {
                watch.note_reading(now, stamps_at(second), &stamps_at(second));
                read.push(second);
            }
        }
        read
    }

    #[test]
    fn files_are_read_until_their_stamps_are_old_and_then_rarely() {
        assert_eq!(readings(30, |_| stamps(1)), [0, 1, 2, 3, 13, 23]);
    }

    #[test]
    fn changed_files_are_read_at_once_and_until_their_stamps_are_old() {
        let changes = |second| stamps(u64::from(second >= 8));
        assert_eq!(readings(20, changes), [0, 1, 2, 3, 8, 9, 10, 11]);
    }

    #[test]
    fn files_without_stamps_or_that_change_meanwhile_are_read_again() {
        let unknown = |_| FileStamps(vec![("a".into(), None)]);
        assert_eq!(readings(6, unknown), [0, 1, 2, 3, 4, 5]);
        let mut watch = ChangeWatch::default();
        for second in 0..6 {
            let now = Time::ZERO.plus(second * SECOND);
            assert!(!watch.is_unchanged(&stamps(1), now));
            let after = stamps(if second == 4 { 2 } else { 1 });
            watch.note_reading(now, stamps(1), &after);
            if second == 3 {
                assert!(watch.is_unchanged(&stamps(1), now));
                watch = ChangeWatch::default();
            }
        }
    }

    #[test]
    fn each_kind_of_change_changes_the_stamps() {
        let scratch = Scratch::new("stamps");
        let paths = [scratch.0.clone(), scratch.0.join("single.txt")];
        let mut last = FileStamps::of(&paths);
        assert!(!last.are_complete());
        let mut changes = |what: &str| {
            let now = FileStamps::of(&paths);
            assert_ne!(now, last, "{what}");
            last = now;
        };
        scratch.write("single.txt", "1");
        changes("a file appears");
        scratch.write("a.yaml", "1");
        changes("a file of a directory appears");
        scratch.write("a.yaml", "12");
        changes("it is longer");
        fs::rename(scratch.0.join("a.yaml"), scratch.0.join("b.yaml")).unwrap();
        changes("it has another name");
        scratch.write(".new", "12");
        fs::rename(scratch.0.join(".new"), scratch.0.join("b.yaml")).unwrap();
        changes("another file has its name");
        scratch.write(".one", "1");
        scratch.write(".two", "1");
        symlink(".one", scratch.0.join("c.yaml")).unwrap();
        changes("a link appears");
        symlink(".two", scratch.0.join(".link")).unwrap();
        fs::rename(scratch.0.join(".link"), scratch.0.join("c.yaml")).unwrap();
        changes("it leads elsewhere");
        fs::remove_file(scratch.0.join("c.yaml")).unwrap();
        changes("it is gone");
    }
}
