//! What load is sent to: an address, TLS, and the credentials of users.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use rustls::{ClientConfig, RootCertStore, crypto::CryptoProvider, pki_types::ServerName};
use tokio::net::TcpStream;

use super::certificates::{self, CredentialFileError, wrong};
use fairgate_upstream::dial::HttpVersion;

/// How long connecting may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

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
    #[error(transparent)]
    File(#[from] CredentialFileError),
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
    bearer: BearerTokens,
    /// Whether the owner of the token or of the client certificate impersonates users.
    impersonates: bool,
}

/// The bearer tokens of users.
#[derive(Clone, Debug)]
enum BearerTokens {
    /// Each has its own: that of this table, or else the one that load tests give it.
    Own(Arc<BTreeMap<String, String>>),
    /// All have this one.
    Shared(HeaderValue),
    /// None: they have a client certificate, or are anonymous.
    None,
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
            bearer: BearerTokens::Own(Arc::default()),
            impersonates: false,
        })
    }

    /// The same target, with the bearer tokens of a file with lines `token,user,…`, as the gateway reads it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn with_tokens(mut self, file: &Path) -> Result<Self, TargetError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| wrong(file, format!("cannot be read: {error}")))?;
        let lines = text.lines().filter_map(|line| {
            let mut cells = line
                .split(',')
                .map(|cell| cell.trim_matches('"').to_owned());
            let token = cells.next()?;
            cells.next().map(|user| (user, token))
        });
        self.bearer = BearerTokens::Own(Arc::new(lines.collect()));
        Ok(self)
    }

    /// The same target, with the bearer token in a file for all users.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or has no token.
    pub(crate) fn with_token(mut self, file: &Path) -> Result<Self, TargetError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| wrong(file, format!("cannot be read: {error}")))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(wrong(file, "it has no token").into());
        }
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| wrong(file, "it has more than a token"))?;
        header.set_sensitive(true);
        self.bearer = BearerTokens::Shared(header);
        Ok(self)
    }

    /// The same target, with a client certificate instead of bearer tokens, for all users. Without TLS nothing is shown.
    ///
    /// # Errors
    ///
    /// When the files cannot be used.
    pub(crate) fn with_client_certificate(
        mut self,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, TargetError> {
        let read = certificates::client(certificate, key, &provider())?;
        if let Some((config, _)) = &mut self.tls {
            Arc::make_mut(config).client_auth_cert_resolver = read;
        }
        self.bearer = BearerTokens::None;
        Ok(self)
    }

    /// The same target, without a credential.
    pub(crate) fn without_credential(mut self) -> Self {
        self.bearer = BearerTokens::None;
        self
    }

    /// The same target; the owner of the token or of the client certificate impersonates users.
    pub(crate) fn impersonating(mut self) -> Self {
        self.impersonates = true;
        self
    }

    /// The headers that say who a user is.
    pub(crate) fn identity(&self, user: &str, groups: &[String]) -> HeaderMap {
        let mut headers = self.authorization(user);
        if self.impersonates {
            // Names of users are valid header values. A group that is none is left out, and the server refuses what it may not do.
            headers.extend(HeaderValue::try_from(user).map(|user| (IMPERSONATE_USER, user)));
            let groups = groups
                .iter()
                .filter_map(|group| HeaderValue::try_from(group).ok());
            for group in groups {
                headers.append(IMPERSONATE_GROUP, group);
            }
        }
        headers
    }

    /// The `Authorization` header of a user, if it has one.
    pub(crate) fn authorization(&self, user: &str) -> HeaderMap {
        let token = match &self.bearer {
            BearerTokens::None => None,
            BearerTokens::Shared(token) => Some(token.clone()),
            BearerTokens::Own(tokens) => {
                let token = tokens.get(user).cloned().unwrap_or_else(|| token_of(user));
                // If the token is not a valid header value, the server refuses the request, and the figures show it.
                let header = HeaderValue::try_from(format!("Bearer {token}"));
                Some(header.unwrap_or(HeaderValue::from_static("Bearer")))
            }
        };
        let header = token.map(|token| (header::AUTHORIZATION, token));
        header.into_iter().collect()
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

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn tls_config(ca: Option<&Path>) -> Result<ClientConfig, CredentialFileError> {
    let Some(file) = ca else {
        let problem = "an https target needs a file with its CA certificates";
        return Err(wrong(Path::new("--ca"), problem));
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates::read(file, "--ca")? {
        roots
            .add(certificate)
            .map_err(|error| wrong(file, error.to_string()))?;
    }
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
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

    /// A file with this content, removed at the end.
    struct TokenFile(std::path::PathBuf);

    impl TokenFile {
        fn new(name: &str, content: &str) -> Self {
            let name = format!("fairgate-loadtest-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for TokenFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// The headers of a user with one group.
    fn headers(target: &LoadTarget) -> Vec<String> {
        let headers = target.identity("mouse", &["small".to_owned(), "grey".to_owned()]);
        let headers = headers.iter();
        headers
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect()
    }

    #[tokio::test]
    async fn users_have_tokens_of_their_own_or_one_that_may_impersonate_them() {
        let target = || LoadTarget::resolve("http://127.0.0.1:80", None, false);
        let own = target().await.unwrap();
        assert_eq!(headers(&own), ["authorization: Bearer loadtest-mouse"]);
        assert_eq!(headers(&own.without_credential()), [""; 0]);
        let tokens = TokenFile::new("tokens", "secret,mouse,mouse\nother,cat,cat\n");
        let given = target().await.unwrap().with_tokens(&tokens.0).unwrap();
        assert_eq!(headers(&given), ["authorization: Bearer secret"]);
        let token = TokenFile::new("token", "shared\n");
        let shared = target().await.unwrap().with_token(&token.0).unwrap();
        assert_eq!(headers(&shared), ["authorization: Bearer shared"]);
        let mut found = headers(&shared.impersonating());
        found.sort_unstable();
        let expected = [
            "authorization: Bearer shared",
            "impersonate-group: grey",
            "impersonate-group: small",
            "impersonate-user: mouse",
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn a_file_without_one_token_is_reported() {
        for (name, content, problem) in [
            ("empty", "\n", "it has no token"),
            ("lines", "a\nb\n", "it has more than a token"),
        ] {
            let file = TokenFile::new(name, content);
            let target = LoadTarget::resolve("http://127.0.0.1:80", None, false)
                .await
                .unwrap();
            let error = target.with_token(&file.0).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
