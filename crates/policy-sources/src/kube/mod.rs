//! Policy objects from the upstream's API, by list and watch.
//!
//! The objects of both kinds are listed and then watched, in v1, or in v1beta3 if the upstream has no
//! v1. After any failure everything is listed again, beginning with discovery of the versions: there
//! are only a few dozen objects, and after an upgrade the server may be a different one. Until the
//! new list is complete, the objects known so far stay in force.
//!
//! Nothing is written to the upstream: an API server sets the status of its objects itself. So the
//! gateway only needs permission to list and watch them.

mod known_objects;
mod listing;
mod sync_status;
mod watch_failure;

use std::{
    fmt::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use http::{Request, StatusCode, Uri};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Client;
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};

use crate::{
    document_set::{DocumentSet, Originals, PolicySource, Revision},
    logging::LoggedWarnings,
};
use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::objects::{FLOW_SCHEMA, GROUP, PRIORITY_LEVEL},
    finding::Finding,
};
use fairgate_upstream::{
    client::ApiClient,
    informer::{
        ApiResource, Event, GroupVersionKind, Informer, InformerSettings, KubeTransport,
        RetryPauses, WatchError, Whole,
    },
};
use known_objects::{KnownObjects, RawObject, set_type};
pub use listing::{PolicyListError, list};
pub use sync_status::SyncStatus;
use watch_failure::WatchFailure;

/// The kinds that are watched, with their resource names.
const KINDS: [(&str, &str); 2] = [
    (PRIORITY_LEVEL, "prioritylevelconfigurations"),
    (FLOW_SCHEMA, "flowschemas"),
];

/// The supported versions, preferred first.
const VERSIONS: [&str; 2] = ["v1", "v1beta3"];

/// Where the upstream lists the versions it serves.
const GROUP_PATH: &str = "/apis/flowcontrol.apiserver.k8s.io";

/// The `timeoutSeconds` of a watch: the upstream ends it, and it is opened again. A watch that lasts
/// longer without an event counts as dead, since a broken connection may go unnoticed.
const WATCH_SECONDS: u32 = 60;

/// How long discovery may take.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(30);

/// A change is reported when no event has arrived for this long, but after [`BURST`] at the latest.
const QUIET: Duration = Duration::from_millis(50);
/// The longest time for which a change waits for others: ten objects applied at once make one or two new policies.
const BURST: Duration = Duration::from_millis(400);

/// The pauses after failures.
const PAUSES: RetryPauses = RetryPauses::new(Duration::from_millis(200), Duration::from_secs(3));

type Watches = SelectAll<BoxStream<'static, (usize, Result<Event<RawObject>, WatchError>)>>;

/// The policy objects of an upstream, kept up to date by watches.
pub struct KubeSource {
    upstream: String,
    clock: Clock,
    /// For the lists and watches of each kind. They are kept, so that the same watch is not opened too often.
    streams: [Client; KINDS.len()],
    /// For discovery.
    client: Client,
    status: Arc<SyncStatus>,
    /// `None` while the upstream is not watched.
    watches: Option<Watches>,
    /// One set for each kind, in the order of [`KINDS`].
    objects: [KnownObjects; KINDS.len()],
    /// Whether something changed since the last set.
    changed: bool,
    /// The pause to come before the next attempt, if the last one failed.
    pause: Option<Duration>,
    /// Those after that.
    pauses: RetryPauses,
    /// The warnings about objects that have been logged.
    findings: LoggedWarnings,
    /// Whether sets have their objects as they were.
    has_originals: bool,
}

impl fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSource")
            .field("upstream", &self.upstream)
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}

impl KubeSource {
    /// Watches the objects through `client`, which must open a connection for each request. Call it inside the
    /// runtime that is to run the watches.
    pub fn new(client: ApiClient, clock: Clock) -> Self {
        let upstream = client.target().name().to_string();
        let status = SyncStatus::new(&clock, KINDS.map(|(_, plural)| plural));
        let stream = |health| KubeTransport::new(client.clone(), clock.clone(), health);
        let streams = std::array::from_fn(|kind| stream(status.health(kind)).into_client());
        Self {
            upstream,
            client: KubeTransport::unobserved(client, clock.clone()).into_client(),
            status,
            streams,
            clock,
            watches: None,
            objects: KINDS.map(|(_, plural)| KnownObjects::new(plural)),
            changed: true,
            pause: None,
            pauses: PAUSES,
            findings: LoggedWarnings::default(),
            has_originals: false,
        }
    }

    /// Yields sets with the objects as they were, without those that cannot be used.
    #[must_use]
    pub fn with_originals(mut self, wanted: bool) -> Self {
        self.has_originals = wanted;
        self
    }

    /// How up to date the reported objects are.
    pub fn sync_status(&self) -> Arc<SyncStatus> {
        Arc::clone(&self.status)
    }

