//! Reads policy objects from their source, compiles them, and applies the policy. An invalid set changes
//! nothing: the last good policy stays in force.

mod compiling;
pub(super) mod following;
pub(super) mod last_good;
pub(super) mod policy_report;
pub(super) mod policy_sync;
pub(super) mod source_status;

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use self::{
    compiling::Compiling,
    last_good::{PolicyKeeper, StateDirectory, name_of_directory, name_of_store},
    policy_report::ReportedOrigin,
    policy_sync::PolicySync,
    source_status::SourceStatus,
};
use super::{hosted_api::HostedApi, settings};
use fairgate_base::clock::Clock;
use fairgate_config::Config;
use fairgate_core::{
    apf::{Compiled, Seats, objects::ObjectChanges},
    finding::Finding,
    sync::{Mutex, lock},
};
use fairgate_observe::{GatewayMetrics, Telemetry};
use fairgate_policy_sources::{
    DocumentSet, PolicyArea, PolicySource, Revision,
    files::{self, FileSource},
    kube::KubeSource,
    log_finding,
    store::StoreSource,
};
use fairgate_proxy::fairness::FlowControl;
use fairgate_upstream::client::ApiClient;

/// The policy objects read at the start, and the source to follow for changes.
#[derive(Debug)]
pub(super) struct Policies {
    pub(super) source: Option<ConfiguredSource>,
    /// The name of the source, in what is kept of it.
    pub(super) source_name: String,
    /// Whether its policy is in force.
    pub(super) sync: Arc<PolicySync>,
    /// Where the last good policies are kept.
    pub(super) state: StateDirectory,
    /// The set of the source that has errors, if the last good one is in force in its place; and the errors.
    refused: Option<(Revision, Vec<Finding>)>,
    pub(super) compiling: Compiling,
    /// Whether the objects are up to date; `None` unless they come from the upstream.
    pub(super) following: Option<SourceStatus>,
}

/// The configured origin of policy objects.
pub(super) enum ObjectsFrom<'a> {
    /// From the files named in the configuration, if any.
    Files,
    /// From the store of the hosted API.
    Store(&'a HostedApi),
    /// From the upstream's API.
    Upstream(ApiClient, Clock),
}

/// A source of policy objects that is followed for changes.
#[derive(Debug)]
pub(super) enum ConfiguredSource {
    Files(FileSource),
    Store(StoreSource),
    Kube(Box<KubeSource>),
}

impl ConfiguredSource {
    /// Makes the source read again at once when notified; `None` where changes arrive by watch.
    pub(super) fn nudge(&self) -> Option<Arc<Notify>> {
        match self {
            Self::Files(files) => Some(files.nudge()),
            Self::Store(_) | Self::Kube(_) => None,
        }
    }
}

impl PolicySource for ConfiguredSource {
    type Set = DocumentSet;

    async fn next(&mut self) -> DocumentSet {
        match self {
            Self::Files(files) => files.next().await,
            Self::Store(stored) => stored.next().await,
            Self::Kube(followed) => followed.next().await,
        }
    }

    async fn report(&mut self, revision: &Revision, applied: bool, findings: &[Finding]) {
        match self {
            Self::Files(files) => files.report(revision, applied, findings).await,
            Self::Store(stored) => stored.report(revision, applied, findings).await,
            Self::Kube(followed) => followed.report(revision, applied, findings).await,
        }
    }
}

/// How long the gateway waits at its start for the objects of an API.
const FIRST_SET: Duration = Duration::from_secs(2);

impl Policies {
    /// Reads and compiles the configured policies. If their source has errors, or does not respond, the last good set is
    /// used, if one is kept.
    ///
    /// # Errors
    ///
    /// All findings, when the set is invalid.
    pub(super) async fn load(
        config: &Config,
        hash_key: [u8; 16],
        from: ObjectsFrom<'_>,
        clock: &Clock,
    ) -> Result<(Self, Compiled), Vec<Finding>> {
        let state = StateDirectory::new(config, clock);
        let mut whole = false;
        let mut following = None;
        let source_name;
        let (source, documents) = match from {
            ObjectsFrom::Files => {
                let directory = config.flow_control.policies.as_deref();
                source_name = directory.map(name_of_directory).unwrap_or_default();
                files(config, &state)
            }
            ObjectsFrom::Store(hosting) => {
                whole = hosting.is_complete();
                source_name = name_of_store(&config.store);
                stored(hosting, &state).await
            }
            ObjectsFrom::Upstream(client, clock) => {
                whole = true;
                source_name = format!("upstream {}", settings::upstream_name(config));
                let source = KubeSource::new(client, clock).with_originals(state.exists());
                let step = following.insert(SourceStatus::new(source.sync_status()));
                followed(source, step).await
            }
        };
        let compiling = Compiling {
            settings: settings::policy(config, hash_key),
            bootstrap: config.flow_control.bootstrap,
            whole,
            documents: documents.map(Arc::new),
            source: policy_report::source_in_words(config),
            source_number: 0,
            in_force_since: clock.now(),
        };
        let mut policies = Self {
            source,
            source_name,
            sync: PolicySync::new(clock.clone()),
            state,
            refused: None,
            compiling,
            following,
        };
        let mut compiled = policies.compile_first()?;
        let misspelt = policies.compiling.misspelt_rules();
        compiled.findings.extend(misspelt);
        Ok((policies, compiled))
    }

