//! Certificates and keys from PEM files.
//!
//! The results are ready to use: every certificate parses, and a key matches its certificate.
//!
//! Not here: whether a certificate has expired (`certificate_validity`), and whether a chain is trusted, which each handshake
//! verifies.

use std::{fmt, path::Path};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{Error as PemError, PemObject as _},
    },
    sign::CertifiedKey,
};

use crate::{file_version::FileVersion, values::InvalidValue};

/// A bundle of CA certificates; at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities {
    /// The certificates, in the file's order, each one well-formed.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The file that they come from.
    pub file: FileVersion,
}

impl Authorities {
    /// The same file with other contents.
    ///
    /// # Errors
    ///
    /// Why they cannot be used, with the path.
    pub fn with_contents(&self, pem: &[u8]) -> Result<Self, String> {
        authorities(&self.file.path, pem).map_err(|invalid| self.file.cannot_be_used(&invalid))
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({})", self.certificates.len())
    }
}

/// A certificate chain with its private key.
pub struct CertificateAndKey {
    /// The certificates, the leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the leaf.
    pub key: PrivateKeyDer<'static>,
    /// The files of the certificate and the key.
    pub files: [FileVersion; 2],
}

impl CertificateAndKey {
    /// The same files with other contents.
    ///
    /// # Errors
    ///
    /// Why they cannot be used, with the path.
    pub fn with_contents(&self, certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let [certificate_file, key_file] = &self.files;
        let chain = certificates(certificate);
        let chain = chain.map_err(|invalid| certificate_file.cannot_be_used(&invalid))?;
        let versions = [
            FileVersion::new(&certificate_file.path, certificate),
            FileVersion::new(&key_file.path, key),
        ];
        private_key(key)
            .and_then(|key| certificate_and_key(chain, key, versions))
            .map_err(|invalid| key_file.cannot_be_used(&invalid))
    }
}

impl Clone for CertificateAndKey {
    fn clone(&self) -> Self {
        Self {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
            files: self.files.clone(),
        }
    }
}

impl fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CertificateAndKey({} certificates, <secret>)",
            self.chain.len()
        )
    }
}

/// The CA certificates in `pem`, which was read from `path`.
pub(super) fn authorities(path: &Path, pem: &[u8]) -> Result<Authorities, InvalidValue> {
    let certificates = certificates(pem)?;
    for (index, certificate) in certificates.iter().enumerate() {
        // Not every well-formed certificate can be a trust anchor.
        if let Err(error) = RootCertStore::empty().add(certificate.clone()) {
            return Err(InvalidValue::new(
                format!("certificate {} is not a CA certificate: {error}", index + 1),
                "use CA certificates",
            ));
        }
    }
    Ok(Authorities {
        certificates,
        file: FileVersion::new(path, pem),
    })
}

/// The certificates in `pem`, at least one, each of them well-formed.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, InvalidValue> {
    let ders = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| malformed(&error))?;
    if ders.is_empty() {
        return Err(InvalidValue::new(
            "the file contains no certificate",
            "use a PEM file with BEGIN CERTIFICATE blocks",
        ));
    }
    for (index, der) in ders.iter().enumerate() {
        // The reader of PEM only decodes base64; what is in a block is still unknown.
        if let Err(error) = x509_parser::parse_x509_certificate(der) {
            return Err(InvalidValue::new(
                format!(
                    "certificate {} of the file is malformed: {error}",
                    index + 1
                ),
                "replace the file",
            ));
        }
    }
    Ok(ders)
}

/// The first private key in `pem`.
pub(super) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, InvalidValue> {
    // First, because to the reader of PEM an encrypted key is either malformed or no key at all.
    if is_encrypted(pem) {
        return Err(InvalidValue::new(
            "the private key is encrypted",
            "decrypt it, as `openssl pkey -in FILE -out DECRYPTED` does",
        ));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        PemError::NoItemsFound => InvalidValue::new(
            "the file contains no private key",
            "use a PEM file with an unencrypted PKCS#8, PKCS#1 or SEC1 key",
        ),
        error => malformed(&error),
    })
}

/// Whether the file has an encrypted key: of PKCS#8, or in the older form, which says so in a header.
fn is_encrypted(pem: &[u8]) -> bool {
    let mut lines = pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.any(|line| {
        line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----" || line == b"Proc-Type: 4,ENCRYPTED"
    })
}

