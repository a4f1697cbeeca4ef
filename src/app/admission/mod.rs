//! Admission policies in front of an upstream: where they come from, and what is known of the upstream for them.

pub mod admission_log;
pub(super) mod admission_recorder;
pub(super) mod type_checks;

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use self::admission_recorder::LoggingRecorder;
use super::{
    ServeError, access_reviews,
    hosted_api::{HostedApi, upstream_resources::UpstreamResources},
    policies::last_good::{StateDirectory, name_of_files},
    settings::{self, UpstreamClients},
};
use fairgate_admission::{
    AdmissionMode, AdmissionRecorder, ClusterObjects, Fidelity, PolicySetSource,
};
use fairgate_admission_cluster::{
    ClusterSettings, FollowedCluster, KeepPolicies, KindSchemas, PolicyPublisher, PublishingStatus,
    UpstreamPolicies, prepare,
};
use fairgate_admission_layer::{
    ClusterState, PublishedPolicies, RequestEvaluator, RequestEvaluatorSettings, WorkerPool,
};
use fairgate_apihttp::authorize::Authorizer;
use fairgate_apiserver::GatewayAdmission;
use fairgate_base::{clock::Clock, tasks};
use fairgate_config::{AdmissionReads, AdmissionSource, Config};
use fairgate_core::finding::summary;
use fairgate_objects::kind::Kind;
use fairgate_observe::{GatewayMetrics, HealthChecks, Telemetry, catalogue};
use fairgate_policy_sources::{
    AdmissionFiles, AdmissionStore, LastGoodOrigin, Originals, PolicyArea, PolicyDocument,
    PolicyDocuments, PolicySource, log_finding,
};
use fairgate_upstream::{access_review::AccessReviews, client::ApiClient};

/// What requests are evaluated by in front of an upstream, whether they are forwarded or about hosted objects.
pub(super) struct UpstreamAdmission {
    mode: AdmissionMode,
    /// The policies in force; none until their source has been read.
    published: Arc<PublishedPolicies>,
    /// What is known of the upstream.
    state: Arc<FollowedCluster>,
    access: AccessReviews,
    recorder: Arc<dyn AdmissionRecorder>,
    workers: Arc<WorkerPool>,
}

impl UpstreamAdmission {
    /// What is configured; `None` if requests are not evaluated. Requests to the upstream run on `control`.
    ///
    /// # Errors
    ///
    /// The audit log cannot be opened.
    pub(super) fn new(
        config: &Config,
        clients: &UpstreamClients,
        clock: &Clock,
        metrics: &Arc<GatewayMetrics>,
        control: &Handle,
    ) -> Result<Option<Self>, ServeError> {
        let Some(mode) = config.admission.mode.filter(|_| config.has_upstream) else {
            return Ok(None);
        };
        let half_of_cores = settings::cores(config).get().div_ceil(2);
        let workers = config.admission.workers;
        let workers = workers.map_or(half_of_cores, |workers| workers.get() as usize);
        let workers = Arc::new(WorkerPool::new(workers));
        Ok(Some(Self {
            mode,
            workers: Arc::clone(&workers),
            published: Arc::default(),
            state: FollowedCluster::start(ClusterSettings {
                client: clients.reviews.clone(),
                streams: clients.streams.clone(),
                control: control.clone(),
                clock: clock.clone(),
                workers,
                reads_now: config.admission.reads == AdmissionReads::Consistent,
            }),
            access: access_reviews::reviews(config, clients, clock, metrics, control),
            recorder: LoggingRecorder::start(&config.admission.audit, clock, metrics)?,
        }))
    }

    /// What writes to hosted objects are evaluated by.
    pub(super) fn of_hosted_objects(&self) -> GatewayAdmission {
        GatewayAdmission {
            mode: self.mode,
            policies: Arc::clone(&self.published) as Arc<dyn PolicySetSource>,
            cluster: Arc::clone(&self.state) as Arc<dyn ClusterObjects>,
            resources: Arc::new(UpstreamResources(Arc::clone(&self.state))),
            authorizer: Authorizer::Upstream(self.access.clone()),
            recorder: Arc::clone(&self.recorder),
        }
    }

    /// The kinds of the upstream with their fields; `own` are those that the gateway hosts.
    pub(super) fn kind_schemas(&self, own: Vec<&'static Kind>) -> KindSchemas {
        self.state.kind_schemas(own)
    }

