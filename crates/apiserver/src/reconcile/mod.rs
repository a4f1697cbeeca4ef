//! What the gateway itself writes into the API it hosts: the built-in objects, and what it found out
//! about the others.
//!
//! It writes as any client does, through the verbs, so that ownership, validation and the log of
//! changes hold for it, too.

mod bootstrap;
mod conditions;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use serde_json::Value;

pub use bootstrap::Bootstrapper;
pub use conditions::{ConditionWriter, UnreachableSchema};

use crate::{
    hosted::Hosted,
    request::{ApiRequest, Caller},
    response::ApiBody,
};
use fairgate_core::digest::{RequestDigest, RequestInfo, User};
use fairgate_objects::{kind::Kind, metadata, object::Object};
use fairgate_store::{ReadRevision, StoreError};

use crate::calls::GATEWAY;

/// Why the gateway could not write.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API refused.
    #[error("{method} {path}: {status}: {message}")]
    Refused {
        /// The method.
        method: Method,
        /// The path.
        path: String,
        /// The HTTP status.
        status: StatusCode,
        /// What it said.
        message: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReconcileError {
    /// Whether another gateway was faster, or the object has gone: nothing to worry about.
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
    /// All objects of a kind in their stored version, by name, as they are in memory.
    async fn known(
        &self,
        kind: &'static Kind,
    ) -> Result<BTreeMap<String, Arc<Object>>, StoreError> {
        let prefix = format!("/{}/", kind.plural);
        let page = self
            .state
            .store
            .list(&prefix, None, None, ReadRevision::Cached)
            .await?;
        let mut known = BTreeMap::new();
        for entry in &page.entries {
            match crate::stored::object(kind, entry) {
                Ok(object) => {
                    known.insert(metadata::name(object.stored()).to_owned(), object);
                }
                Err(fault) => tracing::warn!(key = %entry.key, %fault, "skipping an object"),
            }
        }
        Ok(known)
    }

    /// Makes a call in the gateway's own name.
    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> Result<(), ReconcileError> {
        let user = User::new(GATEWAY, [User::MASTERS, User::AUTHENTICATED]);
        let refused = |status, message| ReconcileError::Refused {
            method: method.clone(),
            path: path.to_owned(),
            status,
            message,
        };
        let info = RequestInfo::parse(method.as_str(), path, Some(query))
            .map_err(|error| refused(StatusCode::BAD_REQUEST, error.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let body = body.map(|body| Bytes::from(body.to_string()));
        let request = ApiRequest {
            method: method.clone(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: Some(body.unwrap_or_default()),
            caller: Caller::Gateway,
            digest: Arc::new(RequestDigest {
                info,
                user: Arc::new(user),
            }),
        };
        let answer = self.serve(&request).await;
        if answer.status.is_success() {
            return Ok(());
        }
        let message = match &answer.body {
            ApiBody::Full(body) => serde_json::from_slice::<Value>(body)
                .ok()
                .and_then(|status| status["message"].as_str().map(str::to_owned))
                .unwrap_or_default(),
            ApiBody::Watch(_) => String::new(),
        };
        Err(refused(answer.status, message))
    }
}

/// The path of an object of a kind in its stored version, or of all of them.
fn path(kind: &Kind, name: &str) -> String {
    let api_version = kind.api_version(kind.stored().name);
    let path = format!("/apis/{api_version}/{}", kind.plural);
    if name.is_empty() {
        path
    } else {
        format!("{path}/{name}")
    }
}
