//! Errors of settings that pass the validation of `config`, but cannot be used.

use fairgate_store::StoreError;

use fairgate_proxy::auth::{BundleError, HeaderNameError, NoRandomness, TokenFileError};

/// A setting that passes validation, but cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The upstream's URL does not contain a host and port.
    #[error("upstream.url: {0:?} is not a host and port; write https://host:port")]
    Authority(String),
    /// The name expected in the upstream's certificate cannot be used as a TLS server name.
    #[error("upstream.url: {0:?} is not a valid TLS server name; set upstream.tlsServerName")]
    ServerName(String),
    /// A certificate does not belong to its key.
    #[error("{field}: certificate and key cannot be used together")]
    Tls {
        /// The configuration key of the pair.
        field: &'static str,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// A CA bundle that cannot be used.
    #[error("{field}: {source}")]
    Authorities {
        /// The configuration key of the bundle.
        field: &'static str,
        /// Why it cannot be used.
        source: BundleError,
    },
    /// The file of static tokens has malformed lines.
    #[error("authentication.tokenFile: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    StaticTokens(Vec<TokenFileError>),
    /// Configured header names are invalid.
    #[error("header names: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    HeaderNames(Vec<HeaderNameError>),
    /// The name of this gateway is none that the fleet accepts.
    #[error(
        "fleet.gateway: the name of this host, {0:?}, is not one of fleet.members, or has more than lower-case letters, digits and dashes; set fleet.gateway"
    )]
    FleetMember(String),
    /// The engine of the fleet cannot be used with its settings.
    #[error("fleet.etcd: {0}")]
    FleetEngine(StoreError),
    /// The system has no random numbers.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}
