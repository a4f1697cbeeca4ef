//! TLS towards clients.
//!
//! A client certificate is requested but not required, and the handshake only verifies that the client holds its
//! key. As in kube-apiserver, the certificate is verified for requests, in `auth`, so that a client with an unknown
//! certificate can still use a token.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime},
    server::{
        ClientHello, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

/// The server certificate. Clones share it, and it can be replaced at any time.
#[derive(Clone, Debug)]
pub struct ServingCertificate(Arc<ArcSwap<CertifiedKey>>);

impl ServingCertificate {
    /// A certificate chain, the leaf first, with its key.
    ///
    /// # Errors
    ///
    /// If key and certificate do not match.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        Ok(Self(Arc::new(ArcSwap::from_pointee(certified))))
    }

    /// Uses the certificate of `other` for new connections.
    pub fn replace(&self, other: &Self) {
        self.0.store(other.0.load_full());
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// The server's side of TLS, at least TLS 1.2 with HTTP/2 preferred, as new connections have it. Clones share it.
#[derive(Clone, Debug)]
pub struct ServingTls {
    certificate: ServingCertificate,
    config: Arc<ArcSwap<ServerConfig>>,
}

impl ServingTls {
    /// Shows this certificate. `authorities` are the subjects of the certificate authorities that are announced to clients, which
    /// choose a certificate by them; empty means any.
    ///
    /// # Errors
    ///
    /// If rustls does not support its own default versions of TLS.
    pub fn new(
        certificate: &ServingCertificate,
        authorities: Vec<DistinguishedName>,
    ) -> Result<Self, rustls::Error> {
        let config = server_config(certificate, authorities)?;
        Ok(Self {
            certificate: certificate.clone(),
            config: Arc::new(ArcSwap::new(config)),
        })
    }

    /// Announces these authorities on new connections. Many clients present no certificate whose authority is not among them.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn announce(&self, authorities: Vec<DistinguishedName>) -> Result<(), rustls::Error> {
        let config = server_config(&self.certificate, authorities)?;
        self.config.store(config);
        Ok(())
    }

    /// What accepts a new connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

fn server_config(
    certificate: &ServingCertificate,
    authorities: Vec<DistinguishedName>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(ProofOfPossession {
        authorities,
        algorithms: provider.signature_verification_algorithms,
    });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(certificate.clone()));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts every certificate whose key the client holds.
#[derive(Debug)]
struct ProofOfPossession {
    authorities: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ProofOfPossession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
