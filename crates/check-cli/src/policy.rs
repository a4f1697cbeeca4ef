//! Loads the flow control policy that a command works on, and says which one it is, for commands that do not serve.

use std::{
    fmt::Write as _,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use serde_json::json;

use super::in_force::{self, ClusterArgs, NotRead, ServerArgs};
use fairgate_config::{Config, GatewayMode, StoreConfig};
use fairgate_core::{
    apf::{
        objects::{Bootstrap, ParsedDocument},
        policy::{Compiled, Policy, PolicySettings},
    },
    finding::{Finding, Severity},
};
use fairgate_policy_cli::misspelt_rules;
use fairgate_policy_sources::{DocumentSet, Revision, files};

/// Where policy objects are read from. By default from where the configuration says, if that is at hand.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct PolicyArgs {
    /// Read FlowSchemas and PriorityLevelConfigurations from a file, from the files in a directory, or from standard
    /// input with `-`.
    ///
    /// YAML or JSON as kubectl prints it, lists included. The default is what the configuration says: the files of
    /// flowControl.policies.directory, or the store, unless a running gateway has it open. A flow control policy that
    /// is in an API server or in etcd is not read without --kubeconfig or --server.
    #[arg(long, value_name = "FILE|DIR|-")]
    pub(super) policies: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl PolicyArgs {
    /// Whether any policy is named.
    pub(super) fn is_given(&self) -> bool {
        self.policies.is_some() || self.server.server.is_some() || self.cluster.kubeconfig.is_some()
    }
}

/// A configuration and its policy, with the findings of both.
pub(super) struct LoadedPolicy {
    /// The settings, with defaults in the place of invalid values.
    pub(super) config: Config,
    /// The policy; `None` if its objects are invalid, or were not read.
    pub(super) policy: Option<Policy>,
    /// Which policy it is; `None` if there is none.
    pub(super) origin: Option<PolicyOrigin>,
    /// Why the policy of the configuration was not read, if nobody asked for another one.
    pub(super) not_read: Option<NotRead>,
    /// About the configuration first, then about the objects.
    pub(super) findings: Vec<Finding>,
}

/// Which flow control policy a command works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyOrigin {
    /// Where the objects were read.
    kind: OriginKind,
    /// The same in words.
    source: String,
    /// The numbers of objects, built-in ones included.
    flow_schemas: usize,
    priority_levels: usize,
    /// The revision of the objects, where they have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    /// How long it has been in force, in seconds, if a running gateway says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    /// Why a running gateway does not have the policy of its source in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Where policy objects were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum OriginKind {
    BuiltIn,
    Files,
    StandardInput,
    Store,
    Gateway,
    Cluster,
}

impl PolicyOrigin {
    /// Of what was read here.
    fn new(kind: OriginKind, source: String, revision: Option<String>) -> Self {
        Self {
            kind,
            source,
            flow_schemas: 0,
            priority_levels: 0,
            revision,
            age_seconds: None,
            problem: None,
        }
    }

    /// In one line.
    pub(super) fn sentence(&self) -> String {
        let Self {
            source,
            flow_schemas,
            priority_levels,
            ..
        } = self;
        let count = |number: usize, word: &str| match number {
            1 => format!("1 {word}"),
            number => format!("{number} {word}s"),
        };
        let mut sentence = format!(
            "{source}: {}, {}",
            count(*flow_schemas, "FlowSchema"),
            count(*priority_levels, "PriorityLevelConfiguration"),
        );
        if let Some(revision) = &self.revision {
            let _ = write!(sentence, ", revision {revision}");
        }
        if let Some(age) = self.age_seconds {
            let _ = write!(sentence, ", in force for {age} s");
        }
        if let Some(problem) = &self.problem {
            let _ = write!(sentence, "; it is not what its source has: {problem}");
        }
        sentence
    }
}

/// The objects of a policy.
struct FoundObjects {
    set: DocumentSet,
    bootstrap: Bootstrap,
    settings: PolicySettings,
    origin: PolicyOrigin,
}

