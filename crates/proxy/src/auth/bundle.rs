//! Verifies clients' certificates against certificate authorities.
//!
//! The TLS handshake only proves that a client has the key of its certificate: any certificate is accepted, because an
//! unknown one may come together with a valid token. The chain is verified here, against the authorities that are
//! configured now.
//!
//! Each authority has its own verifier, so that an expired one is no longer used; webpki does not check
//! the validity period of its trust anchors.
//!
//! Not here: revocation, which Kubernetes does not support either. Unlike in Kubernetes, a client's certificate is not
//! trusted just because it is in the bundle itself.

use std::{fmt, sync::Arc, time::Duration};

use rustls::{
    CertificateError, DistinguishedName, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::x509::Validity;
use fairgate_call::ChainError;

/// A set of certificate authorities for client certificates.
pub struct CaBundle {
    authorities: Vec<TrustedAuthority>,
}

struct TrustedAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
    validity: Validity,
}

/// Why a bundle cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum BundleError {
    /// Broken PEM or base64.
    #[error("not PEM: {reason}")]
    Pem { reason: String },
    /// PEM without a certificate.
    #[error("holds no certificate; give at least one certificate authority")]
    Empty,
    /// Certificates are counted from 1.
    #[error("certificate {number}: {reason}")]
    Certificate { number: usize, reason: String },
}

impl CaBundle {
    /// Parses a bundle in PEM format. Anything but certificates is skipped.
    ///
    /// # Errors
    ///
    /// [`BundleError`] for the first certificate that cannot be used.
    pub fn from_pem(pem: &[u8]) -> Result<Self, BundleError> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| BundleError::Pem {
                reason: error.to_string(),
            })?;
        Self::new(&certificates)
    }

    /// A bundle of these certificates.
    ///
    /// # Errors
    ///
    /// [`BundleError`] for the first that cannot be used, or if there is none.
    pub fn new(certificates: &[CertificateDer<'_>]) -> Result<Self, BundleError> {
        let mut authorities = Vec::with_capacity(certificates.len());
        for certificate in certificates {
            let authority =
                TrustedAuthority::new(certificate).map_err(|reason| BundleError::Certificate {
                    number: authorities.len() + 1,
                    reason,
                })?;
            authorities.push(authority);
        }
        if authorities.is_empty() {
            return Err(BundleError::Empty);
        }
        Ok(Self { authorities })
    }

    /// Verifies `chain`, the client's certificate first and its intermediates after it, at a second since 1970. Returns
    /// the last second for which the result is certain.
    ///
    /// The certificate's extended key usage must include client authentication, or be absent. The cost is one to a few
    /// signature checks.
    ///
    /// # Errors
    ///
    /// [`ChainError`].
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        unix_seconds: i64,
    ) -> Result<i64, ChainError> {
        let mut error = ChainError::NoAuthority;
        for authority in &self.authorities {
            if !authority.validity.contains(unix_seconds) {
                continue;
            }
            match authority.verify(chain, unix_seconds) {
                Ok(()) => return Ok(valid_until(authority, chain, unix_seconds)),
                // "Unknown issuer" says less than any other error, so it does not replace one.
                Err(reason) if is_unknown_issuer(&reason) && error != ChainError::NoAuthority => {}
                Err(reason) => error = ChainError::Rejected(Arc::new(reason)),
            }
        }
        Err(error)
    }

    /// The subjects of the authorities, to be announced in the handshake: some clients choose their certificate by
    /// them.
    pub fn subjects(&self) -> impl Iterator<Item = &DistinguishedName> {
        self.authorities
            .iter()
            .flat_map(|authority| authority.verifier.root_hint_subjects())
    }
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaBundle({} authorities)", self.authorities.len())
    }
}

impl TrustedAuthority {
    fn new(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let validity = Validity::parse(certificate).map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::empty();
        roots
            .add(certificate.clone().into_owned())
            .map_err(|error| error.to_string())?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { verifier, validity })
    }

    fn verify(&self, chain: &[CertificateDer<'_>], unix_seconds: i64) -> Result<(), rustls::Error> {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let since_epoch = Duration::from_secs(u64::try_from(unix_seconds).unwrap_or(0));
        self.verifier
            .verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(since_epoch))
            .map(|_verified| ())
    }
}

fn is_unknown_issuer(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)
    )
}

