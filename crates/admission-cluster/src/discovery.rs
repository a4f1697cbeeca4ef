//! Keeps the table of the upstream's resources up to date.
//!
//! Two aggregated documents hold everything; a server that has none is asked for each version. The table is read again
//! every 30 s, and soon after somebody asked for a resource that is not in it, which may just have been defined. Requests that
//! cannot be evaluated without knowing wait for that: whoever waits shares the next reading, and there is one in a few seconds
//! at most, whatever they ask for. A server that tells versions of its documents is asked every two seconds whether it has a new
//! one: a policy may be about a version of a resource that nobody asks for.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use fairgate_admission::PolicyParamKind;
use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_upstream::{client::ApiClient, path::push_segment};
use http::{HeaderValue, StatusCode, uri::PathAndQuery};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::resources::{
    ListedResource, ResourceTable, ServedKind, built_in_kind, items, of_groups, of_version, text,
};

/// How often the table is read if nobody misses a resource.
const REFRESH: Duration = Duration::from_secs(30);
/// The shortest pause between two readings. While unknown resources stay unknown, the pause grows to [`REFRESH`].
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before a reading that somebody waits for.
const AWAITED_PAUSE: Duration = Duration::from_secs(4);
/// How often the upstream is asked whether its resources are still the same. Less often while it says that they are not and they are,
/// as two servers of different versions do behind one address.
const CHECK: Duration = Duration::from_secs(2);
/// The longest time for one document.
const DOCUMENT_LIMIT: Duration = Duration::from_secs(30);
/// The largest document that is read, in bytes.
const MAX_DOCUMENT: usize = 32 << 20;
/// How many versions of groups are asked for one by one.
const MAX_VERSIONS: usize = 1000;
/// The document about everything that is not in the core group, which alone may change.
const GROUPS: &str = "/apis";
/// What is asked for: aggregated documents, or else the others.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The table of resources, and whoever keeps it up to date.
#[derive(Debug)]
pub(crate) struct ResourceDiscovery {
    client: ApiClient,
    clock: Clock,
    table: ArcSwap<ResourceTable>,
    /// Counts the readings; 0 until the table was read.
    readings: watch::Sender<u64>,
    /// A resource is missed.
    missed: Notify,
    /// Somebody waits for the next reading.
    awaited: Notify,
    attempts: watch::Sender<ReadingAttempts>,
    state: Mutex<ReadingState>,
    /// The version of [`GROUPS`] in the table; none if the server does not tell it.
    groups: Mutex<Option<HeaderValue>>,
}

/// How often it was tried to read the table.
#[derive(Debug, Default)]
struct ReadingAttempts {
    begun: u64,
    ended: u64,
    /// Why the last one that has ended failed.
    failure: Option<String>,
}

#[derive(Debug)]
struct ReadingState {
    read: Time,
    failure: Option<String>,
}

impl ResourceDiscovery {
    pub(crate) fn new(client: ApiClient, clock: Clock) -> Self {
        let read = clock.now();
        Self {
            client,
            clock,
            table: ArcSwap::default(),
            readings: watch::Sender::new(0),
            missed: Notify::new(),
            awaited: Notify::new(),
            attempts: watch::Sender::default(),
            state: Mutex::new(ReadingState {
                read,
                failure: None,
            }),
            groups: Mutex::default(),
        }
    }

    /// The table; empty until it was read.
    pub(crate) fn table(&self) -> arc_swap::Guard<Arc<ResourceTable>> {
        self.table.load()
    }

    /// The resource whose objects are params of this kind. Until the table was read, that of Kubernetes itself, which every server has.
    pub(crate) fn of_params(&self, kind: &PolicyParamKind) -> Option<ServedKind> {
        if self.is_read() {
            return self.table().of_kind(kind).cloned();
        }
        built_in_kind(kind)
    }

    /// Whether the table was read.
    pub(crate) fn is_read(&self) -> bool {
        *self.readings.borrow() > 0
    }

    /// Counts the readings.
    pub(crate) fn readings(&self) -> watch::Receiver<u64> {
        self.readings.subscribe()
    }

    /// Somebody asked for a resource that is not in the table. Wakes whoever reads it, and costs next to nothing.
    pub(crate) fn miss(&self) {
        self.missed.notify_one();
    }

