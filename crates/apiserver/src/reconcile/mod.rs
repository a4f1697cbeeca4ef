//! Objects that the gateway maintains in the API that it hosts: the built-in objects, the status
//! conditions of all flow schemas, and the status of admission policies.
//!
//! The gateway writes through the same verbs as clients, so field ownership, validation and the change
//! log apply.

mod bootstrap;
mod changes;
mod cleanup;
mod conditions;
mod recent_writes;
mod type_checks;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use serde_json::Value;

pub use bootstrap::Bootstrapper;
pub use conditions::{ConditionWriter, UnreachableSchema};
pub use type_checks::{KnownPolicyKinds, PolicyKindSource, TypeCheckWriter};

use crate::{HostedBody, HostedResponse, calls::GATEWAY_USER, hosted::Hosted};
use fairgate_apihttp::{
    negotiate::Output,
    request::{ApiRequest, Caller},
    status_error::StatusError,
};
use fairgate_core::digest::{RequestDigest, RequestInfo, User};
use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::{ReadRevision, StoreError};

/// Why the gateway could not read or write an object of the API that it hosts.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API refused the request.
    #[error("{method} {path}: {status}: {message}")]
    Refused {
        /// The HTTP method of the request.
        method: Method,
        /// The path of the request, without its query.
        path: String,
        /// The HTTP status.
        status: StatusCode,
        /// The `message` of the `Status` in the response.
        message: String,
    },
    /// The state of a namespace is not known, or its objects were changed all the time.
    #[error("the namespace {namespace}: {why}")]
    Namespace {
        /// The name of the namespace.
        namespace: String,
        /// Why it could not be cleaned up.
        why: String,
    },
    /// The expressions of a policy could not be checked.
    #[error(
        "the types in the expressions of ValidatingAdmissionPolicy {policy:?} cannot be checked: {why}"
    )]
    TypeChecks {
        /// The name of the policy.
        policy: String,
        /// Why not.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReconcileError {
    /// Whether another client has changed or deleted the object since it was read. The next pass handles both.
    fn is_race(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
                ..
            }
        )
    }
}

impl Hosted {
    /// The cached object of a cluster-scoped kind in its stored version, if it exists.
    async fn cached_object(
        &self,
        kind: &'static Kind,
        name: &str,
    ) -> Result<Option<Arc<Object>>, StoreError> {
        let key = format!("{}{name}", kind.key_prefix());
        let entry = self.state.store.get(&key, ReadRevision::Cached).await?;
        Ok(entry.and_then(|entry| match crate::objects::stored::object(kind, &entry) {
            Ok(object) => Some(object),
            Err(error) => {
                tracing::warn!(key = %entry.key, %error, "skipping an object that cannot be read");
                None
            }
        }))
    }

    /// Makes a request of the gateway itself, with [`serve_own`](Self::serve_own).
    ///
    /// # Errors
    ///
    /// [`ReconcileError::Refused`], when the response is no success.
    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> Result<(), ReconcileError> {
        let response = self
            .serve_own(method.clone(), path, query, content_type, body)
            .await;
        if response.status.is_success() {
            return Ok(());
        }
        let message = match &response.body {
            HostedBody::Full(body) => serde_json::from_slice::<Value>(body)
                .ok()
                .and_then(|status| status["message"].as_str().map(str::to_owned))
                .unwrap_or_default(),
            HostedBody::Stream(_) => String::new(),
        };
        Err(ReconcileError::Refused {
            method,
            path: path.to_owned(),
            status: response.status,
            message,
        })
    }

    /// Serves a request of the gateway itself. It is not authorized: `serve` leaves that to `authorize`,
    /// which is not called here.
    pub async fn serve_own(
        &self,
        method: Method,
        path: &str,
        query: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> HostedResponse {
        let user = User::new(GATEWAY_USER, [User::MASTERS, User::AUTHENTICATED]);
        let info = match RequestInfo::parse(method.as_str(), path, Some(query)) {
            Ok(info) => info,
            Err(error) => {
                let error = StatusError::bad_request(error.to_string());
                return HostedResponse::error(&error, Output::JSON);
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let body = body.map(|body| Bytes::from(body.to_string()));
        let request = ApiRequest {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: Some(body.unwrap_or_default()),
            caller: Caller::Gateway,
            audit_id: None,
            digest: Arc::new(RequestDigest {
                info,
                user: Arc::new(user),
            }),
        };
        self.serve(&request).await
    }
}

/// The path of an object of a kind in its stored version; that of the collection if `name` is empty.
fn path(kind: &Kind, name: &str) -> String {
    let api_version = kind.api_version(kind.stored().name);
    let path = format!("/apis/{api_version}/{}", kind.plural);
    if name.is_empty() {
        path
    } else {
        format!("{path}/{name}")
    }
}
