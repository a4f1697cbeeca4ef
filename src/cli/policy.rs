//! Loads the policy of a configuration, for commands that do not serve.

use std::{io::Read, path::Path};

use super::PolicyArgs;
use fairgate_config::Config;
use fairgate_core::{
    apf::policy::{Compiled, Policy, PolicySettings},
    finding::{Finding, Severity},
};
use fairgate_sources::{DocumentSet, files};

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
            // `Config::read` has already reported a path that is not a directory.
            let configured = config.flow_control.policies.as_deref();
            configured.filter(|directory| directory.is_dir())
        });
        let set = from.map(|from| documents(from, input));
        let is_empty =
            (set.as_ref()).is_some_and(|set| set.documents.is_empty() && set.findings.is_empty());
        let (objects, unreadable) =
            set.map_or_else(Default::default, |set| (set.objects(), set.findings));
        let objects = objects.with_bootstrap(config.flow_control.bootstrap);
        findings.extend(args.policies.as_deref().filter(|_| is_empty).map(nothing));
        let all_readable = !unreadable.iter().any(Finding::is_error);
        findings.extend(unreadable);
        let policy = match Policy::compile(&objects, &settings(&config)) {
            Ok(Compiled {
                policy,
                findings: warnings,
                ..
            }) => {
                findings.extend(warnings);
                all_readable.then_some(policy)
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

    /// Whether no error concerns the policy. Other errors are ignored, so that `explain` works on a machine
    /// without the configured certificates.
    pub(super) fn has_intended_policy(&self) -> bool {
        let is_about_policy = |finding: &Finding| {
            finding.field.is_empty() || finding.field.starts_with("flowControl")
        };
        let mut findings = self.findings.iter();
        !findings.any(|finding| finding.is_error() && is_about_policy(finding))
    }
}

const STANDARD_INPUT: &str = "standard input";

fn is_standard_input(from: &Path) -> bool {
    from.as_os_str() == "-"
}

fn documents(from: &Path, input: &mut dyn Read) -> DocumentSet {
    if is_standard_input(from) {
        files::load_from(STANDARD_INPUT, input)
    } else {
        files::load(from)
    }
}

/// The error that there is no object where somebody says that policies are: a command in a pipe may have failed.
fn nothing(from: &Path) -> Finding {
    let (origin, remedy) = if is_standard_input(from) {
        (
            STANDARD_INPUT.to_owned(),
            "see whether the command before the pipe prints any",
        )
    } else {
        (
            from.display().to_string(),
            "name a file of objects, or a directory with files *.yaml, *.yml or *.json",
        )
    };
    Finding {
        severity: Severity::Error,
        origin,
        kind: String::new(),
        name: String::new(),
        field: String::new(),
        message: "holds no object".to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// The settings of the policy. Without a configured hash key, a gateway draws a random one. Here an all-zero key
/// replaces it, so that `explain` prints the same illustrative queues in each run.
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
        tenant_weight: flow_control.tenant_weight,
    }
}
