//! Compiles what a source yields, and publishes it when what the policies need is known.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use fairgate_admission::Fidelity;
use fairgate_admission_layer::{ForwardedPolicies, PublishedPolicies};
use fairgate_base::{background, clock::Clock, tasks};
use fairgate_core::{
    finding::{Finding, Severity},
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_policy_sources::{PolicyDocument, PolicyDocuments, PolicySource};

use crate::{
    policy_documents::{PreparedPolicies, prepare},
    state::{ClusterNeeds, FollowedCluster},
};

/// How long new policies wait for their params. Those in force stay until then.
pub(crate) const PARAMS_LIMIT: Duration = Duration::from_millis(500);
/// How often it is checked whether requests still use policies that are no longer in force.
const RETIRED_CHECK: Duration = Duration::from_millis(100);
/// A source that was up to date a shorter time ago counts as up to date.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is checked whether the policies in force are certain to be those of their source.
const CONFIRMATION: Duration = Duration::from_millis(100);

/// Reads how long ago a source was up to date; zero while it is.
type ReadAge = Box<dyn Fn() -> Duration + Send + Sync>;

/// Whether the policies in force are those of their source.
pub struct PublishingStatus {
    clock: Clock,
    source_age: ReadAge,
    /// How long ago the source was last heard of.
    source_silence: ReadAge,
    state: Mutex<PublishingState>,
}

struct PublishingState {
    /// The number of policies in force; `None` until there are any published.
    policies: Option<usize>,
    /// Since when the policies in force are not those of the source.
    behind_since: Option<Time>,
    /// Whether the last set was invalid.
    is_rejected: bool,
}

impl fmt::Debug for PublishingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishingStatus")
            .field("policies", &self.policies())
            .finish_non_exhaustive()
    }
}

impl PublishingStatus {
    /// The status of a source that was up to date `source_age` ago.
    pub fn new(
        clock: Clock,
        source_age: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with_silence(clock, source_age, || Duration::ZERO)
    }

    /// The same of a source that was last heard of `source_silence` ago. It may be up to date although it says nothing.
    pub fn with_silence(
        clock: Clock,
        source_age: impl Fn() -> Duration + Send + Sync + 'static,
        source_silence: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        let began = clock.now();
        Arc::new(Self {
            clock,
            source_age: Box::new(source_age),
            source_silence: Box::new(source_silence),
            state: Mutex::new(PublishingState {
                policies: None,
                behind_since: Some(began),
                is_rejected: false,
            }),
        })
    }

    /// The number of policies in force, with a binding.
    pub fn policies(&self) -> usize {
        lock(&self.state).policies.unwrap_or_default()
    }

    /// For how long the policies in force have not been those of their source; zero while they are.
    pub fn age(&self) -> Duration {
        let behind = lock(&self.state).behind_since;
        let behind = behind.map(|since| self.clock.now().since(since));
        behind.unwrap_or_default().max((self.source_age)())
    }

    /// For how long it has not been certain that the policies in force are those of their source; `None` while a newer set is known that
    /// is not in force.
    fn staleness(&self) -> Option<Duration> {
        let silence = (self.source_silence)();
        let is_current = lock(&self.state).behind_since.is_none();
        is_current.then(|| silence.max((self.source_age)()))
    }

    /// Why the policies in force are not those of their source; `None` if they are, or were a moment ago.
    pub fn problem(&self) -> Option<String> {
        let age = self.age();
        let state = lock(&self.state);
        if !state.is_rejected && age < GRACE {
            return None;
        }
        let seconds = age.as_secs();
        let now = match state.policies {
            None => "no policies are in force yet, and requests that may be subject to them wait",
            Some(_) => "the last good policies stay in force",
        };
        let why = if state.is_rejected {
            "invalid"
        } else {
            "not up to date"
        };
        Some(format!("{why} for {seconds} s; {now}"))
    }

    /// A set has arrived. Until it is published, the age is at least what it was, although the source has nothing more to tell.
    fn received(&self) {
        let changed = self.clock.now().minus(self.age());
        lock(&self.state).behind_since.get_or_insert(changed);
    }

    fn rejected(&self) {
        lock(&self.state).is_rejected = true;
    }

    /// Policies came into force that are not the newest of their source, because those are invalid.
    fn published_last_good(&self, policies: usize) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        state.policies = Some(policies);
        state.behind_since.get_or_insert(now);
        state.is_rejected = true;
    }

    fn published(&self, policies: usize) {
        *lock(&self.state) = PublishingState {
            policies: Some(policies),
            behind_since: None,
            is_rejected: false,
        };
    }
}

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

