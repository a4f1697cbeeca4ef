//! Where the upstream is.

use std::{sync::Arc, time::Duration};

use http::{
    Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::tls::UpstreamTls;

/// Where the upstream is and how to secure a connection to it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Endpoint {
    name: Arc<str>,
    authority: Authority,
    host: Arc<str>,
    port: u16,
    tls: Option<UpstreamTls>,
    connect_timeout: Duration,
}

/// The default time-out of connecting: 5 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Endpoint {
    /// The upstream at `authority`, `host:port`. Without a port it is 443, or 80 without TLS. An IPv6 address
    /// stands in brackets.
    pub fn new(authority: Authority, tls: Option<UpstreamTls>) -> Self {
        let default_port = if tls.is_some() { 443 } else { 80 };
        Self {
            name: authority.as_str().into(),
            host: authority.host().trim_matches(['[', ']']).into(),
            port: authority.port_u16().unwrap_or(default_port),
            authority,
            tls,
            connect_timeout: CONNECT_TIMEOUT,
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

    /// The name in logs and errors: the authority.
    pub fn name(&self) -> &Arc<str> {
        &self.name
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
    fn a_uri_has_scheme_authority_and_path() {
        let path = PathAndQuery::from_static("/api?x=1");
        let uri = endpoint("[::1]:6443", true).uri(path.clone());
        assert_eq!(uri, "https://[::1]:6443/api?x=1");
        assert_eq!(endpoint("up", false).uri(path), "http://up/api?x=1");
    }
}
