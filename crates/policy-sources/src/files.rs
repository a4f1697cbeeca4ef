//! Policy objects from a directory of YAML and JSON files, or from standard input.
//!
//! The directory is read twice a second and compared by content: file notifications do not work on every
//! file system, miss changes behind symbolic links, and fire in the middle of a write. Polling finds every
//! kind of change: writes in place, renames, and swaps of the `..data` link of a mounted `ConfigMap`. A
//! change counts once two readings in a row agree, so that a half-written set is never used. A reading is left out while the
//! file system tells that nothing was written (`file_stamps`).
//!
//! Not here: what a document means.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Read as _},
    mem,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{sync::Notify, task, time};

use crate::{
    document::PolicyDocument,
    document_set::{DocumentSet, Originals, PolicySource, Revision},
    file_stamps::ChangeWatch,
    logging::log_finding,
};
use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::objects::ParsedDocument,
    finding::{Finding, Severity},
};
use fairgate_manifest::{FileText, manifest_files, read_files, yaml};

/// How often a directory is read: a change takes effect within a second, including settling and compiling.
pub(crate) const POLL_PERIOD: Duration = Duration::from_millis(500);

/// The pause before the second reading after a change.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);

/// The same if a file is shorter than it was: who writes a file anew empties it first, and may be stopped then.
const SETTLE_SHORTER: Duration = Duration::from_secs(2);

/// The number of readings after which files that keep changing are used as they are.
const MAX_READINGS: usize = 20;

/// What to do about a file that cannot be read.
const CHECK_PATH: &str = "check the path and its permissions";

/// What to do about a file with another text than YAML or JSON.
const CORRECT_TEXT: &str = "correct it or leave it out";

/// Follows the policy objects in a directory.
// Certificates are followed by another loop (`followed_files` of the gateway): it waits a whole second for files that belong together, passes
// on none that it could not read, and never uses files that keep changing.
#[derive(Debug)]
pub struct FileSource {
    directory: PathBuf,
    period: Duration,
    settle: Duration,
    nudge: Arc<Notify>,
    seen: Option<Revision>,
    lengths: FileLengths,
    nudged: bool,
    /// Whether sets have their documents as they were.
    has_originals: bool,
    clock: Clock,
    watch: ChangeWatch,
}

impl FileSource {
    /// Follows `directory`: its files named `*.yaml`, `*.yml` and `*.json`, hidden ones left out,
    /// in the order of their names.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self::polling(directory, POLL_PERIOD, SETTLE)
    }

    /// Treats the set at `revision` as known: [`PolicySource::next`] yields only later ones.
    #[must_use]
    pub fn after(mut self, revision: Revision) -> Self {
        self.seen = Some(revision);
        self
    }

    /// Yields sets with their documents as they were, too.
    #[must_use]
    pub fn with_originals(mut self, wanted: bool) -> Self {
        self.has_originals = wanted;
        self
    }

    fn polling(directory: impl Into<PathBuf>, period: Duration, settle: Duration) -> Self {
        Self {
            directory: directory.into(),
            period,
            settle,
            nudge: Arc::default(),
            seen: None,
            lengths: FileLengths::default(),
            nudged: false,
            has_originals: false,
            clock: Clock::system(),
            watch: ChangeWatch::default(),
        }
    }

    /// When notified, [`PolicySource::next`] yields the set at once, changed or not: for SIGHUP.
    pub fn nudge(&self) -> Arc<Notify> {
        Arc::clone(&self.nudge)
    }

    fn is_news(&self, snapshot: &Snapshot) -> bool {
        self.nudged || self.seen.as_ref() != Some(&snapshot.revision)
    }

    /// Reads the directory on the blocking pool.
    async fn read(&self) -> Snapshot {
        let directory = self.directory.clone();
        match task::spawn_blocking(move || Snapshot::of(&directory)).await {
            Ok(snapshot) => snapshot,
            Err(error) => Snapshot::failed(&self.directory, &error.to_string()),
        }
    }

    /// The same, unless there is no news.
    async fn read_changed(&mut self) -> Option<Snapshot> {
        let watch = mem::take(&mut self.watch);
        // Who asks wants a reading.
        let watch = if self.nudged {
            ChangeWatch::default()
        } else {
            watch
        };
        let (directory, clock) = (self.directory.clone(), self.clock.clone());
        let read = move || {
            let paths = std::slice::from_ref(&directory);
            watch.read_changed(paths, &clock, || Snapshot::of(&directory))
        };
        let (watch, snapshot) = task::spawn_blocking(read).await.unwrap_or_else(|error| {
            let failed = Snapshot::failed(&self.directory, &error.to_string());
            (ChangeWatch::default(), Some(failed))
        });
        let news = snapshot.filter(|snapshot| self.is_news(snapshot));
        // They are read again until they are yielded: the call may be cancelled before.
        if news.is_none() {
            self.watch = watch;
        }
        news
    }

    /// Turns a snapshot into documents, on the blocking pool.
    async fn yielded(&mut self, snapshot: Snapshot) -> DocumentSet {
        let (revision, lengths) = (snapshot.revision.clone(), snapshot.lengths());
        let has_originals = self.has_originals;
        let set = match task::spawn_blocking(move || snapshot.into_set(has_originals)).await {
            Ok(set) => set,
            Err(error) => Snapshot::failed(&self.directory, &error.to_string()).into_set(false),
        };
        self.seen = Some(revision);
        self.lengths = lengths;
        self.nudged = false;
        set
    }
}

