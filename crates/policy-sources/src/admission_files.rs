//! Admission policies from files and directories.
//!
//! They are read twice a second and compared by content, as [`files`](crate::files) explains.

use std::{mem, path::PathBuf, sync::Arc, time::Duration};

use tokio::time;

use crate::{
    document_set::{PolicyDocuments, PolicySource, Revision},
    file_stamps::ChangeWatch,
    files::{FileLengths, POLL_PERIOD, SETTLE, Snapshot},
};
use fairgate_base::{background, clock::Clock};
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// Follows the admission policies in files.
// Not a `FileSource`: it is not nudged, reads on threads of the lowest priority, and a disk that does not respond must be noticed.
#[derive(Debug)]
pub struct AdmissionFiles {
    /// Files, and directories whose files are read.
    paths: Vec<PathBuf>,
    seen: Option<Revision>,
    lengths: FileLengths,
    clock: Clock,
    /// When they were last read, or found to be unchanged.
    last_read: Arc<Mutex<Time>>,
    watch: ChangeWatch,
}

impl AdmissionFiles {
    /// Follows these files, and the files in these directories named `*.yaml`, `*.yml` and `*.json`.
    pub fn new(paths: Vec<PathBuf>, clock: Clock) -> Self {
        Self {
            paths,
            seen: None,
            lengths: FileLengths::default(),
            last_read: Arc::new(Mutex::new(clock.now())),
            clock,
            watch: ChangeWatch::default(),
        }
    }

    /// Reads the time since the files were last read, whatever was found: a disk that does not respond is noticed.
    pub fn silence(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        let (clock, last) = (self.clock.clone(), Arc::clone(&self.last_read));
        move || clock.now().since(*lock(&last))
    }

    /// Reads the files once. For a caller that may block.
    pub fn load(&self) -> PolicyDocuments {
        documents(Snapshot::of_paths(&self.paths))
    }

    /// Reads the files in the background; `None` if that is not possible.
    async fn read(&self) -> Option<Snapshot> {
        let paths = self.paths.clone();
        let reading = background::run(move || Snapshot::of_paths(&paths));
        let read = reading.await.ok();
        self.note(read.is_some());
        read
    }

    /// The same, also `None` if there is no news.
    async fn read_changed(&mut self) -> Option<Snapshot> {
        let watch = mem::take(&mut self.watch);
        let (paths, clock) = (self.paths.clone(), self.clock.clone());
        let reading = background::run(move || {
            watch.read_changed(&paths, &clock, || Snapshot::of_paths(&paths))
        });
        let read = reading.await.ok();
        self.note(read.is_some());
        let (watch, snapshot) = read?;
        let news = snapshot.filter(|snapshot| self.seen.as_ref() != Some(snapshot.revision()));
        // They are read again until they are yielded: the call may be cancelled before.
        if news.is_none() {
            self.watch = watch;
        }
        news
    }

    fn note(&self, is_read: bool) {
        if is_read {
            *lock(&self.last_read) = self.clock.now();
        }
    }
}

impl PolicySource for AdmissionFiles {
    type Set = PolicyDocuments;

    async fn next(&mut self) -> PolicyDocuments {
        loop {
            let Some(snapshot) = self.read_changed().await else {
                time::sleep(POLL_PERIOD).await;
                continue;
            };
            let read = || self.read();
            let snapshot = snapshot.settled(&self.lengths, SETTLE, read).await;
            let (revision, lengths) = (snapshot.revision().clone(), snapshot.lengths());
            if let Ok(documents) = background::run(move || documents(snapshot)).await {
                self.seen = Some(revision);
                self.lengths = lengths;
                return documents;
            }
        }
    }
}

fn documents(snapshot: Snapshot) -> PolicyDocuments {
    let raw = snapshot.into_documents();
    PolicyDocuments {
        documents: raw.documents,
        findings: raw.findings,
        are_files: true,
        last_good: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;

    #[tokio::test]
    async fn files_are_silent_until_they_are_read_again() {
        let clock = Clock::manual(Time::ZERO);
        let mut files = AdmissionFiles::new(Vec::new(), clock.clone());
        let silence = files.silence();
        let minute = Duration::from_secs(60);
        clock.advance(minute);
        assert_eq!(silence(), minute);
        assert!(files.next().await.documents.is_empty());
        assert_eq!(silence(), Duration::ZERO);
    }

    #[tokio::test]
    async fn files_that_cancelled_calls_have_read_are_in_the_next_set() {
        let scratch = Scratch::new("cancelled");
        scratch.write("policies.yaml", "kind: A\n");
        let clock = Clock::manual(Time::ZERO);
        let mut files = AdmissionFiles::new(vec![scratch.0.clone()], clock.clone());
        // Calls that are cancelled while the files settle have come this far. From the second one on their stamps are old.
        for _ in 0..2 {
            assert!(files.read_changed().await.is_some());
            clock.advance(Duration::from_secs(3));
        }
        let next = time::timeout(Duration::from_secs(60), files.next()).await;
        assert_eq!(next.unwrap().documents.len(), 1);
    }

    #[tokio::test]
    async fn a_file_that_is_being_written_is_not_taken_for_an_empty_one() {
        let scratch = Scratch::new("written");
        let write = |text: &str| scratch.write("policies.yaml", text);
        let two = "kind: A\n---\nkind: B\n";
        write(two);
        let mut files = AdmissionFiles::new(vec![scratch.0.clone()], Clock::system());
        assert_eq!(files.next().await.documents.len(), 2);
        for beginning in ["", "kind: A\n"] {
            write(beginning);
            let soon = time::timeout(Duration::from_secs(1), files.next()).await;
            assert!(soon.is_err(), "{beginning:?} is used");
        }
        write(&format!("{two}---\nkind: C\n"));
        assert_eq!(files.next().await.documents.len(), 3);
        // One that stays empty is.
        write("");
        assert!(files.next().await.documents.is_empty());
    }
}