/// A certificate chain with the matching key, which were read from `files`.
pub(super) fn certificate_and_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    files: [FileVersion; 2],
) -> Result<CertificateAndKey, InvalidValue> {
    let provider = rustls::crypto::ring::default_provider();
    match CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider) {
        Ok(_) => Ok(CertificateAndKey { chain, key, files }),
        Err(rustls::Error::InconsistentKeys(_)) => Err(InvalidValue::new(
            "the key does not match the certificate",
            "use the key of the first certificate in the chain",
        )),
        Err(error) => Err(InvalidValue::new(
            format!("the key cannot be used with the certificate: {error}"),
            "use the key of the first certificate in the chain",
        )),
    }
}

/// The error of the PEM reader, without the malformed bytes: they may be part of a key.
fn malformed(error: &PemError) -> InvalidValue {
    let what = match error {
        PemError::MissingSectionEnd { .. } => "a BEGIN line has no END line",
        PemError::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        PemError::Base64Decode(_) => "a block is not base64",
        _ => "the blocks cannot be read",
    };
    InvalidValue::new(format!("the file is not PEM: {what}"), "replace the file")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn self_signed() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn files() -> [FileVersion; 2] {
        ["a.crt", "a.key"].map(|name| FileVersion::new(Path::new(name), b""))
    }

    #[test]
    fn a_chain_and_its_key_are_used_together() {
        let (cert, key) = self_signed();
        let chain = certificates(format!("# words\n{cert}\n{cert}").as_bytes()).unwrap();
        assert_eq!(chain.len(), 2);
        let key = private_key(key.as_bytes()).unwrap();
        let pair = certificate_and_key(chain, key, files()).unwrap();
        assert!(format!("{pair:?}").contains("<secret>"));
    }

    #[test]
    fn other_contents_of_the_same_files_are_checked_alike() {
        let ((cert, key), (other_cert, other_key)) = (self_signed(), self_signed());
        let chain = certificates(cert.as_bytes()).unwrap();
        let pair = private_key(key.as_bytes()).unwrap();
        let pair = certificate_and_key(chain, pair, files()).unwrap();
        let renewed = pair.with_contents(other_cert.as_bytes(), other_key.as_bytes());
        let renewed = renewed.unwrap();
        assert_ne!(renewed.chain, pair.chain);
        assert_ne!(renewed.files, pair.files);
        let error = pair.with_contents(other_cert.as_bytes(), key.as_bytes());
        assert!(error.unwrap_err().starts_with("a.key: the key does not"));
        let error = pair.with_contents(b"", other_key.as_bytes());
        assert!(
            error
                .unwrap_err()
                .starts_with("a.crt: the file contains no")
        );

        let bundle = authorities(Path::new("ca.crt"), cert.as_bytes()).unwrap();
        let renewed = bundle.with_contents(other_cert.as_bytes()).unwrap();
        assert_eq!(renewed.file.path, bundle.file.path);
        assert_ne!(renewed, bundle);
        assert!(
            bundle
                .with_contents(b"")
                .unwrap_err()
                .starts_with("ca.crt: ")
        );
    }

    #[test]
    fn the_key_of_another_certificate_is_refused() {
        let (cert, _) = self_signed();
        let (_, key) = self_signed();
        let error = certificate_and_key(
            certificates(cert.as_bytes()).unwrap(),
            private_key(key.as_bytes()).unwrap(),
            files(),
        )
        .unwrap_err();
        assert_eq!(error.problem, "the key does not match the certificate");
    }

    #[test]
    fn malformed_pem_is_reported_by_its_defect() {
        let (cert, key) = self_signed();
        let broken = cert.replace("MII", "!!!");
        for (pem, part) in [
            (&b""[..], "contains no certificate"),
            (key.as_bytes(), "contains no certificate"),
            (broken.as_bytes(), "not PEM"),
            (
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "malformed",
            ),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n", "no END line"),
        ] {
            let error = certificates(pem).unwrap_err();
            assert!(error.problem.contains(part), "{error:?}");
        }
        let error = private_key(cert.as_bytes()).unwrap_err();
        assert!(
            error.problem.contains("contains no private key"),
            "{error:?}"
        );
    }
}
