//! Reads single objects that no watch has delivered yet.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use fairgate_admission::{InputFailure, LookupLack, SharedObject};
use fairgate_base::{clock::Clock, tasks};
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_upstream::{
    client::ApiClient,
    path::push_segment,
    watched_object::{KeptFields as _, Whole},
};
use http::{StatusCode, uri::PathAndQuery};
use kube::core::ApiResource;
use serde_json::Value;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::objects::KeptForm as _;

/// How many objects are read at a time.
const MAX_READS: usize = 32;
/// How long an object that was not found is not looked for again.
const ABSENT_FOR: Duration = Duration::from_secs(1);
/// How many objects that were not found are remembered. When there are more, all are forgotten.
const MAX_ABSENT: usize = 1024;
/// The largest object that is read, in bytes.
const MAX_OBJECT: usize = 4 << 20;

/// Reads objects in the gateway's own name, on the control runtime.
#[derive(Clone, Debug)]
pub(crate) struct LiveReads(Arc<ReadsInProgress>);

#[derive(Debug)]
struct ReadsInProgress {
    client: ApiClient,
    control: Handle,
    clock: Clock,
    permits: Semaphore,
    /// The paths of objects that were not found, and when.
    absent: Mutex<HashMap<String, Time>>,
}

impl LiveReads {
    pub(crate) fn new(client: ApiClient, control: Handle, clock: Clock) -> Self {
        Self(Arc::new(ReadsInProgress {
            client,
            control,
            clock,
            permits: Semaphore::new(MAX_READS),
            absent: Mutex::default(),
        }))
    }

    /// Reads an object of a resource by namespace (empty for those without) and name. Takes at most `limit`.
    pub(crate) async fn read(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        limit: Duration,
    ) -> Result<SharedObject, InputFailure> {
        let Some(path) = object_path(resource, namespace, name) else {
            return Err(InputFailure::NotFound);
        };
        let this = Arc::clone(&self.0);
        let type_meta = (resource.api_version.clone(), resource.kind.clone());
        // The connections of the client belong to the control runtime.
        let reading = tasks::spawn_with_result(&self.0.control, async move {
            let reading = this.get(path, &type_meta);
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
        path: String,
        type_meta: &(String, String),
    ) -> Result<SharedObject, InputFailure> {
        let _permit = self.permits.acquire().await;
        // Others that waited for the same object may have found out meanwhile.
        if self.is_absent(&path) {
            return Err(InputFailure::NotFound);
        }
        let found = self.fetch(&path, type_meta).await;
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
    ) -> Result<SharedObject, InputFailure> {
        let failed = |error: &dyn fmt::Display| InputFailure::Failed(error.to_string());
        let target = PathAndQuery::try_from(path).map_err(|error| failed(&error))?;
        let reading = self.client.get(target, "application/json", MAX_OBJECT);
        let (status, body) = reading.await.map_err(|error| lacking(&error))?;
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status == StatusCode::NOT_FOUND && value["reason"] == "NotFound" {
            return Err(InputFailure::NotFound);
        }
        if !status.is_success() {
            let message = value["message"].as_str().unwrap_or_default();
            let why = format!("the upstream answered {status}: {message}");
            let is_for_now = status.is_server_error()
                || status == StatusCode::TOO_MANY_REQUESTS
                || status == StatusCode::REQUEST_TIMEOUT;
            return Err(if is_for_now {
                lacking(&why)
            } else {
                failed(&why)
            });
        }
        if value["kind"] != **kind || value["apiVersion"] != **api_version {
            return Err(failed(&format_args!(
                "the response is no {api_version} {kind}"
            )));
        }
        Ok(SharedObject::of(Whole::object(value)).0)
    }
}

fn lacking(why: &dyn fmt::Display) -> InputFailure {
    InputFailure::Lacking(LookupLack::Server(why.to_string()))
}

/// The path of an object. `None` for names that no object has, and that could change the path.
fn object_path(resource: &ApiResource, namespace: &str, name: &str) -> Option<String> {
    let is_segment = |text: &str| !matches!(text, "" | "." | "..") && !text.contains(['/', '%']);
    if !is_segment(name) || !(namespace.is_empty() || is_segment(namespace)) {
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
    path.push('/');
    push_segment(&mut path, name);
    Some(path)
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

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
        let path = object_path(&of("x.io", "limits"), "", "b");
        assert_eq!(path.as_deref(), Some("/apis/x.io/v1/limits/b"));
        for (namespace, name) in [
            ("", ".."),
            ("..", "a"),
            ("a", "b/c"),
            ("a", ""),
            ("", "%2e"),
        ] {
            assert_eq!(object_path(&of("", "configmaps"), namespace, name), None);
        }
    }
}
