//! The hosted API of a gateway: its store, the tasks that maintain its objects, health and metrics.

pub(super) mod followed_budgets;
pub(super) mod followed_namespaces;
pub(super) mod hosted_budgets;
pub(super) mod stored_objects;
pub(super) mod upstream_resources;

use std::{
    path::Path,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use tokio::{runtime, sync::watch};

use self::{
    followed_budgets::FollowedBudgets, followed_namespaces::NamespaceFollower,
    hosted_budgets::HostedBudgets, stored_objects::StoredObjects,
};
use super::{followed_files::FollowedFiles, throttle::Throttle};
use fairgate_admission::kinds::{ADMISSION_KINDS, VALIDATING_ADMISSION_POLICY};
use fairgate_apihttp::authorize::{Authorizer, BuiltInRules};
use fairgate_apiserver::{
    AdminEndpoints, AdminFuture, AdminResponse, Hosted, HostedAdmission, HostedSettings,
    ServedSubresource,
    namespaces::Namespaces,
    reconcile::{Bootstrapper, ConditionWriter, PolicyKindSource, UnreachableSchema},
};
use fairgate_base::{clock::Clock, tasks};
use fairgate_call::ResponseMemory;
use fairgate_config::{self as config, AdmissionSource, Config, EvictionMode};
use fairgate_core::{
    apf::{
        objects::{Bootstrap, FLOW_SCHEMA},
        policy::is_unreachable,
    },
    finding::Finding,
};
use fairgate_disruption_controller::BudgetFeed;
use fairgate_eviction_layer::BudgetApi;
use fairgate_objects::{
    kind::Kind,
    kinds::{FLOW_CONTROL, FLOW_SCHEMA as FLOW_SCHEMA_KIND, KINDS, POD_DISRUPTION_BUDGET},
};
use fairgate_observe::{HealthChecks, OperatorEndpoints, Telemetry, catalogue};
use fairgate_policy_sources::store::SETTLE;
use fairgate_store::{HistoryLimits, Store, StoreError, StoreHealth, local};
use fairgate_upstream::{access_review::AccessReviews, client::ApiClient};

/// How often the built-in objects are checked, besides after every change.
pub(super) const ENSURE_INTERVAL: Duration = Duration::from_secs(60);
/// The pause before a retry after a failure.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often the store is compacted.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(10);
/// How long the start of the gateway waits for the store and the built-in objects in it.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits once the store has failed: it may be starting at the same moment.
const DEGRADED_START_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the health of the store is checked during that wait.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A store, and the files whose renewed contents it uses.
type OpenedStore = (Arc<dyn Store>, Option<FollowedFiles>);

/// Opens the configured store. Must be called within the control runtime.
pub(super) fn open_store(config: &Config, clock: &Clock) -> Result<OpenedStore, StoreError> {
    match &config.store {
        config::StoreConfig::Local { path } => Ok((Arc::new(open_local(path, clock)?), None)),
        config::StoreConfig::Etcd(etcd) => open_etcd(etcd, clock),
    }
}

fn open_local(path: &Path, clock: &Clock) -> Result<local::LocalStore, StoreError> {
    let settings = local::LocalSettings {
        path: path.to_owned(),
        limits: HistoryLimits::default(),
    };
    local::LocalStore::start(settings, clock.clone())
}

#[cfg(feature = "etcd")]
fn open_etcd(config: &config::EtcdConfig, clock: &Clock) -> Result<OpenedStore, StoreError> {
    use super::settings::etcd::{etcd_settings, followed_files};
    use fairgate_store::etcd::EtcdStore;
    let store = EtcdStore::start(&etcd_settings(config), clock.clone())?;
    let files = followed_files("store.etcd", config, store.connections());
    Ok((Arc::new(store), files))
}

#[cfg(not(feature = "etcd"))]
fn open_etcd(_: &config::EtcdConfig, _: &Clock) -> Result<OpenedStore, StoreError> {
    Err(super::settings::without_etcd())
}

/// The kinds that this gateway hosts.
///
/// Budgets of an upstream's pods are hosted only if this gateway enforces them: the upstream enforces its own
/// budgets and no others. Likewise admission policies: they are hosted if there is no upstream, or if they are those for
/// forwarded requests.
pub(super) fn hosted_kinds(config: &Config) -> Vec<&'static Kind> {
    let mut kinds = FLOW_CONTROL.to_vec();
    if !config.has_upstream || enforces_budgets(config) {
        kinds.push(&POD_DISRUPTION_BUDGET);
    }
    if !config.has_upstream || config.admission.source == AdmissionSource::Hosted {
        kinds.extend(ADMISSION_KINDS);
    }
    kinds
}

