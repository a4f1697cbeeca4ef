//! Certificate authorities and certificates. They are valid for centuries unless a test says otherwise.

use std::{sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
};

/// The time in tests whose clock does not advance, in seconds since 1970: a day in 2026.
pub const NOW: i64 = 1_780_000_000;

/// A certificate with its intermediate certificates and its key.
pub type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// An authority with the intermediate certificates up to its root.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    path: Vec<CertificateDer<'static>>,
}

/// A certificate to be issued.
pub struct Leaf(CertificateParams);

impl Authority {
    /// A root of this name.
    pub fn new(name: &str) -> Self {
        Self::root(authority(name))
    }

    /// A root that is valid until this second since 1970.
    pub fn until(name: &str, not_after: i64) -> Self {
        let mut params = authority(name);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + seconds(not_after);
        Self::root(params)
    }

    fn root(params: CertificateParams) -> Self {
        Self {
            issuer: CertifiedIssuer::self_signed(params, key()).unwrap(),
            path: Vec::new(),
        }
    }

    /// An intermediate authority, valid until this second since 1970.
    #[must_use]
    pub fn intermediate(&self, name: &str, not_after: i64) -> Self {
        let mut params = authority(name);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + seconds(not_after);
        let issuer = CertifiedIssuer::signed_by(params, key(), &self.issuer).unwrap();
        let mut path = vec![issuer.der().clone()];
        path.extend(self.path.iter().cloned());
        Self { issuer, path }
    }

    /// The certificate of the authority itself.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The certificate of the authority itself, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A chain as a client presents it, without its key.
    pub fn issue(&self, leaf: &Leaf) -> Vec<CertificateDer<'static>> {
        self.issue_with_key(leaf).0
    }

    /// A chain with its key.
    pub fn issue_with_key(&self, leaf: &Leaf) -> Chain {
        let key = key();
        let certificate = leaf.0.signed_by(&key, &self.issuer).unwrap();
        let mut chain = vec![certificate.der().clone()];
        chain.extend(self.path.iter().cloned());
        (chain, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    /// A certificate, without intermediate ones, and its key, in PEM.
    pub fn issue_pem(&self, leaf: &Leaf) -> (String, String) {
        let key = key();
        let certificate = leaf.0.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A server's side of TLS, as `localhost`, that offers `protocols`.
    pub fn server(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let (chain, key) = self.issue_with_key(&Leaf::named("localhost"));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }

    /// A client's side of TLS that trusts this authority, with its `own` certificate, if it has one.
    pub fn client(&self, own: Option<Chain>, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }
}

impl Leaf {
    /// A client's certificate with this common name, or without a common name if it is empty.
    pub fn new(common_name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if !common_name.is_empty() {
            params
                .distinguished_name
                .push(DnType::CommonName, common_name);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Self(params)
    }

    /// A certificate for servers and clients of this host name, which is its common name, too.
    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        Self(params)
    }

    /// With an organization, which is a group to Kubernetes.
    #[must_use]
    pub fn organization(mut self, name: &str) -> Self {
        self.0
            .distinguished_name
            .push(DnType::OrganizationName, name);
        self
    }

    /// With a user's UID.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        let oid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        self.0.distinguished_name.push(oid, uid);
        self
    }

    /// Only for these extended key usages.
    #[must_use]
    pub fn usages(mut self, usages: &[ExtendedKeyUsagePurpose]) -> Self {
        self.0.extended_key_usages = usages.to_vec();
        self
    }

    /// Valid from one second since 1970 to another.
    #[must_use]
    pub fn valid(mut self, not_before: i64, not_after: i64) -> Self {
        self.0.not_before = rcgen::date_time_ymd(1970, 1, 1) + seconds(not_before);
        self.0.not_after = rcgen::date_time_ymd(1970, 1, 1) + seconds(not_after);
        self
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// `rcgen` does not re-export its type of a time, but a `Duration` can be added to such a time.
fn seconds(since_1970: i64) -> Duration {
    Duration::from_secs(u64::try_from(since_1970).unwrap())
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}
