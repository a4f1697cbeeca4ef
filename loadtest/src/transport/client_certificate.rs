//! The client certificate that load is sent with, as kubectl's `--client-certificate` and `--client-key`.

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

use super::target::TargetError;

/// Reads a certificate with its chain, and its private key.
///
/// # Errors
///
/// [`TargetError::File`] when a file cannot be read, holds something else, or the two do not belong together.
pub(super) fn read(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<dyn ResolvesClientCert>, TargetError> {
    let wrong = |file: &Path, problem: String| TargetError::File {
        file: file.display().to_string(),
        problem,
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.and_then(|chain: Vec<_>| match chain.is_empty() {
        true => Err(pem::Error::NoItemsFound),
        false => Ok(chain),
    });
    let chain = chain.map_err(|error| wrong(certificate, certificate_problem(&error)))?;
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

fn certificate_problem(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => {
            "it has no certificate; --client-certificate wants one in PEM, which begins with \
             -----BEGIN CERTIFICATE-----"
                .to_owned()
        }
        error => format!("it is not a certificate in PEM: {error}"),
    }
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
