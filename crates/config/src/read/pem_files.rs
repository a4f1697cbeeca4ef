//! Reads the certificates and keys in files that the configuration names.

use std::path::{Path, PathBuf};

use crate::{
    etcd::ClientPem,
    file_version::FileVersion,
    pem::{self, Authorities, CertificateAndKey},
    secret::Secret,
    section::ConfigSection,
    values::InvalidValue,
};

/// The CA certificates in the file under `key`, if one is set.
pub(super) fn authorities(
    section: &mut ConfigSection<'_>,
    key: &'static str,
) -> Option<Authorities> {
    let path = section.path(key)?;
    read_file(section, key, &path, |pem| pem::authorities(&path, pem))
}

/// The certificate and key in the files under `certFile` and `keyFile`, if set.
pub(super) fn certificate_and_key(section: &mut ConfigSection<'_>) -> Option<CertificateAndKey> {
    let (cert, key) = pair_paths(section)?;
    read_pair(section, &cert, &key)
}

/// The contents of the files under `certFile` and `keyFile`, if set: a certificate and its key; and which files these are.
pub(super) fn certificate_and_key_pem(
    section: &mut ConfigSection<'_>,
) -> Option<(ClientPem, [FileVersion; 2])> {
    let (cert, key) = pair_paths(section)?;
    let files = read_pair(section, &cert, &key)?.files;
    let fields = [section.field("certFile"), section.field("keyFile")];
    let cert = section.reader.contents(&fields[0], &cert)?;
    let key = section.reader.contents(&fields[1], &key)?;
    Some(((cert, Secret::new(key)), files))
}

/// The paths under `certFile` and `keyFile`, of which both or neither must be set.
fn pair_paths(section: &mut ConfigSection<'_>) -> Option<(PathBuf, PathBuf)> {
    match (section.path("certFile"), section.path("keyFile")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (cert, _) => {
            let (given, missing) = match cert {
                Some(_) => ("certFile", "keyFile"),
                None => ("keyFile", "certFile"),
            };
            let field = section.field(missing);
            section.reader.error(
                &field,
                format!("not set, but {given} is"),
                format!("set {missing} too, or neither"),
            );
            None
        }
    }
}

fn read_pair(
    section: &mut ConfigSection<'_>,
    cert: &Path,
    key: &Path,
) -> Option<CertificateAndKey> {
    let chain = read_file(section, "certFile", cert, |pem| {
        pem::certificates(pem).map(|chain| (chain, FileVersion::new(cert, pem)))
    });
    let secret = read_file(section, "keyFile", key, |pem| {
        pem::private_key(pem).map(|secret| (secret, FileVersion::new(key, pem)))
    });
    let ((chain, chain_file), (secret, key_file)) = (chain?, secret?);
    pem::certificate_and_key(chain, secret, [chain_file, key_file])
        .map_err(|invalid| report(section, "keyFile", key, invalid))
        .ok()
}

/// What `parse` reads from the file at `path`, which is the value of `key`.
pub(super) fn read_file<T>(
    section: &mut ConfigSection<'_>,
    key: &str,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, InvalidValue>,
) -> Option<T> {
    let field = section.field(key);
    let contents = section.reader.contents(&field, path)?;
    parse(&contents)
        .map_err(|invalid| report(section, key, path, invalid))
        .ok()
}

/// Reports that the contents of the file under `key` are invalid.
fn report(section: &mut ConfigSection<'_>, key: &str, path: &Path, invalid: InvalidValue) {
    let field = section.field(key);
    let problem = format!("{}: {}", path.display(), invalid.problem);
    section.reader.error(&field, problem, invalid.remedy);
}
