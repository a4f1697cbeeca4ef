//! Follows the namespaces of the upstream, and deletes the hosted objects of those that are deleted.
//!
//! Uses one list and one watch. Of the namespaces only the names of those that are to be cleaned up are kept. The
//! store records in which namespace, by UID, the objects were created, so that a namespace that was deleted and
//! created again is noticed also after the gateway or the upstream was away.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

use fairgate_apiserver::Hosted;
use fairgate_base::{clock::Clock, log_limit::LogLimit};
use fairgate_core::time::Time;
use fairgate_upstream::{
    client::ApiClient,
    kube_transport::KubeTransport,
    watch_error::WatchError,
    watched_object::{KeptFields, WatchedObject},
};

/// After how many seconds the upstream should end the watch, which is then opened again.
const WATCH_SECONDS: u32 = 120;
/// How long after a namespace was cleaned up it is cleaned up again: an object whose creation began while the namespace
/// existed may have been stored since.
const CLEANED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The pause after a namespace could not be cleaned up.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Selects the fields of a namespace that are kept.
#[derive(Clone, Debug)]
struct NamespaceOutline;

#[derive(Deserialize)]
struct NamespaceFields {
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    status: Value,
}

impl KeptFields for NamespaceOutline {
    type Decoded = NamespaceFields;

    fn object(mut decoded: NamespaceFields) -> Value {
        let mut taken = |field| decoded.metadata.get_mut(field).map(Value::take);
        json!({
            "metadata": {
                "name": taken("name"), "uid": taken("uid"), "resourceVersion": taken("resourceVersion"),
                "deletionTimestamp": taken("deletionTimestamp"),
            },
            "status": {"phase": decoded.status.get_mut("phase").map(Value::take)},
        })
    }
}

type Namespace = WatchedObject<NamespaceOutline>;

/// When a namespace is to be cleaned up, and whether this is the last time unless it changes.
struct Due {
    at: Time,
    is_last: bool,
}

/// Cleans up after namespaces of the upstream.
pub(super) struct NamespaceFollower {
    hosted: Arc<Hosted>,
    client: Client,
    clock: Clock,
    /// The namespaces to be cleaned up.
    due: BTreeMap<String, Due>,
    /// The UIDs, by name, of the active namespaces in a list that is being received.
    incoming: BTreeMap<String, String>,
    /// The failure of the watch that was logged last.
    failure: Option<String>,
    clean_failures: LogLimit,
}

impl NamespaceFollower {
    /// A follower that opens its list and watch through `streams`, a client with a connection for each request. To be called
    /// inside the runtime that is to run it.
    pub(super) fn new(hosted: Arc<Hosted>, streams: ApiClient, clock: Clock) -> Self {
        Self {
            hosted,
            client: KubeTransport::unobserved(streams, clock.clone()).into_client(),
            clock,
            due: BTreeMap::new(),
            incoming: BTreeMap::new(),
            failure: None,
            clean_failures: LogLimit::new(1),
        }
    }

    /// Follows the namespaces until it is dropped.
    pub(super) async fn run(mut self) {
        let mut events = events(&self.client);
        loop {
            let next = self.due.iter().min_by_key(|(_, due)| due.at);
            let next = next.map(|(name, due)| (name.clone(), due.at));
            let at = next.as_ref().map(|(_, at)| self.clock.instant(*at));
            tokio::select! {
                biased;
                Some(event) = events.next() => self.take(event).await,
                () = until(at) => {
                    if let Some((name, _)) = next {
                        self.clean(name).await;
                    }
                }
            }
        }
    }

    async fn take(&mut self, event: Result<Event<Namespace>, String>) {
        match event {
            Ok(Event::Init) => self.incoming.clear(),
            Ok(Event::InitApply(namespace)) => {
                if let Some(uid) = active_uid(&namespace) {
                    self.incoming.insert(namespace.name().to_owned(), uid);
                }
            }
            Ok(Event::InitDone) => {
                if self.failure.take().is_some() {
                    tracing::info!("namespaces are watched again");
                }
                self.compare().await;
            }
            Ok(Event::Apply(namespace)) => {
                if active_uid(&namespace).is_none() {
                    self.add(namespace.name().to_owned());
                }
            }
            Ok(Event::Delete(namespace)) => self.add(namespace.name().to_owned()),
            Err(why) => {
                if self.failure.as_ref() != Some(&why) {
                    tracing::warn!(
                        why,
                        "cannot watch the upstream's namespaces, so hosted objects of deleted namespaces stay; trying again"
                    );
                    self.failure = Some(why);
                }
            }
        }
    }

    /// After a list: cleans up whatever is in use and not in the list with the same UID.
    async fn compare(&mut self) {
        let incoming = std::mem::take(&mut self.incoming);
        let in_use = loop {
            match self.hosted.namespaces_in_use().await {
                Ok(in_use) => break in_use,
                Err(error) => {
                    tracing::debug!(%error, "the namespaces in use are not known yet");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        };
        for (name, uid) in in_use {
            if uid.is_none() || incoming.get(&name) != uid.as_ref() {
                self.add(name);
            }
        }
    }

    fn add(&mut self, name: String) {
        let at = self.clock.now();
        let is_last = false;
        self.due.insert(name, Due { at, is_last });
    }

    async fn clean(&mut self, name: String) {
        let cleaned = self.hosted.clean_namespace(&name).await;
        let now = self.clock.now();
        let Entry::Occupied(mut due) = self.due.entry(name) else {
            return;
        };
        match cleaned {
            Ok(false) if !due.get().is_last => {
                due.get_mut().at = now.plus(CLEANED_AGAIN_AFTER);
                due.get_mut().is_last = true;
            }
            Ok(_) => {
                due.remove();
            }
            Err(error) => {
                if let Some(left_out) = self.clean_failures.admit(now) {
                    tracing::warn!(%error, left_out, "cannot delete the objects of a deleted namespace; trying again");
                }
                due.get_mut().at = now.plus(RETRY_DELAY);
            }
        }
    }
}

/// Lists and watches all namespaces. Never ends.
fn events(client: &Client) -> BoxStream<'static, Result<Event<Namespace>, String>> {
    let kind = GroupVersionKind::gvk("", "v1", "Namespace");
    let resource = ApiResource::from_gvk_with_plural(&kind, "namespaces");
    let settings = watcher::Config::default().timeout(WATCH_SECONDS);
    let events = watcher(Api::all_with(client.clone(), &resource), settings).default_backoff();
    events
        .filter_map(|event| async {
            match event.map_err(WatchError::from) {
                // The watch begins again with a list.
                Err(WatchError::Refused { code: 410, .. }) => None,
                event => Some(event.map_err(|error| error.to_string())),
            }
        })
        .chain(stream::pending())
        .boxed()
}

/// The UID of a namespace that is not being deleted.
fn active_uid(namespace: &Namespace) -> Option<String> {
    let object = &namespace.object;
    let is_deleted = object["metadata"]["deletionTimestamp"].is_string()
        || object["status"]["phase"] == "Terminating";
    let uid = object["metadata"]["uid"].as_str()?;
    (!is_deleted).then(|| uid.to_owned())
}

async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
