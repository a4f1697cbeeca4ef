//! What a request may lack to be evaluated. A client can bring that about itself, so the failure policy has no say in it: it decides about
//! errors of evaluation alone.

use fairgate_apihttp::status_error::StatusError;
use http::StatusCode;
use serde_json::json;

/// What is lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lack {
    /// Time, until the deadline of the request or of a read.
    #[error("the admission policies could not be evaluated in time")]
    Time,
    /// A thread that evaluates.
    #[error("no thread is free to evaluate the admission policies")]
    Worker,
    /// A place among the requests that wait for the resources of the upstream.
    #[error("too many requests wait until the resources of the upstream have been read")]
    Place,
    /// A place among the namespaces and params that are read: the user of the request has too many of them.
    #[error("too many namespaces and params are being read for this user")]
    Read,
    /// Room in the URL for the parameter that makes it a dry run.
    #[error("the URL is too long for the dry run that admission policies ask for")]
    Url,
}

impl Lack {
    /// 504, 429 or 414.
    pub(crate) fn status(self) -> StatusError {
        let (code, reason, details) = match self {
            Self::Time => (StatusCode::GATEWAY_TIMEOUT, "Timeout", json!({})),
            Self::Worker | Self::Place | Self::Read => (
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                json!({"retryAfterSeconds": 1}),
            ),
            Self::Url => (StatusCode::URI_TOO_LONG, "RequestURITooLong", json!({})),
        };
        StatusError::new(code, reason, format!("fairgate: {self}")).with_details(details)
    }
}
