//! Admission policies for forwarded requests: where they come from, and what is known of the upstream for them.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::{
    ServeError, access_reviews,
    admission_recorder::LoggingRecorder,
    hosted_api::HostedApi,
    settings::{self, UpstreamClients},
};
use crate::{
    config::{AdmissionSource, Config},
    observe::{GatewayMetrics, HealthChecks, Telemetry, catalogue},
    source::{admission_files::AdmissionFiles, admission_store::AdmissionStore},
};
use fairgate_admission::{AdmissionMode, AdmissionRecorder, Fidelity};
use fairgate_admitter::{Admitter, AdmitterSettings, ClusterState, PublishedPolicies};
use fairgate_base::clock::Clock;
use fairgate_cluster::{
    ClusterSettings, FollowedCluster, PolicyDocuments, PolicyFeed, PolicyPublisher,
    PublishingStatus, UpstreamPolicies,
};
use fairgate_upstream::{access_review::AccessReviews, client::ApiClient};

/// The policies of a gateway that judges forwarded requests.
pub(super) struct AdmissionPolicies {
    /// The policies in force; none until their source has been read.
    pub(super) published: Arc<PublishedPolicies>,
    admitter: Arc<Admitter>,
    /// What is known of the upstream.
    pub(super) state: Arc<FollowedCluster>,
    status: Arc<PublishingStatus>,
    source: ConfiguredPolicies,
    fidelity: Fidelity,
}

/// The configured source.
enum ConfiguredPolicies {
    Files(AdmissionFiles),
    Hosted(AdmissionStore),
    Upstream(UpstreamPolicies),
}

impl PolicyFeed for ConfiguredPolicies {
    async fn next(&mut self) -> PolicyDocuments {
        match self {
            Self::Files(files) => files.next().await,
            Self::Hosted(stored) => stored.next().await,
            Self::Upstream(followed) => followed.next().await,
        }
    }
}

impl AdmissionPolicies {
    /// What is configured; `None` if forwarded requests are not judged. Requests to the upstream run on `control`.
    ///
    /// # Errors
    ///
    /// All findings, if the policies in files are invalid.
    pub(super) fn new(
        config: &Config,
        hosting: Option<&HostedApi>,
        clients: &UpstreamClients,
        clock: &Clock,
        metrics: &Arc<GatewayMetrics>,
        control: &Handle,
    ) -> Result<Option<Self>, ServeError> {
        let Some(mode) = config.admission.mode.filter(|_| config.has_upstream) else {
            return Ok(None);
        };
        let fidelity = config.admission.fidelity;
        let files = AdmissionFiles::new(config.admission.files.clone());
        if config.admission.source == AdmissionSource::Files {
            let prepared = files.load().prepare(fidelity);
            prepared.map_err(ServeError::Policies)?;
        }
        let state = FollowedCluster::start(ClusterSettings {
            client: clients.reviews.clone(),
            streams: clients.streams.clone(),
            control: control.clone(),
            clock: clock.clone(),
        });
        if let Some(hosting) = hosting {
            hosting.param_resources.set(&state);
        }
        let up_to_date = || Duration::ZERO;
        let (source, status) = match (config.admission.source, hosting) {
            (AdmissionSource::Hosted, Some(hosting)) => {
                let stored = AdmissionStore::new(Arc::clone(&hosting.store));
                // The health of the store has metrics and a check of its own.
                let status = PublishingStatus::new(clock.clone(), up_to_date);
                (ConfiguredPolicies::Hosted(stored), status)
            }
            (AdmissionSource::Upstream, _) => {
                let enforces = mode == AdmissionMode::Enforce;
                let followed = UpstreamPolicies::start(&state, enforces);
                let status = PublishingStatus::new(clock.clone(), followed.age());
                (ConfiguredPolicies::Upstream(followed), status)
            }
            // Validation of the configuration refuses hosted policies without an API that hosts them.
            (AdmissionSource::Files | AdmissionSource::Hosted, _) => {
                let status = PublishingStatus::new(clock.clone(), up_to_date);
                (ConfiguredPolicies::Files(files), status)
            }
        };
        let published = Arc::default();
        let recorder = LoggingRecorder::start(&config.admission.audit, clock, metrics)?;
        let upstream = (
            access_reviews::reviews(config, clients, clock, metrics, control),
            clients.reviews.clone(),
        );
        let admitter = new_admitter(config, mode, &published, &state, upstream, recorder, clock);
        Ok(Some(Self {
            published,
            admitter,
            state,
            status,
            source,
            fidelity,
        }))
    }

    /// Judges forwarded requests by these policies.
    pub(super) fn admitter(&self) -> Arc<Admitter> {
        Arc::clone(&self.admitter)
    }

    /// Adds the policies to the health checks.
    pub(super) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        let (status, state) = (Arc::clone(&self.status), Arc::clone(&self.state));
        checks.note("admission", move || {
            status.problem().or_else(|| state.problem())
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
        let (status, state) = (Arc::clone(&self.status), Arc::clone(&self.state));
        metrics.observe_gauge(&catalogue::ADMISSION_SYNCED, move || {
            let problem = status.problem().or_else(|| state.problem());
            f64::from(u8::from(problem.is_none()))
        });
    }

    /// Publishes the policies from now on. To be called inside the control runtime.
    pub(super) fn start(self, control: &Handle) {
        let publisher = PolicyPublisher {
            published: self.published,
            state: self.state,
            fidelity: self.fidelity,
            status: self.status,
        };
        control.spawn(publisher.run(self.source));
    }
}

/// Judges requests by the policies that are published, in a cluster that is followed.
fn new_admitter(
    config: &Config,
    mode: AdmissionMode,
    published: &Arc<PublishedPolicies>,
    state: &Arc<FollowedCluster>,
    (access, client): (AccessReviews, ApiClient),
    recorder: Arc<dyn AdmissionRecorder>,
    clock: &Clock,
) -> Arc<Admitter> {
    let workers = config.admission.workers;
    let half_of_cores = settings::cores(config).get().div_ceil(2);
    Admitter::new(AdmitterSettings {
        mode,
        policies: Arc::clone(published),
        cluster: Arc::clone(state) as Arc<dyn ClusterState>,
        recorder,
        access,
        client,
        body_budget: usize::try_from(config.admission.body_budget).unwrap_or(usize::MAX),
        guard: config.admission.guard,
        workers: workers.map_or(half_of_cores, |workers| workers.get() as usize),
        clock: clock.clone(),
    })
}
