//! What the upstream answers when it refuses a call.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

/// An error response of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The header `Retry-After`.
    pub retry_after: Option<HeaderValue>,
    /// The body; empty if it could not be read.
    pub body: Bytes,
}
