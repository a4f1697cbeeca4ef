//! A request to the hosted API: complete, and `Send`.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};

use crate::status_error::StatusError;
use fairgate_call::Call;
use fairgate_core::digest::{RequestDigest, User, readable};
use fairgate_gotext::utf8_text;

/// The maximum length of a body in bytes.
pub const MAX_BODY: usize = 3 << 20;

/// The maximum length of the body of a review in bytes. Low, because every authenticated user may send one.
pub const MAX_REVIEW: usize = 32 << 10;

/// The origin of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client.
    Client {
        /// The authenticated user, if it impersonates another.
        impersonator: Option<Arc<User>>,
    },
    /// The gateway itself, whose requests are not authorized.
    Gateway,
}

/// A request to the hosted API.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// The HTTP method.
    pub method: Method,
    /// The path, decoded.
    pub path: String,
    /// The query, not decoded; empty if there is none.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; `None` if it was too long. Empty if the method has none.
    pub body: Option<Bytes>,
    /// The origin. Not the same as the user name in the digest, which a client may have, too.
    pub caller: Caller,
    /// The ID of the request in audit logs and in the response, if it is known already.
    pub audit_id: Option<HeaderValue>,
    /// What is requested, and by which user.
    pub digest: Arc<RequestDigest>,
}

impl ApiRequest {
    /// A call, with no body.
    pub fn of(call: &Call) -> Self {
        Self::with_headers(call, call.request.headers().clone())
    }

    /// A call that nobody reads after this one, with no body: its headers are moved, not cloned.
    pub fn of_last(call: &mut Call) -> Self {
        let headers = std::mem::take(call.request.headers_mut());
        Self::with_headers(call, headers)
    }

    fn with_headers(call: &Call, headers: HeaderMap) -> Self {
        let impersonator = call.identity.as_ref().and_then(|who| who.impersonator());
        Self {
            method: call.request.method().clone(),
            path: readable(call.digest.info.path()).into_owned(),
            query: call.request.uri().query().unwrap_or_default().to_owned(),
            headers,
            body: Some(Bytes::new()),
            caller: Caller::Client {
                impersonator: impersonator.cloned(),
            },
            audit_id: None,
            digest: Arc::clone(&call.digest),
        }
    }

    /// A header; empty if it is absent. Bytes that are not UTF-8 are U+FFFD, as for Go.
    pub fn header(&self, name: &str) -> Cow<'_, str> {
        let value = self.headers.get(name);
        value.map_or_else(Cow::default, |value| utf8_text(value.as_bytes()))
    }

    /// The ID of the request in audit logs; empty if it has none, or one that is not text.
    pub fn audit_id(&self) -> &str {
        let id = self.audit_id.as_ref();
        id.and_then(|id| id.to_str().ok()).unwrap_or_default()
    }

    /// The body.
    ///
    /// # Errors
    ///
    /// 413, when it was too long.
    pub fn body(&self) -> Result<&Bytes, StatusError> {
        self.body
            .as_ref()
            .ok_or_else(|| StatusError::too_large(&format!("limit is {MAX_BODY}")))
    }

    /// The authenticated user who makes the request.
    pub fn user(&self) -> &User {
        &self.digest.user
    }
}