impl PolicySource for FileSource {
    type Set = DocumentSet;

    async fn next(&mut self) -> DocumentSet {
        loop {
            if let Some(snapshot) = self.read_changed().await {
                let read = || async { Some(self.read().await) };
                let snapshot = snapshot.settled(&self.lengths, self.settle, read).await;
                if self.is_news(&snapshot) {
                    return self.yielded(snapshot).await;
                }
            }
            tokio::select! {
                () = self.nudge.notified() => self.nudged = true,
                () = time::sleep(self.period) => {}
            }
        }
    }

    async fn report(&mut self, revision: &Revision, applied: bool, findings: &[Finding]) {
        findings.iter().for_each(log_finding);
        let Revision(revision) = revision;
        let directory = self.directory.display();
        if applied {
            tracing::info!(%revision, %directory, "flow control policy applied");
        } else {
            tracing::error!(%revision, %directory, "flow control policy rejected; the policy in force stays");
        }
    }
}

/// Reads a file or a directory once. For a caller that may block.
pub fn load(path: &Path) -> DocumentSet {
    Snapshot::of_file_or_directory(path).into_set(false)
}

/// The same, with the documents as they were.
pub fn load_with_originals(path: &Path) -> DocumentSet {
    Snapshot::of_file_or_directory(path).into_set(true)
}

/// Reads documents from `input`, known as `name` in findings. For a caller that may block.
pub fn load_from(name: &str, input: impl io::Read) -> DocumentSet {
    read_from(name, input).into_set(false)
}

fn read_from(name: &str, input: impl io::Read) -> Snapshot {
    let mut text = Vec::new();
    let limit = u64::try_from(yaml::MAX_BYTES).unwrap_or(u64::MAX);
    let contents = input.take(limit + 1).read_to_end(&mut text);
    Snapshot::from_files(vec![(name.to_owned(), contents.map(|_| text))])
}

/// Documents of any kind, each with its origin.
#[derive(Debug, Default)]
pub struct RawDocuments {
    /// In the order of the files.
    pub documents: Vec<PolicyDocument>,
    /// Files that cannot be read, or hold no object.
    pub findings: Vec<Finding>,
}

/// Reads documents of any kind from a file or a directory. For a caller that may block.
pub fn load_raw(path: &Path) -> RawDocuments {
    Snapshot::of_file_or_directory(path).into_documents()
}

/// Reads documents of any kind from `input`, known as `name` in findings. For a caller that may block.
pub fn load_raw_from(name: &str, input: impl io::Read) -> RawDocuments {
    read_from(name, input).into_documents()
}

/// The lengths of files in bytes, by their names.
pub(super) type FileLengths = BTreeMap<String, usize>;

/// Files at one moment.
pub(super) struct Snapshot {
    revision: Revision,
    files: Vec<FileText>,
}

impl Snapshot {
    fn of(directory: &Path) -> Self {
        match manifest_files(directory) {
            Ok(paths) => Self::from_files(read_files(&paths)),
            Err(error) => Self::failed(directory, &error.to_string()),
        }
    }

    fn of_file_or_directory(path: &Path) -> Self {
        if path.is_file() {
            Self::from_files(read_files(&[path.to_owned()]))
        } else {
            Self::of(path)
        }
    }

