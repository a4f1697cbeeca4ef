//! Compiles what a source yields, and publishes it when what the policies need is known.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use fairgate_admission::Fidelity;
use fairgate_admission_layer::{ForwardedPolicies, PublishedPolicies};
use fairgate_base::{background, tasks};
use fairgate_core::{
    finding::{Finding, Severity, summary},
    time::Time,
};
use fairgate_policy_sources::{PolicyDocument, PolicyDocuments, PolicySource, documents_digest};

use crate::{
    policy_documents::{PreparedPolicies, prepare},
    publishing_status::{PublishingStatus, ValidSetId},
    state::{ClusterNeeds, FollowedCluster},
};

/// How long new policies wait for their params. Those in force stay until then.
pub(crate) const PARAMS_LIMIT: Duration = Duration::from_millis(500);
/// How often it is checked whether requests still use policies that are no longer in force.
const RETIRED_CHECK: Duration = Duration::from_millis(100);
/// How often it is checked whether the policies in force are certain to be those of their source.
const CONFIRMATION: Duration = Duration::from_millis(100);

/// Publishes the policies of a source.
pub struct PolicyPublisher {
    /// Where they are published.
    pub published: Arc<PublishedPolicies>,
    /// What they need.
    pub state: Arc<FollowedCluster>,
    /// The fidelity of policies without annotation.
    pub fidelity: Fidelity,
    /// What is reported about it.
    pub status: Arc<PublishingStatus>,
    /// For how long requests may be evaluated by policies that are not certain to be those of the source; `None`: for any time.
    pub max_staleness: Option<Duration>,
    /// What keeps the policies for the next start; `None`: nothing does.
    pub keep: Option<KeepPolicies>,
}

/// Is called with the documents of each valid set, also of one that waits for what it needs: with an upstream that is away, a
/// restart must not lose it. Must not block.
pub type KeepPolicies = Box<dyn Fn(Vec<PolicyDocument>) + Send + Sync>;

/// Valid policies that wait for what they need.
struct ValidSet {
    prepared: PreparedPolicies,
    id: ValidSetId,
    /// Whether they are the newest of their source; otherwise the newest are invalid.
    is_current: bool,
}

impl fmt::Debug for PolicyPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyPublisher").finish_non_exhaustive()
    }
}

impl PolicyPublisher {
    /// Publishes each set of `feed`, until it is dropped. To be called inside the control runtime.
    pub async fn run(self, feed: impl PolicySource<Set = PolicyDocuments>) {
        let confirming = async {
            match self.max_staleness {
                None => std::future::pending().await,
                Some(max) => self.confirm(max).await,
            }
        };
        tokio::select! {
            biased;
            () = confirming => {}
            () = self.publish(feed) => {}
        }
    }

    /// Says again and again until when the policies in force may be used: where this is not said any more, they may not be.
    async fn confirm(&self, max: Duration) {
        let mut ticks = tokio::time::interval(CONFIRMATION);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Until the first set is published, no policies are in force that could be too old.
        let (mut until, mut was_fresh) = (self.status.now().plus(max), true);
        loop {
            let now = self.status.now();
            if let Some(staleness) = self.status.staleness() {
                // What was said before holds for the same policies, too.
                let left = max.checked_sub(staleness);
                until = left.map_or(Time::ZERO, |left| now.plus(left)).max(until);
            }
            self.published.usable_until(until);
            if was_fresh != (now <= until) {
                was_fresh = now <= until;
                if was_fresh {
                    tracing::info!("the admission policies are confirmed again");
                } else {
                    tracing::error!(
                        "the admission policies have not been confirmed for admission.policies.maxStaleness; writes are refused until they are"
                    );
                }
            }
            ticks.tick().await;
        }
    }

    async fn publish(&self, mut feed: impl PolicySource<Set = PolicyDocuments>) {
        let mut logged = LoggedFindings::default();
        let mut in_force = ClusterNeeds::default();
        let mut waiting: Option<ValidSet> = None;
        loop {
            let newer = if waiting.is_none() {
                Some(feed.next().await)
            } else {
                tokio::select! {
                    biased;
                    newer = feed.next() => Some(newer),
                    () = self.ready() => None,
                }
            };
            if let Some(documents) = newer {
                self.status.received();
                if let Some(newer) = self.prepare(documents, &mut logged).await {
                    // Until the new policies are in force, the old ones need what they needed.
                    self.state.follow(&in_force.or(&newer.prepared.needs));
                    self.status.waits(newer.id.clone());
                    waiting = Some(newer);
                } else if let Some(older) = &mut waiting {
                    // The last good policies come into force, although they have not been yet.
                    older.is_current = false;
                }
            } else if let Some(valid) = waiting.take() {
                in_force = self.put_in_force(valid);
            }
        }
    }

