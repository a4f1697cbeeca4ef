//! The header lines that carry the user of a request to the upstream, and their cache.
//!
//! `auth` makes the lines. They are made once for an [`Identity`](super::Identity), which many requests
//! share: a request only increments a reference count.

use std::sync::{Arc, OnceLock};

use http::{HeaderName, HeaderValue};

use super::header_names::RequestHeaderNames;

/// Which kind of headers carries the user of a request to the upstream. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamIdentity {
    /// `Impersonate-*` headers, with a credential of the gateway that is allowed to impersonate.
    Impersonate,
    /// Front-proxy headers, over a connection with a certificate that the upstream trusts for them.
    RequestHeader(Arc<RequestHeaderNames>),
}

impl UpstreamIdentity {
    /// Compares by reference, which is cheap. Equal values behind different references only cause headers
    /// to be made again.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Impersonate, Self::Impersonate) => true,
            (Self::RequestHeader(a), Self::RequestHeader(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// The header lines for one user, ready to be sent. Cloning shares them.
#[derive(Clone, Debug)]
pub struct IdentityHeaders(Arc<[(HeaderName, HeaderValue)]>);

impl IdentityHeaders {
    /// Wraps these lines, in the order in which they are to be sent.
    pub fn new(lines: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self(lines.into())
    }

    /// The lines in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }
}

/// Why request headers cannot express a user. The request must not be sent; the response is a 403.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum IdentityError {
    /// An empty group, or an extra attribute with an empty key.
    #[error("the user has an empty {part}, which no header can carry")]
    Empty { part: &'static str },
    /// Parsers trim whitespace and may cut at control characters, so that another name would arrive.
    #[error(
        "the user's {part} {value:?} contains control characters, or starts or ends with whitespace, which no header can carry"
    )]
    Unrepresentable { part: &'static str, value: String },
    /// Policies would be evaluated for another user than the upstream executes the request for.
    #[error(
        "the user is system:anonymous without the group system:unauthenticated, which the upstream would add"
    )]
    AnonymousWithoutGroup,
    /// Two identities would be mixed.
    #[error("the request to the upstream already has the identity header {name}")]
    AlreadyPresent { name: HeaderName },
}

impl IdentityError {
    /// Which part of the identity cannot be sent, in a word or two.
    pub fn part(&self) -> &'static str {
        match self {
            Self::Empty { part } | Self::Unrepresentable { part, .. } => part,
            Self::AnonymousWithoutGroup => "group",
            Self::AlreadyPresent { .. } => "identity header",
        }
    }
}

/// The headers of one identity after they were made, and the [`UpstreamIdentity`] they were made for.
#[derive(Debug, Default)]
pub struct IdentityHeaderCache(OnceLock<CachedHeaders>);

type CachedHeaders = (UpstreamIdentity, Result<IdentityHeaders, IdentityError>);

impl IdentityHeaderCache {
    /// The headers for `upstream`. The first call runs `make`; later calls share its result. If a later
    /// call is for another [`UpstreamIdentity`], it runs `make` each time.
    ///
    /// # Errors
    ///
    /// Those of `make`, which are cached as well.
    pub fn get(
        &self,
        upstream: &UpstreamIdentity,
        mut make: impl FnMut() -> Result<IdentityHeaders, IdentityError>,
    ) -> Result<IdentityHeaders, IdentityError> {
        let (made_for, headers) = self.0.get_or_init(|| (upstream.clone(), make()));
        if made_for.is_same(upstream) {
            headers.clone()
        } else {
            make()
        }
    }
}
