//! What goes on beside the requests, on the control runtime: policies that change, borrowing,
//! reloads.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
    task::JoinHandle,
};

use super::{
    ServeError,
    following::Following,
    hosting::Hosting,
    identity::UpstreamCredential,
    object_counts::{self, UpstreamMetrics},
    pace::Pace,
    runtimes::Gateway,
    settings,
};
use crate::{
    apf::{Compiled, Finding, ObjectSet, Policy, PolicySettings, objects::Bootstrap},
    auth::{TokenReviews, layer::AuthRules},
    clock::Clock,
    config::{self, Config},
    fairness::Hub,
    observe::{Admin, Checks, Sight, View, names},
    serve::Phase,
    source::{
        DocumentSet, Revision, Source,
        files::{self, Files},
        kube::{Followed, Upstream},
        store::Stored,
    },
    sync::{Mutex, lock},
};

/// All that the control tasks work on.
pub(super) struct Control {
    pub(super) config: Config,
    pub(super) path: Option<PathBuf>,
    pub(super) hub: Arc<Hub>,
    pub(super) rules: Arc<ArcSwap<AuthRules>>,
    pub(super) reviews: Option<TokenReviews>,
    pub(super) policies: Policies,
    pub(super) hosting: Option<Hosting>,
    pub(super) credential: UpstreamCredential,
    pub(super) clock: Clock,
    pub(super) metrics: UpstreamMetrics,
    pub(super) sight: Arc<Sight>,
    pub(super) hash_key: [u8; 16],
}

impl Control {
    /// Starts the tasks on the gateway's control runtime. Returns where operators are served.
    pub(super) fn start(self, gateway: &Gateway) -> Result<SocketAddr, ServeError> {
        let control = gateway.control();
        let _inside = control.enter();
        let hangup = signal(SignalKind::hangup())?;
        let address = self.config.admin.address;
        let mut checks = checks(gateway, &self.sight);
        if let Some(hosting) = &self.hosting {
            checks = hosting.check(checks);
            hosting.measure(&self.sight);
            hosting.start(&control);
        }
        if let Some(following) = &self.policies.following {
            checks = following.check(checks);
            following.measure(&self.sight);
        }
        let view = View::new(Arc::clone(&self.sight), checks);
        if let Some(hosting) = &self.hosting {
            hosting.show(&view);
        }
        let admin = control
            .block_on(Admin::bind(address, view))
            .map_err(|source| ServeError::Admin { address, source })?;
        let admin_address = admin.address()?;
        let upstream = self.config.upstream.url.authority();
        tracing::info!(
            address = %gateway.address(),
            admin = %admin_address,
            upstream = self.config.has_upstream.then_some(upstream),
            "serving"
        );
        show_load(gateway, &self.sight);
        control.spawn(admin.run());
        control.spawn(Arc::clone(&self.sight).run());
        control.spawn(self.credential.follow());
        if self.config.has_upstream {
            control.spawn(object_counts::follow(
                Arc::clone(&self.hub),
                self.clock.clone(),
                self.metrics,
            ));
        }
        control.spawn(rebalance(Arc::clone(&self.hub), self.clock.clone()));
        let compiling = Arc::new(Mutex::new(Compiling {
            settings: settings::policy(&self.config, self.hash_key),
            bootstrap: self.policies.bootstrap(&self.config),
            documents: self.policies.documents.clone(),
        }));
        let applier = Applier {
            hub: Arc::clone(&self.hub),
            clock: self.clock.clone(),
            sight: Arc::clone(&self.sight),
            compiling,
            hosting: self.hosting,
            from_api: self.config.mode != config::Mode::Files,
        };
        let nudge = self.policies.source.as_ref().and_then(PolicySource::nudge);
        let source = self.policies.source;
        let following = source.map(|source| control.spawn(follow(source, applier.clone())));
        let reload = Reload {
            config: self.config,
            path: self.path,
            rules: self.rules,
            reviews: self.reviews,
            applier,
            nudge,
            following,
            hash_key: self.hash_key,
        };
        control.spawn(reload.run(hangup));
        Ok(admin_address)
    }
}

