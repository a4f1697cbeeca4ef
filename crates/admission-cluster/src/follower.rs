//! Follows the objects of one kind by list and watch.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use fairgate_admission::PolicyParamKind;
use fairgate_base::{
    clock::Clock,
    tasks::{self, AbortOnDrop},
};
use fairgate_upstream::{
    client::ApiClient,
    informer::{
        ApiResource, Informer, InformerSettings, RetryPauses, WatchError, WatchHealth, Whole,
    },
};
use tokio::runtime::Handle;

use crate::{
    discovery::ResourceDiscovery,
    objects::{KeptForm, KindObjects},
    resources::ServedKind,
};

/// The pause before a kind is looked for again that the upstream does not serve any more.
const ABSENT_PAUSE: Duration = Duration::from_secs(1);
/// The pause before objects are listed again that take too much memory.
const LARGE_PAUSE: Duration = Duration::from_secs(60);

/// What followers need.
#[derive(Clone)]
pub(crate) struct FollowSettings {
    /// A client with a connection for each request.
    pub(crate) streams: ApiClient,
    pub(crate) control: Handle,
    pub(crate) clock: Clock,
    pub(crate) discovery: Arc<ResourceDiscovery>,
    /// When what is asked for.
    pub(crate) informer: InformerSettings,
}

/// The pauses after failures. They stay short: who lists a few objects again each second is no load for a server, and what
/// is not known meanwhile may be a policy.
pub(crate) const SHORT_PAUSES: RetryPauses =
    RetryPauses::new(Duration::from_millis(100), Duration::from_secs(1));

/// For objects of which there may be many.
pub(crate) const USUAL: InformerSettings = InformerSettings {
    watch_seconds: 120,
    progress_within: None,
    relisted_every: None,
    pauses: SHORT_PAUSES,
};

/// For objects that nobody may miss for long. One bookmark may be missing. A server that sends none is asked for a list each minute;
/// so is a kube-apiserver without news of etcd, as it sends no bookmark with the revision at which the watch began.
pub(crate) const CLOSELY: InformerSettings = InformerSettings {
    watch_seconds: 30,
    progress_within: Some(Duration::from_secs(62)),
    ..USUAL
};

/// What is followed.
#[derive(Clone, Debug)]
pub(crate) enum FollowedKind {
    /// A resource that every server has.
    Known(ApiResource),
    /// The first of these kinds that the upstream serves.
    FirstServed(Vec<PolicyParamKind>),
    /// A kind of params. Once it was served, and then is not any more, there are no objects of it, as in a server, which
    /// goes on with what it knows of the kind while policies need it.
    Params(PolicyParamKind),
}

impl FollowedKind {
    fn kinds(&self) -> &[PolicyParamKind] {
        match self {
            Self::Known(_) => &[],
            Self::FirstServed(kinds) => kinds,
            Self::Params(kind) => std::slice::from_ref(kind),
        }
    }
}

/// Follows the objects of one kind until it is dropped.
pub(crate) struct Follower<T> {
    pub(crate) objects: Arc<KindObjects<T>>,
    pub(crate) health: Arc<WatchHealth>,
    /// What was last known of the kind; `None` until the upstream serves it.
    served: Arc<ArcSwapOption<ServedKind>>,
    _task: AbortOnDrop,
}

impl<T> fmt::Debug for Follower<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

impl<T: KeptForm> Follower<T> {
    /// Starts to follow `kind`, which messages call `what`.
    pub(crate) fn start(settings: &FollowSettings, kind: FollowedKind, what: &'static str) -> Self {
        let objects = Arc::new(KindObjects::default());
        let health = WatchHealth::new(settings.clock.clone(), what, "for admission");
        let served = Arc::<ArcSwapOption<ServedKind>>::default();
        let following = Following {
            settings: settings.clone(),
            kind,
            objects: Arc::clone(&objects),
            health: Arc::clone(&health),
            served: Arc::clone(&served),
        };
        let task = tasks::spawn(&settings.control, following.run());
        Self {
            objects,
            health,
            served,
            _task: AbortOnDrop::new(task),
        }
    }

    /// The resource of the kind, and where its objects are, even if the upstream does not serve it any more.
    pub(crate) fn served(&self) -> Option<Arc<ServedKind>> {
        self.served.load_full()
    }

    /// Waits until the objects have been listed.
    pub(crate) async fn listed(&self) {
        let mut changes = self.objects.changes();
        // The sender is part of `objects`, which `self` holds.
        let _ = changes.wait_for(|changes| *changes > 0).await;
    }
}

struct Following<T> {
    settings: FollowSettings,
    kind: FollowedKind,
    objects: Arc<KindObjects<T>>,
    health: Arc<WatchHealth>,
    served: Arc<ArcSwapOption<ServedKind>>,
}

impl<T: KeptForm> Following<T> {
    async fn run(self) {
        loop {
            let resource = self.resource().await;
            let pause = self.watch(&resource).await;
            self.settings.discovery.miss();
            tokio::time::sleep(pause).await;
        }
    }

    /// The resource to watch. Waits until the upstream serves it.
    async fn resource(&self) -> ApiResource {
        if let FollowedKind::Known(resource) = &self.kind {
            return resource.clone();
        }
        let kinds = self.kind.kinds();
        let discovery = &self.settings.discovery;
        let mut readings = discovery.readings();
        loop {
            let is_read = *readings.borrow_and_update() > 0;
            let found = if let FollowedKind::Params(kind) = &self.kind {
                discovery.of_params(kind)
            } else {
                let table = discovery.table();
                let mut found = kinds.iter().filter_map(|kind| table.of_kind(kind));
                found.next().cloned()
            };
            if let Some(found) = found {
                let resource = found.0.clone();
                self.served.store(Some(Arc::new(found)));
                return resource;
            }
            if is_read {
                let names = kinds.iter().map(shown).collect::<Vec<_>>().join(" or ");
                let why = "the upstream does not serve this kind".to_owned();
                self.health.failed(&names, why, true);
                self.not_served();
                discovery.miss();
            }
            if readings.changed().await.is_err() {
                // Nobody reads the table any more: the gateway stops.
                std::future::pending::<()>().await;
            }
        }
    }

    fn not_served(&self) {
        let was_served = self.served.load().is_some();
        match &self.kind {
            FollowedKind::Params(_) if was_served => self.objects.vanish(),
            _ => self.objects.clear(),
        }
    }

    /// Follows the objects until that makes no sense any more. Returns the pause after which to look for the kind again.
    async fn watch(&self, resource: &ApiResource) -> Duration {
        let FollowSettings { streams, clock, .. } = &self.settings;
        let mut informer = Informer::<Whole>::new(
            streams.clone(),
            clock.clone(),
            resource.clone(),
            self.settings.informer.clone(),
            Arc::clone(&self.health),
        );
        let (api_version, kind) = (&resource.api_version, &resource.kind);
        loop {
            match informer.next().await {
                Ok(event) => {
                    if self.objects.take(api_version, kind, event).is_err() {
                        let why = "the objects take too much memory".to_owned();
                        self.health.failed(kind, why, false);
                        return LARGE_PAUSE;
                    }
                }
                // The upstream may be another one by now.
                Err(WatchError::Silent(_)) => return Duration::ZERO,
                Err(error) if error.is_absent() => return ABSENT_PAUSE,
                Err(_) => {}
            }
        }
    }
}

fn shown(kind: &PolicyParamKind) -> String {
    let PolicyParamKind { api_version, kind } = kind;
    format!("{api_version} {kind}")
}