    /// Waits until the table has been read by a reading that began after this call; if it never was, by any.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub(crate) async fn read_again(&self) -> Result<(), String> {
        let mut attempts = self.attempts.subscribe();
        let before = if self.is_read() {
            attempts.borrow().begun
        } else {
            attempts.borrow().ended
        };
        self.awaited.notify_one();
        let ended = attempts.wait_for(|attempts| attempts.ended > before);
        let ended = ended.await.map_err(|error| error.to_string())?;
        ended.failure.clone().map_or(Ok(()), Err)
    }

    /// Why the table could not be read the last time.
    pub(crate) fn problem(&self) -> Option<String> {
        let state = lock(&self.state);
        let why = state.failure.as_ref()?;
        let seconds = self.clock.now().since(state.read).as_secs();
        Some(format!("resources: not read for {seconds} s: {why}"))
    }

    /// Keeps the table up to date until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let (mut pause, mut check) = (SHORTEST_PAUSE, CHECK);
        let mut has_changed = false;
        loop {
            let began = self.clock.now();
            self.attempts.send_modify(|attempts| attempts.begun += 1);
            let read = self.read().await;
            let failure = read.as_ref().err().cloned();
            self.attempts.send_modify(|attempts| {
                attempts.ended = attempts.begun;
                attempts.failure = failure;
            });
            if has_changed && matches!(read, Ok(false)) {
                check = (check * 2).min(REFRESH);
            }
            pause = match read {
                Ok(true) => SHORTEST_PAUSE,
                Ok(false) | Err(_) => (pause * 2).min(REFRESH),
            };
            has_changed = self.rest(began, pause, &mut check).await;
        }
    }

    /// Waits for the next reading, which is due when `pause` has passed and a resource is missed, and earlier if somebody waits for it
    /// or the upstream says that its resources have changed. Returns whether it does.
    async fn rest(&self, began: Time, pause: Duration, check: &mut Duration) -> bool {
        let passed = self.clock.now().since(began);
        let awaited = async {
            let earliest = tokio::time::sleep(pause.min(AWAITED_PAUSE).saturating_sub(passed));
            tokio::join!(earliest, self.awaited.notified());
        };
        let missed = async {
            tokio::time::sleep(pause.saturating_sub(passed)).await;
            if self.is_read() {
                let _ = tokio::time::timeout(REFRESH.saturating_sub(pause), self.missed.notified())
                    .await;
            }
        };
        tokio::select! {
            () = awaited => false,
            () = missed => false,
            () = self.changed(check) => true,
        }
    }

    /// Waits until the upstream has other resources than those in the table; for ever if it cannot tell. Asks as often as `check`
    /// says, and then more often.
    async fn changed(&self, check: &mut Duration) {
        loop {
            tokio::time::sleep(*check).await;
            let Some(version) = lock(&self.groups).clone() else {
                return std::future::pending().await;
            };
            let target = PathAndQuery::from_static(GROUPS);
            let asking = self.client.has_changed(target, AGGREGATED, version);
            // What fails here, fails at the next reading, too, which tells why.
            if let Ok(Ok(true)) = tokio::time::timeout(DOCUMENT_LIMIT, asking).await {
                return;
            }
            *check = (*check / 2).max(CHECK);
        }
    }

    /// Reads the table; returns whether it has become larger or smaller.
    async fn read(&self) -> Result<bool, String> {
        match self.resources().await {
            Ok(found) => {
                let table = ResourceTable::new(found);
                let changed = table.len() != self.table.load().len();
                self.table.store(Arc::new(table));
                self.readings.send_modify(|count| *count += 1);
                let mut state = lock(&self.state);
                state.read = self.clock.now();
                if state.failure.take().is_some() {
                    tracing::info!("the resources of the upstream are discovered again");
                }
                Ok(changed)
            }
            Err(why) => {
                let mut state = lock(&self.state);
                if state.failure.as_ref() != Some(&why) {
                    tracing::warn!(%why, "cannot discover the resources of the upstream; trying again");
                    state.failure = Some(why.clone());
                }
                Err(why)
            }
        }
    }

    async fn resources(&self) -> Result<Vec<ListedResource>, String> {
        let (mut found, mut is_server) = (Vec::new(), false);
        for path in ["/api", GROUPS] {
            // A server without core group, or without others, is none the less a server.
            let Some(document) = self.document(path).await? else {
                continue;
            };
            is_server = true;
            if document["kind"] == "APIGroupDiscoveryList" {
                found.extend(of_groups(&document));
            } else {
                found.extend(self.of_versions(path, &document).await?);
            }
        }
        // A proxy in front of a server has no document either.
        let nothing = || "the upstream answered 404 to /api and /apis".to_owned();
        is_server.then_some(found).ok_or_else(nothing)
    }

    /// The resources of all versions that a document without resources names. A version that cannot be read, such as
    /// one of an aggregated API server that is down, is left out.
    async fn of_versions(
        &self,
        path: &str,
        document: &Value,
    ) -> Result<Vec<ListedResource>, String> {
        let versions = named_versions(document);
        let mut found = Vec::new();
        for (group, version) in versions {
            let mut target = path.to_owned();
            for part in [&group, &version]
                .into_iter()
                .filter(|part| !part.is_empty())
            {
                target.push('/');
                push_segment(&mut target, part);
            }
            match self.document(&target).await {
                Ok(Some(list)) => found.extend(of_version(&list, &group, &version)),
                Ok(None) => {}
                Err(why) => {
                    tracing::debug!(path = target, %why, "cannot discover the resources of this API version");
                }
            }
        }
        Ok(found)
    }

    /// A discovery document; none if there is none.
    async fn document(&self, path: &str) -> Result<Option<Value>, String> {
        let reading = self.read_document(path);
        let read = tokio::time::timeout(DOCUMENT_LIMIT, reading).await;
        read.unwrap_or_else(|_| Err(format!("{path}: the response took too long")))
    }

    async fn read_document(&self, path: &str) -> Result<Option<Value>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let target = PathAndQuery::try_from(path).map_err(|error| failed(&error))?;
        let reading = (self.client).get_with_version(target, AGGREGATED, MAX_DOCUMENT);
        let (status, version, body) = reading.await.map_err(|error| failed(&error))?;
        if path == GROUPS {
            *lock(&self.groups) = version.filter(|_| status.is_success());
        }
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(failed(&format_args!("the upstream answered {status}")));
        }
        serde_json::from_slice(&body)
            .map(Some)
            .map_err(|error| failed(&error))
    }
}

/// The groups and versions in an `APIVersions` or `APIGroupList`.
fn named_versions(document: &Value) -> Vec<(String, String)> {
    let of = |group: &str, version: &Value| (group.to_owned(), text(version).to_owned());
    let core = items(&document["versions"]).map(|version| of("", version));
    let groups = items(&document["groups"]).flat_map(|group| {
        let versions = items(&group["versions"]);
        versions.map(|version| of(text(&group["name"]), &version["version"]))
    });
    core.chain(groups).take(MAX_VERSIONS).collect()
}
