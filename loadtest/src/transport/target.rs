//! What load is sent to: an address, TLS, and the credentials of users.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Uri};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;

use fairgate_upstream::dial::HttpVersion;

/// How long connecting may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// Not a URL that load can be sent to.
    #[error("{url}: {problem}; write it as http://127.0.0.1:8443 or https://host:6443")]
    Url { url: String, problem: &'static str },
    /// The name of the host is not known.
    #[error("{url}: the host cannot be found")]
    Host { url: String, source: io::Error },
    /// Load would leave this machine.
    #[error(
        "{url} is at {address}, which is not this machine. Load can harm a server and those who use it. If you may test \
         this one, say so with --allow-remote"
    )]
    Remote { url: String, address: IpAddr },
    /// Nothing listens, or there is no response.
    #[error("{url} does not answer: {source}. Is it running, and is the address right?")]
    Down { url: String, source: io::Error },
    /// A file cannot be used.
    #[error("{file}: {problem}")]
    File { file: String, problem: String },
}

/// A server that load is sent to.
#[derive(Clone, Debug)]
pub(crate) struct LoadTarget {
    /// The URL as it was given.
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    /// The host and port for requests.
    pub(crate) authority: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    tokens: Arc<BTreeMap<String, String>>,
}

impl LoadTarget {
    /// Resolves `url`. `ca` holds the CA certificates that verify it, for https.
    ///
    /// # Errors
    ///
    /// [`TargetError`], also for a host other than this machine unless `remote` is set.
    pub(crate) async fn resolve(
        url: &str,
        ca: Option<&Path>,
        remote: bool,
    ) -> Result<Self, TargetError> {
        let wrong = |problem| TargetError::Url {
            url: url.to_owned(),
            problem,
        };
        let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
        let host = uri
            .host()
            .ok_or_else(|| wrong("it has no host"))?
            .trim_matches(['[', ']'])
            .to_owned();
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it begins neither with http:// nor with https://")),
        };
        if uri.path().len() > 1 || uri.query().is_some() {
            return Err(wrong("it has a path, but paths come from the scenario"));
        }
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let missing = |source| TargetError::Host {
            url: url.to_owned(),
            source,
        };
        let mut found = tokio::net::lookup_host((host.as_str(), port))
            .await
            .map_err(missing)?;
        let address = found
            .next()
            .ok_or_else(|| missing(io::ErrorKind::NotFound.into()))?;
        if !remote && !address.ip().is_loopback() {
            return Err(TargetError::Remote {
                url: url.to_owned(),
                address: address.ip(),
            });
        }
        let tls = if secure {
            let name = ServerName::try_from(host.clone())
                .map_err(|_| wrong("its host is neither a DNS name nor an IP address"))?;
            Some((Arc::new(tls_config(ca)?), name))
        } else {
            None
        };
        Ok(Self {
            url: url.to_owned(),
            address,
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            tls,
            tokens: Arc::default(),
        })
    }

    /// The same target, with the bearer tokens of a file with lines `token,user,…`, as the gateway reads it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn with_tokens(mut self, file: &Path) -> Result<Self, TargetError> {
        let text = std::fs::read_to_string(file).map_err(|error| TargetError::File {
            file: file.display().to_string(),
            problem: format!("cannot be read: {error}"),
        })?;
        let lines = text.lines().filter_map(|line| {
            let mut cells = line
                .split(',')
                .map(|cell| cell.trim_matches('"').to_owned());
            let token = cells.next()?;
            cells.next().map(|user| (user, token))
        });
        self.tokens = Arc::new(lines.collect());
        Ok(self)
    }

    /// The `Authorization` header of a user.
    pub(crate) fn authorization(&self, user: &str) -> HeaderValue {
        let token = self
            .tokens
            .get(user)
            .cloned()
            .unwrap_or_else(|| token_of(user));
        // If the token is not a valid header value, the server refuses the request, and the figures show it.
        HeaderValue::try_from(format!("Bearer {token}"))
            .unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// Whether requests go over TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// The TLS settings for a version of HTTP, and the name in the server's certificate.
    pub(crate) fn tls(
        &self,
        version: HttpVersion,
    ) -> Option<(Arc<ClientConfig>, ServerName<'static>)> {
        let (config, name) = self.tls.as_ref()?;
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = vec![version.alpn().to_vec()];
        Some((Arc::new(config), name.clone()))
    }

    /// Checks that somebody listens.
    ///
    /// # Errors
    ///
    /// [`TargetError::Down`].
    pub(crate) async fn check(&self) -> Result<(), TargetError> {
        let connecting =
            tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.address)).await;
        let result = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        result.map(drop).map_err(|source| TargetError::Down {
            url: self.url.clone(),
            source,
        })
    }
}

/// The bearer token of a user that no file names. It is valid in load tests only, so it may be guessable.
pub(crate) fn token_of(user: &str) -> String {
    format!("loadtest-{user}")
}

fn tls_config(ca: Option<&Path>) -> Result<ClientConfig, TargetError> {
    let wrong = |file: &Path, problem: String| TargetError::File {
        file: file.display().to_string(),
        problem,
    };
    let Some(file) = ca else {
        return Err(TargetError::File {
            file: "--ca".to_owned(),
            problem: "an https target needs a file with its CA certificates".to_owned(),
        });
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| wrong(file, error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(file, error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(file, error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| wrong(file, error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_target_on_another_machine_needs_permission() {
        let remote = LoadTarget::resolve("http://192.0.2.1:80", None, false)
            .await
            .unwrap_err();
        assert!(remote.to_string().contains("--allow-remote"), "{remote}");
        assert!(
            LoadTarget::resolve("http://192.0.2.1:80", None, true)
                .await
                .is_ok()
        );
        assert!(
            LoadTarget::resolve("http://127.0.0.1:80", None, false)
                .await
                .is_ok()
        );
        assert!(
            LoadTarget::resolve("http://[::1]:80", None, false)
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn an_invalid_target_is_reported_with_an_example() {
        for url in ["localhost", "ftp://127.0.0.1", "http://127.0.0.1/api", "/"] {
            let error = LoadTarget::resolve(url, None, false).await.unwrap_err();
            assert!(error.to_string().contains("write it as http://"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_target_that_is_down_is_reported() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = LoadTarget::resolve(&url, None, false).await.unwrap();
        target.check().await.unwrap();
        drop(listener);
        let error = target.check().await.unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error}");
    }
}