    /// Files, and the files of directories, in the order given.
    pub(super) fn of_paths(paths: &[PathBuf]) -> Self {
        let mut files = Vec::new();
        for path in paths {
            if path.is_dir() {
                files.extend(Self::of(path).files);
            } else {
                files.extend(read_files(std::slice::from_ref(path)));
            }
        }
        Self::from_files(files)
    }

    /// Reads the files until two readings in a row agree, so that a half-written set is never used, with `pause` between two of
    /// them. `lengths` are those of the files in use. A reading that is not possible (`None`) is the last one.
    pub(super) async fn settled<F>(
        mut self,
        lengths: &FileLengths,
        pause: Duration,
        read: impl Fn() -> F,
    ) -> Self
    where
        F: Future<Output = Option<Self>>,
    {
        for _ in 0..MAX_READINGS {
            let is_shorter = self.is_shorter_than(lengths);
            time::sleep(if is_shorter { SETTLE_SHORTER } else { pause }).await;
            let Some(again) = read().await else { break };
            let agrees = again.revision == self.revision;
            self = again;
            if agrees {
                break;
            }
        }
        self
    }

    /// Those of the files that can be read.
    pub(super) fn lengths(&self) -> FileLengths {
        let readable = |(name, text): &FileText| Some((name.clone(), text.as_ref().ok()?.len()));
        self.files.iter().filter_map(readable).collect()
    }

    /// Whether one of the files is shorter than it was.
    fn is_shorter_than(&self, before: &FileLengths) -> bool {
        self.files.iter().any(|(name, text)| {
            let length = text.as_ref().map_or(0, Vec::len);
            before.get(name).is_some_and(|before| length < *before)
        })
    }

    /// The revision; equal revisions have equal contents.
    pub(super) fn revision(&self) -> &Revision {
        &self.revision
    }

    fn failed(directory: &Path, error: &str) -> Self {
        let name = directory.display().to_string();
        Self::from_files(vec![(name, Err(io::Error::other(error.to_owned())))])
    }

    fn from_files(files: Vec<FileText>) -> Self {
        let mut digest = Sha256::new();
        for (name, contents) in &files {
            let contents = match contents {
                Ok(contents) => Sha256::digest(contents),
                Err(error) => Sha256::digest(error.to_string()),
            };
            digest.update(name.as_bytes());
            // Names have no NUL, so no name and content can be taken for another pair.
            digest.update([0]);
            digest.update(contents);
        }
        let mut revision = String::new();
        for byte in &digest.finalize()[..8] {
            let _ = write!(revision, "{byte:02x}");
        }
        Self {
            revision: Revision(revision),
            files,
        }
    }

    fn into_set(self, has_originals: bool) -> DocumentSet {
        let revision = self.revision.clone();
        let RawDocuments {
            documents,
            findings,
        } = self.into_documents();
        let originals = has_originals.then(|| Originals::Documents(Arc::new(documents.clone())));
        let parsed = documents.into_iter().map(|document| {
            let PolicyDocument { origin, object } = document;
            Arc::new(ParsedDocument::parse(&origin, object))
        });
        DocumentSet {
            revision,
            documents: parsed.collect(),
            findings,
            originals,
        }
    }

    pub(super) fn into_documents(self) -> RawDocuments {
        let mut all = RawDocuments::default();
        for (name, contents) in self.files {
            let documents = contents
                .map_err(|error| (format!("cannot be read: {error}"), CHECK_PATH))
                .and_then(|text| {
                    yaml::documents(&text).map_err(|error| (error.to_string(), CORRECT_TEXT))
                });
            match documents {
                Ok(values) if values.is_empty() => all.findings.push(empty(name)),
                Ok(values) => all.documents.extend(with_origins(&name, values)),
                Err((problem, remedy)) => {
                    let finding = Finding::without_object(Severity::Error, name, problem, remedy);
                    all.findings.push(finding);
                }
            }
        }
        all
    }
}

fn with_origins(name: &str, values: Vec<Value>) -> impl Iterator<Item = PolicyDocument> {
    let several = values.len() > 1;
    values.into_iter().enumerate().map(move |(index, object)| {
        let origin = if several {
            format!("{name}, document {}", index + 1)
        } else {
            name.to_owned()
        };
        PolicyDocument { origin, object }
    })
}

/// A file that somebody has cut off would otherwise look like one that says that there is nothing.
fn empty(origin: String) -> Finding {
    Finding::without_object(
        Severity::Warning,
        origin,
        "holds no object",
        "write what belongs into it, or remove it",
    )
}

#[cfg(test)]
pub(crate) mod tests;
