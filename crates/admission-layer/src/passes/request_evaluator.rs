//! What all data cores share.

use std::{fmt, sync::Arc, time::Duration};

use fairgate_apihttp::authorize::Authorizer;
use fairgate_base::{
    account::{ByteBudget, BytesHeld},
    clock::Clock,
    log_limit::LogLimit,
};
use fairgate_core::sync::{Mutex, lock};
use fairgate_upstream::{access_review::AccessReviews, client::ApiClient};

use crate::{
    cluster::cluster_state::ClusterState, cluster::known_revisions::KnownRevisions,
    cluster::published::PublishedPolicies, limits::waiting_places::WaitingPlaces,
    limits::workers::WorkerPool, upstream::definitions::CustomDefinitions,
    upstream::upstream_objects::UpstreamReader,
};
use fairgate_admission::{AdmissionMode, AdmissionRecorder};

/// How long a request waits until the policies are known, as in kube-apiserver, and for its resource to be.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// What an [`RequestEvaluator`] needs.
#[derive(Debug)]
pub struct RequestEvaluatorSettings {
    /// What happens to verdicts.
    pub mode: AdmissionMode,
    /// The policies in force.
    pub policies: Arc<PublishedPolicies>,
    /// What is known of the cluster.
    pub cluster: Arc<dyn ClusterState>,
    /// Who gets the records of evaluated requests.
    pub recorder: Arc<dyn AdmissionRecorder>,
    /// Answers `authorizer.….check(…)`, and whether the user of a refused request was allowed to make it.
    pub access: AccessReviews,
    /// Makes the gateway's own requests.
    pub client: ApiClient,
    /// How many bytes of bodies, stored objects, and of decoded ones that wait, a data core may hold for evaluating.
    pub body_budget: usize,
    /// Whether writes that were evaluated by the stored object become conditional on it.
    pub guard: bool,
    /// The threads for large bodies and costly policies.
    pub workers: Arc<WorkerPool>,
    /// The clock.
    pub clock: Clock,
}

/// Evaluates forwarded requests by policies, for all data cores.
pub struct RequestEvaluator {
    pub(crate) mode: AdmissionMode,
    pub(crate) policies: Arc<PublishedPolicies>,
    pub(crate) cluster: Arc<dyn ClusterState>,
    pub(crate) recorder: Arc<dyn AdmissionRecorder>,
    pub(crate) authorizer: Authorizer,
    pub(crate) upstream: UpstreamReader,
    pub(crate) definitions: Arc<CustomDefinitions>,
    body_budget: usize,
    /// Those of all data cores.
    budgets: Mutex<Vec<Arc<ByteBudget>>>,
    pub(crate) guard: bool,
    pub(crate) clock: Clock,
    pub(crate) workers: Arc<WorkerPool>,
    /// How long a request waits until the policies, or its resource, are known.
    pub(crate) ready_limit: Duration,
    pub(crate) failures: LogLimit,
    /// Revisions of the upstream.
    pub(crate) revisions: KnownRevisions,
    /// Requests that wait for discovery.
    pub(crate) waiting: Arc<WaitingPlaces>,
}

impl RequestEvaluator {
    /// An evaluator for one upstream.
    pub fn new(settings: RequestEvaluatorSettings) -> Arc<Self> {
        let workers = settings.workers;
        Arc::new(Self {
            mode: settings.mode,
            policies: settings.policies,
            cluster: settings.cluster,
            recorder: settings.recorder,
            authorizer: Authorizer::Upstream(settings.access),
            upstream: UpstreamReader::new(settings.client, Arc::clone(&workers)),
            definitions: Arc::default(),
            body_budget: settings.body_budget,
            budgets: Mutex::default(),
            // Only what is enforced can be guarded.
            guard: settings.guard && settings.mode == AdmissionMode::Enforce,
            clock: settings.clock,
            workers,
            ready_limit: READY_LIMIT,
            failures: LogLimit::new(10),
            revisions: KnownRevisions::default(),
            waiting: Arc::default(),
        })
    }

    /// The budget of another data core.
    pub(crate) fn new_budget(&self) -> Arc<ByteBudget> {
        let budget = ByteBudget::new(self.body_budget);
        lock(&self.budgets).push(Arc::clone(&budget));
        budget
    }

    /// The bytes that all data cores hold for evaluating, and the most that one of them ever held. The latter never exceeds
    /// [`RequestEvaluatorSettings::body_budget`].
    pub fn held_bytes(&self) -> BytesHeld {
        let held = lock(&self.budgets)
            .iter()
            .map(|budget| budget.held())
            .collect::<Vec<_>>();
        BytesHeld {
            now: held.iter().map(|held| held.now).sum(),
            most: held.iter().map(|held| held.most).max().unwrap_or(0),
        }
    }
}

impl fmt::Debug for RequestEvaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestEvaluator")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
