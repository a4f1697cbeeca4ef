//! The policy a configuration leads to, for commands that look at it and do not serve.

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

/// A configuration and the policy it leads to, with all that is wrong with either.
pub(super) struct LoadedPolicy {
    /// The settings; defaults stand in for what is broken.
    pub(super) config: Config,
    /// The policy; `None` if its objects cannot be used.
    pub(super) policy: Option<Policy>,
    /// About the configuration first, then about the objects.
    pub(super) findings: Vec<Finding>,
}

impl LoadedPolicy {
    /// Reads the configuration at `config` and the policies `args` name, or it itself does.
    pub(super) fn read(config: Option<&Path>, args: &PolicyArgs, input: &mut dyn Read) -> Self {
        let reading = Config::read(config);
        let (config, mut findings) = (reading.config, reading.findings);
        let from = args.policies.as_deref().or_else(|| {
            // One that is no directory has its finding already.
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

    /// Whether the policy is the one that is meant, whatever else is wrong: a configuration can be
    /// explained on a machine that lacks its certificates.
    pub(super) fn knows_its_policy(&self) -> bool {
        let is_about_policy = |finding: &Finding| {
            finding.field.is_empty() || finding.field.starts_with("flowControl")
        };
        let mut findings = self.findings.iter();
        !findings.any(|finding| finding.is_error() && is_about_policy(finding))
    }

    /// Whether nothing is so wrong that a gateway would refuse it.
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

/// What the policy is compiled for. Without a hash key all-zero stands in for the random one.
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
