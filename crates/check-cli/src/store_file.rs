//! Whether the store has a file where the configuration has it, or can make one.

use std::{io, path::Path};

use fairgate_config::{Config, GatewayMode, StoreConfig};
use rustix::fs::{Access, access};

/// What is wrong with the place of the file, for the user who asks. `None` if nothing is, or if the configuration needs no such file.
/// Writes nothing.
pub(super) fn problem(config: &Config) -> Option<String> {
    let StoreConfig::Local { path } = &config.store else {
        return None;
    };
    if !matches!(config.mode, GatewayMode::Standalone | GatewayMode::Overlay) {
        return None;
    }
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let place = if path.exists() {
        path
    } else {
        directory.unwrap_or(Path::new("."))
    };
    let error = io::Error::from(access(place, Access::WRITE_OK).err()?);
    Some(format!(
        "store.local.path: {} cannot be written by this user: {error}; where the gateway runs, its user has to: mount a volume \
         there, or set another path",
        place.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(mode: &str, path: &Path) -> Config {
        let text = format!(
            "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\nmode: {mode}\nstore: {{local: {{path: {}}}}}\n",
            path.display()
        );
        Config::parse("test.yaml", Path::new("/"), text.as_bytes()).config
    }

    #[test]
    fn a_place_without_a_directory_is_a_problem_where_a_store_is_needed() {
        let present = std::env::temp_dir().join("fairgate.redb");
        let missing = std::env::temp_dir().join("fairgate-no-such-directory/fairgate.redb");
        for mode in ["standalone", "overlay"] {
            assert_eq!(problem(&parse(mode, &present)), None);
            let text = problem(&parse(mode, &missing)).unwrap();
            assert!(
                text.contains("fairgate-no-such-directory cannot be written"),
                "{text}"
            );
            assert!(text.contains("No such file or directory"), "{text}");
        }
        assert_eq!(problem(&parse("files", &missing)), None);
    }
}
