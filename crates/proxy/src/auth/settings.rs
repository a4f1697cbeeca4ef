//! Settings of authentication.
//!
//! They are ready to use, without defaults. Not here: the files that they come from, and reloading those.

use std::sync::Arc;

use super::{bundle::CaBundle, token_file::TokenTable};
use fairgate_call::RequestHeaderNames;
use fairgate_upstream::token_review::TokenReviews;

/// Which methods of authentication there are. A method that is absent is off.
#[derive(Clone, Debug, Default)]
pub struct AuthSettings {
    /// Certificate authorities of clients.
    pub client_ca: Option<Arc<CaBundle>>,
    /// Trusted front proxies.
    pub front_proxy: Option<FrontProxySettings>,
    /// The tokens of a token file.
    pub token_file: Option<TokenTable>,
    /// Reviews of other tokens. They survive a change of settings, and so do cached tokens.
    pub token_reviews: Option<TokenReviews>,
    /// Requests without a credential.
    pub anonymous: AnonymousAccess,
}

/// Which front proxies are trusted, and which headers they use.
#[derive(Clone, Debug)]
pub struct FrontProxySettings {
    /// The certificate authorities of the front proxies. They must not be those of clients, or every client could name
    /// any user.
    pub authorities: Arc<CaBundle>,
    /// The allowed common names of their certificates; empty allows all.
    pub allowed_names: Vec<String>,
    /// The headers that they use.
    pub headers: RequestHeaderNames,
}

/// How requests without a credential are handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// They are refused.
    #[default]
    Off,
    /// They are served as `system:anonymous`.
    Everywhere,
    /// They are served as `system:anonymous` if the decoded path is one of these; else they are refused.
    Paths(Vec<String>),
}

impl AnonymousAccess {
    /// Whether a request for this path, decoded and not cleaned, needs no credential.
    pub fn allows(&self, decoded_path: &[u8]) -> bool {
        match self {
            Self::Off => false,
            Self::Everywhere => true,
            Self::Paths(paths) => paths.iter().any(|path| path.as_bytes() == decoded_path),
        }
    }
}
