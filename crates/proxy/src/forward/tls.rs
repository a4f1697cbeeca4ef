//! TLS towards the upstream.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
};

/// Builds the client's side of TLS: at least TLS 1.2, the upstream's certificate verified against
/// `roots` alone, and our own certificate shown when the upstream asks.
///
/// # Errors
///
/// When a root cannot be read, or key and certificate do not fit each other.
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
pub(super) fn offering(config: &Arc<ClientConfig>, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    Arc::new(config)
}
