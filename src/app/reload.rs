//! Reloads the configuration at each SIGHUP, and applies the keys that can change at run time.

use std::{path::PathBuf, sync::Arc};

use tokio::{runtime::Handle, sync::Notify, task::JoinHandle};

use super::{
    client_rules::ClientRules,
    policies::{
        Applier, ConfiguredSource, following::follow, last_good::name_of_directory, policy_report,
    },
    settings,
};
use fairgate_base::tasks;
use fairgate_config::{Config, GatewayMode};
use fairgate_core::finding::Finding;
use fairgate_observe::log;
use fairgate_policy_sources::{
    Revision,
    files::{self, FileSource},
    log_finding,
};
use fairgate_proxy::auth::TokenReviews;
use fairgate_upstream::servers::UpstreamServers;

/// Reloads the configuration at each SIGHUP.
pub(super) struct Reload {
    /// The configuration of the start, in force for the keys that need a restart.
    pub(super) started_with: Config,
    /// The configuration that was read last.
    pub(super) config: Config,
    pub(super) path: Option<PathBuf>,
    pub(super) rules: ClientRules,
    pub(super) reviews: Option<TokenReviews>,
    /// The servers behind the gateway, if there are several.
    pub(super) servers: Option<Arc<UpstreamServers>>,
    pub(super) applier: Applier,
    /// Makes the source read its files at once.
    pub(super) nudge: Option<Arc<Notify>>,
    pub(super) following: Option<JoinHandle<()>>,
    pub(super) hash_key: [u8; 16],
}

impl Reload {
    /// Follows the policies in another directory, or in none, from a revision on.
    fn follow(&mut self, directory: Option<(PathBuf, Revision)>) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
        self.applier.sync().in_sync();
        self.nudge = None;
        let Some((directory, revision)) = directory else {
            return;
        };
        let name = name_of_directory(&directory);
        self.applier.keep(&name);
        let source = FileSource::new(directory).with_originals(self.applier.keeps());
        let source = source.after(revision);
        self.nudge = Some(source.nudge());
        let following = follow(ConfiguredSource::Files(source), name, self.applier.clone());
        self.following = Some(tasks::spawn(&Handle::current(), following));
    }

    /// Handles signals until the process exits.
    pub(super) async fn run(mut self, mut hangup: tokio::signal::unix::Signal) {
        while hangup.recv().await.is_some() {
            let reloading = tokio::task::spawn_blocking(move || {
                self.reload();
                self
            });
            match reloading.await {
                Ok(reload) => self = reload,
                Err(error) => {
                    tracing::error!(%error, "reloading failed; SIGHUP is ignored from now on");
                    return;
                }
            }
        }
    }

    fn reload(&mut self) {
        let applied = self.apply();
        self.applier.metrics().config_reloaded(applied);
    }

    /// Logs what a configuration that is applied changes, and applies its settings of the log.
    fn say_what_changed(&self, new: &Config) {
        let (before, after) = [&self.config, new]
            .map(|config| settings::log(&config.log))
            .into();
        // What the log says of the change is not lost by it.
        if after.level >= before.level {
            log::reconfigure(&after);
        }
        for (key, from, to) in self.config.applied_by_reload(new) {
            tracing::info!(key, %from, %to, "this key changed, and is in force");
        }
        for key in restart_needed(&self.started_with, &self.config, new) {
            let (from, to) = self.started_with.change(new, &key).unwrap_or_default();
            tracing::warn!(%key, %from, %to, "this key changed; it takes effect after a restart");
        }
        log::reconfigure(&after);
    }

    /// Applies the configuration as it is now; false if it is invalid.
    fn apply(&mut self) -> bool {
        let (new, warnings) = match Config::read(self.path.as_deref()).usable() {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "the configuration is invalid; the last good one stays in force");
                return false;
            }
        };
        for warning in warnings {
            tracing::warn!(%warning, "configuration");
        }
        let rules = match settings::auth_rules(&new, &self.started_with, self.reviews.clone()) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::error!(%error, "the configuration is invalid; the last good one stays in force");
                return false;
            }
        };
        // A change of mode needs a restart; until then the source of the objects stays the same.
        let from_files = self.started_with.mode == GatewayMode::Files;
        let directory = new.flow_control.policies.clone();
        let moved = from_files && directory != self.config.flow_control.policies;
        let documents = directory.as_deref().filter(|_| moved);
        let load = if self.applier.keeps() {
            files::load_with_originals
        } else {
            files::load
        };
        let documents = documents.map(load).map(Arc::new);
        let revision = documents.as_ref().map(|set| set.revision.clone());
        let policy = settings::policy(&new, self.hash_key);
        let (applied, findings) = self.applier.apply(|compiling| {
            // That of a fleet is not the one that this gateway started with.
            let hash_key = compiling.settings.hash_key;
            compiling.settings = policy;
            if let Some(servers) = &self.servers {
                // What all have together follows from their state.
                compiling.settings.total_seats = *servers.total_seats().borrow();
            }
            compiling.settings.hash_key = hash_key;
            if moved {
                compiling.documents = documents;
                compiling.source_number += 1;
                compiling.source = policy_report::source_in_words(&new);
            }
        });
        self.applier.sync().reloaded(applied, &findings);
        // After a reload, a source of files reads them again, and reports the findings itself.
        let reported_by_source = applied && !moved && self.nudge.is_some();
        log_outcome(applied, if reported_by_source { &[] } else { &findings });
        if !applied {
            return false;
        }
        self.rules.replace(rules);
        if let Some(servers) = &self.servers {
            // Servers with seats of their own keep them.
            servers.share_seats(new.flow_control.total_seats);
        }
        self.applier
            .flow_control()
            .configure(settings::flow_control(&new));
        if moved {
            self.follow(directory.zip(revision));
        } else if let Some(nudge) = &self.nudge {
            nudge.notify_one();
        }
        self.say_what_changed(&new);
        self.config = new;
        applied
    }
}

