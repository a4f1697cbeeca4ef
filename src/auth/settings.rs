//! Settings of authentication, and what becomes of them.
//!
//! Plain values: the content of files, not their names, and no defaults. Not here: reading and
//! re-reading those files.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    Authentication, BundleError, CaBundle, RequestHeaderNames, TokenFile, TokenFileError,
    TokenFileWarning, TokenKey, TokenReviews, front_proxy::FrontProxy,
};

/// Which methods of authentication there are. A method that is absent is off.
#[derive(Clone, Default)]
pub struct AuthSettings {
    /// Authorities of client certificates, in PEM.
    pub client_ca_pem: Option<Vec<u8>>,
    /// Proxies whose word about their clients is taken.
    pub front_proxy: Option<FrontProxySettings>,
    /// The text of a token file.
    pub token_file: Option<Vec<u8>>,
    /// Reviews of other tokens. The handle outlives a change of settings, and so do known tokens.
    pub token_reviews: Option<TokenReviews>,
    /// Who shows no credential.
    pub anonymous: Anonymous,
}

/// Which proxies are believed.
#[derive(Clone, Debug)]
pub struct FrontProxySettings {
    /// Their authorities, in PEM: not those of clients, or every client could be anybody.
    pub ca_pem: Vec<u8>,
    /// The common names of their certificates; empty: all that are of these authorities.
    pub allowed_names: Vec<String>,
    /// The headers in which they speak.
    pub headers: RequestHeaderNames,
}

/// What becomes of requests without a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Refused.
    #[default]
    Off,
    /// Served as `system:anonymous`, whatever they ask for.
    Everywhere,
    /// Served so if the decoded path equals one of these; else refused.
    Paths(Vec<String>),
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthSettingsError {
    /// The authorities of client certificates.
    #[error("client CA: {0}")]
    ClientCa(#[source] BundleError),
    /// The authorities of front proxies.
    #[error("front-proxy CA: {0}")]
    FrontProxyCa(#[source] BundleError),
    /// The token file.
    #[error("token file: {0}")]
    TokenFile(#[source] TokenFileError),
}

impl Authentication {
    /// What these settings make, with warnings about the token file.
    ///
    /// The token file is hashed under the key of the reviews if there are any, so that one hash of a
    /// token serves both; else under `key`.
    ///
    /// # Errors
    ///
    /// Every mistake in the settings.
    pub fn new(
        settings: AuthSettings,
        key: &TokenKey,
    ) -> Result<(Self, Vec<TokenFileWarning>), Vec<AuthSettingsError>> {
        static VERSIONS: AtomicU64 = AtomicU64::new(1); // a fresh connection is at 0

        let mut errors = Vec::new();
        let mut bundle = |pem: &[u8], wrap: fn(BundleError) -> AuthSettingsError| {
            CaBundle::from_pem(pem)
                .map_err(|error| errors.push(wrap(error)))
                .ok()
        };
        let client_ca = settings
            .client_ca_pem
            .and_then(|pem| bundle(&pem, AuthSettingsError::ClientCa));
        let front_proxy = settings.front_proxy.and_then(|proxy| {
            Some(FrontProxy {
                authorities: bundle(&proxy.ca_pem, AuthSettingsError::FrontProxyCa)?,
                allowed_names: proxy.allowed_names,
                headers: proxy.headers,
            })
        });
        let key = settings
            .token_reviews
            .as_ref()
            .map_or(key, TokenReviews::key);
        let (token_file, warnings) = match settings.token_file {
            None => (None, Vec::new()),
            Some(text) => match TokenFile::parse(&text, key) {
                Ok((file, warnings)) => (Some(file), warnings),
                Err(mistakes) => {
                    errors.extend(mistakes.into_iter().map(AuthSettingsError::TokenFile));
                    (None, Vec::new())
                }
            },
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let authentication = Self {
            version: VERSIONS.fetch_add(1, Ordering::Relaxed),
            front_proxy,
            client_ca,
            token_file,
            token_reviews: settings.token_reviews,
            anonymous: settings.anonymous,
        };
        Ok((authentication, warnings))
    }
}

/// Without the tokens.
impl fmt::Debug for AuthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthSettings")
            .field("client_ca", &self.client_ca_pem.is_some())
            .field("front_proxy", &self.front_proxy.is_some())
            .field("token_file", &self.token_file.is_some())
            .field("token_reviews", &self.token_reviews)
            .field("anonymous", &self.anonymous)
            .finish()
    }
}

impl Anonymous {
    /// Whether a request for this path, decoded and not cleaned, may go without a credential.
    pub fn allows(&self, decoded_path: &[u8]) -> bool {
        match self {
            Self::Off => false,
            Self::Everywhere => true,
            Self::Paths(paths) => paths.iter().any(|path| path.as_bytes() == decoded_path),
        }
    }
}
