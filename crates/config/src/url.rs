//! The URL of an upstream: its parts, and how it is read and printed.

use http::Uri;

/// An upstream's address; no path, no user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// HTTPS rather than HTTP.
    pub tls: bool,
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port as given, or the default of the scheme.
    pub port: u16,
}

impl UpstreamUrl {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || uri.query().is_some() || uri.path() != "/" {
            return None;
        }
        let host = authority.host();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let port = match &authority.as_str()[host.len()..] {
            "" => {
                if tls {
                    443
                } else {
                    80
                }
            }
            port => port
                .strip_prefix(':')?
                .parse()
                .ok()
                .filter(|port| *port != 0)?,
        };
        (!host.is_empty()).then(|| Self {
            tls,
            host: bare.unwrap_or(host).to_owned(),
            port,
        })
    }

    /// `host:port`, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    /// Whether it is a loopback address, or `localhost`.
    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    }
}
