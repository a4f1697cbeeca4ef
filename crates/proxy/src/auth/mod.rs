//! Authentication of requests, and their identity towards the upstream.
//!
//! The [`Authenticator`] tries the methods in the order of a Kubernetes API server: front proxy, client
//! certificate, bearer token, WebSocket token. The first that succeeds decides, even if earlier ones
//! failed. Only a request without any credential is anonymous, so an invalid credential is never treated
//! like a missing one. A request whose connection or token is cached costs no allocation and does not wait; an unknown
//! token waits for one review.
//!
//! Before a request is forwarded, `spoof` removes identity headers that the client sent, and
//! [`upstream`] adds the authenticated identity.
//!
//! Each method has a file: `front_proxy`, `mtls`, `token_file`; `bearer` extracts tokens from requests. Not
//! here: reviews of tokens by the upstream ([`fairgate_upstream::token_review`]), and what a connection caches
//! of its client's certificate ([`fairgate_call::PeerIdentityCache`]).

mod authenticator;
mod bearer;
mod bundle;
mod extra_key;
mod failure;
mod front_proxy;
mod impersonation;
pub mod layer;
mod mtls;
mod now;
mod settings;
mod spoof;
mod token_file;
pub mod upstream;
mod x509;

pub use self::{
    authenticator::Authenticator,
    bundle::{BundleError, CaBundle},
    now::Now,
    settings::{AnonymousAccess, AuthSettings, FrontProxySettings},
    spoof::ConfiguredNames,
    token_file::{TokenFileError, TokenFileWarning, TokenTable},
};
pub use fairgate_call::{
    HeaderNameError, Identity, RequestHeaderNames,
    identity_headers::{IdentityError, IdentityHeaders, UpstreamIdentity},
};
pub use fairgate_upstream::token_review::{NoRandomness, TokenKey, TokenReviews};

#[cfg(test)]
mod tests;