    /// Whether the gateway hosts its policies.
    fn are_hosted(&self) -> bool {
        matches!(self.source, Some(ConfiguredSource::Store(_)))
    }

    /// Compiles the first set, or else the last good one. A gateway that hosts its policies starts with the built-in ones if
    /// there is neither: only through its API they can be mended.
    fn compile_first(&mut self) -> Result<Compiled, Vec<Finding>> {
        let is_unread = self.source.is_some() && self.compiling.documents.is_none();
        let of_source = self.compiling.compile(None);
        let findings = match of_source {
            Ok(compiled) if !is_unread => return Ok(compiled),
            Ok(_) => {
                self.sync.unread();
                Vec::new()
            }
            Err(ref findings) => {
                self.sync.refused(findings);
                findings.clone()
            }
        };
        let Some((last_good, compiled)) = self.restore() else {
            if of_source.is_ok() || !self.are_hosted() {
                return of_source;
            }
            let refused = self.compiling.documents.take();
            self.refused = refused.map(|set| (set.revision.clone(), findings));
            self.sync.started_with_built_in();
            return self.compiling.compile(None);
        };
        self.compiling.whole |= self.are_hosted();
        if let Some(following) = &self.following {
            following.started_with_last_good();
        }
        let refused = self.compiling.documents.replace(last_good);
        self.refused = refused.map(|set| (set.revision.clone(), findings));
        Ok(compiled)
    }

    /// Compiles the last good set; `None` if there is none that can be used.
    fn restore(&self) -> Option<(Arc<DocumentSet>, Compiled)> {
        if self.source_name.is_empty() {
            return None;
        }
        let set = self
            .state
            .last_good(PolicyArea::FlowControl, &self.source_name)?;
        let (digest, saved_at, age) = (set.digest.clone(), set.saved_at, self.state.age(&set));
        let documents = Arc::new(DocumentSet::of_last_good(set));
        let compiling = Compiling {
            documents: Some(Arc::clone(&documents)),
            // Of the hosted API only what is complete is kept.
            whole: self.compiling.whole || self.are_hosted(),
            ..self.compiling.clone()
        };
        match compiling.compile(None) {
            Ok(compiled) => {
                tracing::warn!(
                    source = self.source_name, %digest, age = format!("{age}s"),
                    "the last good policy is in force until its source has no errors"
                );
                self.sync.restored(&digest, saved_at);
                Some((documents, compiled))
            }
            Err(findings) => {
                findings.iter().for_each(log_finding);
                tracing::warn!(%digest, "the last good policy cannot be used: it has errors");
                None
            }
        }
    }

    /// Reports the findings about the first set to its source, which logs them and does not repeat the same
    /// warnings with the next set. Without a set, only logs them.
    pub(super) async fn report_first(&mut self, findings: &[Finding]) {
        let set = self.compiling.documents.as_ref();
        let set = set.filter(|_| !self.sync.has_last_good());
        match (&mut self.source, &self.refused, set) {
            (Some(source), None, Some(set)) => source.report(&set.revision, true, findings).await,
            (Some(source), Some((revision, errors)), _) => {
                source.report(revision, false, errors).await;
                findings.iter().for_each(log_finding);
            }
            _ => findings.iter().for_each(log_finding),
        }
    }

    /// Whether the first set of the source was refused.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }
}

/// A source, and its first set.
type Found = (Option<ConfiguredSource>, Option<DocumentSet>);

fn files(config: &Config, state: &StateDirectory) -> Found {
    let Some(directory) = config.flow_control.policies.as_deref() else {
        return (None, None);
    };
    let documents = if state.exists() {
        files::load_with_originals(directory)
    } else {
        files::load(directory)
    };
    let source = FileSource::new(directory).with_originals(state.exists());
    let source = source.after(documents.revision.clone());
    (Some(ConfiguredSource::Files(source)), Some(documents))
}

