//! Policy objects from the API of the upstream, followed by watch.
//!
//! The objects of both kinds are listed and then watched, in v1, or in v1beta3 where there is no
//! other. When the upstream fails in any way, a little later everything is listed anew, after asking
//! for the versions: it is a matter of some dozens of objects, and the server may be another one
//! than before. Until then what was found stays.
//!
//! Nothing is ever written there: an API server writes the status of its objects itself, and
//! whoever follows them needs no right but to read them.

mod failure;
mod found;
mod step;
mod transport;

use std::{
    fmt::{self, Write as _},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use http::{Request, StatusCode, Uri};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind},
    runtime::watcher::{self, Event, watcher},
};
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};

use super::{Document, DocumentSet, Revision, Source, warnings::LoggedWarnings};
use failure::Failure;
use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::{
        ObjectSet,
        objects::{FLOW_SCHEMA, GROUP, PRIORITY_LEVEL},
    },
    finding::{Finding, Severity},
};
use fairgate_upstream::client::ApiClient;
use found::{Found, Object};
pub use step::InStep;
use transport::Transport;

/// What is followed: kind, and what it is called in paths.
const KINDS: [(&str, &str); 2] = [
    (PRIORITY_LEVEL, "prioritylevelconfigurations"),
    (FLOW_SCHEMA, "flowschemas"),
];

/// The versions that can be read, best first.
const VERSIONS: [&str; 2] = ["v1", "v1beta3"];

/// Where the versions are told.
const GROUP_PATH: &str = "/apis/flowcontrol.apiserver.k8s.io";

/// After how many seconds the upstream is to end a watch, to be opened again. One that is silent for
/// longer is given up: its connection has died.
const WATCH_SECONDS: u32 = 60;

/// How long listing all objects may take.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// A change is yielded once nothing came for this long,
const QUIET: Duration = Duration::from_millis(50);
/// or once it waited for this long: who applies ten objects at once gets one new policy or two.
const BURST: Duration = Duration::from_millis(400);

/// The first pause after a failure; each next one is twice as long,
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How many reasons are logged until the upstream is followed again.
const MOST_TOLD: usize = 8;

type Watches = SelectAll<BoxStream<'static, (usize, watcher::Result<Event<Object>>)>>;

/// The policy objects of an upstream, followed.
pub struct Followed {
    upstream: String,
    client: Client,
    step: Arc<InStep>,
    /// `None` while the upstream is lost.
    watches: Option<Watches>,
    /// As [`KINDS`].
    found: [Found; KINDS.len()],
    /// Whether something changed since the last set.
    changed: bool,
    /// How often the upstream failed since it was last listed.
    failures: u32,
    /// What has been logged of that: each reason once.
    told: Vec<String>,
    /// What has been logged of the objects.
    findings: LoggedWarnings,
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed")
            .field("upstream", &self.upstream)
            .field("changed", &self.changed)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

impl Followed {
    /// Follows the objects that `client` finds. It must open a connection for each request. To be called inside of
    /// the runtime that will follow them.
    pub fn new(client: ApiClient, clock: Clock) -> Self {
        let step = InStep::new(clock.clone(), KINDS.len());
        let name = client.endpoint().name().to_string();
        Self {
            upstream: name,
            client: Client::new(Transport::new(client, clock, Arc::clone(&step)), "default"),
            step,
            watches: None,
            found: Default::default(),
            changed: true,
            failures: 0,
            told: Vec::new(),
            findings: LoggedWarnings::default(),
        }
    }

    /// Tells how old what was yielded is.
    pub fn in_step(&self) -> Arc<InStep> {
        Arc::clone(&self.step)
    }

    /// Waits for whatever comes next, and takes it. Cancel-safe.
    async fn advance(&mut self) {
        let Some(watches) = &mut self.watches else {
            return self.connect().await;
        };
        let patience = if is_complete(&self.found) {
            Duration::MAX
        } else {
            LIST_LIMIT
        };
        match timeout(patience, watches.next()).await {
            Ok(Some((kind, Ok(event)))) => {
                self.changed |= self.found[kind].take(event);
                if self.failures > 0 && is_complete(&self.found) {
                    self.failures = 0;
                    self.told.clear();
                    tracing::info!(upstream = self.upstream, "watching policy objects again");
                }
            }
            Ok(Some((_, Err(error)))) => self.lose(&error.into()),
            Ok(None) => self.lose(&Failure::Lost("the watches ended".to_owned())),
            Err(_) => self.lose(&Failure::TooSlow("listing")),
        }
    }

    /// Begins to list and to watch, after a pause if that failed before.
    async fn connect(&mut self) {
        if self.failures > 0 {
            sleep(pause(self.failures, random())).await;
        }
        let asking = timeout(LIST_LIMIT, served_version(&self.client));
        match asking.await {
            Ok(Ok(version)) => self.watches = Some(watch(&self.client, version)),
            Ok(Err(error)) => self.lose(&error),
            Err(_) => self.lose(&Failure::TooSlow("answering")),
        }
    }

