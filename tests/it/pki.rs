//! Certificates for one test.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
};

pub struct Pki {
    issuer: Issuer<'static, KeyPair>,
    pub root: CertificateDer<'static>,
}

pub type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Pki {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test root");
        let root = params.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(params, key),
            root,
        }
    }

    /// A certificate for `name`, as server or client.
    pub fn issue(&self, name: &str) -> Chain {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        (vec![certificate.der().clone()], key)
    }

    /// An upstream's side of TLS, offering `protocols`.
    pub fn server(&self, protocols: &[&[u8]]) -> Arc<rustls::ServerConfig> {
        let (chain, key) = self.issue("localhost");
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }

    /// A client's side of TLS.
    pub fn client(&self, own: Option<Chain>, protocols: &[&[u8]]) -> Arc<rustls::ClientConfig> {
        let config = fairgate_upstream::tls::client_config([self.root.clone()], own).unwrap();
        let mut config = rustls::ClientConfig::clone(&config);
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }
}
