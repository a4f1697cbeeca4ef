//! The certificate of servers in load tests: self-signed, for this machine, and its own CA certificate for clients.

use std::{fs, path::Path, sync::Arc};

use anyhow::Context as _;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// The certificate's file in its directory, as PEM.
pub(crate) const CERTIFICATE_FILE: &str = "certificate.pem";
/// The private key's file, as PEM.
pub(crate) const KEY_FILE: &str = "key.pem";

/// Writes a new certificate for `127.0.0.1` and `localhost`, and its key, to `directory`.
///
/// # Errors
///
/// When a file cannot be written.
pub(crate) fn write(directory: &Path) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    let certificate = params.self_signed(&key)?.pem();
    for (file, pem) in [
        (CERTIFICATE_FILE, certificate),
        (KEY_FILE, key.serialize_pem()),
    ] {
        let path = directory.join(file);
        fs::write(&path, pem).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The TLS settings of a server with the certificate in `directory`, for HTTP/2 and HTTP/1.1. A directory without a
/// certificate gets one.
///
/// # Errors
///
/// When the files cannot be read or written, or do not belong together.
pub(crate) fn server_config(directory: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let (certificate, key) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
    if !certificate.exists() && !key.exists() {
        write(directory)?;
    }
    let chain = CertificateDer::pem_file_iter(&certificate)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read {}", certificate.display()))?;
    let key = PrivateKeyDer::from_pem_file(&key)
        .with_context(|| format!("cannot read {}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
