//! How an etcd is reached, by the hosted API and by a fleet.

use crate::{file_version::FileVersion, pem, secret::Secret, values::InvalidValue};

/// A certificate and its key (PEM).
pub type ClientPem = (Vec<u8>, Secret<Vec<u8>>);

/// How an etcd is reached.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// `http://` or `https://` addresses of its members; not empty.
    pub endpoints: Vec<String>,
    /// The prefix of all keys.
    pub prefix: String,
    /// CA certificates (PEM) that verify the members.
    pub authorities_pem: Option<Vec<u8>>,
    /// The gateway's own certificate and key (PEM).
    pub client_pem: Option<ClientPem>,
    /// User and password.
    pub user: Option<(String, Secret<String>)>,
    /// Whether the gateway compacts the cluster's history.
    pub compaction: bool,
    /// The files that certificates, key and password come from.
    pub files: Box<EtcdFiles>,
}

/// The files that are named for an etcd.
#[derive(Clone, Debug, Default)]
pub struct EtcdFiles {
    pub(crate) authorities: Option<FileVersion>,
    /// The gateway's own certificate, and its key.
    pub(crate) client: Option<[FileVersion; 2]>,
    pub(crate) password: Option<FileVersion>,
}

impl EtcdFiles {
    /// All of them, in the order in which [`EtcdConfig::with_contents`] takes their contents.
    pub fn list(&self) -> Vec<FileVersion> {
        let pair = self.client.iter().flatten();
        let files = self.authorities.iter().chain(pair).chain(&self.password);
        files.cloned().collect()
    }
}

impl EtcdConfig {
    /// The same with other contents of its [`EtcdFiles::list`].
    ///
    /// # Errors
    ///
    /// Why they cannot be used, with the path.
    pub fn with_contents(&self, contents: &[Vec<u8>]) -> Result<Self, String> {
        let mut renewed = self.clone();
        let mut contents = contents.iter();
        let mut next = || contents.next().map(Vec::as_slice).unwrap_or_default();
        if let Some(file) = &self.files.authorities {
            let bundle = next();
            pem::authorities(&file.path, bundle).map_err(|why| file.cannot_be_used(&why))?;
            renewed.authorities_pem = Some(bundle.to_vec());
        }
        if let Some([certificate, key]) = &self.files.client {
            let (chain, secret) = (next(), next());
            let parsed = pem::certificates(chain);
            let parsed = parsed.map_err(|why| certificate.cannot_be_used(&why))?;
            let versions = [certificate.clone(), key.clone()];
            pem::private_key(secret)
                .and_then(|secret| pem::certificate_and_key(parsed, secret, versions))
                .map_err(|why| key.cannot_be_used(&why))?;
            renewed.client_pem = Some((chain.to_vec(), Secret::new(secret.to_vec())));
        }
        if let Some(file) = &self.files.password {
            let password = password(next()).map_err(|why| file.cannot_be_used(&why))?;
            let user = renewed.user.take();
            renewed.user = user.map(|(name, _)| (name, Secret::new(password)));
        }
        Ok(renewed)
    }
}

/// The password in a file.
pub(crate) fn password(contents: &[u8]) -> Result<String, InvalidValue> {
    match std::str::from_utf8(contents) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(_) => Err(InvalidValue::new(
            "the file is not UTF-8 text",
            "write only the password into it",
        )),
    }
}
