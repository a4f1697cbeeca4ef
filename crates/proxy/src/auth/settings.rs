//! Settings of authentication.
//!
//! Values ready to use, without defaults. Not here: the files they come from, and reading those again.

use std::sync::Arc;

use super::{bundle::CaBundle, token_file::TokenFile};
use fairgate_call::RequestHeaderNames;
use fairgate_upstream::token_review::TokenReviews;

/// Which methods of authentication there are. A method that is absent is off.
#[derive(Clone, Debug, Default)]
pub struct AuthSettings {
    /// Authorities of client certificates.
    pub client_ca: Option<Arc<CaBundle>>,
    /// Proxies whose word about their clients is taken.
    pub front_proxy: Option<FrontProxySettings>,
    /// Tokens from a file.
    pub token_file: Option<TokenFile>,
    /// Reviews of other tokens. The handle outlives a change of settings, and so do known tokens.
    pub token_reviews: Option<TokenReviews>,
    /// Who shows no credential.
    pub anonymous: AnonymousAccess,
}

/// Which proxies are believed, and in which headers they speak.
#[derive(Clone, Debug)]
pub struct FrontProxySettings {
    /// Their authorities: not those of clients, or every client could be anybody.
    pub authorities: Arc<CaBundle>,
    /// The common names of their certificates; empty: all that are of these authorities.
    pub allowed_names: Vec<String>,
    /// The headers in which they speak.
    pub headers: RequestHeaderNames,
}

/// What becomes of requests without a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// Refused.
    #[default]
    Off,
    /// Served as `system:anonymous`, whatever they ask for.
    Everywhere,
    /// Served so if the decoded path equals one of these; else refused.
    Paths(Vec<String>),
}

impl AnonymousAccess {
    /// Whether a request for this path, decoded and not cleaned, may go without a credential.
    pub fn allows(&self, decoded_path: &[u8]) -> bool {
        match self {
            Self::Off => false,
            Self::Everywhere => true,
            Self::Paths(paths) => paths.iter().any(|path| path.as_bytes() == decoded_path),
        }
    }
}
