//! Identity on requests to the upstream: the user's, and the gateway's own credential.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{HeaderValue, header::AUTHORIZATION};

use fairgate_call::{Call, HeaderLines, Refusal};
use fairgate_config::BearerTokenFile;
use fairgate_proxy::{
    auth::{IdentityError, UpstreamIdentity, upstream},
    forward,
};

/// The gateway's own bearer token, if it has one. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamCredential(Arc<ArcSwapOption<HeaderValue>>);

impl UpstreamCredential {
    pub(crate) fn new(token: Option<&BearerTokenFile>) -> Self {
        let header = token.and_then(header).map(Arc::new);
        Self(Arc::new(ArcSwapOption::new(header)))
    }

    /// Uses another token from the next request on.
    pub(crate) fn replace(&self, token: &BearerTokenFile) {
        self.0.store(header(token).map(Arc::new));
    }

    /// The `Authorization` header of the gateway.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.0
            .load()
            .as_ref()
            .map(|header| HeaderValue::clone(header))
    }
}

/// Always a header: a token has only visible characters.
fn header(file: &BearerTokenFile) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(&format!("Bearer {}", *file.token)).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Writes the user's identity and the gateway's credential into requests to the upstream.
#[derive(Clone, Debug)]
pub(crate) struct IdentityWriter {
    identity: UpstreamIdentity,
    credential: UpstreamCredential,
}

impl IdentityWriter {
    pub(crate) fn new(identity: UpstreamIdentity, credential: UpstreamCredential) -> Self {
        Self {
            identity,
            credential,
        }
    }
}

impl forward::WriteIdentity for IdentityWriter {
    fn write(&self, call: &Call, lines: &mut dyn HeaderLines) -> Result<(), Refusal> {
        let written = match &call.identity {
            Some(identity) => upstream::write_identity(&self.identity, identity, lines),
            None => upstream::write(&self.identity, &call.digest.user, lines),
        };
        written.map_err(|error| {
            tracing::warn!(%error, "the user cannot be represented in request headers");
            match error {
                IdentityError::Empty { .. }
                | IdentityError::Unrepresentable { .. }
                | IdentityError::AnonymousWithoutGroup => {
                    Refusal::IdentityNotRepresentable(error.to_string().into())
                }
                IdentityError::AlreadyPresent { .. } => Refusal::Internal(error.to_string().into()),
            }
        })?;
        if let Some(header) = self.credential.header() {
            lines.add(&AUTHORIZATION, &header);
        }
        Ok(())
    }

    fn is_identity(&self, name: &str) -> bool {
        upstream::is_identity_header(&self.identity, name)
    }
}