/// Has the metrics ask for what the gateway has in hand.
fn show_load(gateway: &Gateway, sight: &Sight) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |count: usize| count as f64;
    let (connections, streams) = gateway.gauges();
    let own = sight.own();
    own.pull(&names::CONNECTIONS, move || number(connections()));
    own.pull(&names::STREAMS, move || number(streams()));
}

/// What tells whether the gateway lives and is ready.
fn checks(gateway: &Gateway, sight: &Arc<Sight>) -> Checks {
    let phases = gateway.drain().subscribe();
    let sight = Arc::clone(sight);
    Checks::new()
        .ready("policy", move || {
            if sight.own().has_policy() {
                Ok(())
            } else {
                Err("no policy was taken on yet".to_owned())
            }
        })
        .ready("shutdown", move || match *phases.borrow() {
            Phase::Serving => Ok(()),
            _ => Err("the gateway is draining".to_owned()),
        })
}

/// Lends and borrows seats, for ever.
async fn rebalance(hub: Arc<Hub>, clock: Clock) {
    loop {
        hub.borrowing_due().await;
        for change in hub.rebalance(clock.now()) {
            tracing::debug!(level = %change.level, from = change.from, to = change.to, "current limit");
        }
    }
}

/// The policy objects as they were found at the start, and where to look for changes.
#[derive(Debug)]
pub struct Policies {
    source: Option<PolicySource>,
    documents: Option<Arc<DocumentSet>>,
    /// How far they are in step, where they are the upstream's.
    following: Option<Following>,
}

/// Where policy objects are to come from.
pub(super) enum ObjectsFrom<'a> {
    /// From the files that the configuration names, if it does.
    Files,
    /// From the store of the hosted API.
    Store(&'a Hosting),
    /// From the upstream's API.
    Upstream(Upstream, Clock),
}

/// Where policy objects come from, as far as they change.
#[derive(Debug)]
enum PolicySource {
    Files(Files),
    Stored(Stored),
    Followed(Box<Followed>),
}

impl PolicySource {
    /// What makes the source yield what it has at once, where that can be asked of it.
    fn nudge(&self) -> Option<Arc<Notify>> {
        match self {
            Self::Files(files) => Some(files.nudge()),
            Self::Stored(_) | Self::Followed(_) => None,
        }
    }
}

impl Source for PolicySource {
    async fn next(&mut self) -> DocumentSet {
        match self {
            Self::Files(files) => files.next().await,
            Self::Stored(stored) => stored.next().await,
            Self::Followed(followed) => followed.next().await,
        }
    }

    async fn report(&mut self, revision: &Revision, applied: bool, findings: &[Finding]) {
        match self {
            Self::Files(files) => files.report(revision, applied, findings).await,
            Self::Stored(stored) => stored.report(revision, applied, findings).await,
            Self::Followed(followed) => followed.report(revision, applied, findings).await,
        }
    }
}

/// How long the objects of an API are waited for before the gateway starts without them.
const FIRST_SET: Duration = Duration::from_secs(2);

impl Policies {
    /// Reads and compiles the policies that `config` names.
    ///
    /// # Errors
    ///
    /// All findings, when the set cannot be used.
    pub(super) async fn load(
        config: &Config,
        hash_key: [u8; 16],
        from: ObjectsFrom<'_>,
    ) -> Result<(Self, Compiled), Vec<Finding>> {
        let policies = match from {
            ObjectsFrom::Files => Self::files(config),
            ObjectsFrom::Store(hosting) => {
                let source = Stored::new(Arc::clone(&hosting.store));
                Self::first_of(PolicySource::Stored(source)).await
            }
            ObjectsFrom::Upstream(upstream, clock) => Self::followed(upstream, clock).await,
        };
        let compiling = Compiling {
            settings: settings::policy(config, hash_key),
            bootstrap: policies.bootstrap(config),
            documents: policies.documents.clone(),
        };
        let compiled = compiling.compile()?;
        Ok((policies, compiled))
    }

    fn files(config: &Config) -> Self {
        let directory = config.flow_control.policies.as_deref();
        let documents = directory.map(files::load).map(Arc::new);
        let source = directory
            .zip(documents.as_ref())
            .map(|(directory, set)| Files::new(directory).after(set.revision.clone()));
        Self {
            source: source.map(PolicySource::Files),
            documents,
            following: None,
        }
    }

