//! Who a request is from, and the header lines that tell the upstream so.
//!
//! The lines are made by `auth` and kept with the [`Identity`], which many requests share.
//!
//! Not here: how a user is found, and what the lines say.

use std::sync::{Arc, OnceLock};

use http::{HeaderName, HeaderValue};

pub use super::header_names::{HeaderNameError, RequestHeaderNames};
use fairgate_core::digest::User;

/// How the upstream is told an identity. Cloning shares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamIdentity {
    /// `Impersonate-*`, next to a credential of the gateway that may impersonate.
    Impersonate,
    /// Front-proxy headers, over a connection with a certificate the upstream trusts for them.
    RequestHeader(Arc<RequestHeaderNames>),
}

/// A user as authentication found it, with the header lines that tell the upstream of it.
#[derive(Debug)]
pub struct Identity {
    user: Arc<User>,
    impersonator: Option<Arc<User>>,
    prepared: OnceLock<Prepared>,
}

/// Header lines, and for which way of telling they were made.
type Prepared = (UpstreamIdentity, Result<IdentityHeaders, IdentityError>);

/// The header lines that tell one user, ready to be sent. Cloning shares them.
#[derive(Clone, Debug)]
pub struct IdentityHeaders(Arc<[(HeaderName, HeaderValue)]>);

/// Why request headers cannot express a user. The request must not be sent; answer 403.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum IdentityError {
    /// An empty group, or a key of no length.
    #[error("the user has an empty {part}, which no header can carry")]
    Empty { part: &'static str },
    /// Parsers trim blanks and may cut at control characters: another name would arrive.
    #[error(
        "the user's {part} {value:?} has control characters, or blanks at an end, which no header can carry"
    )]
    Unrepresentable { part: &'static str, value: String },
    /// Two identities would mix.
    #[error("the request to the upstream already has the identity header {name}")]
    AlreadyTold { name: HeaderName },
}

impl Identity {
    /// The identity of `user`.
    pub fn new(user: User) -> Self {
        Self {
            user: Arc::new(user),
            impersonator: None,
            prepared: OnceLock::new(),
        }
    }

    /// The identity of `user`, as which `impersonator` acts.
    pub fn impersonated(user: User, impersonator: Arc<User>) -> Self {
        Self {
            impersonator: Some(impersonator),
            ..Self::new(user)
        }
    }

    /// Who really acts, if somebody acts as another.
    pub fn impersonator(&self) -> Option<&Arc<User>> {
        self.impersonator.as_ref()
    }

    /// Who it is.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// The lines that tell the upstream of it in the way `upstream`. `make` makes them at the first
    /// call; later ones share them. For another way they are made each time.
    ///
    /// # Errors
    ///
    /// Those of `make`, which are kept, too.
    pub fn headers(
        &self,
        upstream: &UpstreamIdentity,
        mut make: impl FnMut() -> Result<IdentityHeaders, IdentityError>,
    ) -> Result<IdentityHeaders, IdentityError> {
        let (made_for, headers) = self.prepared.get_or_init(|| (upstream.clone(), make()));
        if made_for.is_same(upstream) {
            headers.clone()
        } else {
            make()
        }
    }
}

impl UpstreamIdentity {
    /// Equality by sharing: cheap, and at worst something is made anew.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Impersonate, Self::Impersonate) => true,
            (Self::RequestHeader(a), Self::RequestHeader(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl IdentityError {
    /// Which part of the identity is at fault, in a word or two.
    pub fn part(&self) -> &'static str {
        match self {
            Self::Empty { part } | Self::Unrepresentable { part, .. } => part,
            Self::AlreadyTold { .. } => "identity header",
        }
    }
}

impl IdentityHeaders {
    /// These lines.
    pub fn new(lines: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self(lines.into())
    }

    /// The lines in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }
}
