//! Keeps the policies in force in the state directory, and finds them again at a start at which their source has errors.
//!
//! Sets are written one after the other, away from the tasks that apply policies: a disk that hangs delays no
//! change. Of sets that arrive meanwhile only the last is written.
//!
//! Not here: the format of the files, and whether they can be trusted ([`fairgate_policy_sources::LastGoodFile`]).

use std::{
    path::{Path, PathBuf, absolute},
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, task, time};

use fairgate_base::{clock::Clock, tasks};
use fairgate_config::{Config, StoreConfig};
use fairgate_core::sync::{Mutex, lock};
use fairgate_observe::HealthChecks;
use fairgate_policy_sources::{LastGoodFile, LastGoodSet, Originals, PolicyArea};

/// The pause before a set is written again that could not be written.
const RETRY: Duration = Duration::from_secs(30);

/// After a write, the next one waits for this many times as long as it took.
const REST: u32 = 9;

/// The state directory, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct StateDirectory {
    path: Option<PathBuf>,
    clock: Clock,
    /// Why the policies of each area cannot be kept.
    problems: Arc<[Mutex<Option<String>>; 2]>,
}

/// Keeps the policies of one area.
#[derive(Clone, Debug)]
pub(crate) struct PolicyKeeper {
    newest: watch::Sender<Option<SetToKeep>>,
}

/// A set that came into force.
#[derive(Clone, Debug)]
struct SetToKeep {
    /// Where it comes from.
    source: String,
    documents: Originals,
    /// When it came into force, in seconds since 1970.
    since: u64,
}

impl StateDirectory {
    pub(crate) fn new(config: &Config, clock: &Clock) -> Self {
        Self {
            path: config.state_directory.clone(),
            clock: clock.clone(),
            problems: Arc::default(),
        }
    }

    /// Whether there is one.
    pub(crate) fn exists(&self) -> bool {
        self.path.is_some()
    }

    /// The last good set of a source, if there is one and it can be trusted. Logs why it cannot be.
    pub(crate) fn last_good(&self, area: PolicyArea, source: &str) -> Option<LastGoodSet> {
        let file = LastGoodFile::new(self.path.as_deref()?, area, source);
        match file.read() {
            Ok(None) => {
                tracing::warn!(%source, "no last good policies have been kept");
                None
            }
            Ok(Some(set)) => Some(set),
            Err(error) => {
                tracing::warn!(%source, %error, "the last good policies cannot be used");
                None
            }
        }
    }

    /// How long ago a set was kept, in seconds.
    pub(crate) fn age(&self, set: &LastGoodSet) -> u64 {
        self.clock.unix_seconds().saturating_sub(set.saved_at)
    }

    /// Starts to keep the policies of an area; `None` if there is no directory.
    pub(crate) fn keeper(&self, area: PolicyArea, control: &Handle) -> Option<PolicyKeeper> {
        let (newest, sets) = watch::channel(None);
        let keeping = Keeping {
            directory: self.path.clone()?,
            area,
            clock: self.clock.clone(),
            problems: Arc::clone(&self.problems),
        };
        tasks::spawn(control, keeping.run(sets));
        Some(PolicyKeeper { newest })
    }

    /// Adds to the health checks whether policies can be kept.
    pub(crate) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        if !self.exists() {
            return checks;
        }
        let problems = Arc::clone(&self.problems);
        checks.note("state", move || {
            let error = problems.iter().find_map(|problem| lock(problem).clone());
            error.map(|error| {
                format!("{error}; the policies in force are not kept for the next start")
            })
        })
    }
}

impl PolicyKeeper {
    /// Keeps a set of `source` that is in force now. Does not block.
    pub(crate) fn keep(&self, source: &str, documents: Originals, clock: &Clock) {
        self.newest.send_replace(Some(SetToKeep {
            source: source.to_owned(),
            documents,
            since: clock.unix_seconds(),
        }));
    }
}

/// The task that writes.
struct Keeping {
    directory: PathBuf,
    area: PolicyArea,
    clock: Clock,
    problems: Arc<[Mutex<Option<String>>; 2]>,
}

impl Keeping {
    async fn run(self, mut sets: watch::Receiver<Option<SetToKeep>>) {
        while sets.changed().await.is_ok() {
            loop {
                let Some(set) = sets.borrow_and_update().clone() else {
                    break;
                };
                let begun = self.clock.now();
                let is_kept = self.keep(set).await;
                let took = self.clock.now().since(begun);
                if is_kept {
                    time::sleep(took.saturating_mul(REST).min(RETRY)).await;
                    break;
                }
                // Whatever is in force by then is tried.
                if let Ok(Err(_)) = time::timeout(RETRY, sets.changed()).await {
                    return;
                }
            }
        }
    }

    /// Writes a set; false if that fails, which is shown.
    async fn keep(&self, set: SetToKeep) -> bool {
        let file = LastGoodFile::new(&self.directory, self.area, &set.source);
        let problem = match set.documents.documents().await {
            Ok(documents) => {
                let writing = task::spawn_blocking(move || file.write(&documents, set.since));
                match writing.await {
                    Ok(written) => written.err().map(|error| error.to_string()),
                    Err(error) => Some(error.to_string()),
                }
            }
            Err(error) => Some(format!("they cannot be read again: {error}")),
        };
        let mut shown = lock(&self.problems[self.area as usize]);
        let is_kept = problem.is_none();
        match &problem {
            Some(error) if *shown != problem => {
                tracing::error!(%error, "the policies in force cannot be kept for the next start; trying again");
            }
            None if shown.is_some() => tracing::info!("the policies in force are kept again"),
            _ => {}
        }
        *shown = problem;
        is_kept
    }
}

/// The name of policies in files, in what is kept of them.
pub(crate) fn name_of_files(paths: &[PathBuf]) -> String {
    let whole = |path: &PathBuf| absolute(path).unwrap_or_else(|_| path.clone());
    let names: Vec<String> = paths
        .iter()
        .map(|path| whole(path).display().to_string())
        .collect();
    format!("files {}", names.join(", "))
}

/// The name of policies in the store of the hosted API, in what is kept of them.
pub(crate) fn name_of_store(store: &StoreConfig) -> String {
    match store {
        StoreConfig::Local { path } => {
            let whole = absolute(path).unwrap_or_else(|_| path.clone());
            format!("store {}", whole.display())
        }
        StoreConfig::Etcd(etcd) => {
            format!("etcd {} below {}", etcd.endpoints.join(","), etcd.prefix)
        }
    }
}

/// The same of a directory.
pub(crate) fn name_of_directory(path: &Path) -> String {
    name_of_files(&[path.to_owned()])
}
