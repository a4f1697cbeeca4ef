//! The configuration: a file becomes a [`Config`], or a list of all its errors.
//!
//! The file is a Kubernetes-style object (`apiVersion: fairgate.dev/v1alpha1`, `kind: Configuration`). It is
//! read key by key, so that all errors are reported at once, into a [`Config`] ready to use, with certificates
//! and keys loaded. Each key is declared once, in `keys`, with its default. Without a file the defaults apply,
//! and nothing is read from the working directory.
//!
//! A key that is absent or `null` has its default; an empty path or text means "none". Relative paths begin
//! at the file's directory. Secrets are never printed, not even by `Debug`.
//!
//! Not here: the policy objects, which come from sources of their own, and what the settings do.

mod admission;
mod bearer_token;
mod certificate_validity;
mod changes;
mod config;
mod error;
mod etcd;
mod file_version;
mod fleet;
mod invalid_value;
mod keys;
mod pem;
mod read;
mod secret;
mod section;
#[cfg(test)]
mod tests;
mod url;
mod validate;
mod values;
mod without_effect;

pub use admission::{AdmissionAuditConfig, AdmissionConfig, AdmissionReads, AdmissionSource};
pub use bearer_token::BearerTokenFile;
pub use certificate_validity::{CertificateProblem, CertificateUse, CertificateValidity};
pub use config::{
    AdminConfig, AnonymousConfig, AuthenticationConfig, Config, DisruptionControllerMode,
    DrainConfig, EnforcementConfig, EvictionConfig, EvictionWaitConfig, FlowControlConfig,
    GatewayMode, HostedApiConfig, HostedQuotaConfig, LimitsConfig, ListenConfig, LogConfig,
    LogFormat, LogLevel, ObjectQuota, ProtocolConfig, RequestHeaderConfig, SecureAdminConfig,
    ServerConfig, SpreadConfig, StoreConfig, TimeoutsConfig, TokenFileConfig, TokenReviewConfig,
    UpstreamConfig, UpstreamIdentityConfig,
};
pub use error::ConfigError;
pub use etcd::{ClientPem, EtcdConfig, EtcdFiles};
pub use fairgate_disruption::EvictionMode;
pub use file_version::{FileDigest, FileVersion, file_digest};
pub use fleet::{FleetConfig, FleetEngineConfig, FleetReclaim};
pub use keys::{ConfigKey, KEYS};
pub use pem::{Authorities, CertificateAndKey};
pub use read::ConfigReading;
pub use secret::Secret;
pub use url::UpstreamUrl;
