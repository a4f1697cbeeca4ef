//! Where the upstream is.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use http::{
    Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::{dial_error::DialError, tls::UpstreamTls};

/// Where the upstream is, how to secure a connection to it, and whether that can be opened. Cheap to clone; clones share
/// what is known of connections.
#[derive(Clone, Debug)]
pub struct Endpoint {
    name: Arc<str>,
    url: Arc<str>,
    authority: Authority,
    host: Arc<str>,
    port: u16,
    /// The address to connect to, where the host is not to be resolved.
    fixed: Option<SocketAddr>,
    tls: Option<UpstreamTls>,
    connect_timeout: Duration,
    /// Why the last attempt to open a connection failed.
    failure: Arc<ArcSwapOption<DialError>>,
    /// Whether the server speaks TLS although this has none. Connections can be opened then, so `failure` is none.
    expects_tls: Arc<AtomicBool>,
}

/// The default time-out of connecting: 5 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Endpoint {
    /// The upstream at `authority`, `host:port`. Without a port it is 443, or 80 without TLS. An IPv6 address
    /// stands in brackets.
    pub fn new(authority: Authority, tls: Option<UpstreamTls>) -> Self {
        let default_port = if tls.is_some() { 443 } else { 80 };
        let scheme = if tls.is_some() { "https" } else { "http" };
        Self {
            name: authority.as_str().into(),
            url: format!("{scheme}://{authority}").into(),
            host: authority.host().trim_matches(['[', ']']).into(),
            port: authority.port_u16().unwrap_or(default_port),
            fixed: None,
            authority,
            tls,
            connect_timeout: CONNECT_TIMEOUT,
            failure: Arc::default(),
            expects_tls: Arc::default(),
        }
    }

    /// The server at this one of the addresses of the host. It is named by the address. What is known of connections is its own.
    #[must_use]
    pub fn at_address(&self, address: SocketAddr) -> Self {
        let scheme = self.scheme();
        Self {
            name: address.to_string().into(),
            url: format!("{scheme}://{} ({address})", self.authority).into(),
            fixed: Some(address),
            failure: Arc::default(),
            expects_tls: Arc::default(),
            ..self.clone()
        }
    }

    /// Sets how long connecting may take, the TLS handshake included.
    #[must_use]
    pub fn with_connect_timeout(self, timeout: Duration) -> Self {
        Self {
            connect_timeout: timeout,
            ..self
        }
    }

    /// The name in logs and errors: the authority, or the address where that was given.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The name in messages: scheme, host and port.
    pub fn url(&self) -> &Arc<str> {
        &self.url
    }

    /// Why the last attempt to open a connection failed, or why no request is answered on one; `None` if it succeeded, and before
    /// the first.
    ///
    /// Connections that are open may go on meanwhile.
    pub fn problem(&self) -> Option<Arc<DialError>> {
        let failure = self.failure.load_full();
        failure.or_else(|| {
            let url = Arc::clone(&self.url);
            let expects_tls = self.expects_tls.load(Ordering::Relaxed);
            expects_tls.then(|| Arc::new(DialError::ExpectsTls { url }))
        })
    }

    /// Notes whether the server speaks TLS although this has none; returns whether that is news.
    pub(crate) fn note_tls(&self, expects_tls: bool) -> bool {
        self.expects_tls.load(Ordering::Relaxed) != expects_tls
            && self.expects_tls.swap(expects_tls, Ordering::Relaxed) != expects_tls
    }

    /// Notes how an attempt to open a connection ended.
    pub(crate) fn note(&self, failure: Option<&DialError>) {
        self.failure.store(failure.cloned().map(Arc::new));
    }

    /// Host and port, as in `Host` and `:authority`.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// `https`, or `http` without TLS.
    pub fn scheme(&self) -> Scheme {
        if self.tls.is_some() {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        }
    }

    /// The URI of `path` at the upstream.
    pub(crate) fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).unwrap_or_default() // all three parts are there, so it is valid
    }

    /// What to resolve and connect to: host without brackets, and port.
    pub(crate) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The address to connect to, if the host is not to be resolved.
    pub(crate) fn fixed(&self) -> Option<SocketAddr> {
        self.fixed
    }

    pub(crate) fn tls(&self) -> Option<&UpstreamTls> {
        self.tls.as_ref()
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::client_config;

    fn endpoint(authority: &'static str, tls: bool) -> Endpoint {
        let tls = tls.then(|| {
            let config = client_config([], None).unwrap();
            UpstreamTls::new(config, "upstream".try_into().unwrap())
        });
        Endpoint::new(Authority::from_static(authority), tls)
    }

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        for (authority, tls, address) in [
            ("upstream", true, ("upstream", 443)),
            ("upstream", false, ("upstream", 80)),
            ("upstream:6443", true, ("upstream", 6443)),
            ("10.0.0.1:6443", true, ("10.0.0.1", 6443)),
            ("[::1]:6443", true, ("::1", 6443)),
            ("[fd00::1]", false, ("fd00::1", 80)),
        ] {
            assert_eq!(endpoint(authority, tls).address(), address);
            assert_eq!(&**endpoint(authority, tls).name(), authority);
        }
    }

    #[test]
    fn a_server_at_one_address_of_a_host_is_named_by_it_and_keeps_its_own_problem() {
        let all = endpoint("upstream:6443", true);
        let one = all.at_address("[fd00::1]:6443".parse().unwrap());
        assert_eq!(&**one.name(), "[fd00::1]:6443");
        assert_eq!(&**one.url(), "https://upstream:6443 ([fd00::1]:6443)");
        assert_eq!(one.authority(), all.authority());
        one.note(Some(&DialError::TimedOut {
            url: Arc::clone(one.url()),
        }));
        assert!(one.problem().is_some() && all.problem().is_none());
    }

    #[test]
    fn a_uri_has_scheme_authority_and_path() {
        let path = PathAndQuery::from_static("/api?x=1");
        let uri = endpoint("[::1]:6443", true).uri(path.clone());
        assert_eq!(uri, "https://[::1]:6443/api?x=1");
        assert_eq!(endpoint("up", false).uri(path), "http://up/api?x=1");
    }
}
