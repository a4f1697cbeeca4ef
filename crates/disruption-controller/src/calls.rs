//! Requests to the upstream with the gateway's own credentials, and the estimate of the upstream's clock.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fairgate_base::clock::Clock;
use fairgate_core::sync::{Mutex, lock};
use fairgate_disruption::procedure::server_clock::ServerClock;
use fairgate_election::{LeaseApi, LeaseCallError};
use fairgate_upstream::{
    client::{ApiClient, read_whole},
    deep_json,
    path::push_segment,
};
use http::{
    HeaderMap, HeaderValue, Method, Request,
    header::{ACCEPT, CONTENT_TYPE, DATE, USER_AGENT},
};
use http_body_util::Full;
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use serde_json::Value;

/// The time limit of one request, with its response.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The largest response that is read, in bytes. Discovery documents are the largest.
const MAX_RESPONSE: usize = 8 << 20;
/// The user agent of the controller. kube-apiserver also takes the default field manager from it.
const AGENT: &str = "fairgate";
const LEASE_API_VERSION: &str = "coordination.k8s.io/v1";

/// The content types of bodies.
pub(crate) const JSON: &str = "application/json";
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// An error response, with its status and the message of its `Status`.
    #[error("{message}")]
    Refused { code: u16, message: String },
    /// No response, or one that cannot be read. A write may have been executed.
    #[error("{0}")]
    Broken(String),
}

impl CallError {
    /// The HTTP status of an error response.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Broken(_) => None,
        }
    }
}

/// Calls the upstream, and estimates its clock from the header `Date` of each response.
#[derive(Debug)]
pub(crate) struct Calls {
    client: ApiClient,
    clock: Clock,
    server_clock: Arc<Mutex<ServerClock>>,
}

impl Calls {
    pub(crate) fn new(client: ApiClient, clock: Clock) -> Self {
        Self::sharing(Arc::default(), client, clock)
    }

    /// Calls that share their estimate of the upstream's clock with others.
    pub(crate) fn sharing(
        server_clock: Arc<Mutex<ServerClock>>,
        client: ApiClient,
        clock: Clock,
    ) -> Self {
        Self {
            client,
            clock,
            server_clock,
        }
    }

    /// The current time by the upstream's clock, as far as it is known.
    pub(crate) fn date(&self) -> Timestamp {
        lock(&self.server_clock).at(self.local_date())
    }

    fn local_date(&self) -> Timestamp {
        Timestamp::try_from(self.clock.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(Method::GET, path, JSON, None).await
    }

    /// Sends a request, and returns the body of a successful response.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        let sending = self.send(method, path, content_type, body);
        match tokio::time::timeout(CALL_LIMIT, sending).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Broken("the request took too long".to_owned())),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        let broken = |error: &dyn std::fmt::Display| CallError::Broken(error.to_string());
        let bytes = body.map(|body| Bytes::from(body.to_string()));
        let mut request = Request::new(Full::new(bytes.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|error| broken(&error))?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(JSON));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        let sent = self.local_date();
        let response = self.client.send(request).await;
        let (head, body) = response.map_err(|error| broken(&error))?.into_parts();
        if let Some(date) = date(&head.headers) {
            lock(&self.server_clock).observe(sent, self.local_date(), date);
        }
        let body = read_whole(body, MAX_RESPONSE).await;
        let body = body.map_err(|error| broken(&error))?;
        let value: Option<Value> = deep_json::read(&body).ok();
        if head.status.is_success() {
            return value.ok_or_else(|| broken(&"the response is not JSON"));
        }
        let message = value.as_ref().and_then(|value| value["message"].as_str());
        let reason = head.status.canonical_reason().unwrap_or_default();
        Err(CallError::Refused {
            code: head.status.as_u16(),
            message: message.unwrap_or(reason).to_owned(),
        })
    }
}

/// Requests to the upstream with the gateway's own credentials, for other parts of the gateway that keep objects there.
#[derive(Debug)]
pub struct UpstreamCalls(Calls);

impl UpstreamCalls {
    /// Calls with this client.
    pub fn new(client: ApiClient, clock: Clock) -> Self {
        Self(Calls::new(client, clock))
    }

    /// Sends a request with a body of JSON, if there is one, and returns the object of a successful response. It ends after 30 s at
    /// the latest.
    ///
    /// # Errors
    ///
    /// [`LeaseCallError`] for an error response, or without one.
    pub async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        let called = self.0.call(method, path, JSON, body).await;
        called.map_err(|error| LeaseCallError {
            code: error.code(),
            why: error.to_string(),
        })
    }
}

impl LeaseApi for Calls {
    fn date(&self) -> Timestamp {
        self.date()
    }

    async fn call(
        &self,
        method: Method,
        namespace: &str,
        name: &str,
        lease: Option<&Value>,
    ) -> Result<Value, LeaseCallError> {
        let path = object_path(&api_path(LEASE_API_VERSION), namespace, "leases", name);
        let called = self.call(method, &path, JSON, lease).await;
        called.map_err(|error| LeaseCallError {
            code: error.code(),
            why: error.to_string(),
        })
    }
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    DateTimeParser::new().parse_timestamp(text).ok()
}

/// The path of a namespaced object, or of all objects if `name` is empty. Each name is escaped, so that it stays a
/// single segment.
pub(crate) fn object_path(api: &str, namespace: &str, plural: &str, name: &str) -> String {
    let mut path = format!("{api}/namespaces/");
    push_segment(&mut path, namespace);
    path.push('/');
    push_segment(&mut path, plural);
    if !name.is_empty() {
        path.push('/');
        push_segment(&mut path, name);
    }
    path
}

/// The path of a named API group: `/apis/apps`.
pub(crate) fn group_path(group: &str) -> String {
    let mut path = "/apis/".to_owned();
    push_segment(&mut path, group);
    path
}

/// The path of an API group and version: `/api/v1`, or `/apis/apps/v1`.
pub(crate) fn api_path(api_version: &str) -> String {
    match api_version.split_once('/') {
        None => {
            let mut path = "/api/".to_owned();
            push_segment(&mut path, api_version);
            path
        }
        Some((group, version)) => {
            let mut path = group_path(group);
            path.push('/');
            push_segment(&mut path, version);
            path
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_single_segments_of_the_path() {
        let path = object_path(&api_path("a b/v1"), "n/s", "pods", "../x?y");
        assert_eq!(path, "/apis/a%20b/v1/namespaces/n%2Fs/pods/..%2Fx%3Fy");
        assert_eq!(
            object_path("/api/v1", "ns", "events", ""),
            "/api/v1/namespaces/ns/events"
        );
        assert_eq!(api_path("v1"), "/api/v1");
        assert_eq!(api_path("apps/v1"), "/apis/apps/v1");
    }
}