    /// Evaluates forwarded requests.
    fn evaluator(
        &self,
        config: &Config,
        client: ApiClient,
        clock: &Clock,
    ) -> Arc<RequestEvaluator> {
        RequestEvaluator::new(RequestEvaluatorSettings {
            mode: self.mode,
            policies: Arc::clone(&self.published),
            cluster: Arc::clone(&self.state) as Arc<dyn ClusterState>,
            recorder: Arc::clone(&self.recorder),
            access: self.access.clone(),
            client,
            body_budget: usize::try_from(config.admission.body_budget).unwrap_or(usize::MAX),
            guard: config.admission.guard,
            workers: Arc::clone(&self.workers),
            clock: clock.clone(),
        })
    }
}

/// The policies of a gateway that evaluates forwarded requests.
pub(super) struct AdmissionPolicies {
    published: Arc<PublishedPolicies>,
    evaluator: Arc<RequestEvaluator>,
    state: Arc<FollowedCluster>,
    status: Arc<PublishingStatus>,
    source: ConfiguredPolicies,
    fidelity: Fidelity,
    max_staleness: Option<Duration>,
    /// The name of the files, in what is kept of them; `None` if the policies come from elsewhere.
    files: Option<String>,
    clock: Clock,
}

/// The configured source.
enum ConfiguredPolicies {
    /// The files, and the last good policies if those of the files have errors.
    Files(AdmissionFiles, Option<PolicyDocuments>),
    Hosted(AdmissionStore),
    Upstream(UpstreamPolicies),
}

impl PolicySource for ConfiguredPolicies {
    type Set = PolicyDocuments;

    async fn next(&mut self) -> PolicyDocuments {
        match self {
            Self::Files(files, last_good) => match last_good.take() {
                Some(documents) => documents,
                None => files.next().await,
            },
            Self::Hosted(stored) => stored.next().await,
            Self::Upstream(followed) => followed.next().await,
        }
    }
}

impl AdmissionPolicies {
    /// The policies of the configured source; `None` if requests are not evaluated.
    ///
    /// # Errors
    ///
    /// All findings, if the policies in files are invalid and there are no last good ones in `state`.
    pub(super) fn new(
        config: &Config,
        hosting: Option<&HostedApi>,
        evaluating: Option<UpstreamAdmission>,
        clients: &UpstreamClients,
        clock: &Clock,
        state: &StateDirectory,
    ) -> Result<Option<Self>, ServeError> {
        let Some(evaluating) = evaluating else {
            return Ok(None);
        };
        let fidelity = config.admission.fidelity;
        let files = AdmissionFiles::new(config.admission.files.clone(), clock.clone());
        let is_files = config.admission.source == AdmissionSource::Files;
        let name = is_files.then(|| name_of_files(&config.admission.files));
        let last_good = match &name {
            Some(name) => usable_files(&files, name, fidelity, state)?,
            None => None,
        };
        let up_to_date = || Duration::ZERO;
        let (source, status) = match (config.admission.source, hosting) {
            (AdmissionSource::Hosted, Some(hosting)) => {
                let stored = AdmissionStore::new(Arc::clone(&hosting.store), clock.clone());
                // The health of the store has metrics and a check of its own.
                let silence = stored.silence();
                let status = PublishingStatus::with_silence(clock.clone(), up_to_date, silence);
                (ConfiguredPolicies::Hosted(stored), status)
            }
            (AdmissionSource::Upstream, _) => {
                let enforces = evaluating.mode == AdmissionMode::Enforce;
                let max = config.admission.max_staleness;
                let followed = UpstreamPolicies::start(&evaluating.state, enforces, max);
                let (age, unconfirmed) = (followed.age(), followed.unconfirmed());
                let status = PublishingStatus::with_silence(clock.clone(), age, unconfirmed);
                (ConfiguredPolicies::Upstream(followed), status)
            }
            // Validation of the configuration refuses hosted policies without an API that hosts them.
            (AdmissionSource::Files | AdmissionSource::Hosted, _) => {
                evaluating.published.expect_files();
                let silence = files.silence();
                let status = PublishingStatus::with_silence(clock.clone(), up_to_date, silence);
                (ConfiguredPolicies::Files(files, last_good), status)
            }
        };
        let evaluator = evaluating.evaluator(config, clients.reviews.clone(), clock);
        Ok(Some(Self {
            published: evaluating.published,
            evaluator,
            state: evaluating.state,
            status,
            source,
            fidelity,
            max_staleness: config.admission.max_staleness,
            files: name,
            clock: clock.clone(),
        }))
    }

