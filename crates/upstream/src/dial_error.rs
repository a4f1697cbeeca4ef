//! Why no connection to the upstream could be opened: what happened, at which URL, and what to do.
//!
//! The messages are read in the log, in `/readyz` and by people who do not know TLS. The errors of the libraries name states of
//! their own (`InvalidContentType`) and count seconds, so they are only repeated where
//! nothing better is known.

use std::{io, sync::Arc};

use jiff::Timestamp;
use rustls::{AlertDescription, CertificateError, pki_types::UnixTime};

/// Why no connection could be opened. Nothing has been sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// The name in the URL has no address.
    #[error("{url}: cannot resolve the name: {source}; check upstream.url and DNS")]
    Unresolved {
        /// The upstream: scheme, host and port.
        url: Arc<str>,
        /// The error of the resolver.
        source: Arc<io::Error>,
    },
    /// Nobody accepts connections there.
    #[error("{url}: cannot connect: {source}; check that the API server runs and listens there")]
    NotConnected {
        /// The upstream: scheme, host and port.
        url: Arc<str>,
        /// The error of the last address that was tried.
        source: Arc<io::Error>,
    },
    /// The TLS handshake failed.
    #[error("{url}: {problem}")]
    Handshake {
        /// The upstream: scheme, host and port.
        url: Arc<str>,
        /// What happened, and what to do.
        problem: Arc<str>,
    },
    /// The server speaks TLS, and the URL says `http://`. A connection could be opened, but no request is answered.
    #[error("{url}: the server speaks TLS; write https:// in upstream.url, with upstream.caFile")]
    ExpectsTls {
        /// The upstream: scheme, host and port.
        url: Arc<str>,
    },
    /// It took longer than the endpoint's time-out.
    #[error(
        "{url}: no connection within timeouts.upstreamConnect; check that the API server runs, and firewalls in between"
    )]
    TimedOut {
        /// The upstream: scheme, host and port.
        url: Arc<str>,
    },
}

impl DialError {
    /// The handshake with `url` failed with this error.
    pub(crate) fn handshake(url: Arc<str>, error: &io::Error) -> Self {
        let problem = handshake_problem(error).into();
        Self::Handshake { url, problem }
    }
}

fn handshake_problem(error: &io::Error) -> String {
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(wrong)) => certificate_problem(wrong),
        Some(rustls::Error::InvalidMessage(_)) => {
            "it does not speak TLS; check the port, or write http:// in upstream.url if the server has no TLS"
                .to_owned()
        }
        Some(rustls::Error::AlertReceived(alert)) if is_about_own_certificate(*alert) => format!(
            "it refuses the gateway's certificate ({alert:?}); renew upstream.clientCertificate, or have a CA issue it that the server trusts"
        ),
        Some(other) => format!("the TLS handshake failed: {other}"),
        None => format!(
            "the connection broke in the TLS handshake: {error}; check that an API server listens there, and proxies in between"
        ),
    }
}

fn certificate_problem(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::ExpiredContext { time, not_after } => format!(
            "its certificate expired at {}; renew it (here it is {})",
            shown(*not_after),
            shown(*time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "its certificate is valid from {} only; check the clocks of both machines (here it is {})",
            shown(*not_before),
            shown(*time)
        ),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            format!(
                "its certificate is for {}, not for {}; set upstream.tlsServerName to a name that it has",
                if names.is_empty() {
                    "no name".to_owned()
                } else {
                    names.join(", ")
                },
                expected.to_str()
            )
        }
        CertificateError::UnknownIssuer => {
            "its certificate is not signed by a CA in upstream.caFile; add that CA to the file"
                .to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not one for servers; issue one with the extended key usage serverAuth"
                .to_owned()
        }
        other => format!("its certificate cannot be used: {other}; issue another one"),
    }
}

/// Whether the server says by this alert what it thinks of the certificate that the gateway presented, or did not present.
fn is_about_own_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired
    )
}

/// RFC 3339 in whole seconds.
fn shown(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    // Times after the year 9999 cannot be written.
    Timestamp::from_second(seconds)
        .map_or_else(|_| "a later time".to_owned(), |time| time.to_string())
}

/// A name of a certificate without the type that webpki writes around it: `DnsName("a")`, `IpAddress(::1)`.
fn bare(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: rustls::Error) -> String {
        handshake_problem(&io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn names_of_certificates_are_written_without_their_types() {
        for (written, name) in [
            ("DnsName(\"kubernetes.default\")", "kubernetes.default"),
            ("IpAddress(10.0.0.1)", "10.0.0.1"),
            ("DirectoryName", "DirectoryName"),
        ] {
            assert_eq!(bare(written), name);
        }
    }

    #[test]
    fn a_server_that_refuses_the_own_certificate_is_told_from_one_without_a_common_version() {
        let refused = of(rustls::Error::AlertReceived(AlertDescription::UnknownCA));
        assert!(
            refused.contains("the gateway's certificate (UnknownCA)"),
            "{refused}"
        );
        let other = of(rustls::Error::AlertReceived(
            AlertDescription::ProtocolVersion,
        ));
        assert!(other.starts_with("the TLS handshake failed: "), "{other}");
    }

    #[test]
    fn an_error_of_the_socket_is_not_taken_for_one_of_tls() {
        let broken = handshake_problem(&io::ErrorKind::UnexpectedEof.into());
        assert!(
            broken.starts_with("the connection broke in the TLS handshake: "),
            "{broken}"
        );
    }

    #[test]
    fn times_that_cannot_be_written_are_not_guessed() {
        let far = UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::MAX));
        assert_eq!(shown(far), "a later time");
    }
}
