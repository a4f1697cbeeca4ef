//! The keys of the configuration: their reference, and what a change of each needs.

use crate::{config::Config, read};

/// The keys that a reload applies; all others need a restart.
pub(crate) const APPLIED_BY_RELOAD: [&str; 29] = [
    "authentication.anonymous.enabled",
    "authentication.anonymous.paths",
    "authentication.clientCertificate.caFile",
    "authentication.requestHeader.allowedNames",
    "authentication.requestHeader.caFile",
    "authentication.requestHeader.extraHeaderPrefixes",
    "authentication.requestHeader.groupHeaders",
    "authentication.requestHeader.uidHeaders",
    "authentication.requestHeader.usernameHeaders",
    "authentication.tokenFile",
    "flowControl.borrowingPeriod",
    "flowControl.enforcement",
    "flowControl.policies.directory",
    "flowControl.semantics",
    "flowControl.tenantWeight",
    "flowControl.totalSeats",
    "limits.longRunningPerUser",
    "limits.longRunningTotal",
    "limits.minReadRate",
    "limits.minSendRate",
    "limits.queuedRequests",
    "limits.spoolPerAnswer",
    "limits.spoolTotal",
    "limits.watchesPerUser",
    "limits.watchesTotal",
    "log.access",
    "log.format",
    "log.level",
    "timeouts.request",
];

/// The keys of files whose changed contents are used without a reload.
pub(crate) const FOLLOWED_FILES: [&str; 8] = [
    "admin.secure.tls.certFile",
    "admin.secure.tls.keyFile",
    "listen.tls.certFile",
    "listen.tls.keyFile",
    "upstream.caFile",
    "upstream.clientCertificate.certFile",
    "upstream.clientCertificate.keyFile",
    "upstream.tokenFile",
];

/// A key of the configuration, for its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigKey {
    /// The full path, such as `limits.connections`.
    pub path: String,
    /// How its value is written, such as `duration`; a list of words where there are few.
    pub notation: String,
    /// The least and the greatest value, where it has bounds.
    pub range: Option<String>,
    /// Whether a reload applies it; otherwise it needs a restart.
    pub reload: bool,
}

impl Config {
    /// All keys, in alphabetical order.
    pub fn keys() -> Vec<ConfigKey> {
        let notations = read::notations().into_iter();
        let key = |(path, (notation, range)): (String, _)| ConfigKey {
            reload: APPLIED_BY_RELOAD.contains(&path.as_str()),
            path,
            notation,
            range,
        };
        notations.map(key).collect()
    }

    /// The keys that differ in `new` and that a reload applies, in alphabetical order, each with its value here and in `new`.
    /// Secrets have no value, and a file with changed contents has that as its value.
    pub fn applied_by_reload(&self, new: &Self) -> Vec<(&'static str, String, String)> {
        let change = |key| {
            let (before, after) = self.change(new, key)?;
            Some((key, before, after))
        };
        APPLIED_BY_RELOAD.into_iter().filter_map(change).collect()
    }

    /// The value of a key here and in `new`, if it differs. A secret has none, and a file with changed contents has that as its value.
    pub fn change(&self, new: &Self, key: &str) -> Option<(String, String)> {
        let value = |config: &Self, key: &str| config.effective.get(key).cloned();
        let (before, after) = (value(self, key), value(new, key));
        if before != after {
            return Some((before.unwrap_or_default(), after.unwrap_or_default()));
        }
        let contents = format!("{key} (content)");
        let is_changed = value(self, &contents) != value(new, &contents);
        is_changed.then(|| ("the old contents".to_owned(), "the new contents".to_owned()))
    }

    /// The keys that differ in `new` and that a reload does not apply, in alphabetical order.
    ///
    /// A file with changed contents counts as a change of its key, unless the file is followed.
    pub fn restart_needed_for(&self, new: &Self) -> Vec<String> {
        let mut keys: Vec<String> = self
            .effective
            .iter()
            .filter(|(key, value)| new.effective.get(*key) != Some(value))
            .chain(
                new.effective
                    .iter()
                    .filter(|(key, _)| !self.effective.contains_key(*key)),
            )
            .filter_map(|(key, _)| match key.strip_suffix(" (content)") {
                Some(key) => (!FOLLOWED_FILES.contains(&key)).then(|| key.to_owned()),
                None => Some(key.clone()),
            })
            .filter(|key| !APPLIED_BY_RELOAD.contains(&key.as_str()))
            .collect();
        if self.flow_control.hash_key != new.flow_control.hash_key {
            keys.push("flowControl.hashKey".to_owned());
        }
        keys.sort();
        keys.dedup();
        keys
    }
}