    /// Evaluates forwarded requests by these policies.
    pub(super) fn evaluator(&self) -> Arc<RequestEvaluator> {
        Arc::clone(&self.evaluator)
    }

    /// Adds the policies to the health checks.
    pub(super) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        let (status, state) = (Arc::clone(&self.status), Arc::clone(&self.state));
        checks.note("admission", move || {
            match (status.problem(), state.problem()) {
                (Some(policies), Some(cluster)) => Some(format!("{policies}; {cluster}")),
                (policies, cluster) => policies.or(cluster),
            }
        })
    }

    /// Registers the metrics.
    pub(super) fn register_metrics(&self, telemetry: &Telemetry) {
        let metrics = telemetry.metrics();
        let status = Arc::clone(&self.status);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics.observe_gauge(&catalogue::ADMISSION_POLICIES, move || {
            status.policies() as f64
        });
        let status = Arc::clone(&self.status);
        metrics.observe_gauge(&catalogue::ADMISSION_POLICIES_AGE, move || {
            status.age().as_secs_f64()
        });
        let evaluator = Arc::clone(&self.evaluator);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics.observe_gauge(&catalogue::ADMISSION_BODIES, move || {
            evaluator.held_bytes().now as f64
        });
        let evaluator = Arc::clone(&self.evaluator);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics.observe_gauge(&catalogue::ADMISSION_BODIES_PEAK, move || {
            evaluator.held_bytes().most as f64
        });
        let (status, state) = (Arc::clone(&self.status), Arc::clone(&self.state));
        metrics.observe_gauge(&catalogue::ADMISSION_SYNCED, move || {
            let problem = status.problem().or_else(|| state.problem());
            f64::from(u8::from(problem.is_none()))
        });
    }

    /// Publishes the policies from now on. To be called inside the control runtime.
    pub(super) fn start(self, control: &Handle, state: &StateDirectory) {
        let keep = self.keep(control, state);
        let publisher = PolicyPublisher {
            published: self.published,
            state: self.state,
            fidelity: self.fidelity,
            status: self.status,
            max_staleness: self.max_staleness,
            keep,
        };
        tasks::spawn(control, publisher.run(self.source));
    }

    /// Keeps the policies of files that come into force, if there is a directory for them.
    fn keep(&self, control: &Handle, state: &StateDirectory) -> Option<KeepPolicies> {
        let name = self.files.clone()?;
        let keeper = state.keeper(PolicyArea::Admission, control)?;
        let clock = self.clock.clone();
        Some(Box::new(move |documents| {
            keeper.keep(&name, Originals::Documents(Arc::new(documents)), &clock);
        }))
    }
}

/// The last good policies if those of the files have errors.
///
/// # Errors
///
/// All findings, if there are no last good ones that can be used.
fn usable_files(
    files: &AdmissionFiles,
    name: &str,
    fidelity: Fidelity,
    state: &StateDirectory,
) -> Result<Option<PolicyDocuments>, ServeError> {
    let Err(findings) = prepare(files.load(), fidelity) else {
        return Ok(None);
    };
    let Some(set) = state.last_good(PolicyArea::Admission, name) else {
        return Err(ServeError::Policies(findings));
    };
    let (digest, age) = (set.digest.clone(), state.age(&set));
    let documents = set.documents.into_iter().map(|document| PolicyDocument {
        origin: format!("{} (last good)", document.origin),
        object: document.object,
    });
    let documents = PolicyDocuments {
        documents: documents.collect(),
        findings: Vec::new(),
        are_files: true,
        last_good: Some(LastGoodOrigin {
            digest: digest.clone(),
            saved_at: set.saved_at,
        }),
    };
    if let Err(errors) = prepare(documents.clone(), fidelity) {
        errors.iter().for_each(log_finding);
        tracing::warn!(%digest, "the last good admission policies cannot be used: they have errors");
        return Err(ServeError::Policies(findings));
    }
    tracing::warn!(
        source = name, why = summary(&findings), %digest, age = format!("{age}s"),
        "the last good admission policies are in force until their files have no errors"
    );
    Ok(Some(documents))
}
