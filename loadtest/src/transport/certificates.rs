//! The files of TLS: CA certificates, and the client certificate that load is sent with, as kubectl's `--client-certificate`
//! and `--client-key`.

use std::{path::Path, sync::Arc};

use rustls::{
    client::ResolvesClientCert,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::{CertifiedKey, SingleCertAndKey},
};

/// Why a file with credentials cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub(crate) struct CredentialFileError {
    file: String,
    problem: String,
}

/// Reads a certificate with its chain, and its private key.
///
/// # Errors
///
/// When a file cannot be read, holds something else, or the two do not belong together.
pub(super) fn client(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<dyn ResolvesClientCert>, CredentialFileError> {
    let chain = read(certificate, "--client-certificate")?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, key_problem(&error)))?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => wrong(
            key,
            format!(
                "it is not the key of the certificate in {}; name two files that were issued together",
                certificate.display()
            ),
        ),
        // An unknown kind of key, or a certificate that cannot be parsed.
        error => wrong(
            key,
            format!(
                "it cannot be used with the certificate in {}: {error}",
                certificate.display()
            ),
        ),
    })?;
    Ok(Arc::new(SingleCertAndKey::from(certified)))
}

/// Reads the certificates in a file that `option` names; at least one.
///
/// # Errors
///
/// When it cannot be read, or has none.
pub(super) fn read(
    file: &Path,
    option: &str,
) -> Result<Vec<CertificateDer<'static>>, CredentialFileError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let problem = match read {
        Ok(certificates) if !Vec::is_empty(&certificates) => return Ok(certificates),
        Ok(_) | Err(pem::Error::NoItemsFound) => {
            format!(
                "it has no certificate; {option} wants one in PEM, which begins with -----BEGIN CERTIFICATE-----"
            )
        }
        Err(pem::Error::Io(error)) => format!("cannot be read: {error}"),
        Err(error) => format!("it is not a certificate in PEM: {error}"),
    };
    Err(wrong(file, problem))
}

fn key_problem(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => {
            "it has no private key; --client-key wants one in PEM that is not encrypted, which begins with \
             -----BEGIN PRIVATE KEY-----, RSA PRIVATE KEY or EC PRIVATE KEY"
                .to_owned()
        }
        error => format!("it is not a private key in PEM: {error}"),
    }
}

/// The error of `file`.
pub(super) fn wrong(file: &Path, problem: impl Into<String>) -> CredentialFileError {
    CredentialFileError {
        file: file.display().to_string(),
        problem: problem.into(),
    }
}
