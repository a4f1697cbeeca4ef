//! TLS towards the upstream.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};

/// TLS towards the upstream.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Trusted roots and the gateway's client certificate. The dialer sets which protocols ALPN offers.
    pub config: Arc<ClientConfig>,
    /// The name that the upstream's certificate must be valid for.
    pub server_name: ServerName<'static>,
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

/// `config`, offering exactly these protocols.
pub(crate) fn offering(config: &ClientConfig, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    Arc::new(config)
}