    /// Waits for the next event and applies it. Cancel-safe.
    async fn advance(&mut self) {
        let Some(watches) = &mut self.watches else {
            return self.connect().await;
        };
        match watches.next().await {
            Some((kind, Ok(event))) => {
                self.changed |= self.objects[kind].take(event);
                if is_complete(&self.objects) {
                    self.pauses = PAUSES;
                }
            }
            Some((_, Err(_))) | None => self.disconnect(),
        }
    }

    /// Starts the lists and watches, after a pause if that failed before.
    async fn connect(&mut self) {
        if let Some(pause) = self.pause {
            sleep(pause).await;
        }
        let discovery = timeout(DISCOVERY_LIMIT, served_version(&self.client));
        let failure = match discovery.await {
            Ok(Ok(version)) => {
                self.watches = Some(self.watch(version));
                return;
            }
            Ok(Err(failure)) => failure,
            Err(_) => WatchFailure::TimedOut,
        };
        self.status.failed(&failure);
        self.disconnect();
    }

    /// The upstream failed: the known objects stay until they are listed again.
    fn disconnect(&mut self) {
        self.watches = None;
        self.objects.iter_mut().for_each(KnownObjects::invalidate);
        self.pause = self.pauses.next();
    }

    /// Lists and watches both kinds.
    fn watch(&self, version: &str) -> Watches {
        let settings = InformerSettings {
            watch_seconds: WATCH_SECONDS,
            ..InformerSettings::default()
        };
        let each = KINDS.iter().enumerate().map(|(at, kind)| {
            let kind = resource(kind, version);
            let informer = Informer::<Whole>::over(
                self.streams[at].clone(),
                self.clock.clone(),
                kind.clone(),
                settings.clone(),
                self.status.health(at),
            );
            let typed =
                move |event: Event<RawObject>| event.modify(|object| set_type(object, &kind));
            let events = informer.into_stream();
            events.map(move |event| (at, event.map(&typed))).boxed()
        });
        each.collect()
    }

    /// All known objects.
    fn set(&self) -> DocumentSet {
        set_of(&self.objects, self.has_originals)
    }
}

/// The set of these objects. An object that cannot be used is left out with a warning; the others are applied.
fn set_of(objects: &[KnownObjects], has_originals: bool) -> DocumentSet {
    let mut set = DocumentSet {
        revision: Revision(String::new()),
        documents: Vec::new(),
        findings: Vec::new(),
        originals: None,
    };
    let mut originals = Vec::new();
    let mut digest = Sha256::new();
    for object in objects.iter().flat_map(KnownObjects::objects) {
        digest.update(object.digest());
        set.documents.extend(object.usable().cloned());
        if has_originals {
            originals.extend(object.original());
        }
        set.findings.extend_from_slice(object.problems());
    }
    for byte in &digest.finalize()[..8] {
        let _ = write!(set.revision.0, "{byte:02x}");
    }
    set.originals = has_originals.then(|| Originals::Documents(Arc::new(originals)));
    set
}

impl PolicySource for KubeSource {
    type Set = DocumentSet;

    async fn next(&mut self) -> DocumentSet {
        while !(self.changed && is_complete(&self.objects)) {
            self.advance().await;
        }
        let burst = async { while timeout(QUIET, self.advance()).await.is_ok() {} };
        let _ = timeout(BURST, burst).await;
        self.changed = false;
        self.set()
    }

    async fn report(&mut self, revision: &Revision, applied: bool, findings: &[Finding]) {
        self.findings.log(findings);
        let (Revision(revision), upstream) = (revision, &self.upstream);
        if applied {
            tracing::info!(%revision, %upstream, "flow control policy applied");
        } else {
            tracing::error!(%revision, %upstream, "flow control policy rejected; the policy in force stays");
        }
    }
}

fn is_complete(objects: &[KnownObjects]) -> bool {
    objects.iter().all(KnownObjects::is_listed)
}

fn resource((kind, plural): &(&str, &str), version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(GROUP, version, kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// The preferred version among those that the upstream serves.
async fn served_version(client: &Client) -> Result<&'static str, WatchFailure> {
    let served = match served_versions(client).await {
        Ok(served) => served,
        // Discovery may be forbidden to the gateway although reading the objects is not.
        Err(kube::Error::Api(status)) if status.code == StatusCode::FORBIDDEN.as_u16() => {
            return Ok(VERSIONS[0]);
        }
        Err(error) => return Err(WatchError::from(error).into()),
    };
    preferred(&served).ok_or(WatchFailure::NoVersion(served))
}

async fn served_versions(client: &Client) -> kube::Result<Vec<String>> {
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = Uri::from_static(GROUP_PATH);
    let group: APIGroup = client.request(request).await?;
    Ok(group.versions.into_iter().map(|v| v.version).collect())
}

fn preferred(served: &[String]) -> Option<&'static str> {
    let mut versions = VERSIONS.into_iter();
    versions.find(|version| served.iter().any(|served| served == version))
}
