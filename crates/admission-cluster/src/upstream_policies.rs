//! The policies and bindings of the upstream, followed by watch.

use std::{sync::Arc, time::Duration};

use fairgate_admission::PolicyParamKind;
use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_policy_sources::{PolicyDocument, PolicyDocuments, PolicySource};
use fairgate_upstream::informer::{InformerSettings, WatchHealth};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    follower::{CLOSELY, FollowedKind, Follower},
    resources::text,
    state::FollowedCluster,
};

/// The kinds, with what messages call their objects.
const KINDS: [(&str, &str); 2] = [
    ("ValidatingAdmissionPolicy", "policies"),
    ("ValidatingAdmissionPolicyBinding", "bindings"),
];

/// The versions, preferred first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// A change is reported when no event has arrived for this long, but after [`BURST`] at the latest.
const QUIET: Duration = Duration::from_millis(50);
/// The longest time for which a change waits for others.
pub(crate) const BURST: Duration = Duration::from_millis(400);

/// The policies and bindings of an upstream.
pub struct UpstreamPolicies {
    kinds: [FollowedPolicies; 2],
    clock: Clock,
    /// Whether something changed since the last set.
    has_changed: bool,
    taken: Arc<Mutex<TakenSet>>,
    /// Whether to warn if the upstream seems to process policies itself.
    warns_of_enforcement: bool,
}

/// What the last set is made of.
struct TakenSet {
    /// The number of changes that are part of it; `None` once there are others.
    changes: Option<u64>,
    /// It has everything that there was at this time.
    listed: Time,
}

struct FollowedPolicies {
    follower: Follower<Arc<Value>>,
    changes: watch::Receiver<u64>,
}

impl std::fmt::Debug for UpstreamPolicies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamPolicies").finish_non_exhaustive()
    }
}

impl UpstreamPolicies {
    /// Starts to follow the policies of the upstream of `state`. With `warns_of_enforcement`, it logs a warning if the
    /// upstream seems to enforce them itself. With `max_staleness`, the policies are listed again every third of that.
    pub fn start(
        state: &FollowedCluster,
        warns_of_enforcement: bool,
        max_staleness: Option<Duration>,
    ) -> Self {
        let mut following = state.following().clone();
        following.informer = InformerSettings {
            relisted_every: max_staleness.map(|max| max / 3),
            ..CLOSELY
        };
        let kinds = KINDS.map(|(kind, what)| {
            let versions = VERSIONS.map(|version| PolicyParamKind {
                api_version: format!("admissionregistration.k8s.io/{version}"),
                kind: kind.to_owned(),
            });
            let kind = FollowedKind::FirstServed(versions.to_vec());
            let follower = Follower::start(&following, kind, what);
            let changes = follower.objects.changes();
            FollowedPolicies { follower, changes }
        });
        Self {
            kinds,
            clock: following.clock,
            has_changed: false,
            taken: Arc::new(Mutex::new(TakenSet {
                changes: None,
                listed: Time::ZERO,
            })),
            warns_of_enforcement,
        }
    }

    /// Reads the time since both kinds were up to date.
    pub fn age(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        let health = self.kinds.each_ref().map(FollowedPolicies::health);
        move || {
            health
                .each_ref()
                .map(|one| one.age())
                .into_iter()
                .max()
                .unwrap_or_default()
        }
    }

    /// Reads for how long it has not been certain that the last set has everything: since the older one of the last lists of both kinds
    /// was asked for, of those before the set if something has changed since. An open watch is no proof, even if something arrives on
    /// it.
    pub fn unconfirmed(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        let health = self.kinds.each_ref().map(FollowedPolicies::health);
        let changes = self.kinds.each_ref().map(|kind| kind.changes.clone());
        let (taken, clock) = (Arc::clone(&self.taken), self.clock.clone());
        move || {
            // Before the changes: those of a list are counted before it is complete.
            let listed = listed_at(&health);
            let taken = lock(&taken);
            let has_all = taken.changes == Some(total(&changes));
            clock
                .now()
                .since(if has_all { listed } else { taken.listed })
        }
    }

    /// Waits for a change of either kind.
    async fn changed(&mut self) {
        let [policies, bindings] = &mut self.kinds;
        // The senders are part of the followers.
        tokio::select! {
            _ = policies.changes.changed() => {}
            _ = bindings.changes.changed() => {}
        }
    }

    fn is_listed(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.all(|kind| kind.follower.objects.is_listed())
    }

    /// The controller of a server that enforces policies writes their status.
    fn warn_of_enforcement(&mut self, objects: &[Arc<Value>]) {
        let is_processed =
            |object: &&Arc<Value>| object["status"]["observedGeneration"].is_number();
        let Some(processed) = objects.iter().find(is_processed) else {
            return;
        };
        if std::mem::take(&mut self.warns_of_enforcement) {
            tracing::warn!(
                policy = text(&processed["metadata"]["name"]),
                "the upstream processes this policy, so it probably enforces policies itself: each would be enforced twice; set admission.mode to off or audit"
            );
        }
    }
}

/// When the older one of the last lists of both kinds was asked for.
fn listed_at(health: &[Arc<WatchHealth>; 2]) -> Time {
    let [policies, bindings] = health.each_ref().map(|one| one.listed_at());
    policies.min(bindings)
}

/// The number of changes of both kinds. One that is not served any more begins anew.
fn total(changes: &[watch::Receiver<u64>; 2]) -> u64 {
    changes.iter().map(|of| *of.borrow()).sum()
}

impl FollowedPolicies {
    fn health(&self) -> Arc<WatchHealth> {
        Arc::clone(&self.follower.health)
    }
}

impl PolicySource for UpstreamPolicies {
    type Set = PolicyDocuments;

    async fn next(&mut self) -> PolicyDocuments {
        loop {
            while !(self.has_changed && self.is_listed()) {
                self.changed().await;
                self.has_changed = true;
                lock(&self.taken).changes = None;
            }
            let burst =
                async { while tokio::time::timeout(QUIET, self.changed()).await.is_ok() {} };
            let _ = tokio::time::timeout(BURST, burst).await;
            // The upstream may have stopped to serve a kind meanwhile.
            if self.is_listed() {
                break;
            }
        }
        self.has_changed = false;
        let changes = self.kinds.each_ref().map(|kind| kind.changes.clone());
        *lock(&self.taken) = TakenSet {
            listed: listed_at(&self.kinds.each_ref().map(FollowedPolicies::health)),
            changes: Some(total(&changes)),
        };
        let mut documents = Vec::new();
        for (at, (_, what)) in KINDS.into_iter().enumerate() {
            let objects = self.kinds[at].follower.objects.all("");
            self.warn_of_enforcement(&objects);
            documents.extend(objects.iter().map(|object| {
                let name = text(&object["metadata"]["name"]);
                let version = text(&object["metadata"]["resourceVersion"]);
                PolicyDocument {
                    origin: format!("{what} {name} of the upstream at {version}"),
                    object: Value::clone(object),
                }
            }));
        }
        PolicyDocuments {
            documents,
            findings: Vec::new(),
            are_files: false,
            last_good: None,
        }
    }
}
