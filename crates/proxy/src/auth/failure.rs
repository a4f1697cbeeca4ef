//! Why a request could not be authenticated: for the log only, since clients just get `Unauthorized`.

use std::fmt;

use smallvec::SmallVec;

use super::bearer::ProtocolError;
use fairgate_call::{CertificateError, FrontProxyError};
use fairgate_upstream::token_review::TokenRefused;

/// Why one method of authentication failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum AuthFailure {
    /// The client is not a front proxy; reported for every ordinary client certificate.
    #[error("front proxy: {0}")]
    FrontProxy(#[from] FrontProxyError),
    /// The client's certificate is not trusted, or its subject cannot be read.
    #[error("client certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// A token among the WebSocket subprotocols is invalid.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// The token is unknown, or the upstream refused it.
    #[error("{0}")]
    Token(#[from] TokenRefused),
}

/// Why a request has no user: the failures of all methods in order; empty if there was no credential.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AuthFailures(SmallVec<[AuthFailure; 2]>);

impl AuthFailures {
    /// The failures in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &AuthFailure> {
        self.0.iter()
    }

    /// Whether no method found a credential.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, failure: impl Into<AuthFailure>) {
        self.0.push(failure.into());
    }
}

impl fmt::Display for AuthFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no credential");
        }
        for (i, failure) in self.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{failure}")?;
        }
        Ok(())
    }
}
