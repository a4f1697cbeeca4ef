//! What a changed configuration needs: a reload or a restart.

use crate::{config::Config, keys::KEYS};

impl Config {
    /// The keys that differ in `new` and that a reload applies, in alphabetical order, each with its value here and in `new`.
    /// Secrets have no value, and a file with changed contents has that as its value.
    pub fn applied_by_reload(&self, new: &Self) -> Vec<(&'static str, String, String)> {
        let applied = KEYS.iter().filter(|key| key.reload);
        let change = |path| {
            let (before, after) = self.change(new, path)?;
            Some((path, before, after))
        };
        let mut changes: Vec<_> = applied.filter_map(|key| change(key.path)).collect();
        changes.sort();
        changes
    }

    /// The value of a key here and in `new`, if it differs. A secret has none, and a file with changed contents has that as its value.
    pub fn change(&self, new: &Self, key: &str) -> Option<(String, String)> {
        let value = |config: &Self, key: &str| config.effective.get(key).cloned();
        if value(self, key) != value(new, key) {
            let [before, after] = [self, new].map(|config| config.shown(key));
            if before == after {
                // Absent in both: its default follows from other keys.
                return Some((
                    before.to_owned(),
                    "the default that follows from other keys".to_owned(),
                ));
            }
            return Some((before.to_owned(), after.to_owned()));
        }
        let contents = format!("{key} (content)");
        let is_changed = value(self, &contents) != value(new, &contents);
        is_changed.then(|| ("the old contents".to_owned(), "the new contents".to_owned()))
    }

    fn shown(&self, key: &str) -> &str {
        match self.written.get(key).map(String::as_str) {
            None | Some("") => "not set",
            Some(written) => written,
        }
    }

    /// The keys that differ in `new` and that a reload does not apply, in alphabetical order.
    ///
    /// A file with changed contents counts as a change of its key, unless the file is followed.
    pub fn restart_needed_for(&self, new: &Self) -> Vec<String> {
        let waits = KEYS.iter().filter(|key| !key.reload);
        let differs = |path: &str| self.effective.get(path) != new.effective.get(path);
        let needs_restart = |path: &str, followed: bool| {
            differs(path) || !followed && differs(&format!("{path} (content)"))
        };
        let mut paths: Vec<String> = waits
            .filter(|key| needs_restart(key.path, key.followed))
            .map(|key| key.path.to_owned())
            .collect();
        let is_hash_key_changed = self.flow_control.hash_key != new.flow_control.hash_key;
        if is_hash_key_changed {
            paths.push("flowControl.hashKey".to_owned());
        }
        paths.sort();
        paths.dedup();
        paths
    }
}
