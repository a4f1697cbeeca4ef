//! Loads the policy of a configuration, for commands that do not serve.

use std::{io::Read, path::Path};

use super::PolicyArgs;
use crate::{
    config::Config,
    source::{DocumentSet, files},
};
use fairgate_core::{
    apf::{
        objects::ObjectSet,
        policy::{Compiled, Policy, PolicySettings},
    },
    finding::Finding,
};

/// A configuration and its policy, with the findings of both.
pub(super) struct LoadedPolicy {
    /// The settings, with defaults in the place of invalid values.
    pub(super) config: Config,
    /// The policy; `None` if its objects are invalid.
    pub(super) policy: Option<Policy>,
    /// About the configuration first, then about the objects.
    pub(super) findings: Vec<Finding>,
}

impl LoadedPolicy {
    /// Reads the configuration at `config`, and the policies of `args` or of the configuration.
    pub(super) fn read(config: Option<&Path>, args: &PolicyArgs, input: &mut dyn Read) -> Self {
        let reading = Config::read(config);
        let (config, mut findings) = (reading.config, reading.findings);
        let from = args.policies.as_deref().or_else(|| {
            // A path that is no directory has a finding already.
            let named = config.flow_control.policies.as_deref();
            named.filter(|directory| directory.is_dir())
        });
        let (objects, unreadable) = match from.map(|from| documents(from, input)) {
            Some(set) => (set.objects(), set.findings),
            None => (ObjectSet::default(), Vec::new()),
        };
        let objects = objects.with_bootstrap(config.flow_control.bootstrap);
        let is_whole = !unreadable.iter().any(Finding::is_error);
        findings.extend(unreadable);
        let policy = match Policy::compile(&objects, &settings(&config)) {
            Ok(Compiled {
                policy,
                findings: warnings,
                ..
            }) => {
                findings.extend(warnings);
                is_whole.then_some(policy)
            }
            Err(all) => {
                findings.extend(all);
                None
            }
        };
        Self {
            config,
            policy,
            findings,
        }
    }

    /// Whether the policy itself is valid, whatever else is wrong: `explain` works on a machine without
    /// the configured certificates.
    pub(super) fn knows_its_policy(&self) -> bool {
        let is_about_policy = |finding: &Finding| {
            finding.field.is_empty() || finding.field.starts_with("flowControl")
        };
        let mut findings = self.findings.iter();
        !findings.any(|finding| finding.is_error() && is_about_policy(finding))
    }

    /// Whether a gateway would start with it.
    pub(super) fn is_usable(&self) -> bool {
        !self.findings.iter().any(Finding::is_error)
    }
}

fn documents(from: &Path, input: &mut dyn Read) -> DocumentSet {
    if from.as_os_str() == "-" {
        files::load_from("standard input", input)
    } else {
        files::load(from)
    }
}

/// The settings of the policy. Without a hash key, an all-zero key replaces the random one.
fn settings(config: &Config) -> PolicySettings {
    let flow_control = &config.flow_control;
    PolicySettings {
        total_seats: flow_control.total_seats,
        semantics: flow_control.semantics,
        hash_key: flow_control
            .hash_key
            .as_deref()
            .copied()
            .unwrap_or_default(),
    }
}
