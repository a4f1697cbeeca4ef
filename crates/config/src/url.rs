//! The URL of an upstream: its parts, and how it is read and printed.

use http::Uri;

use crate::invalid_value::InvalidValue;

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
    /// Reads `https://host:6443`.
    ///
    /// # Errors
    ///
    /// What is wrong with it. What may be a password is not repeated.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong = |what: &str| {
            let shown = without_credentials(text);
            InvalidValue::new(
                format!("{shown:?} {what}"),
                "write it as https://host:6443, without user, path or query",
            )
        };
        if text.contains('@') {
            return Err(InvalidValue::new(
                format!("{:?} has a user or a password", without_credentials(text)),
                "remove them; upstream.clientCertificate or upstream.tokenFile is the gateway's own credential",
            ));
        }
        let Some((scheme, _)) = text.split_once("://") else {
            return Err(wrong("does not begin with https:// or http://"));
        };
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("does not begin with https:// or http://")),
        };
        let uri: Uri = text.parse().map_err(|_| wrong("is not a server URL"))?;
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        if uri.query().is_some() || uri.path() != "/" {
            return Err(wrong("has a path or a query"));
        }
        let host = authority.host();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let port = match &authority.as_str()[host.len()..] {
            "" => Some(if tls { 443 } else { 80 }),
            port => port.strip_prefix(':').and_then(|port| port.parse().ok()),
        };
        let port = port.filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong("has a port that is not one of 1 to 65535"))?;
        if host.is_empty() {
            return Err(wrong("has no host"));
        }
        Ok(Self {
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

/// A URL without its user, its password and its query, for messages. A password may have any character.
pub(super) fn without_credentials(text: &str) -> String {
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|scheme| text.starts_with(scheme));
    let (scheme, rest) = match (text.rfind('@'), scheme) {
        (Some(at), scheme) => (scheme.unwrap_or_default(), format!("…{}", &text[at..])),
        (None, _) => ("", text.to_owned()),
    };
    format!("{scheme}{}", rest.split('?').next().unwrap_or_default())
}
