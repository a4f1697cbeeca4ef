//! Reads single objects that no watch has delivered yet, or as they are now, and lists params as they are now.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use fairgate_admission::{InputFailure, LookupLack, SharedObject};
use fairgate_admission_layer::WorkerPool;
use fairgate_base::{account::HeavyTurns, clock::Clock, tasks};
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_objects::codec::json;
use fairgate_upstream::{
    absence,
    client::ApiClient,
    informer::{ApiResource, Whole},
    path::push_segment,
};
use http::{StatusCode, uri::PathAndQuery};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::{objects::KeptForm as _, shared_reads::SharedReads};

/// How many objects and lists are read at a time. Users take turns.
const MAX_READS: usize = 32;
/// How long an object that was not found is not looked for again.
const ABSENT_FOR: Duration = Duration::from_secs(1);
/// How many objects that were not found are remembered. When there are more, all are forgotten. Their paths take less than 2 KiB each, as
/// no [name](MAX_NAME) is longer.
const MAX_ABSENT: usize = 1024;
/// The longest name of an object or a namespace, in bytes. There are none with longer ones, so these are not looked for.
const MAX_NAME: usize = 253;
/// The longest time for reading something as it is now.
const NOW_LIMIT: Duration = Duration::from_secs(5);
/// Responses longer than this many bytes are decoded by the threads that evaluate by costly policies: requests wait for them, and the
/// control runtime must not.
const LARGE: usize = 64 << 10;
/// The largest object or list that is read, in bytes.
const MAX_OBJECT: usize = 4 << 20;

/// Reads objects in the gateway's own name, on the control runtime.
#[derive(Clone, Debug)]
pub(crate) struct LiveReads {
    in_progress: Arc<ReadsInProgress>,
    objects: Arc<SharedReads<Result<SharedObject, InputFailure>>>,
    lists: Arc<SharedReads<Result<Vec<SharedObject>, InputFailure>>>,
}

#[derive(Debug)]
struct ReadsInProgress {
    client: ApiClient,
    control: Handle,
    clock: Clock,
    workers: Arc<WorkerPool>,
    turns: HeavyTurns,
    /// The paths of objects that were not found, and when.
    absent: Mutex<HashMap<String, Time>>,
}

impl LiveReads {
    pub(crate) fn new(
        client: ApiClient,
        control: Handle,
        clock: Clock,
        workers: Arc<WorkerPool>,
    ) -> Self {
        let turns = HeavyTurns::new(MAX_READS);
        Self {
            objects: SharedReads::new(control.clone(), turns.clone()),
            lists: SharedReads::new(control.clone(), turns.clone()),
            in_progress: Arc::new(ReadsInProgress {
                client,
                control,
                clock,
                workers,
                turns,
                absent: Mutex::default(),
            }),
        }
    }

    /// Reads an object as it is after this call, in the turn of a user. It is absent only if the upstream says so, or has said that it
    /// does not serve the kind any more.
    pub(crate) async fn read_now(
        &self,
        user: &str,
        (resource, is_served): (&ApiResource, bool),
        namespace: &str,
        name: &str,
    ) -> Result<SharedObject, InputFailure> {
        let Some(path) = object_path(resource, namespace, name) else {
            return Err(InputFailure::NotFound);
        };
        let (this, key) = (Arc::clone(&self.in_progress), path.clone());
        let type_meta = (resource.api_version.clone(), resource.kind.clone());
        let read = move || {
            let (this, path) = (Arc::clone(&this), path.clone());
            let type_meta = type_meta.clone();
            async move {
                let fetching = this.fetch(&path, &type_meta, is_served);
                let fetched = tokio::time::timeout(NOW_LIMIT, fetching).await;
                fetched.unwrap_or(Err(InputFailure::Lacking(LookupLack::Time)))
            }
        };
        let found = self.objects.read(user, key, read).await;
        never_ignored(found.map_err(InputFailure::Lacking)?)
    }