/// The earliest expiry in the future, of the authority or of any certificate of the chain.
fn valid_until(
    authority: &TrustedAuthority,
    chain: &[CertificateDer<'_>],
    unix_seconds: i64,
) -> i64 {
    chain
        .iter()
        .filter_map(|certificate| Validity::parse(certificate).ok())
        .map(|validity| validity.not_after)
        .filter(|end| *end >= unix_seconds) // an expired intermediate was not needed
        .fold(authority.validity.not_after, i64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_testkit::pki::{Authority as TestAuthority, Leaf, NOW};

    fn bundle(authorities: &[&TestAuthority]) -> CaBundle {
        let pem: String = authorities.iter().map(|a| a.pem()).collect();
        CaBundle::from_pem(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_certificate_of_an_authority_in_the_bundle_is_trusted_until_it_expires() {
        let (own, other) = (TestAuthority::new("own"), TestAuthority::new("other"));
        let leaf = Leaf::new("alice").valid(NOW - 10, NOW + 60);
        let chain = own.issue(&leaf);
        assert_eq!(bundle(&[&other, &own]).verify(&chain, NOW), Ok(NOW + 60));
        assert_eq!(bundle(&[&own]).verify(&chain, NOW + 60), Ok(NOW + 60));
        assert!(bundle(&[&own]).verify(&chain, NOW + 61).is_err());
        assert!(bundle(&[&own]).verify(&chain, NOW - 11).is_err());
    }

    #[test]
    fn a_certificate_of_a_foreign_authority_of_the_same_name_is_refused() {
        let (own, foreign) = (TestAuthority::new("own"), TestAuthority::new("own"));
        let chain = foreign.issue(&Leaf::new("alice"));
        assert!(bundle(&[&own]).verify(&chain, NOW).is_err());
        assert!(bundle(&[&own]).verify(&[], NOW).is_err());
    }

    #[test]
    fn extended_key_usage_must_allow_clients_or_be_absent() {
        use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let own = TestAuthority::new("own");
        let is_trusted = |usages: &[_]| {
            let chain = own.issue(&Leaf::new("alice").usages(usages));
            bundle(&[&own]).verify(&chain, NOW).is_ok()
        };
        assert!(is_trusted(&[]));
        assert!(is_trusted(&[ClientAuth]));
        assert!(is_trusted(&[ServerAuth, ClientAuth]));
        assert!(!is_trusted(&[ServerAuth]));
    }

    #[test]
    fn an_intermediate_is_used_when_the_client_presents_it() {
        let root = TestAuthority::new("root");
        let middle = root.intermediate("middle", NOW + 30);
        let chain = middle.issue(&Leaf::new("alice"));
        assert_eq!(chain.len(), 2);
        assert_eq!(bundle(&[&root]).verify(&chain, NOW), Ok(NOW + 30));
        assert!(bundle(&[&root]).verify(&chain, NOW + 31).is_err());
        assert!(bundle(&[&root]).verify(&chain[..1], NOW).is_err());
    }

    #[test]
    fn an_expired_authority_is_not_trusted() {
        let old = TestAuthority::until("old", NOW + 5);
        let chain = old.issue(&Leaf::new("alice"));
        assert_eq!(bundle(&[&old]).verify(&chain, NOW), Ok(NOW + 5));
        assert_eq!(
            bundle(&[&old]).verify(&chain, NOW + 6),
            Err(ChainError::NoAuthority)
        );
    }

    #[test]
    fn any_other_reason_wins_over_an_unknown_issuer() {
        let (own, other) = (TestAuthority::new("own"), TestAuthority::new("other"));
        let chain = own.issue(&Leaf::new("alice").valid(NOW - 20, NOW - 10));
        for order in [[&own, &other], [&other, &own]] {
            let error = bundle(&order).verify(&chain, NOW).unwrap_err();
            assert!(error.to_string().contains("expired"), "{error}");
        }
    }

    #[test]
    fn the_subjects_are_those_of_the_authorities() {
        let (own, other) = (TestAuthority::new("own"), TestAuthority::new("other"));
        assert_eq!(bundle(&[&own, &other]).subjects().count(), 2);
    }

    #[test]
    fn a_bundle_that_holds_no_authority_is_refused() {
        assert_eq!(CaBundle::from_pem(b"").unwrap_err(), BundleError::Empty);
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert_eq!(
            CaBundle::from_pem(key.as_bytes()).unwrap_err(),
            BundleError::Empty
        );
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(
            CaBundle::from_pem(junk.as_bytes()),
            Err(BundleError::Certificate { number: 1, .. })
        ));
        let broken = "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
        assert!(matches!(
            CaBundle::from_pem(broken.as_bytes()),
            Err(BundleError::Pem { .. })
        ));
    }
}
