//! TLS towards the upstream.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};

/// TLS towards the upstream. Clones share the certificates, which can be replaced at any time.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    config: Arc<ArcSwap<ClientConfig>>,
    server_name: ServerName<'static>,
}

impl UpstreamTls {
    /// TLS with the roots and the client certificate of `config` ([`client_config`]), towards an upstream whose
    /// certificate must be valid for `server_name`. The dialer sets which protocols ALPN offers.
    pub fn new(config: Arc<ClientConfig>, server_name: ServerName<'static>) -> Self {
        Self {
            config: Arc::new(ArcSwap::new(config)),
            server_name,
        }
    }

    /// Uses other roots and another client certificate from the next connection on. Connections that are open stay
    /// open. TLS sessions are not resumed across the change, because a resumed session keeps its old certificate.
    pub fn replace(&self, config: Arc<ClientConfig>) {
        self.config.store(config);
    }

    pub(crate) fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }

    /// The settings of the next connection, which offers exactly these protocols.
    pub(crate) fn offering(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config.load());
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }
}

/// Builds the client side of TLS: TLS 1.2 or later, the upstream's certificate verified against `roots` alone,
/// and `own` certificate and key presented when the upstream asks for one.
///
/// # Errors
///
/// When a root cannot be parsed, or `own` key does not belong to its certificate.
pub fn client_config(
    roots: impl IntoIterator<Item = CertificateDer<'static>>,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
    };
    Ok(Arc::new(config))
}