/// Is called with the documents of each set that comes into force. Must not block.
pub type KeepPolicies = Box<dyn Fn(Vec<PolicyDocument>) + Send + Sync>;

/// Valid policies that wait for what they need.
struct ValidSet {
    prepared: PreparedPolicies,
    /// The documents as they were, if they are to be kept.
    originals: Option<Vec<PolicyDocument>>,
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
        let (mut until, mut was_fresh) = (self.status.clock.now().plus(max), true);
        loop {
            let now = self.status.clock.now();
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
        if valid.is_current {
            self.status.published(count);
        } else {
            self.status.published_last_good(count);
        }
        tracing::info!(policies = count, "admission policies applied");
        if let (Some(keep), Some(originals)) = (&self.keep, valid.originals) {
            keep(originals);
        }
        self.state.follow(&needs);
        needs
    }

    /// Waits until what the policies need is known: the namespaces, and the params for a short time.
    async fn ready(&self) {
        self.state.namespaces_listed().await;
        // Params that cannot be listed are an error of the binding.
        let _ = tokio::time::timeout(PARAMS_LIMIT, self.state.params_listed()).await;
    }

    /// Compiles a set in the background. `None` if it is invalid.
    async fn prepare(
        &self,
        documents: PolicyDocuments,
        logged: &mut LoggedFindings,
    ) -> Option<ValidSet> {
        let fidelity = self.fidelity;
        let is_current = !documents.are_last_good;
        // Those of the last good set are kept already.
        let is_kept = self.keep.is_some() && is_current;
        let originals = is_kept.then(|| documents.documents.clone());
        let prepared = background::run(move || prepare(documents, fidelity)).await;
        match prepared {
            Ok(Ok(prepared)) => {
                logged.log(&prepared.findings);
                Some(ValidSet {
                    prepared,
                    originals,
                    is_current,
                })
            }
            Ok(Err(findings)) => {
                self.status.rejected();
                logged.log(&findings);
                tracing::error!(
                    "the admission policies are invalid; the last good ones stay in force"
                );
                None
            }
            Err(error) => {
                tracing::error!(%error, "the admission policies cannot be compiled; the last good ones stay in force");
                self.status.rejected();
                None
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_since_when_policies_are_behind_and_why() {
        let clock = Clock::manual(Time::ZERO);
        let status = PublishingStatus::new(clock.clone(), || Duration::ZERO);
        clock.advance(Duration::from_secs(3));
        let problem = "not up to date for 3 s; no policies are in force yet, and requests that may be subject to them wait";
        assert_eq!(status.problem().as_deref(), Some(problem));
        status.published(2);
        assert_eq!(
            (status.age(), status.problem(), status.policies()),
            (Duration::ZERO, None, 2)
        );
        status.received();
        status.rejected();
        clock.advance(Duration::from_secs(4));
        let problem = "invalid for 4 s; the last good policies stay in force";
        assert_eq!(status.problem().as_deref(), Some(problem));
        assert_eq!(status.policies(), 2);
        status.published(1);
        assert_eq!(status.problem(), None);
    }

    #[test]
    fn last_good_policies_in_force_do_not_hide_that_the_source_is_invalid() {
        let clock = Clock::manual(Time::ZERO);
        let status = PublishingStatus::new(clock.clone(), || Duration::ZERO);
        clock.advance(Duration::from_secs(3));
        status.published_last_good(2);
        let problem = "invalid for 3 s; the last good policies stay in force";
        assert_eq!(status.problem().as_deref(), Some(problem));
        assert_eq!((status.policies(), status.staleness()), (2, None));
        status.received();
        status.rejected();
        assert_eq!(status.problem().as_deref(), Some(problem));
        status.published(1);
        assert_eq!(status.problem(), None);
    }

    #[test]
    fn until_a_set_is_published_its_age_counts_from_the_change() {
        let clock = Clock::manual(Time::ZERO);
        let behind = Arc::new(Mutex::new(Duration::ZERO));
        let source = Arc::clone(&behind);
        let status = PublishingStatus::new(clock.clone(), move || *lock(&source));
        status.published(1);
        // The source could not be read for ten minutes. What it yields then is not published at once.
        clock.advance(Duration::from_secs(600));
        *lock(&behind) = Duration::from_secs(600);
        status.received();
        *lock(&behind) = Duration::ZERO;
        clock.advance(Duration::from_secs(2));
        assert_eq!(status.age(), Duration::from_secs(602));
        status.published(2);
        assert_eq!(status.age(), Duration::ZERO);
    }
}
