//! Why a request is not served.

use fairgate_core::{digest::InfoError, rejection::RejectReason};

/// Why a request is not served. [`super::refusal_reply`] turns it into a reply.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request violates HTTP, or is one that servers interpret differently.
    #[error("{0}")]
    Malformed(&'static str),
    /// `?timeout=` is not a duration; the text is the parser's error.
    #[error("invalid timeout specified in the request URL - {0}")]
    BadTimeout(Box<str>),
    /// The method is one that proxies must not forward.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// An `Expect` other than `100-continue`.
    #[error("the expectation cannot be met")]
    ExpectationFailed,
    /// The path has the form of an API request but cannot be one.
    #[error("failed to create RequestInfo: unable to determine kind and namespace from url")]
    Unclassifiable,
    /// The requested host does not belong to this connection.
    #[error("the request is for another host")]
    Misdirected,
    /// No credential, or an invalid one.
    #[error("Unauthorized")]
    Unauthorized,
    /// The user is not authorized; the text says for what.
    #[error("{0}")]
    Forbidden(Box<str>),
    /// The credential cannot be verified now.
    #[error("credentials cannot be checked at present")]
    CredentialCheckUnavailable,
    /// Too many tokens of clients like this one wait to be verified.
    #[error("too many bearer tokens wait to be reviewed; try again later")]
    TooManyTokenReviews,
    /// Flow control rejected it.
    #[error("Too many requests, please try again later.")]
    TooManyRequests(Box<FlowRejection>),
    /// Too many long-running requests, of this user or in total.
    #[error("too many long-running requests; the limit is per user and in total")]
    TooManyLongRunning {
        /// Seconds until the client should retry.
        retry_after: u32,
    },
    /// Too many watches, of this user or in total.
    #[error("too many watches; the limit is per user and in total")]
    TooManyWatches {
        /// Seconds until the client should retry.
        retry_after: u32,
    },
    /// The long heads of this user's requests in progress take too much memory.
    #[error("the long headers of this user's requests take too much memory")]
    TooManyLongHeads {
        /// Seconds until the client should retry.
        retry_after: u32,
    },
    /// This user reset too many requests before they got a response.
    #[error("too many requests of this user were reset before they were answered")]
    TooManyResets {
        /// Seconds until the client should retry.
        retry_after: u32,
    },
    /// The client disconnected while its request waited; the reply is not received.
    #[error("the client disconnected")]
    ClientGone,
    /// The client did not send the body in time, or too slowly while others needed the seat. The upstream has not got a complete
    /// request.
    #[error("the request's body was sent too slowly")]
    BodyTooSlow,
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Draining,
    /// No upstream could be reached. Nothing was sent.
    #[error("the upstream cannot be reached")]
    UpstreamUnreachable,
    /// All connections to the upstream are in use, and their number is at its limit. Nothing was sent.
    #[error("all connections to the upstream are in use")]
    UpstreamFull,
    /// The upstream failed after the request was sent: it may have been carried out.
    #[error("the upstream failed before it answered")]
    UpstreamFailed,
    /// The upstream did not respond in time; it may still be working on the request.
    #[error("Timeout: the upstream did not answer within the allotted time")]
    UpstreamTimeout,
    /// The headers to be sent upstream, including the user's groups, are too large.
    #[error("the request's headers are too large")]
    HeadersTooLarge,
    /// The identity cannot be expressed in headers.
    #[error("the user's identity cannot be passed on: {0}")]
    IdentityNotRepresentable(Box<str>),
    /// An error of the gateway itself; the text is only logged.
    #[error("an internal error of the gateway")]
    Internal(Box<str>),
}

/// A rejection by flow control.
#[derive(Clone, Debug)]
pub struct FlowRejection {
    /// Why flow control rejected the request.
    pub reason: RejectReason,
    /// Seconds until the client should retry: 1 to 32.
    pub retry_after: u32,
}

impl Refusal {
    /// The reason in one word: the same in the reply's header, in logs and in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::BadTimeout(_) => "bad-timeout",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::ExpectationFailed => "expectation-failed",
            Self::Unclassifiable => "unclassifiable",
            Self::Misdirected => "misdirected",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::CredentialCheckUnavailable => "credential-check-unavailable",
            Self::TooManyTokenReviews => "too-many-token-reviews",
            Self::TooManyRequests(rejection) => rejection.reason.as_str(),
            Self::TooManyLongRunning { .. } => "too-many-long-running",
            Self::TooManyWatches { .. } => "too-many-watches",
            Self::TooManyLongHeads { .. } => "too-many-long-heads",
            Self::TooManyResets { .. } => "too-many-resets",
            Self::ClientGone => "client-gone",
            Self::BodyTooSlow => "body-too-slow",
            Self::Draining => "draining",
            Self::UpstreamUnreachable => "upstream-unreachable",
            Self::UpstreamFull => "upstream-full",
            Self::UpstreamFailed => "upstream-failed",
            Self::UpstreamTimeout => "upstream-timeout",
            Self::HeadersTooLarge => "headers-too-large",
            Self::IdentityNotRepresentable(_) => "identity-not-representable",
            Self::Internal(_) => "internal",
        }
    }
}

impl From<InfoError> for Refusal {
    fn from(error: InfoError) -> Self {
        match error {
            InfoError::BadEscape => Self::Malformed("the path has a malformed percent escape"),
            InfoError::BadByte => {
                Self::Malformed("the target contains an unescaped control character or space")
            }
            InfoError::TooManyParameters => {
                Self::Malformed("the query has more than 10000 parameters")
            }
            InfoError::Unclassifiable => Self::Unclassifiable,
        }
    }
}
