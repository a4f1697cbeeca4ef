//! Follows the objects of one kind by list and watch.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use fairgate_admission::{ParamScope, PolicyParamKind};
use fairgate_base::{clock::Clock, tasks};
use fairgate_core::time::Time;
use fairgate_upstream::{
    client::ApiClient,
    kube_transport::KubeTransport,
    watch_error::WatchError,
    watched_object::{WatchedObject, Whole},
};
use futures_util::StreamExt as _;
use kube::{
    Api,
    core::ApiResource,
    runtime::{
        WatchStreamExt as _,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{
    discovery::ResourceDiscovery,
    objects::{KeptForm, KindObjects},
    watch_health::WatchHealth,
};

/// After how many seconds the upstream should end a watch, which is then opened again.
const WATCH_SECONDS: u32 = 120;
/// How long after that a watch counts as dead on which nothing has arrived: it is given up, and the objects are listed again.
const DEAD_AFTER: Duration = Duration::from_secs(1);
/// For how many times the time between lists one may take.
const RELISTS: u32 = 3;
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
    /// How often objects are listed again although they are watched: an open watch does not prove that nothing is missing. `None`: never.
    pub(crate) relisted_every: Option<Duration>,
}

/// The pauses after failures. They stay short: who lists a few objects again each second is no load for a server, and what
/// is not known meanwhile may be a policy.
#[derive(Debug)]
struct ShortPauses(Duration);

impl ShortPauses {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(1);
}

impl Default for ShortPauses {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

impl Iterator for ShortPauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (2 * pause).min(Self::LONGEST);
        Some(pause)
    }
}

impl Backoff for ShortPauses {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

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

/// The resource of a kind, and where its objects are.
type ServedKind = (ApiResource, ParamScope);

/// Follows the objects of one kind until it is dropped.
pub(crate) struct Follower<T> {
    pub(crate) objects: Arc<KindObjects<T>>,
    pub(crate) health: Arc<WatchHealth>,
    /// What was last known of the kind; `None` until the upstream serves it.
    served: Arc<ArcSwapOption<ServedKind>>,
    task: AbortHandle,
}

impl<T> Drop for Follower<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
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
        let health = WatchHealth::new(settings.clock.clone(), what);
        let served = Arc::<ArcSwapOption<ServedKind>>::default();
        let following = Following {
            settings: settings.clone(),
            kind,
            objects: Arc::clone(&objects),
            health: Arc::clone(&health),
            served: Arc::clone(&served),
        };
        let task = tasks::spawn(&settings.control, following.run()).abort_handle();
        Self {
            objects,
            health,
            served,
            task,
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
            let found = {
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

    /// Follows the objects until that makes no sense any more. Returns the pause after which to try again.
    async fn watch(&self, resource: &ApiResource) -> Duration {
        loop {
            if let Some(pause) = self.list_and_watch(resource).await {
                return pause;
            }
        }
    }

    /// Whether the objects are to be listed again that were listed at this time. A list is not given up while it could still count.
    fn is_due(&self, listed: Time, is_complete: bool) -> bool {
        let age = self.settings.clock.now().since(listed);
        let every = self.settings.relisted_every;
        every.is_some_and(|every| age > if is_complete { every } else { RELISTS * every })
    }

    /// Lists and watches the objects. Returns the pause after which to look for the kind again, and `None` if they are to be listed
    /// again at once.
    async fn list_and_watch(&self, resource: &ApiResource) -> Option<Duration> {
        let FollowSettings { streams, clock, .. } = &self.settings;
        let health = Arc::clone(&self.health);
        let client = KubeTransport::new(streams.clone(), clock.clone(), health).into_client();
        let api = Api::<WatchedObject<Whole>>::all_with(client, resource);
        let settings = watcher::Config::default().timeout(WATCH_SECONDS);
        let pauses = ShortPauses::default();
        let mut events = watcher(api, settings).backoff(pauses).boxed();
        let silence = Duration::from_secs(WATCH_SECONDS.into()) + DEAD_AFTER;
        let (api_version, kind) = (&resource.api_version, &resource.kind);
        let (mut listed, mut is_complete) = (clock.now(), false);
        loop {
            if self.is_due(listed, is_complete) {
                return None;
            }
            let event = match tokio::time::timeout(DEAD_AFTER, events.next()).await {
                Ok(Some(event)) => event,
                Ok(None) => return Some(ABSENT_PAUSE),
                Err(_) if self.health.silence() > silence && self.health.is_open() => {
                    let why = format!("nothing was received for {} s", silence.as_secs());
                    self.health.failed(kind, why, false);
                    return Some(Duration::ZERO);
                }
                Err(_) => continue,
            };
            match event.map_err(WatchError::from) {
                Ok(event) => {
                    let is_list = matches!(event, Event::InitDone);
                    match event {
                        // The list is asked for after this.
                        Event::Init => (listed, is_complete) = (clock.now(), false),
                        _ => is_complete |= is_list,
                    }
                    if self.objects.take(api_version, kind, event).is_err() {
                        let why = "the objects take too much memory".to_owned();
                        self.health.failed(kind, why, false);
                        return Some(LARGE_PAUSE);
                    }
                    if is_list {
                        self.health.listed(listed);
                    }
                }
                // The watch begins again with a list.
                Err(WatchError::Refused { code: 410, .. }) => {}
                Err(error) => {
                    let is_final = matches!(error, WatchError::Refused { code, .. }
                        if (400..500).contains(&code) && ![408, 429].contains(&code));
                    self.health.failed(kind, error.to_string(), is_final);
                    if matches!(error, WatchError::Refused { code: 404, .. }) {
                        return Some(ABSENT_PAUSE);
                    }
                }
            }
        }
    }
}

fn shown(kind: &PolicyParamKind) -> String {
    let PolicyParamKind { api_version, kind } = kind;
    format!("{api_version} {kind}")
}
