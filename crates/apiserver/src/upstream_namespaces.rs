//! The namespaces of the upstream, in which hosted objects are.

use http::{StatusCode, uri::PathAndQuery};
use serde_json::Value;

use crate::namespaces::{NamespaceFuture, NamespaceState, Namespaces};
use fairgate_gotext::names;
use fairgate_upstream::client::ApiClient;

/// The largest namespace that is read, in bytes.
const MAX_NAMESPACE: usize = 3 << 20;

/// The namespaces of the upstream, read in the gateway's own name.
#[derive(Debug)]
pub struct UpstreamNamespaces {
    client: ApiClient,
}

impl UpstreamNamespaces {
    /// Those that `client` may read.
    pub fn new(client: ApiClient) -> Self {
        Self { client }
    }

    async fn read(&self, name: &str) -> Result<NamespaceState, String> {
        // Any other name is that of no namespace, and could change the path.
        if !names::label(name).is_empty() {
            return Ok(NamespaceState::Absent);
        }
        let target = format!("/api/v1/namespaces/{name}");
        let target = PathAndQuery::try_from(target).map_err(|_| "its name is too long")?;
        let reading = self.client.get(target, "application/json", MAX_NAMESPACE);
        let (status, body) = reading.await.map_err(|error| error.to_string())?;
        if !status.is_success() && status != StatusCode::NOT_FOUND {
            return Err(format!("the upstream answered {status}"));
        }
        // A text that is not JSON is no Namespace either; a proxy may have sent it.
        let namespace: Value = serde_json::from_slice(&body).unwrap_or_default();
        // Objects of a namespace that does not exist are deleted, so a proxy's 404 must not count.
        let is_absent = namespace["kind"] == "Status"
            && namespace["reason"] == "NotFound"
            && namespace["details"]["kind"] == "namespaces";
        if status == StatusCode::NOT_FOUND && is_absent {
            return Ok(NamespaceState::Absent);
        }
        if !status.is_success() || namespace["kind"] != "Namespace" {
            return Err(format!(
                "the upstream answered {status} without a Namespace"
            ));
        }
        let is_deleted = namespace["metadata"]["deletionTimestamp"].is_string();
        if is_deleted || namespace["status"]["phase"] == "Terminating" {
            return Ok(NamespaceState::Terminating);
        }
        let uid = namespace["metadata"]["uid"].as_str();
        let uid = uid.ok_or("it has no UID")?.to_owned();
        Ok(NamespaceState::Active { uid })
    }
}

impl Namespaces for UpstreamNamespaces {
    fn state<'a>(&'a self, name: &'a str) -> NamespaceFuture<'a> {
        Box::pin(self.read(name))
    }
}
