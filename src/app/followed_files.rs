//! Follows files that are replaced while the gateway runs: certificates, keys, CA bundles and the gateway's own token.
//!
//! The files are read once a second and compared by content; `fairgate_policy_sources::files` says why. Several files can belong
//! together, such as a certificate and its key, and are not replaced at the same moment. So changed contents are
//! used once two readings in a row agree. Contents that cannot be used change nothing, and are logged once.
//!
//! Not here: what the files contain.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use tokio::{task, time};

use fairgate_config::{FileDigest, FileVersion, file_digest};
use fairgate_manifest::read_bounded;

/// How often files are read.
const PERIOD: Duration = Duration::from_secs(1);

/// Puts new contents of the files into use, or says why it cannot.
type Apply = Box<dyn FnMut(&[Vec<u8>]) -> Result<(), String> + Send>;

/// Files that belong together.
// Policy files are followed by another loop (`FileSource`): it settles within 50 ms, when a certificate may still be without its key, and
// looks at the files' stamps first, which pays only for many files.
pub(crate) struct FollowedFiles {
    /// Where the configuration names them, for the log.
    key: &'static str,
    paths: Vec<PathBuf>,
    apply: Apply,
    /// The last contents that were put into use or rejected.
    handled: Contents,
    last_read: Contents,
}

/// The digest of each file, or why they cannot be read.
type Contents = Result<Vec<FileDigest>, String>;

impl FollowedFiles {
    /// Follows `files`, whose contents are in use, and passes other contents to `apply`, in the same order.
    pub(crate) fn new(
        key: &'static str,
        files: Vec<FileVersion>,
        apply: impl FnMut(&[Vec<u8>]) -> Result<(), String> + Send + 'static,
    ) -> Self {
        let (paths, digests) = files
            .into_iter()
            .map(|file| (file.path, file.digest))
            .unzip();
        Self {
            key,
            paths,
            apply: Box::new(apply),
            handled: Ok(digests),
            last_read: Err(String::new()),
        }
    }

    /// Reads the files once.
    fn check(&mut self) {
        let read = self.read();
        let digests = match &read {
            Ok(files) => Ok(files.iter().map(|file| file_digest(file)).collect()),
            Err(error) => Err(error.clone()),
        };
        let is_settled = digests == self.last_read;
        self.last_read.clone_from(&digests);
        if !is_settled || digests == self.handled {
            return;
        }
        self.handled = digests;
        let key = self.key;
        match read.and_then(|files| (self.apply)(&files)) {
            Ok(()) => tracing::info!(key, files = %self.names(), "changed files are in use"),
            Err(error) => {
                tracing::warn!(key, %error, "changed files cannot be used; the previous contents stay in use");
            }
        }
    }

    fn read(&self) -> Result<Vec<Vec<u8>>, String> {
        let read = |path: &PathBuf| {
            read_bounded(path)
                .map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        self.paths.iter().map(read).collect()
    }

    fn names(&self) -> String {
        let mut names = String::new();
        for path in &self.paths {
            let comma = if names.is_empty() { "" } else { ", " };
            let _ = write!(names, "{comma}{}", path.display());
        }
        names
    }
}

/// Follows all `files`, until it is dropped.
pub(crate) async fn follow(mut files: Vec<FollowedFiles>) {
    while !files.is_empty() {
        time::sleep(PERIOD).await;
        let checking = task::spawn_blocking(move || {
            files.iter_mut().for_each(FollowedFiles::check);
            files
        });
        match checking.await {
            Ok(again) => files = again,
            Err(error) => {
                tracing::error!(%error, "certificate and token files are no longer watched; restart to use changed ones");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{Arc, Mutex},
    };

    use super::*;

    /// Two files, which may contain anything but `bad`, and what of them was put into use.
    struct Pair {
        directory: PathBuf,
        files: FollowedFiles,
        used: Arc<Mutex<Vec<String>>>,
    }

    impl Pair {
        fn new(name: &str) -> Self {
            let name = format!("fairgate-{}-followed-{name}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            fs::create_dir_all(&directory).unwrap();
            let versions = ["a", "b"].map(|file| {
                let path = directory.join(file);
                fs::write(&path, "1").unwrap();
                FileVersion {
                    path,
                    digest: file_digest(b"1"),
                }
            });
            let used = Arc::<Mutex<Vec<String>>>::default();
            let log = Arc::clone(&used);
            let files = FollowedFiles::new("test", versions.into(), move |files| {
                let text = String::from_utf8(files.concat()).unwrap();
                if text.contains("bad") {
                    return Err("bad".to_owned());
                }
                log.lock().unwrap().push(text);
                Ok(())
            });
            Self {
                directory,
                files,
                used,
            }
        }

        fn write(&self, file: &str, contents: &str) {
            fs::write(self.directory.join(file), contents).unwrap();
        }

        /// Reads the files so many times. Returns what was put into use meanwhile.
        fn check(&mut self, times: usize) -> Vec<String> {
            (0..times).for_each(|_| self.files.check());
            std::mem::take(&mut self.used.lock().unwrap())
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn files_that_do_not_change_are_not_used_again() {
        assert_eq!(Pair::new("same").check(5), [""; 0]);
    }

    #[test]
    fn changed_files_are_used_once_two_readings_agree() {
        let mut pair = Pair::new("changed");
        pair.write("a", "2");
        assert_eq!(pair.check(1), [""; 0]);
        pair.write("b", "2");
        assert_eq!(pair.check(1), [""; 0]);
        assert_eq!(pair.check(5), ["22"]);
        pair.write("b", "3");
        assert_eq!(pair.check(5), ["23"]);
    }

    #[test]
    fn contents_that_cannot_be_used_change_nothing() {
        let mut pair = Pair::new("bad");
        pair.write("a", "bad");
        assert_eq!(pair.check(5), [""; 0]);
        assert_eq!(pair.files.handled, pair.files.last_read, "reported once");
        pair.write("a", "2");
        assert_eq!(pair.check(5), ["21"]);
    }

    #[test]
    fn a_file_that_is_missing_for_a_while_changes_nothing() {
        let mut pair = Pair::new("missing");
        fs::remove_file(pair.directory.join("b")).unwrap();
        assert_eq!(pair.check(5), [""; 0]);
        assert!(pair.files.handled.is_err());
        pair.write("b", "2");
        assert_eq!(pair.check(5), ["12"]);
    }
}