    async fn followed(upstream: Upstream, clock: Clock) -> Self {
        let source = Followed::new(upstream, clock);
        let following = Following::new(source.in_step());
        let mut policies = Self::first_of(PolicySource::Followed(Box::new(source))).await;
        if policies.documents.is_none() {
            let why = following.trouble().unwrap_or_default();
            tracing::error!(%why, "the upstream's policy objects are not known yet");
        }
        policies.following = Some(following);
        policies
    }

    /// Waits a while for the first set of a source.
    async fn first_of(mut source: PolicySource) -> Self {
        let documents = tokio::time::timeout(FIRST_SET, source.next()).await;
        Self {
            source: Some(source),
            documents: documents.ok().map(Arc::new),
            following: None,
        }
    }

    /// Which objects are built in besides those that were found.
    fn bootstrap(&self, config: &Config) -> Bootstrap {
        let from_api = config.mode != config::Mode::Files;
        bootstrap_of(from_api, config, self.documents.as_deref())
    }
}

/// Where the objects come from an API, that has the built-in ones, too; until they are known, the
/// gateway has to know them itself.
fn bootstrap_of(from_api: bool, config: &Config, documents: Option<&DocumentSet>) -> Bootstrap {
    let any = documents.is_some_and(|set| !set.documents.is_empty());
    if from_api && any {
        Bootstrap::Mandatory
    } else {
        config.flow_control.bootstrap
    }
}

/// What a policy is compiled from.
#[derive(Clone, Debug)]
struct Compiling {
    settings: PolicySettings,
    bootstrap: Bootstrap,
    /// Shared with who compiles something else from them.
    documents: Option<Arc<DocumentSet>>,
}

impl Compiling {
    fn compile(&self) -> Result<Compiled, Vec<Finding>> {
        let (documents, unreadable) = match self.documents.as_deref() {
            None => (&[][..], Vec::new()),
            Some(set) => (&set.documents[..], set.findings.clone()),
        };
        let objects = ObjectSet::read(
            documents
                .iter()
                .map(|document| (&document.origin, document.value.clone())),
        )
        .with_bootstrap(self.bootstrap);
        let compiled = Policy::compile(&objects, &self.settings);
        let refused = unreadable.iter().any(Finding::is_error);
        let mut all = unreadable;
        match compiled {
            Ok(mut compiled) if !refused => {
                all.append(&mut compiled.findings);
                compiled.findings = all;
                Ok(compiled)
            }
            Ok(_) => Err(all),
            Err(findings) => {
                all.extend(findings);
                Err(all)
            }
        }
    }
}

/// Compiles policies and gives them to the hub; the last good one stays when a new one is not.
#[derive(Clone)]
struct Applier {
    hub: Arc<Hub>,
    clock: Clock,
    sight: Arc<Sight>,
    compiling: Arc<Mutex<Compiling>>,
    hosting: Option<Hosting>,
    /// Whether the objects come from an API, which has the built-in ones, too.
    from_api: bool,
}

impl Applier {
    /// Changes what is compiled from, and compiles; returns whether it was applied, and what is to be
    /// said. Blocks for as long as compiling takes.
    fn apply(&self, change: impl FnOnce(&mut Compiling)) -> (bool, Vec<Finding>) {
        let mut compiling = lock(&self.compiling);
        let mut changed = compiling.clone();
        change(&mut changed);
        match changed.compile() {
            Ok(Compiled {
                policy, findings, ..
            }) => {
                *compiling = changed;
                let now = self.clock.now();
                self.hub.apply(now, Arc::new(policy));
                self.sight.own().policy_taken_on(now, findings.len());
                (true, findings)
            }
            Err(findings) => {
                self.sight.own().policy_refused();
                (false, findings)
            }
        }
    }
}