    /// Publishes policies. Returns what they need.
    fn put_in_force(&self, valid: ValidSet) -> ClusterNeeds {
        let PreparedPolicies {
            policies, needs, ..
        } = valid.prepared;
        let count = policies.set.len();
        let retired = self.published.publish(policies);
        tasks::spawn(&tokio::runtime::Handle::current(), freed(retired));
        let digest = valid.id.digest.clone().unwrap_or_default();
        if valid.is_current {
            self.status.published(valid.id);
        } else {
            self.status.published_last_good(valid.id);
        }
        tracing::info!(policies = count, %digest, "admission policies applied");
        self.state.follow(&needs);
        needs
    }

    /// Waits until what the policies need is known: the namespaces, and the params for a short time.
    async fn ready(&self) {
        self.state.namespaces_listed().await;
        // Params that cannot be listed are an error of the binding.
        let _ = tokio::time::timeout(PARAMS_LIMIT, self.state.params_listed()).await;
    }

    /// Compiles a set in the background, and keeps it if it is the newest of its source. `None` if it is invalid.
    async fn prepare(
        &self,
        documents: PolicyDocuments,
        logged: &mut LoggedFindings,
    ) -> Option<ValidSet> {
        let fidelity = self.fidelity;
        let is_current = documents.last_good.is_none();
        // Those of the last good set are kept already.
        let is_kept = self.keep.is_some() && is_current;
        let originals = is_kept.then(|| documents.documents.clone());
        let preparing = move || {
            let id = id_of(&documents);
            prepare(documents, fidelity).map(|prepared| (prepared, id))
        };
        let why = match background::run(preparing).await {
            Ok(Ok((prepared, mut id))) => {
                logged.log(&prepared.findings);
                if let (Some(keep), Some(originals)) = (&self.keep, originals) {
                    keep(originals);
                }
                id.policies = prepared.policies.set.len();
                return Some(ValidSet {
                    prepared,
                    id,
                    is_current,
                });
            }
            Ok(Err(findings)) => {
                logged.log(&findings);
                summary(&findings)
            }
            Err(error) => format!("they cannot be compiled: {error}"),
        };
        let digest = self.status.digest().unwrap_or_default();
        tracing::error!(
            %why, %digest,
            "the admission policies are invalid; the last good ones stay in force"
        );
        self.status.rejected(why);
        None
    }
}

/// What health checks call a set. Of an API, which names revisions and not digests, there is no digest.
fn id_of(documents: &PolicyDocuments) -> ValidSetId {
    let last_good = documents.last_good.as_ref();
    let digest = match last_good {
        Some(origin) => Some(origin.digest.clone()),
        None => (documents.are_files).then(|| documents_digest(&documents.documents)),
    };
    ValidSetId {
        policies: 0,
        digest,
        kept_at: last_good.map(|origin| origin.saved_at),
    }
}

/// Frees policies in the background once no request uses them: those of a large set would keep a data core for
/// milliseconds.
async fn freed(retired: Option<Arc<ForwardedPolicies>>) {
    let Some(retired) = retired else {
        return;
    };
    while Arc::strong_count(&retired) > 1 {
        tokio::time::sleep(RETIRED_CHECK).await;
    }
    let _ = background::run(move || drop(retired)).await;
}

/// The findings of the last set, so that the same ones are logged once.
// Not the `LoggedWarnings` of flow control: errors are logged once here, too, and the version of an object makes a finding another one.
#[derive(Debug, Default)]
struct LoggedFindings(BTreeSet<String>);

impl LoggedFindings {
    fn log(&mut self, findings: &[Finding]) {
        let mut now = BTreeSet::new();
        for finding in findings {
            let text = finding.to_string();
            if !self.0.contains(&text) {
                match finding.severity {
                    Severity::Error => tracing::error!("{text}"),
                    Severity::Warning => tracing::warn!("{text}"),
                }
            }
            now.insert(text);
        }
        self.0 = now;
    }
}
