//! Follows the objects of one kind by list and watch.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use fairgate_admission::PolicyParamKind;
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
    resources::ServedKind,
    watch_health::WatchHealth,
};

/// How long after its end a watch counts as dead on which nothing has arrived: it is given up, and the objects are listed again.
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
    pub(crate) watches: WatchTimes,
}

/// How long watches are open, and may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchTimes {
    /// After how many seconds the upstream should end a watch, which is then opened again where it ended, without a list. A
    /// kube-apiserver sends a bookmark once a minute, and two seconds before that end.
    pub(crate) seconds: u32,
    /// After how long without an event, a bookmark or a list the objects are listed again, although watches are opened and end in time.
    /// `None`: never.
    pub(crate) told_within: Option<Duration>,
}

impl WatchTimes {
    /// For objects of which there may be many.
    pub(crate) const USUAL: Self = Self {
        seconds: 120,
        told_within: None,
    };
    /// For objects that nobody may miss for long. One bookmark may be missing. A server that sends none is asked for a list each minute;
    /// so is a kube-apiserver without news of etcd, as it sends no bookmark with the revision at which the watch began.
    pub(crate) const SHORT: Self = Self {
        seconds: 30,
        told_within: Some(Duration::from_secs(62)),
    };

    /// After how long without anything an open watch is dead.
    pub(crate) fn dead_after(self) -> Duration {
        Duration::from_secs(self.seconds.into()) + DEAD_AFTER
    }

    /// Whether the objects are to be listed again, where nothing was heard on the open watch for `silence`, and it is unknown for
    /// `untold` how far the server is.
    pub(crate) fn verdict(self, silence: Duration, untold: Duration) -> WatchVerdict {
        if silence > self.dead_after() {
            return WatchVerdict::Dead;
        }
        match self.told_within {
            Some(within) if untold > within => WatchVerdict::Untold,
            _ => WatchVerdict::Fine,
        }
    }
}

/// What an open watch is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchVerdict {
    Fine,
    /// Nothing arrives any more, not even its end.
    Dead,
    /// It is opened and ends, but tells nothing: events may be missing.
    Untold,
}

/// The pauses after failures. They stay short: who lists a few objects again each second is no load for a server, and what
/// is not known meanwhile may be a policy.
#[derive(Debug)]
pub(crate) struct ShortPauses(Duration);

impl ShortPauses {
    const FIRST: Duration = Duration::from_millis(100);
    pub(crate) const LONGEST: Duration = Duration::from_secs(1);
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

    /// What the watch is worth. One that is not open is tried again anyway.
    fn verdict(&self) -> WatchVerdict {
        if !self.health.is_open() {
            return WatchVerdict::Fine;
        }
        let (silence, untold) = (self.health.silence(), self.health.untold());
        self.settings.watches.verdict(silence, untold)
    }

    /// Lists and watches the objects. Returns the pause after which to look for the kind again, and `None` if they are to be listed
    /// again at once.
    async fn list_and_watch(&self, resource: &ApiResource) -> Option<Duration> {
        let FollowSettings { streams, clock, .. } = &self.settings;
        let health = Arc::clone(&self.health);
        let client = KubeTransport::new(streams.clone(), clock.clone(), health).into_client();
        let api = Api::<WatchedObject<Whole>>::all_with(client, resource);
        let settings = watcher::Config::default().timeout(self.settings.watches.seconds);
        let pauses = ShortPauses::default();
        let mut events = watcher(api, settings).backoff(pauses).boxed();
        let (api_version, kind) = (&resource.api_version, &resource.kind);
        let (mut listed, mut is_complete) = (clock.now(), false);
        loop {
            if self.is_due(listed, is_complete) {
                return None;
            }
            let event = match tokio::time::timeout(DEAD_AFTER, events.next()).await {
                Ok(Some(event)) => event,
                Ok(None) => return Some(ABSENT_PAUSE),
                Err(_) => match self.verdict() {
                    WatchVerdict::Fine => continue,
                    WatchVerdict::Untold => return None,
                    WatchVerdict::Dead => {
                        let silence = self.settings.watches.dead_after().as_secs();
                        let why = format!("nothing was received for {silence} s");
                        self.health.failed(kind, why, false);
                        return Some(Duration::ZERO);
                    }
                },
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