/// Follows a source of policy objects, for ever.
async fn follow(mut source: PolicySource, applier: Applier) {
    let clock = applier.clock.clone();
    loop {
        let set = source.next().await;
        let pace = Pace::begin(&clock);
        let revision = set.revision.clone();
        let applier = applier.clone();
        let hosting = applier.hosting.clone();
        let complete = hosting.as_ref().is_none_or(Hosting::is_complete);
        let applied = tokio::task::spawn_blocking(move || {
            applier.apply(|compiling| {
                if applier.from_api && complete && !set.documents.is_empty() {
                    compiling.bootstrap = Bootstrap::Mandatory;
                }
                compiling.documents = Some(Arc::new(set));
            })
        });
        let Ok((applied, findings)) = applied.await else {
            tracing::error!("compiling the policies failed; the last good ones stay");
            continue;
        };
        if let Some(hosting) = hosting {
            hosting.found(&findings);
        }
        source.report(&revision, applied, &findings).await;
        pace.rest().await;
    }
}

fn tell(applied: bool, findings: &[Finding]) {
    for finding in findings {
        if finding.is_error() {
            tracing::error!(%finding, "policy");
        } else {
            tracing::warn!(%finding, "policy");
        }
    }
    if applied {
        tracing::info!("policies applied");
    } else {
        tracing::error!("the policies cannot be used; the last good ones stay");
    }
}

/// Reads the configuration again at each SIGHUP.
struct Reload {
    config: Config,
    path: Option<PathBuf>,
    rules: Arc<ArcSwap<AuthRules>>,
    reviews: Option<TokenReviews>,
    applier: Applier,
    nudge: Option<Arc<Notify>>,
    following: Option<JoinHandle<()>>,
    hash_key: [u8; 16],
}

impl Reload {
    /// Follows the policies in another directory, or in none, from a revision on.
    fn follow(&mut self, directory: Option<(PathBuf, Revision)>) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
        let source = directory.map(|(directory, revision)| Files::new(directory).after(revision));
        self.nudge = source.as_ref().map(Files::nudge);
        let applier = self.applier.clone();
        let source = source.map(PolicySource::Files);
        self.following = source.map(|source| tokio::spawn(follow(source, applier)));
    }

    async fn run(mut self, mut hangup: tokio::signal::unix::Signal) {
        while hangup.recv().await.is_some() {
            let reloading = tokio::task::spawn_blocking(move || {
                self.reload();
                self
            });
            match reloading.await {
                Ok(reload) => self = reload,
                Err(error) => {
                    tracing::error!(%error, "reloading failed; SIGHUP is not heeded any more");
                    return;
                }
            }
        }
    }

    fn reload(&mut self) {
        let taken_on = self.take_on();
        self.applier.sight.own().config_reloaded(taken_on);
    }

    /// Takes on what the configuration says now; false if it cannot be used.
    fn take_on(&mut self) -> bool {
        let (new, warnings) = match Config::read(self.path.as_deref()).usable() {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "the configuration cannot be used; the last good one stays");
                return false;
            }
        };
        for warning in warnings {
            tracing::warn!(%warning, "configuration");
        }
        let rules = match settings::auth_rules(&new, self.reviews.clone()) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::error!(%error, "the configuration cannot be used; the last good one stays");
                return false;
            }
        };
        // Another mode needs a restart; until then the objects come from where they came from.
        let from_api = self.applier.from_api;
        let from_files = !from_api && new.mode == config::Mode::Files;
        let directory = new.flow_control.policies.clone();
        let moved = from_files && directory != self.config.flow_control.policies;
        let documents = directory.as_deref().filter(|_| moved);
        let documents = documents.map(files::load).map(Arc::new);
        let revision = documents.as_ref().map(|set| set.revision.clone());
        let policy = settings::policy(&new, self.hash_key);
        let (applied, findings) = self.applier.apply(|compiling| {
            compiling.settings = policy;
            compiling.bootstrap = bootstrap_of(from_api, &new, compiling.documents.as_deref());
            if moved {
                compiling.documents = documents;
            }
        });
        tell(applied, &findings);
        if !applied {
            return false;
        }
        self.rules.store(Arc::new(rules));
        self.applier.hub.configure(settings::hub(&new));
        if moved {
            self.follow(directory.zip(revision));
        } else if let Some(nudge) = &self.nudge {
            nudge.notify_one();
        }
        for key in self.config.restart_needed_for(&new) {
            tracing::warn!(%key, "this key changed; it takes effect after a restart");
        }
        self.config = new;
        applied
    }
}