/// Why there are no objects.
enum NoObjects {
    /// Those that were asked for could not be read.
    Failed(NotRead),
    /// The configuration names a source that this command does not ask by itself.
    Elsewhere(NotRead),
}

impl LoadedPolicy {
    /// Reads the configuration at `config`, and the policy that `args` or the configuration name.
    pub(super) fn read(config: Option<&Path>, args: &PolicyArgs, input: &mut dyn Read) -> Self {
        let reading = Config::read(config);
        let (read, mut findings) = (reading.config, reading.findings);
        let found = find(&read, config.is_some(), args, input);
        let mut loaded = Self {
            config: read,
            policy: None,
            origin: None,
            not_read: None,
            findings: Vec::new(),
        };
        match found {
            Ok(mut found) => {
                let is_empty = found.set.documents.is_empty()
                    && !found.set.findings.iter().any(Finding::is_error);
                if let Some(from) = args.policies.as_deref().filter(|_| is_empty) {
                    // All that is left are warnings that single files hold no object.
                    found.set.findings.clear();
                    findings.push(nothing(from));
                }
                loaded.compile(found, &mut findings);
            }
            Err(NoObjects::Failed(error)) => findings.push(error.into_finding()),
            Err(NoObjects::Elsewhere(error)) => loaded.not_read = Some(error),
        }
        loaded.findings = findings;
        loaded
    }