    /// Lists the objects of a resource in a namespace (empty for those without), as they are after this call, in the turn of a user.
    pub(crate) async fn list_now(
        &self,
        user: &str,
        resource: &ApiResource,
        namespace: &str,
    ) -> Result<Vec<SharedObject>, LookupLack> {
        let Some(path) = collection_path(resource, namespace) else {
            return Ok(Vec::new());
        };
        let (this, key) = (Arc::clone(&self.in_progress), path.clone());
        let absent = format!("the upstream has no {path}");
        let type_meta = (resource.api_version.clone(), resource.kind.clone());
        let read = move || {
            let (this, path) = (Arc::clone(&this), path.clone());
            let type_meta = type_meta.clone();
            async move {
                let fetched = tokio::time::timeout(NOW_LIMIT, this.list(&path, type_meta)).await;
                fetched.unwrap_or(Err(InputFailure::Lacking(LookupLack::Time)))
            }
        };
        match never_ignored(self.lists.read(user, key, read).await?) {
            Ok(found) => Ok(found),
            Err(InputFailure::Lacking(lack)) => Err(lack),
            Err(_) => Err(LookupLack::Server(absent)),
        }
    }

    /// Reads an object of a resource, which is served or was, by namespace (empty for those without) and name, in the turn of a user. Takes
    /// at most `limit`.
    pub(crate) async fn read(
        &self,
        user: &str,
        (resource, is_served): (&ApiResource, bool),
        namespace: &str,
        name: &str,
        limit: Duration,
    ) -> Result<SharedObject, InputFailure> {
        let Some(path) = object_path(resource, namespace, name) else {
            return Err(InputFailure::NotFound);
        };
        let (this, user) = (Arc::clone(&self.in_progress), user.to_owned());
        let type_meta = (resource.api_version.clone(), resource.kind.clone());
        // The connections of the client belong to the control runtime.
        let reading = tasks::spawn_with_result(&this.control.clone(), async move {
            let reading = this.get(&user, path, &type_meta, is_served);
            let read = tokio::time::timeout(limit, reading).await;
            read.unwrap_or(Err(InputFailure::Lacking(LookupLack::Time)))
        });
        let read = reading.await;
        read.unwrap_or_else(|_| Err(lacking(&"the gateway stops")))
    }
}

impl ReadsInProgress {
    async fn get(
        &self,
        user: &str,
        path: String,
        type_meta: &(String, String),
        is_served: bool,
    ) -> Result<SharedObject, InputFailure> {
        let _turn = self.turns.of(user, 1).await;
        // Others that waited for the same object may have found out meanwhile.
        if self.is_absent(&path) {
            return Err(InputFailure::NotFound);
        }
        let found = self.fetch(&path, type_meta, is_served).await;
        if found == Err(InputFailure::NotFound) {
            let mut absent = lock(&self.absent);
            if absent.len() >= MAX_ABSENT {
                absent.clear();
            }
            absent.insert(path, self.clock.now());
        }
        found
    }

    fn is_absent(&self, path: &str) -> bool {
        let absent = lock(&self.absent);
        let since = absent.get(path);
        since.is_some_and(|since| self.clock.now().since(*since) < ABSENT_FOR)
    }

    async fn fetch(
        &self,
        path: &str,
        (api_version, kind): &(String, String),
        is_served: bool,
    ) -> Result<SharedObject, InputFailure> {
        let (api_version, kind) = (api_version.clone(), kind.clone());
        self.read(path, is_served, move |value| {
            if value["kind"] != *kind || value["apiVersion"] != *api_version {
                let why = format!("the response is no {api_version} {kind}");
                return Err(InputFailure::Failed(why));
            }
            Ok(SharedObject::of(Whole::of(value)).0)
        })
        .await
    }

    /// The objects of a list.
    async fn list(
        &self,
        path: &str,
        (api_version, kind): (String, String),
    ) -> Result<Vec<SharedObject>, InputFailure> {
        self.read(path, true, move |mut value| {
            let Value::Array(items) = value["items"].take() else {
                return Err(failed(&"the response is no list"));
            };
            let objects = items.into_iter().map(|mut item| {
                if item.is_object() {
                    item["apiVersion"] = api_version.as_str().into();
                    item["kind"] = kind.as_str().into();
                }
                SharedObject::of(Whole::of(item)).0
            });
            Ok(objects.collect())
        })
        .await
    }

    /// What `made` makes of the JSON at a path.
    async fn read<T: Send + 'static>(
        &self,
        path: &str,
        is_served: bool,
        made: impl FnOnce(Value) -> Result<T, InputFailure> + Send + 'static,
    ) -> Result<T, InputFailure> {
        let target = PathAndQuery::try_from(path).map_err(|error| failed(&error))?;
        let reading = self.client.get(target, "application/json", MAX_OBJECT);
        let (status, body) = reading.await.map_err(|error| lacking(&error))?;
        if body.len() <= LARGE {
            return decoded(status, &body, is_served).and_then(made);
        }
        // Everybody who asks for the same shares the read: what is read takes turns.
        let bytes = body.len();
        let work = move || decoded(status, &body, is_served).and_then(made);
        let done = self.workers.run(path, bytes, work).await;
        done.map_err(|error| lacking(&error))?
    }
}

