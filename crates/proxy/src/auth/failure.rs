//! Why nobody was recognized: for the log, never for the client, who only reads `Unauthorized`.

use std::fmt;

use smallvec::SmallVec;

use super::bearer::ProtocolError;
use fairgate_call::{CertificateError, FrontProxyError};
use fairgate_upstream::token_review::TokenRefused;

/// Why one method of authentication failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AuthFailure {
    /// The peer is no front proxy; said of every ordinary client certificate.
    #[error("front proxy: {0}")]
    FrontProxy(#[from] FrontProxyError),
    /// The peer's certificate is not believed, or its subject unreadable.
    #[error("client certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// A token among WebSocket subprotocols is unusable.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// Nobody knows the token, or the upstream refused it.
    #[error("{0}")]
    Token(#[from] TokenRefused),
}

/// Why a request has no user: what each method said, in order; nothing if there was no credential.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthFailures(SmallVec<[AuthFailure; 2]>);

impl AuthFailures {
    /// What each method said.
    pub fn iter(&self) -> impl Iterator<Item = &AuthFailure> {
        self.0.iter()
    }

    /// Whether no method found a credential.
    pub fn is_empty(&self) -> bool {
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