/// The subresources of the upstream's resources that this gateway serves.
fn served_subresources(config: &Config) -> Vec<ServedSubresource> {
    let eviction = ServedSubresource {
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "eviction",
        namespaced: true,
        kind: ["policy", "v1", "Eviction"],
        verbs: &["create"],
    };
    let serves_evictions = config.has_upstream && enforces_budgets(config);
    serves_evictions.then_some(eviction).into_iter().collect()
}

fn enforces_budgets(config: &Config) -> bool {
    config.eviction.mode == EvictionMode::Authoritative
}

/// The hosted API of this gateway.
#[derive(Clone)]
pub(super) struct HostedApi {
    pub(super) hosted: Arc<Hosted>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    budgets: HostedBudgets,
    /// Whether the namespaces of hosted objects are those of an upstream.
    in_upstream_namespaces: bool,
    /// What the expressions of policies are checked against; `None` if none are hosted.
    pub(super) checked_kinds: Option<Arc<dyn PolicyKindSource>>,
    bootstrap: Bootstrap,
    main_port: Arc<MainPortEndpoints>,
    /// Whether the built-in objects are known to be in the store.
    ensured: watch::Sender<bool>,
    /// The FlowSchemas that the policy in force can never match.
    unreachable: watch::Sender<Vec<UnreachableSchema>>,
}

impl HostedApi {
    /// An API over a store. Without `access`, its own rules authorize requests.
    pub(super) fn new(
        config: &Config,
        store: Arc<dyn Store>,
        access: Option<AccessReviews>,
        namespaces: Option<Arc<dyn Namespaces>>,
        (admission, responses): (HostedAdmission, &Arc<ResponseMemory>),
        clock: &Clock,
    ) -> Self {
        let main_port = Arc::new(MainPortEndpoints::default());
        let in_upstream_namespaces = namespaces.is_some();
        let hosted = Hosted::new(HostedSettings {
            kinds: hosted_kinds(config),
            subresources: served_subresources(config),
            namespaces,
            store: Arc::clone(&store),
            clock: clock.clone(),
            authorizer: match access {
                Some(access) => Authorizer::Upstream(access),
                None => Authorizer::BuiltIn(BuiltInRules {
                    readers: config.hosted_api.reader_groups.clone(),
                    kinds: hosted_kinds(config),
                }),
            },
            version: config.hosted_api.kubernetes_version.clone(),
            address: config.listen.address.to_string(),
            admission,
            admin: main_port.clone(),
            responses: Arc::clone(responses),
            body_bytes: usize::try_from(config.hosted_api.body_budget).unwrap_or(usize::MAX / 2),
            quotas: StoredObjects::quotas(&config.hosted_api.quota),
        });
        Self {
            budgets: HostedBudgets::new(Arc::clone(&hosted), clock.clone()),
            hosted,
            store,
            clock: clock.clone(),
            in_upstream_namespaces,
            checked_kinds: None,
            bootstrap: config.flow_control.bootstrap,
            main_port,
            ensured: watch::Sender::new(false),
            unreachable: watch::Sender::default(),
        }
    }

    /// Checks the expressions of hosted policies against the kinds of this source.
    pub(super) fn check_against(&mut self, kinds: impl FnOnce() -> Arc<dyn PolicyKindSource>) {
        let has_policies = self.hosted.has(&VALIDATING_ADMISSION_POLICY);
        self.checked_kinds = has_policies.then(kinds);
    }

    /// The hosted budgets, for evictions; `None` if there are none.
    pub(super) fn budgets(&self) -> Option<Arc<dyn BudgetApi>> {
        let budgets = self.budgets.clone();
        let has_budgets = self.hosted.has(&POD_DISRUPTION_BUDGET);
        has_budgets.then(|| Arc::new(budgets) as Arc<dyn BudgetApi>)
    }

