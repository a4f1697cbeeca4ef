//! Certificate authorities and certificates for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::CertificateDer;

/// The present of the tests, in seconds since 1970: some day in 2026.
pub(crate) const NOW: i64 = 1_780_000_000;
const DAY: i64 = 86_400;

/// An authority with the certificates that lead to it.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    path: Vec<CertificateDer<'static>>,
}

/// A certificate to be issued.
pub(crate) struct Leaf(CertificateParams);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        Self::until(name, NOW + 1000 * DAY)
    }

    pub(crate) fn until(name: &str, not_after: i64) -> Self {
        let issuer = CertifiedIssuer::self_signed(authority(name, not_after), key()).unwrap();
        let path = Vec::new();
        Self { issuer, path }
    }

    pub(crate) fn intermediate(&self, name: &str, not_after: i64) -> Self {
        let params = authority(name, not_after);
        let issuer = CertifiedIssuer::signed_by(params, key(), &self.issuer).unwrap();
        let path = vec![issuer.der().clone()];
        Self { issuer, path }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A chain as a client presents it.
    pub(crate) fn issue(&self, leaf: &Leaf) -> Vec<CertificateDer<'static>> {
        let certificate = leaf.0.signed_by(&key(), &self.issuer).unwrap();
        let mut chain = vec![certificate.der().clone()];
        chain.extend(self.path.iter().cloned());
        chain
    }
}

impl Leaf {
    /// A client's certificate with this common name; none if it is empty.
    pub(crate) fn new(common_name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if !common_name.is_empty() {
            params
                .distinguished_name
                .push(DnType::CommonName, common_name);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Self(params).valid(NOW - DAY, NOW + DAY)
    }

    pub(crate) fn organization(mut self, name: &str) -> Self {
        self.0
            .distinguished_name
            .push(DnType::OrganizationName, name);
        self
    }

    pub(crate) fn uid(mut self, uid: &str) -> Self {
        let oid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        self.0.distinguished_name.push(oid, uid);
        self
    }

    pub(crate) fn usages(mut self, usages: &[ExtendedKeyUsagePurpose]) -> Self {
        self.0.extended_key_usages = usages.to_vec();
        self
    }

    pub(crate) fn valid(mut self, not_before: i64, not_after: i64) -> Self {
        self.0.not_before = rcgen::date_time_ymd(1970, 1, 1) + seconds(not_before);
        self.0.not_after = rcgen::date_time_ymd(1970, 1, 1) + seconds(not_after);
        self
    }
}

fn authority(name: &str, not_after: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + seconds(NOW - 1000 * DAY);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + seconds(not_after);
    params
}

/// `rcgen` counts in a type it does not re-export, but that adds up with this one.
fn seconds(since_1970: i64) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(since_1970).unwrap())
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}
