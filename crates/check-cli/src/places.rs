//! Whether what the gateway keeps has a place: the file of the store and the state directory.
//!
//! What no user could write to (a read-only file system, a file in the place of a directory) is an error. What this user cannot write to
//! may be right where the gateway runs, by another user and with other volumes, so it is a warning if the place is there, and a
//! hint if it is not. Nothing is written.

use std::{io, path::Path};

use fairgate_config::{Config, GatewayMode, StoreConfig};
use fairgate_core::finding::{Finding, Severity};
use rustix::{
    fs::{Access, access},
    io::Errno,
};

/// What is wrong with the places, for the user who asks.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PlaceProblems {
    pub(super) findings: Vec<Finding>,
    pub(super) hints: Vec<String>,
}

/// Looks at the places that the configuration in `file` names.
pub(super) fn problems(config: &Config, file: &str) -> PlaceProblems {
    let mut problems = PlaceProblems::default();
    let hosts = matches!(config.mode, GatewayMode::Standalone | GatewayMode::Overlay);
    if let StoreConfig::Local { path } = &config.store
        && hosts
    {
        let remedy = "mount a volume there, or set another path";
        if path.is_dir() {
            let message = format!("{} is a directory, and the store is a file", path.display());
            let remedy = "name a file in it, such as objects.redb";
            problems.push(Severity::Error, file, "store.local.path", message, remedy);
        } else {
            let directory = path.parent().unwrap_or(Path::new("."));
            problems.look(file, "store.local.path", path, directory, remedy);
        }
    }
    // By default it is beside the store: then that says everything.
    let told = (problems != PlaceProblems::default()).then(|| match &config.store {
        StoreConfig::Local { path } => path.parent(),
        StoreConfig::Etcd(_) => None,
    });
    if let Some(path) = &config.state_directory
        && (hosts || config.has_policies_to_keep())
        && told != Some(path.parent())
    {
        // It is created with the directories above it. A file in its place is reported with the configuration.
        let existing = path.ancestors().find(|place| place.exists());
        if !path.exists() || path.is_dir() {
            let directory = existing.unwrap_or(Path::new("."));
            let remedy = "mount a volume there, or set another directory: without it the last good policies are not kept";
            problems.look(file, "state.directory", path, directory, remedy);
        }
    }
    problems
}

impl PlaceProblems {
    fn push(&mut self, severity: Severity, file: &str, key: &str, message: String, remedy: &str) {
        let finding = Finding::without_object(severity, file, message, remedy);
        self.findings.push(finding.in_field(key));
    }

    /// Looks whether `path` can be written, or else made in `directory`.
    fn look(&mut self, file: &str, key: &str, path: &Path, directory: &Path, remedy: &str) {
        if directory.exists() && !directory.is_dir() {
            let message = format!("{} is not a directory", directory.display());
            return self.push(severity_of(key), file, key, message, remedy);
        }
        let place = if path.exists() { path } else { directory };
        let place = if place.as_os_str().is_empty() {
            Path::new(".")
        } else {
            place
        };
        let Err(errno) = access(place, Access::WRITE_OK) else {
            return;
        };
        let error = io::Error::from(errno);
        let shown = place.display();
        match errno {
            Errno::ROFS | Errno::NOTDIR => {
                let message = format!("{shown} cannot be written by anybody: {error}");
                self.push(severity_of(key), file, key, message, remedy);
            }
            // Here there is not even the directory around it.
            _ if errno == Errno::NOENT || path.parent() != Some(place) && path != place => self.hints.push(format!(
                "{key}: {shown} cannot be written by this user: {error}; where the gateway runs, its user has to: {remedy}"
            )),
            _ => {
                let message = format!(
                    "{shown} cannot be written by this user: {error}; where the gateway runs, its user has to"
                );
                self.push(Severity::Warning, file, key, message, remedy);
            }
        }
    }
}

/// How bad it is if nobody can write to the place: the gateway serves without a state directory, and not without a store.
fn severity_of(key: &str) -> Severity {
    if key.starts_with("state") {
        Severity::Warning
    } else {
        Severity::Error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(mode: &str, keys: &str) -> Config {
        let text = format!(
            "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\nmode: {mode}\n{keys}\n"
        );
        Config::parse("test.yaml", Path::new("/"), text.as_bytes()).config
    }

    fn store(mode: &str, path: &Path) -> PlaceProblems {
        let state = std::env::temp_dir().join("fairgate-state");
        let keys = format!(
            "store: {{local: {{path: {}}}}}\nstate: {{directory: {}}}",
            path.display(),
            state.display()
        );
        problems(&parse(mode, &keys), "test.yaml")
    }

    #[test]
    fn a_place_without_a_directory_is_a_problem_where_a_store_is_needed() {
        let present = std::env::temp_dir().join("fairgate.redb");
        let missing = std::env::temp_dir().join("fairgate-no-such-directory/fairgate.redb");
        for mode in ["standalone", "overlay"] {
            assert_eq!(store(mode, &present), PlaceProblems::default());
            let found = store(mode, &missing);
            assert_eq!(found.findings, []);
            let text = &found.hints[0];
            assert!(
                text.contains("fairgate-no-such-directory cannot be written"),
                "{text}"
            );
            assert!(text.contains("No such file or directory"), "{text}");
        }
        assert_eq!(store("files", &missing), PlaceProblems::default());
    }

    #[test]
    fn a_state_directory_beside_the_store_is_no_second_mistake() {
        let keys = "store: {local: {path: /etc/passwd/fairgate.redb}}";
        assert_eq!(
            problems(&parse("overlay", keys), "test.yaml")
                .findings
                .len(),
            1
        );
        let elsewhere = "store: {local: {path: /etc/passwd/fairgate.redb}}\nstate: {directory: /etc/hosts/state}";
        let found = problems(&parse("overlay", elsewhere), "test.yaml").findings;
        let fields: Vec<&str> = found.iter().map(|finding| &*finding.field).collect();
        assert_eq!(fields, ["store.local.path", "state.directory"]);
    }

    #[test]
    fn a_place_that_nobody_can_write_to_is_an_error() {
        for (path, told) in [
            (
                "/etc/passwd/fairgate.redb",
                "/etc/passwd is not a directory",
            ),
            (
                "/proc/sys/kernel",
                "is a directory, and the store is a file",
            ),
        ] {
            let found = store("overlay", Path::new(path)).findings;
            let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(shown.len(), 1, "{shown:?}");
            let begins = shown[0].starts_with("error: test.yaml: store.local.path: ");
            assert!(begins && shown[0].contains(told), "{shown:?}");
        }
    }
}