async fn stored(hosting: &HostedApi, state: &StateDirectory) -> Found {
    // An unhealthy store has been waited for already.
    let patience = match hosting.problem() {
        None => FIRST_SET,
        Some(_) => Duration::ZERO,
    };
    let source = StoreSource::new(Arc::clone(&hosting.store)).with_originals(state.exists());
    first_of(ConfiguredSource::Store(source), patience).await
}

async fn followed(source: KubeSource, step: &SourceStatus) -> Found {
    let found = first_of(ConfiguredSource::Kube(Box::new(source)), FIRST_SET).await;
    if found.1.is_none() {
        let why = step.problem().unwrap_or_default();
        tracing::error!(%why, "the upstream's FlowSchemas and levels have not been read yet; until then, the last good or the built-in policy applies");
    }
    found
}

/// Waits for the first set of a source, at most for `patience`.
async fn first_of(mut source: ConfiguredSource, patience: Duration) -> Found {
    let documents = tokio::time::timeout(patience, source.next()).await;
    (Some(source), documents.ok())
}

/// Compiles policies and applies them to flow control; an invalid one leaves the last good one in force.
#[derive(Clone)]
pub(super) struct Applier {
    flow_control: Arc<FlowControl>,
    clock: Clock,
    telemetry: Arc<Telemetry>,
    compiling: Arc<Mutex<Compiling>>,
    hosting: Option<HostedApi>,
    sync: Arc<PolicySync>,
    keeper: Option<PolicyKeeper>,
}

impl Applier {
    /// Starts from `policies`, which are in force already and are kept if they are those of their source. Findings about
    /// objects are passed to `hosting`.
    pub(super) fn new(
        policies: &Policies,
        flow_control: Arc<FlowControl>,
        clock: Clock,
        telemetry: Arc<Telemetry>,
        hosting: Option<HostedApi>,
        keeper: Option<PolicyKeeper>,
    ) -> Self {
        let this = Self {
            flow_control,
            clock,
            telemetry,
            compiling: Arc::new(Mutex::new(policies.compiling.clone())),
            hosting,
            sync: Arc::clone(&policies.sync),
            keeper,
        };
        this.keep(&policies.source_name);
        this
    }

    pub(super) fn sync(&self) -> &PolicySync {
        &self.sync
    }

    /// Shows operators the policy in force.
    pub(super) fn report_in_force(&self, following: Option<SourceStatus>) {
        let (flow_control, compiling) =
            (Arc::clone(&self.flow_control), Arc::clone(&self.compiling));
        let (sync, clock) = (Arc::clone(&self.sync), self.clock.clone());
        let report = move || {
            let following = following.as_ref().and_then(SourceStatus::problem);
            let problem = sync.problem().or(following);
            // A policy is compiled and applied under this lock, so that objects and revision are of the same one.
            let compiling = lock(&compiling);
            let set = compiling.documents.as_ref();
            let origin = ReportedOrigin {
                source: compiling.source.clone(),
                revision: set.map(|set| set.revision.0.clone()),
                age: clock.now().since(compiling.in_force_since),
                problem,
            };
            let view = flow_control.dispatcher().view();
            drop(compiling);
            policy_report::to_json(view.policy(), origin)
        };
        let provided = &self.telemetry.provided_dumps().policy;
        // Called once.
        let _ = provided.set(Box::new(report));
    }

    /// The key with which flows are hashed.
    pub(super) fn hash_key(&self) -> [u8; 16] {
        lock(&self.compiling).settings.hash_key
    }

    /// Whether sets are kept for the next start.
    pub(super) fn keeps(&self) -> bool {
        self.keeper.is_some()
    }

    /// Keeps the set in force, which is that of the source of this name; a hosted one only if it is complete.
    pub(super) fn keep(&self, source_name: &str) {
        let compiling = lock(&self.compiling);
        if self.hosting.is_some() && !compiling.whole {
            return;
        }
        let set = compiling.documents.as_ref();
        let originals = set.and_then(|set| set.originals.clone());
        if let (Some(keeper), Some(originals)) = (&self.keeper, originals) {
            keeper.keep(source_name, originals, &self.clock);
        }
    }

    pub(super) fn flow_control(&self) -> &Arc<FlowControl> {
        &self.flow_control
    }

    pub(super) fn metrics(&self) -> &GatewayMetrics {
        self.telemetry.metrics()
    }