    /// The upstream failed: what was found stays until it is listed anew.
    fn lose(&mut self, why: &Failure) {
        self.watches = None;
        self.found.iter_mut().for_each(Found::lost);
        let upstream = &self.upstream;
        let why = why.to_string();
        if self.told.len() < MOST_TOLD && !self.told.contains(&why) {
            tracing::warn!(%upstream, %why, "cannot watch policy objects; retrying");
            self.told.push(why.clone());
        } else {
            tracing::debug!(%upstream, %why, "cannot watch policy objects yet");
        }
        self.failures = self.failures.saturating_add(1);
        self.step.failed(why);
    }

    /// All that was found. An object that cannot be used is left out and told, lest the others
    /// wait for somebody to mend it.
    fn set(&self) -> DocumentSet {
        let mut set = DocumentSet {
            revision: Revision(String::new()),
            documents: Vec::new(),
            findings: Vec::new(),
        };
        let mut digest = Sha256::new();
        for ((_, plural), found) in KINDS.iter().zip(&self.found) {
            for (name, value) in found.objects() {
                let version = value["metadata"]["resourceVersion"].as_str();
                let document = Document {
                    origin: format!("{plural}/{name} at {}", version.unwrap_or("no version")),
                    value: Arc::new(value.clone()),
                };
                digest.update(value.to_string());
                let problems = problems(&document);
                if problems.is_empty() {
                    set.documents.push(document);
                }
                set.findings.extend(problems);
            }
        }
        for byte in &digest.finalize()[..8] {
            let _ = write!(set.revision.0, "{byte:02x}");
        }
        set
    }
}

impl Source for Followed {
    async fn next(&mut self) -> DocumentSet {
        while !(self.changed && is_complete(&self.found)) {
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
            tracing::info!(%revision, %upstream, "policy objects applied");
        } else {
            tracing::error!(%revision, %upstream, "policy objects refused; the last good ones stay");
        }
    }
}

fn is_complete(found: &[Found]) -> bool {
    found.iter().all(Found::is_listed)
}

/// Lists and watches both kinds.
fn watch(client: &Client, version: &str) -> Watches {
    let each = KINDS.iter().enumerate().map(|(at, (kind, plural))| {
        let kind = GroupVersionKind::gvk(GROUP, version, kind);
        let kind = ApiResource::from_gvk_with_plural(&kind, plural);
        let typed = kind.clone();
        let settings = watcher::Config::default().timeout(WATCH_SECONDS);
        let events = watcher(Api::<Object>::all_with(client.clone(), &kind), settings);
        events
            .map(move |event| (at, event.map(|event| event.modify(|o| o.set_type(&typed)))))
            .boxed()
    });
    each.collect()
}

/// The best version that the upstream serves.
async fn served_version(client: &Client) -> Result<&'static str, Failure> {
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = Uri::from_static(GROUP_PATH);
    let group: APIGroup = match client.request(request).await {
        Ok(group) => group,
        // Not everybody may ask what there is; the lists will tell.
        Err(kube::Error::Api(status)) if status.code == StatusCode::FORBIDDEN.as_u16() => {
            return Ok(VERSIONS[0]);
        }
        Err(error) => return Err(error.into()),
    };
    let served: Vec<String> = group.versions.into_iter().map(|v| v.version).collect();
    let best = VERSIONS
        .into_iter()
        .find(|version| served.iter().any(|served| served == version));
    best.ok_or(Failure::NoVersion(served))
}

/// What keeps an object from being used, as warnings: none if it can be.
fn problems(document: &Document) -> Vec<Finding> {
    let read = ObjectSet::read([(document.origin.as_str(), (*document.value).clone())]);
    let errors = read.findings().iter().filter(|finding| finding.is_error());
    errors
        .map(|finding| Finding {
            severity: Severity::Warning,
            message: format!("{}, so the object has no effect", finding.message),
            ..finding.clone()
        })
        .collect()
}

/// How long to wait after `failures` of them in a row; at `random`, so that gateways do not come
/// back all at once.
fn pause(failures: u32, random: u64) -> Duration {
    let doubled = 1 << failures.saturating_sub(1).min(16);
    let longest = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
    #[expect(clippy::cast_precision_loss, reason = "a random number")]
    let part = random as f64 / u64::MAX as f64;
    longest.mul_f64(0.5 + part / 2.0)
}

/// A random number from the standard library's keys.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let most = |failures| pause(failures, u64::MAX);
        assert_eq!(most(1), FIRST_PAUSE);
        assert_eq!(most(2), FIRST_PAUSE * 2);
        assert_eq!(most(u32::MAX), LONGEST_PAUSE);
        assert_eq!(pause(u32::MAX, 0), LONGEST_PAUSE / 2);
    }

    #[test]
    fn an_object_that_cannot_be_used_is_told_as_a_warning() {
        let level = |spec| Document {
            origin: "here".to_owned(),
            value: Arc::new(json!({
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
                "kind": PRIORITY_LEVEL,
                "metadata": {"name": "a"},
                "spec": spec,
            })),
        };
        let reject = json!({"type": "Reject"});
        let sound = json!({"type": "Limited", "limited": {"limitResponse": reject}});
        assert_eq!(problems(&level(sound)), []);
        let problems = problems(&level(json!({"type": 7})));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].severity, Severity::Warning);
        let told = problems[0].to_string();
        assert!(told.contains("so the object has no effect"), "{told}");
    }
}