    /// The hosted budgets, for the disruption controller; `None` if there are none.
    pub(super) fn budget_feed(&self) -> Option<Arc<dyn BudgetFeed>> {
        let budgets = FollowedBudgets {
            budgets: self.budgets.clone(),
            store: Arc::clone(&self.store),
        };
        let has_budgets = self.hosted.has(&POD_DISRUPTION_BUDGET);
        has_budgets.then(|| Arc::new(budgets) as Arc<dyn BudgetFeed>)
    }

    /// Whether the store is known to have all built-in objects. Until then a policy compiled from its
    /// objects may lack some.
    pub(super) fn is_complete(&self) -> bool {
        *self.ensured.borrow()
    }

    /// Completes once [`is_complete`](Self::is_complete).
    pub(super) async fn completed(&self) {
        // It ends at the latest with its sender, which is here.
        let _ = self.ensured.subscribe().wait_for(|ensured| *ensured).await;
    }

    /// Waits for the store for a bounded time, and stores the built-in objects. If that fails, the gateway
    /// starts with the built-in policy, and keeps trying.
    pub(super) async fn prepare(&self) {
        let mut bootstrapper = Bootstrapper::new(Arc::clone(&self.hosted), self.bootstrap);
        let work = async {
            if self.store.wait_for(1).await.is_err() {
                return;
            }
            while let Err(error) = bootstrapper.ensure().await {
                tracing::debug!(%error, "the built-in objects are not in the store yet");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            self.ensured.send_replace(true);
        };
        tokio::select! {
            () = work => {}
            () = self.start_timeout() => {
                let why = self
                    .problem()
                    .unwrap_or_else(|| "it does not respond".to_owned());
                tracing::error!(%why, "the store is not available; the built-in objects are in force until it is");
            }
        }
    }

    /// Completes when the gateway should no longer wait for the store.
    async fn start_timeout(&self) {
        let begun = self.clock.now();
        loop {
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
            let limit = match self.store.health() {
                StoreHealth::Degraded(_) => DEGRADED_START_TIMEOUT,
                StoreHealth::Unread
                | StoreHealth::Ready
                | StoreHealth::Impaired(_)
                | StoreHealth::ReadOnly(_) => START_TIMEOUT,
            };
            if self.clock.now().since(begun) >= limit {
                return;
            }
        }
    }

    /// The failure of the store, if reads or writes fail.
    pub(super) fn problem(&self) -> Option<String> {
        problem(&*self.store)
    }

    /// Serves metrics, health checks and dumps on the main port, too.
    pub(super) fn serve_on_main_port(&self, view: &Arc<OperatorEndpoints>) {
        let _ = self.main_port.0.set(Arc::downgrade(view));
    }

    /// Adds the store to the health checks.
    pub(super) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        let store = Arc::clone(&self.store);
        checks.note("store", move || {
            let consequence = match store.health() {
                StoreHealth::Impaired(why) => {
                    return Some(format!("{why}; objects can be read and changed"));
                }
                StoreHealth::ReadOnly(_) => "objects can be read and deleted, and not changed",
                _ => "the last good policy stays in force",
            };
            problem(&*store).map(|why| format!("{why}; {consequence}"))
        })
    }

    /// Registers the metrics of the store, and returns what counts its objects.
    ///
    /// The metrics do not own the API: it owns the recorder of admission policies, which owns the metrics.
    pub(super) fn register_metrics(&self, telemetry: &Telemetry) -> StoredObjects {
        let metrics = telemetry.metrics();
        let store = Arc::clone(&self.store);
        metrics.observe_gauge(&catalogue::STORE_UP, move || {
            f64::from(u8::from(problem(&*store).is_none()))
        });
        let store = Arc::clone(&self.store);
        #[expect(clippy::cast_precision_loss, reason = "a few at most")]
        metrics.observe_gauge(&catalogue::STORE_MEMBERS_AWAY, move || {
            store.members_away() as f64
        });
        let store = Arc::clone(&self.store);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics.observe_gauge(&catalogue::STORE_REVISION, move || {
            store.cached_revision() as f64
        });
        let ensured = self.ensured.subscribe();
        metrics.observe_gauge(&catalogue::BOOTSTRAP_ENSURED, move || {
            f64::from(u8::from(*ensured.borrow()))
        });
        let kinds = [&KINDS[..], &ADMISSION_KINDS].concat();
        StoredObjects::register(metrics, &self.store, &self.hosted, kinds)
    }

