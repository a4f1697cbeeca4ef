//! A call as the hosted API sees it: all of it here, and free to go to another thread.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::status_error::StatusError;
use fairgate_core::digest::{RequestDigest, User};

/// The most bytes of a body: 3 MiB.
pub const MAX_BODY: usize = 3 << 20;

/// The most bytes of a review's body: everybody may send one, and reading it takes time.
pub(crate) const MAX_REVIEW: usize = 32 << 10;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Somebody, in whose name another may act.
    Client {
        /// Who that is.
        impersonator: Option<Arc<User>>,
    },
    /// The gateway itself, which nobody has to allow anything.
    Gateway,
}

/// A call.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// The path, decoded.
    pub path: String,
    /// The query as it came; empty if there is none.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, unless it was too long. Empty where none is read.
    pub body: Option<Bytes>,
    /// Who calls. Not told by the name in the digest, which a client may well bear, too.
    pub caller: Caller,
    /// What it asks for, and who asks.
    pub digest: Arc<RequestDigest>,
}

impl ApiRequest {
    /// A header; empty if absent or no text.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
            .unwrap_or_default()
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

    /// Who asks.
    pub fn user(&self) -> &User {
        &self.digest.user
    }
}