/// The JSON of a successful response. Where the kind is not served any more, a 404 need not name the object.
fn decoded(status: StatusCode, body: &Bytes, is_served: bool) -> Result<Value, InputFailure> {
    let value = json::parse(body).map(|read| read.value).unwrap_or_default();
    let is_absent = || !is_served || absence::names_absent_object(&value);
    if status == StatusCode::NOT_FOUND && is_absent() {
        return Err(InputFailure::NotFound);
    }
    if status.is_success() {
        return Ok(value);
    }
    let message = value["message"].as_str().unwrap_or_default();
    let why = format!("the upstream answered {status}: {message}");
    // A 404 that names no object is of a server that has not come to serve the kind, or of a proxy.
    let is_for_now = status.is_server_error()
        || status == StatusCode::NOT_FOUND
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT;
    Err(if is_for_now {
        lacking(&why)
    } else {
        failed(&why)
    })
}

/// What an object as it is now was found to be. A failure is never one that a failure policy decides about: whoever can bring it about
/// would pass the policy by.
fn never_ignored<T>(found: Result<T, InputFailure>) -> Result<T, InputFailure> {
    found.map_err(|failure| match failure {
        InputFailure::Failed(why) => lacking(&why),
        failure => failure,
    })
}

fn failed(why: &dyn fmt::Display) -> InputFailure {
    InputFailure::Failed(why.to_string())
}

fn lacking(why: &dyn fmt::Display) -> InputFailure {
    InputFailure::Lacking(LookupLack::Server(why.to_string()))
}

/// The path of an object. `None` for names that no object has, and that could change the path.
fn object_path(resource: &ApiResource, namespace: &str, name: &str) -> Option<String> {
    if !is_segment(name) {
        return None;
    }
    let mut path = collection_path(resource, namespace)?;
    path.push('/');
    push_segment(&mut path, name);
    Some(path)
}

/// Whether a text may be a name: a segment of a path, and no other path.
fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && text.len() <= MAX_NAME && !text.contains(['/', '%'])
}

/// The path of the objects of a resource in a namespace (empty for those without).
fn collection_path(resource: &ApiResource, namespace: &str) -> Option<String> {
    if !(namespace.is_empty() || is_segment(namespace)) {
        return None;
    }
    let mut path = match resource.group.as_str() {
        "" => "/api/".to_owned(),
        group => {
            let mut path = "/apis/".to_owned();
            push_segment(&mut path, group);
            path.push('/');
            path
        }
    };
    push_segment(&mut path, &resource.version);
    if !namespace.is_empty() {
        path.push_str("/namespaces/");
        push_segment(&mut path, namespace);
    }
    path.push('/');
    push_segment(&mut path, &resource.plural);
    Some(path)
}

#[cfg(test)]
mod tests {
    use fairgate_upstream::informer::GroupVersionKind;

    use super::*;

    #[test]
    fn paths_hold_names_as_single_segments() {
        let of = |group, plural| {
            let kind = GroupVersionKind::gvk(group, "v1", "Kind");
            ApiResource::from_gvk_with_plural(&kind, plural)
        };
        let path = object_path(&of("", "configmaps"), "a", "b c");
        assert_eq!(
            path.as_deref(),
            Some("/api/v1/namespaces/a/configmaps/b%20c")
        );
        let long = "x".repeat(MAX_NAME + 1);
        assert!(object_path(&of("", "configmaps"), &long[1..], &long[1..]).is_some());
        let path = object_path(&of("x.io", "limits"), "", "b");
        assert_eq!(path.as_deref(), Some("/apis/x.io/v1/limits/b"));
        for (namespace, name) in [
            ("", ".."),
            ("..", "a"),
            ("a", "b/c"),
            ("a", ""),
            ("", "%2e"),
            // A client may send names of a megabyte, and each of them would be remembered.
            ("", &long),
            (&long, "a"),
        ] {
            assert_eq!(object_path(&of("", "configmaps"), namespace, name), None);
        }
    }
}
