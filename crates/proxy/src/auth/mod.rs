//! Authentication of requests, and their identity towards the upstream.
//!
//! The [`Authenticator`] tries the methods in the order of a Kubernetes API server: front proxy, client
//! certificate, bearer token, WebSocket token. The first that succeeds decides, even if earlier ones
//! failed. Only a request without any credential is anonymous, so an invalid credential never counts as
//! none. A request whose connection or token is known costs no allocation and does not wait; an unknown
//! token waits for one [`PendingReview`].
//!
//! Before a request is forwarded, [`strip_identity_headers`] removes what the client says about itself, and
//! [`upstream`] adds the authenticated identity.
//!
//! Each method has a file: `front_proxy`, `mtls`, `token_file`; `bearer` extracts tokens from requests. Not
//! here: reviews of tokens by the upstream ([`fairgate_upstream::token_review`]), and what a connection caches
//! of its client's certificate ([`fairgate_call::PeerIdentityCache`]).

mod authenticator;
pub(crate) mod bearer;
mod bundle;
pub(crate) mod extra_key;
mod failure;
mod front_proxy;
pub(crate) mod impersonation;
pub mod layer;
mod mtls;
mod now;
mod settings;
pub(crate) mod spoof;
mod token_file;
pub mod upstream;
pub(crate) mod x509;

pub use self::{
    authenticator::{AuthDecision, AuthOutcome, Authenticator, Credentials, PendingReview},
    bundle::{BundleError, CaBundle},
    failure::{AuthFailure, AuthFailures},
    now::Now,
    settings::{AnonymousAccess, AuthSettings, FrontProxySettings},
    spoof::{ConfiguredNames, HeaderRefusal, refuse_identity_headers, strip_identity_headers},
    token_file::{TokenFileError, TokenFileWarning, TokenTable},
};
pub use fairgate_call::{
    HeaderNameError, Identity, RequestHeaderNames,
    identity_headers::{IdentityError, IdentityHeaders, UpstreamIdentity},
};
pub use fairgate_upstream::token_review::{NoRandomness, TokenKey, TokenReviews};

#[cfg(test)]
mod tests;