/// The keys that changed from `last` to `new` and need a restart. A key that has its value of the start again needs none.
fn restart_needed(started_with: &Config, last: &Config, new: &Config) -> Vec<String> {
    let differing = started_with.restart_needed_for(new);
    let mut changed = last.restart_needed_for(new);
    changed.retain(|key| differing.contains(key));
    changed
}

fn log_outcome(applied: bool, findings: &[Finding]) {
    findings.iter().for_each(log_finding);
    if applied {
        tracing::info!("policies applied");
    } else {
        tracing::error!("the policies are invalid; the last good policy stays in force");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fairgate_config::KEYS;

    use super::*;

    fn parse(text: &str) -> Config {
        let header = "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\n";
        Config::parse(
            "test.yaml",
            Path::new("/"),
            format!("{header}{text}").as_bytes(),
        )
        .config
    }

    /// Values for a key, of which at least one is not its default.
    fn values(notation: &str) -> Vec<&str> {
        match notation {
            "integer" => vec!["123"],
            "size" => vec!["3Mi"],
            "duration" => vec!["17s"],
            words if words.contains('`') => {
                words.split(", ").map(|w| w.trim_matches('`')).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_reload_changes_the_settings_of_flow_control_that_it_says() {
        let settings = |config: &Config| {
            let policy = settings::policy(config, [0; 16]);
            let mut flow_control = settings::flow_control(config);
            // Its budget is made once.
            flow_control.bodies.unfinished_bytes = 0;
            format!("{policy:?} {flow_control:?}")
        };
        let before = settings(&parse(""));
        let (mut changing, mut others) = (0, 0);
        let notations = Config::notations();
        for key in KEYS {
            let (Some((section, name)), Some(notation)) =
                (key.path.split_once('.'), notations.get(key.path))
            else {
                continue;
            };
            let values = values(notation);
            if !["flowControl", "limits", "timeouts"].contains(&section) || values.is_empty() {
                continue;
            }
            let changes = values.iter().any(|value| {
                let text = format!("{section}: {{{name}: {value}}}\n");
                settings(&parse(&text)) != before
            });
            assert_eq!(changes, key.reload, "{}", key.path);
            if changes {
                changing += 1;
            } else {
                others += 1;
            }
        }
        assert!(changing >= 12 && others >= 10, "{changing}, {others}");
    }

    #[test]
    fn a_restart_is_needed_for_changed_keys_until_they_have_their_first_values_again() {
        let (one, two) = (parse("dataCores: 1"), parse("dataCores: 2"));
        assert_eq!(restart_needed(&one, &one, &two), ["dataCores"]);
        assert!(restart_needed(&one, &two, &two).is_empty());
        assert!(restart_needed(&one, &two, &one).is_empty());
        let three = parse("dataCores: 3");
        assert_eq!(restart_needed(&one, &two, &three), ["dataCores"]);
    }

    #[test]
    fn a_reload_does_not_change_who_may_impersonate() {
        let (files, standalone) = (parse("mode: files"), parse("mode: standalone"));
        for started_with in [&files, &standalone] {
            for new in [&files, &standalone] {
                let rules = settings::auth_rules(new, started_with, None).unwrap();
                assert_eq!(
                    rules.impersonation,
                    started_with.mode == GatewayMode::Standalone
                );
            }
        }
    }
}