    /// Changes the input, compiles it, and applies the policy; returns whether that succeeded, and all
    /// findings. Blocks while compiling.
    pub(super) fn apply(&self, change: impl FnOnce(&mut Compiling)) -> (bool, Vec<Finding>) {
        let now = self.clock.now();
        let applied = self.compile_and_apply(|changed| {
            change(changed);
            changed.in_force_since = now;
        });
        match applied {
            Ok(mut findings) => {
                let in_force = lock(&self.compiling).clone();
                findings.extend(in_force.misspelt_rules());
                self.telemetry.metrics().policy_applied(now, &findings);
                (true, findings)
            }
            Err(findings) => {
                self.telemetry.metrics().policy_rejected();
                (false, findings)
            }
        }
    }

    /// Distributes so many seats among the levels from now on. Returns how many it were before, if that was another number. It
    /// does not count as another policy. Blocks while compiling.
    pub(super) fn set_total_seats(&self, seats: Seats) -> Option<Seats> {
        let before = lock(&self.compiling).settings.total_seats;
        if before == seats {
            return None;
        }
        let applied = self.compile_and_apply(|changed| changed.settings.total_seats = seats);
        applied.ok().map(|_| before)
    }

    /// Changes the input, compiles it, and applies the policy, unless there are errors.
    fn compile_and_apply(
        &self,
        change: impl FnOnce(&mut Compiling),
    ) -> Result<Vec<Finding>, Vec<Finding>> {
        let mut compiling = lock(&self.compiling);
        let mut changed = compiling.clone();
        change(&mut changed);
        let before = self.flow_control.dispatcher().view();
        let Compiled {
            policy, findings, ..
        } = changed.compile(Some(before.policy()))?;
        log_changes(&compiling, &changed);
        *compiling = changed;
        self.flow_control.apply(self.clock.now(), Arc::new(policy));
        Ok(findings)
    }
}

/// The number of documents up to which it is logged what is different in a set. Large ones change one object at a time, through
/// an API, which has the names.
const MAX_COMPARED: usize = 1_000;

/// Logs which objects are new, changed or gone.
fn log_changes(before: &Compiling, after: &Compiling) {
    let same = match (&before.documents, &after.documents) {
        (Some(before), Some(after)) => Arc::ptr_eq(before, after),
        (before, after) => before.is_none() && after.is_none(),
    };
    let documents = |compiling: &Compiling| {
        let set = compiling.documents.as_ref();
        set.map_or(0, |set| set.documents.len())
    };
    if same || documents(before).max(documents(after)) > MAX_COMPARED {
        return;
    }
    let objects = |compiling: &Compiling| {
        let set = compiling.documents.as_ref();
        set.map(|set| set.objects()).unwrap_or_default()
    };
    let changes = ObjectChanges::between(&objects(before), &objects(after));
    if !changes.is_empty() {
        let [added, changed, gone] =
            [changes.added, changes.changed, changes.gone].map(|names| names.join(", "));
        tracing::info!(%added, %changed, %gone, "flow control policy changed");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use fairgate_core::{
        apf::{
            PolicySettings, Semantics,
            objects::{Bootstrap, ParsedDocument},
        },
        time::Time,
    };

    /// The names of the levels in force with the level `own`, or with no object if `empty`.
    fn levels(whole: bool, empty: bool) -> Vec<String> {
        let own = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "PriorityLevelConfiguration",
            "metadata": {"name": "own"},
            "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
        });
        let own = Arc::new(ParsedDocument::parse("here", own));
        let compiling = Compiling {
            settings: PolicySettings {
                total_seats: 100,
                semantics: Semantics::Improved,
                hash_key: [0; 16],
                tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
            },
            bootstrap: Bootstrap::Suggested,
            whole,
            documents: Some(Arc::new(DocumentSet {
                revision: Revision("7".to_owned()),
                documents: if empty { Vec::new() } else { vec![own] },
                findings: Vec::new(),
                originals: None,
            })),
            source: None,
            source_number: 0,
            in_force_since: Time::ZERO,
        };
        let policy = compiling.compile(None).unwrap().policy;
        policy
            .levels()
            .iter()
            .map(|level| level.name.to_string())
            .collect()
    }

    #[test]
    fn the_suggested_objects_stay_until_an_api_is_known_to_have_all_it_should() {
        let suggested = "workload-low".to_owned();
        let partial = levels(false, false);
        assert!(partial.contains(&"own".to_owned()) && partial.contains(&suggested));
        let whole = levels(true, false);
        assert!(whole.contains(&"own".to_owned()) && !whole.contains(&suggested));
        assert!(whole.contains(&"catch-all".to_owned()));
        assert!(levels(true, true).contains(&suggested));
    }
}