    /// Starts the tasks that maintain the objects and the store. The upstream's namespaces are followed through
    /// `streams`. To be called inside the control runtime.
    pub(super) fn start(&self, control: &runtime::Handle, streams: &ApiClient) {
        tasks::spawn(control, self.clone().keep_bootstrap());
        tasks::spawn(control, self.clone().keep_conditions());
        tasks::spawn(control, self.clone().maintain());
        if self.in_upstream_namespaces && self.hosted.has(&POD_DISRUPTION_BUDGET) {
            let (hosted, clock) = (Arc::clone(&self.hosted), self.clock.clone());
            let namespaces = NamespaceFollower::new(hosted, streams.clone(), clock);
            tasks::spawn(control, namespaces.run());
        }
    }

    /// Passes findings about the objects to the task that writes status conditions.
    pub(super) fn report_findings(&self, findings: &[Finding]) {
        let unreachable: Vec<UnreachableSchema> = findings
            .iter()
            .filter(|finding| finding.kind == FLOW_SCHEMA && is_unreachable(finding))
            .map(|finding| UnreachableSchema {
                schema: finding.name.clone(),
                unreachable: finding.message.clone(),
            })
            .collect();
        self.unreachable.send_replace(unreachable);
    }

    /// Ensures that the built-in objects exist, after every change and every minute.
    async fn keep_bootstrap(self) {
        let mut bootstrapper = Bootstrapper::new(Arc::clone(&self.hosted), self.bootstrap);
        let mut failures = RepeatedFailure::default();
        loop {
            // The watch starts before the objects are read, so that no change in between is missed.
            let change = self.change();
            let pace = Throttle::begin(&self.clock);
            let outcome;
            (bootstrapper, outcome) = tasks::on_blocking_pool(async move {
                let outcome = bootstrapper.ensure().await;
                (bootstrapper, outcome)
            })
            .await;
            let pause = match outcome {
                Ok(()) => {
                    self.ensured.send_replace(true);
                    failures.ended();
                    ENSURE_INTERVAL
                }
                Err(error) => {
                    if failures.is_new(&error) {
                        tracing::warn!(%error, "cannot maintain the built-in objects");
                    }
                    RETRY_DELAY
                }
            };
            pace.rest().await;
            let _ = tokio::time::timeout(pause, change).await;
        }
    }

    /// Completes shortly after a policy object has changed since this call; it may be awaited later.
    fn change(&self) -> impl Future<Output = ()> + Send + use<> {
        self.change_below(&FLOW_SCHEMA_KIND.group_prefix())
    }

    /// Completes shortly after an object has changed whose key begins with `prefix`.
    pub(super) fn change_below(&self, prefix: &str) -> impl Future<Output = ()> + Send + use<> {
        let watch = self.store.watch(prefix, self.store.cached_revision());
        async move {
            let changed = match watch {
                Ok(mut watch) => watch.next().await.is_ok(),
                Err(_) => false,
            };
            tokio::time::sleep(if changed { SETTLE } else { RETRY_DELAY }).await;
        }
    }