    fn compile(&mut self, found: FoundObjects, findings: &mut Vec<Finding>) {
        let FoundObjects {
            set,
            bootstrap,
            settings,
            mut origin,
        } = found;
        let objects = set.objects().with_bootstrap(bootstrap);
        let all_readable = !set.findings.iter().any(Finding::is_error);
        findings.extend(set.findings);
        findings.extend(misspelt_rules(&objects));
        match Policy::compile(&objects, &settings) {
            Ok(Compiled {
                policy,
                findings: warnings,
                ..
            }) => {
                findings.extend(warnings);
                origin.flow_schemas = policy.schemas().len();
                origin.priority_levels = policy.levels().len();
                self.policy = all_readable.then_some(policy);
                self.origin = all_readable.then_some(origin);
            }
            Err(all) => findings.extend(all),
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

/// The objects that `args` name, or else the configuration, which is the built-in one unless `is_configured`.
fn find(
    config: &Config,
    is_configured: bool,
    args: &PolicyArgs,
    input: &mut dyn Read,
) -> Result<FoundObjects, NoObjects> {
    let of_config = |set, bootstrap, origin| FoundObjects {
        set,
        bootstrap,
        settings: settings(config),
        origin,
    };
    if let Some(url) = &args.server.server {
        let read = in_force::of_gateway(url, &args.server);
        let (policy, url) = read.map_err(NoObjects::Failed)?;
        return Ok(of_gateway(policy, &url, config));
    }
    if let Some(path) = &args.cluster.kubeconfig {
        let read = in_force::of_cluster(path, &args.cluster);
        let (set, url) = read.map_err(NoObjects::Failed)?;
        let revision = Some(set.revision.0.clone()).filter(|revision| !revision.is_empty());
        let source = format!("the API server {url}");
        let origin = PolicyOrigin::new(OriginKind::Cluster, source, revision);
        return Ok(of_config(set, Bootstrap::Mandatory, origin));
    }
    if let Some(from) = &args.policies {
        let (kind, source) = if is_standard_input(from) {
            (OriginKind::StandardInput, STANDARD_INPUT.to_owned())
        } else {
            (
                OriginKind::Files,
                format!("the files of {}", from.display()),
            )
        };
        let bootstrap = config.flow_control.bootstrap;
        let source = source + added(bootstrap);
        let origin = PolicyOrigin::new(kind, source, None);
        return Ok(of_config(documents(from, input), bootstrap, origin));
    }
    let (set, bootstrap, origin) = configured(config, is_configured)?;
    Ok(of_config(set, bootstrap, origin))
}

/// The objects where the configuration has them.
fn configured(
    config: &Config,
    is_configured: bool,
) -> Result<(DocumentSet, Bootstrap, PolicyOrigin), NoObjects> {
    let bootstrap = config.flow_control.bootstrap;
    let built_in = |why: &str| {
        let source = format!("the built-in objects{why}");
        let origin = PolicyOrigin::new(OriginKind::BuiltIn, source, None);
        (no_documents(), bootstrap, origin)
    };
    let elsewhere = |from: String, place: &str, remedy: &str| {
        let message = format!("the policy in force is in {place}, which was not asked");
        let remedy = format!("{remedy}, or pass objects with --policies");
        NoObjects::Elsewhere(NotRead {
            from,
            message,
            remedy,
        })
    };
    match (config.mode, &config.store) {
        _ if !is_configured => Ok(built_in(", since no configuration or policy is named")),
        (GatewayMode::Files, _) => {
            // `Config::read` has already reported a path that is not a directory.
            let directory = config.flow_control.policies.as_deref();
            let Some(directory) = directory.filter(|directory| directory.is_dir()) else {
                return Ok(built_in(
                    ", since flowControl.policies.directory is not set",
                ));
            };
            let source = format!("the files of {}{}", directory.display(), added(bootstrap));
            let origin = PolicyOrigin::new(OriginKind::Files, source, None);
            Ok((files::load(directory), bootstrap, origin))
        }
        (GatewayMode::Sidecar, _) => Err(elsewhere(
            "mode: sidecar".to_owned(),
            &format!("the API server {}", config.upstream.url.authority()),
            "ask that with --kubeconfig FILE, or a running gateway with --server URL (its admin.address)",
        )),
        (_, StoreConfig::Etcd(_)) => Err(elsewhere(
            "store.etcd".to_owned(),
            "etcd",
            "ask a running gateway with --server URL (its admin.address)",
        )),
        (_, StoreConfig::Local { path }) => {
            let read = in_force::of_store(path).map_err(NoObjects::Elsewhere)?;
            let path = path.display();
            let Some(set) = read else {
                return Ok(built_in(&format!(", since there is no store {path} yet")));
            };
            if set.documents.is_empty() && set.findings.is_empty() {
                return Ok(built_in(&format!(", since the store {path} has none")));
            }
            let source = format!("the store {path}");
            let revision = Some(set.revision.0.clone());
            let origin = PolicyOrigin::new(OriginKind::Store, source, revision);
            Ok((set, Bootstrap::Mandatory, origin))
        }
    }
}

/// What is said of built-in objects that are added to others.
fn added(bootstrap: Bootstrap) -> &'static str {
    match bootstrap {
        Bootstrap::Suggested => " and the built-in objects",
        Bootstrap::Mandatory => " and the mandatory built-in objects",
    }
}

/// The policy that the gateway at `url` has in force, with that gateway's settings.
fn of_gateway(
    policy: fairgate_policy_sources::policy_in_force::PolicyInForce,
    url: &str,
    config: &Config,
) -> FoundObjects {
    let details = policy.fairgate;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": policy.items});
    let document = ParsedDocument::parse(url, list);
    let set = DocumentSet {
        documents: vec![Arc::new(document)],
        ..no_documents()
    };
    FoundObjects {
        set,
        bootstrap: Bootstrap::Mandatory,
        settings: PolicySettings {
            total_seats: details.total_seats,
            semantics: details.semantics,
            tenant_weight: details.tenant_weight,
            ..settings(config)
        },
        origin: PolicyOrigin {
            age_seconds: Some(details.age_seconds),
            problem: details.problem,
            ..PolicyOrigin::new(
                OriginKind::Gateway,
                format!("the gateway {url}, from {}", details.source),
                details.revision,
            )
        },
    }
}

fn no_documents() -> DocumentSet {
    DocumentSet {
        revision: Revision(String::new()),
        documents: Vec::new(),
        findings: Vec::new(),
        originals: None,
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
    Finding::without_object(Severity::Error, origin, "holds no object", remedy)
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
