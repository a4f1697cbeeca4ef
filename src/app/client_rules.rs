//! How clients are authenticated: the rules, and what clients are told of them by TLS.

use std::sync::Arc;

use super::secure_admin::SecureAdmin;
use arc_swap::ArcSwap;
use fairgate_proxy::{auth::layer::AuthRules, serve::tls::ServingTls};

/// The rules of authentication that are in force.
pub(super) struct ClientRules {
    rules: Arc<ArcSwap<AuthRules>>,
    /// TLS of the ports whose clients may authenticate by certificates.
    serving: Vec<ServingTls>,
}

impl ClientRules {
    /// These, for a port with this TLS if it has any.
    pub(super) fn new(rules: AuthRules, serving: Option<ServingTls>) -> Self {
        Self {
            rules: Arc::new(ArcSwap::from_pointee(rules)),
            serving: serving.into_iter().collect(),
        }
    }

    /// Also for the secure admin port, if there is one.
    pub(super) fn with(mut self, port: Option<&SecureAdmin>) -> Self {
        self.serving.extend(port.and_then(SecureAdmin::tls));
        self
    }

    /// The rules, as they are replaced.
    pub(super) fn shared(&self) -> &Arc<ArcSwap<AuthRules>> {
        &self.rules
    }

    /// Puts other rules into force: for the next requests, and for what clients of new connections are told.
    pub(super) fn replace(&self, rules: AuthRules) {
        for tls in &self.serving {
            if let Err(error) = tls.announce(rules.authentication.authorities()) {
                tracing::error!(%error, "clients are still told the certificate authorities of before");
            }
        }
        self.rules.store(Arc::new(rules));
    }
}