    /// Writes the status conditions, after every change.
    async fn keep_conditions(self) {
        let mut conditions = ConditionWriter::new(Arc::clone(&self.hosted), self.clock.clone());
        let mut unreachable = self.unreachable.subscribe();
        let mut failures = RepeatedFailure::default();
        if self.store.wait_for(1).await.is_err() {
            return;
        }
        loop {
            let known = unreachable.borrow_and_update().clone();
            // The watch starts before the objects are read, so that no change in between is missed.
            let change = self.change();
            let pace = Throttle::begin(&self.clock);
            let outcome;
            (conditions, outcome) = tasks::on_blocking_pool(async move {
                let outcome = conditions.reconcile(&known).await;
                (conditions, outcome)
            })
            .await;
            let pause = match outcome {
                Ok(is_complete) => {
                    failures.ended();
                    if is_complete {
                        ENSURE_INTERVAL
                    } else {
                        RETRY_DELAY * 30
                    }
                }
                Err(error) => {
                    if failures.is_new(&error) {
                        tracing::warn!(%error, "cannot write status conditions");
                    }
                    RETRY_DELAY
                }
            };
            pace.rest().await;
            tokio::select! {
                () = change => {}
                _ = unreachable.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Compressing large objects that nobody uses, and freeing what was decoded from them, takes long: not on the control thread.
    async fn maintain(self) {
        let control = runtime::Handle::current();
        loop {
            tokio::time::sleep(COMPACTION_INTERVAL).await;
            let (store, now) = (Arc::clone(&self.store), self.clock.now());
            let maintained =
                tasks::spawn_on_blocking_pool(&control, async move { store.maintain(now).await });
            if let Ok(Err(error)) = maintained.await {
                tracing::debug!(%error, "cannot compact the store; trying again later");
            }
        }
    }
}

/// The failure of a task that tries again every second. It is logged once, not every second of an outage.
#[derive(Default)]
pub(super) struct RepeatedFailure(String);

impl RepeatedFailure {
    /// Whether this failure differs from the one before.
    pub(super) fn is_new(&mut self, error: &impl ToString) -> bool {
        let text = error.to_string();
        let is_new = self.0 != text;
        self.0 = text;
        is_new
    }

    /// The task has succeeded.
    pub(super) fn ended(&mut self) {
        self.0.clear();
    }
}

fn problem(store: &dyn Store) -> Option<String> {
    match store.health() {
        StoreHealth::Ready | StoreHealth::Impaired(_) => None,
        StoreHealth::Unread => Some("not read yet".to_owned()),
        StoreHealth::ReadOnly(why) | StoreHealth::Degraded(why) => Some(why.to_string()),
    }
}

/// The operator endpoints on the main port, once the gateway runs. Weak, because the endpoints hold the
/// store, and the API would hold both in a reference cycle; the admin port owns them.
#[derive(Default)]
struct MainPortEndpoints(OnceLock<Weak<OperatorEndpoints>>);

impl AdminEndpoints for MainPortEndpoints {
    fn ask<'a>(&'a self, path: &'a str, query: &'a str, reasons: bool) -> AdminFuture<'a> {
        Box::pin(async move {
            let found = self.0.get()?.upgrade()?.get(path, query, reasons).await?;
            Some(AdminResponse {
                status: found.status,
                content_type: found.content_type,
                text: found.text,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::PathBuf, process};

    use bytes::Bytes;

    use super::*;
    use fairgate_core::time::Time;
    use fairgate_store::Precondition;

    /// The time after which a test that hangs fails.
    const HANG: Duration = Duration::from_secs(30);

    /// A directory that is removed when dropped.
    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Self {
            let name = format!("fairgate-hosting-{test}-{}", process::id());
            let directory = Self(env::temp_dir().join(name));
            fs::create_dir_all(&directory.0).unwrap();
            directory
        }
    }

    fn hosting(directory: &Directory, clock: &Clock) -> HostedApi {
        let text = b"apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\n";
        let reading = Config::parse("test.yaml", &directory.0, text);
        let (config, _) = reading.usable().unwrap();
        let store = open_local(&directory.0.join("store.redb"), clock).unwrap();
        HostedApi::new(
            &config,
            Arc::new(store),
            None,
            None,
            (HostedAdmission::Off, &ResponseMemory::new(64 << 20)),
            clock,
        )
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn a_change_between_watching_and_awaiting_is_not_missed() {
        let directory = Directory::new("change");
        let hosting = hosting(&directory, &Clock::system());
        hosting.store.wait_for(1).await.unwrap();

        // For example, a client deletes an object that was just read.
        let change = hosting.change();
        let value = Some(Bytes::from_static(b"x"));
        let key = format!("{}x", FLOW_SCHEMA_KIND.key_prefix());
        let written = hosting.store.write(&key, Precondition::Absent, value);
        written.await.unwrap();
        tokio::time::timeout(HANG, change).await.unwrap();
    }

    #[tokio::test]
    async fn the_start_does_not_wait_long_for_a_store_that_is_known_to_fail() {
        let directory = Directory::new("degraded");
        fs::write(directory.0.join("store.redb"), "not a store".repeat(1000)).unwrap();
        let clock = Clock::manual(Time::ZERO);
        let hosting = hosting(&directory, &clock);
        let timeout = hosting.start_timeout();
        let work = async {
            while !matches!(hosting.store.health(), StoreHealth::Degraded(_)) {
                tokio::task::yield_now().await;
            }
            clock.advance(DEGRADED_START_TIMEOUT);
        };
        let both = async { tokio::join!(timeout, work) };
        tokio::time::timeout(HANG, both).await.unwrap();
    }
}
