//! The CA of a data directory, and the certificates it signs.

use std::{fs, path::Path, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};

use super::{DataDirectoryError, io_error, write};

/// How long the CA is valid.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How long the certificates that it signs are valid.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// How far clocks may differ: certificates are valid from this long before they are created.
const SKEW: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct CertificateAuthority {
    pub(super) pem: String,
    /// The private key (PEM).
    key: String,
    /// The time of the start, since the Unix epoch.
    now: Duration,
}

impl CertificateAuthority {
    /// The CA in `directory`, created if there is none.
    pub(super) fn find(directory: &Path, now: Duration) -> Result<Self, DataDirectoryError> {
        let (crt, key) = (directory.join("ca.crt"), directory.join("ca.key"));
        if crt.exists() && key.exists() {
            let read =
                |path: &Path| fs::read_to_string(path).map_err(|source| io_error(path, source));
            let (pem, key) = (read(&crt)?, read(&key)?);
            return match problem_with(&pem, &key, now) {
                None => Ok(Self { pem, key, now }),
                Some(why) => Err(DataDirectoryError::CertificateAuthority {
                    path: directory.to_owned(),
                    why,
                }),
            };
        }
        let failed = |source| DataDirectoryError::Certificate {
            path: crt.clone(),
            source,
        };
        let pair = KeyPair::generate().map_err(failed)?;
        let certificate = authority_params(now).self_signed(&pair).map_err(failed)?;
        let authority = Self {
            pem: certificate.pem(),
            key: pair.serialize_pem(),
            now,
        };
        write(&key, &authority.key)?;
        write(&crt, &authority.pem)?;
        Ok(authority)
    }

    /// Signs a new certificate for a new key. Returns both in PEM.
    pub(super) fn sign(
        &self,
        directory: &Path,
        params: &CertificateParams,
    ) -> Result<(String, String), DataDirectoryError> {
        let failed = |source| DataDirectoryError::Certificate {
            path: directory.join("ca.key"),
            source,
        };
        let mut params = params.clone();
        set_validity(&mut params, self.now, CERTIFICATE_LIFETIME);
        let issuer_key = KeyPair::from_pem(&self.key).map_err(failed)?;
        // Of the issuer only the name and the key go into a signature, and those are the same at every start.
        let issuer = Issuer::new(authority_params(self.now), issuer_key);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// What is wrong with an authority, if anything is.
fn problem_with(certificate: &str, key: &str, now: Duration) -> Option<&'static str> {
    let unreadable = "cannot be read";
    let Ok(key) = KeyPair::from_pem(key) else {
        return Some(unreadable);
    };
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()) else {
        return Some(unreadable);
    };
    let Ok(certificate) = pem.parse_x509() else {
        return Some(unreadable);
    };
    if certificate.public_key().raw != key.subject_public_key_info() {
        return Some("has a certificate and a key that do not match");
    }
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() {
        return Some("is not valid yet; check the system clock");
    }
    (now > validity.not_after.timestamp()).then_some("has expired")
}

fn authority_params(now: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name("fairgate-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut params, now, CA_LIFETIME);
    params
}

pub(super) fn serving() -> CertificateParams {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(names).unwrap_or_default();
    params.distinguished_name = distinguished_name("fairgate", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

pub(super) fn client(name: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(name, Some(group));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn distinguished_name(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    if let Some(group) = group {
        distinguished.push(DnType::OrganizationName, group);
    }
    distinguished
}

fn set_validity(params: &mut CertificateParams, now: Duration, lifetime: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(SKEW);
    params.not_after = epoch + (now + lifetime);
}
