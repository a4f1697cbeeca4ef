//! Notices that a server speaks TLS where the URL says `http://`.
//!
//! Such a server accepts connections, and answers a request with 400 in its own words (Go, nginx), with an alert of TLS, or not at
//! all. None of that is proof, so a handshake is tried on a connection of its own: what a server without TLS answers to that is not TLS.
//!
//! Not here: the opposite, which every handshake of the dialer finds out.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, header::CONTENT_TYPE, uri::Scheme};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use crate::{dial_error::DialError, endpoint::Endpoint, tls::client_config};

/// Whether a response may be that of a server which expects TLS: API servers answer with `application/…` also when they refuse a
/// request.
pub(crate) fn may_expect_tls(status: StatusCode, headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    let is_of_api = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/"));
    status == StatusCode::BAD_REQUEST && !is_of_api
}

/// The error of an endpoint without TLS whose server speaks TLS, which is logged once; `None` if it does not, or cannot be reached.
/// To be called when a request got no response, or one that [`may_expect_tls`].
pub(crate) async fn expects_tls(endpoint: &Endpoint) -> Option<DialError> {
    if endpoint.scheme() != Scheme::HTTP {
        return None;
    }
    let handshake = timeout(endpoint.connect_timeout(), answers_with_tls(endpoint));
    if !handshake.await.unwrap_or(false) {
        return None;
    }
    let url = Arc::clone(endpoint.url());
    let error = DialError::ExpectsTls { url };
    if endpoint.note_tls(true) {
        tracing::error!(%error, "requests to the upstream fail");
    }
    Some(error)
}

/// Whether the server answers a handshake with messages of TLS, whatever they say.
async fn answers_with_tls(endpoint: &Endpoint) -> bool {
    let connected = match endpoint.fixed() {
        Some(address) => TcpStream::connect(address).await,
        None => TcpStream::connect(endpoint.address()).await,
    };
    let name = ServerName::try_from(endpoint.address().0.to_owned());
    // Trusts nobody, so that the handshake ends without a session.
    let (Ok(stream), Ok(name), Ok(config)) = (connected, name, client_config([], None)) else {
        return false;
    };
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(_) => true,
        Err(error) => {
            let inner = error.get_ref();
            let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
            inner.is_some_and(|error| !matches!(error, rustls::Error::InvalidMessage(_)))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_400_of_an_api_server_does_not_call_for_a_handshake() {
        let with = |content_type: &'static str| {
            let value = HeaderValue::from_static(content_type);
            HeaderMap::from_iter([(CONTENT_TYPE, value)])
        };
        let bad = StatusCode::BAD_REQUEST;
        for (status, headers, expected) in [
            (bad, HeaderMap::new(), true),
            (bad, with("text/html"), true),
            (bad, with("application/json"), false),
            (bad, with("application/vnd.kubernetes.protobuf"), false),
            (StatusCode::OK, HeaderMap::new(), false),
        ] {
            assert_eq!(may_expect_tls(status, &headers), expected, "{headers:?}");
        }
    }
}
