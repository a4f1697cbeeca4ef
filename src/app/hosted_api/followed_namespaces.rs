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

use serde::Deserialize;
use serde_json::{Value, json};

use fairgate_apiserver::Hosted;
use fairgate_base::{clock::Clock, log_limit::LogLimit};
use fairgate_core::time::Time;
use fairgate_upstream::{
    client::ApiClient,
    informer::{
        ApiResource, Event, GroupVersionKind, Informer, InformerSettings, KeptFields, WatchHealth,
        WatchedObject,
    },
};

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
pub(crate) struct NamespaceFollower {
    hosted: Arc<Hosted>,
    streams: ApiClient,
    clock: Clock,
    /// The namespaces to be cleaned up.
    due: BTreeMap<String, Due>,
    /// The UIDs, by name, of the active namespaces in a list that is being received.
    incoming: BTreeMap<String, String>,
    clean_failures: LogLimit,
}

impl NamespaceFollower {
    /// A follower that opens its list and watch through `streams`, a client with a connection for each request. To be called
    /// inside the runtime that is to run it.
    pub(crate) fn new(hosted: Arc<Hosted>, streams: ApiClient, clock: Clock) -> Self {
        Self {
            hosted,
            streams,
            clock,
            due: BTreeMap::new(),
            incoming: BTreeMap::new(),
            clean_failures: LogLimit::new(1),
        }
    }

    /// Follows the namespaces until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut namespaces = self.namespaces();
        loop {
            let next = self.due.iter().min_by_key(|(_, due)| due.at);
            let next = next.map(|(name, due)| (name.clone(), due.at));
            let at = next.as_ref().map(|(_, at)| self.clock.instant(*at));
            tokio::select! {
                biased;
                event = namespaces.next() => {
                    // A failure has been logged, and the informer goes on.
                    if let Ok(event) = event {
                        self.take(event).await;
                    }
                }
                () = until(at) => {
                    if let Some((name, _)) = next {
                        self.clean(name).await;
                    }
                }
            }
        }
    }

    fn namespaces(&self) -> Informer<NamespaceOutline> {
        let kind = GroupVersionKind::gvk("", "v1", "Namespace");
        let resource = ApiResource::from_gvk_with_plural(&kind, "namespaces");
        let purpose = "to delete hosted objects of deleted namespaces";
        let health = WatchHealth::new(self.clock.clone(), "namespaces", purpose);
        let (streams, clock) = (self.streams.clone(), self.clock.clone());
        Informer::new(
            streams,
            clock,
            resource,
            InformerSettings::default(),
            health,
        )
    }

    async fn take(&mut self, event: Event<Namespace>) {
        match event {
            Event::Init => self.incoming.clear(),
            Event::InitApply(namespace) => {
                if let Some(uid) = active_uid(&namespace) {
                    self.incoming.insert(namespace.name().to_owned(), uid);
                }
            }
            Event::InitDone => self.compare().await,
            Event::Apply(namespace) => {
                if active_uid(&namespace).is_none() {
                    self.add(namespace.name().to_owned());
                }
            }
            Event::Delete(namespace) => self.add(namespace.name().to_owned()),
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
                if let Some(left_out) = self.clean_failures.next_line(now) {
                    tracing::warn!(%error, left_out, "cannot delete the objects of a deleted namespace; trying again");
                }
                due.get_mut().at = now.plus(RETRY_DELAY);
            }
        }
    }
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
