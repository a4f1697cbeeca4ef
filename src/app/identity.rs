//! Identity on requests to the upstream: the user's, and the gateway's own credential.

use std::{path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

use super::settings_error::SettingsError;
use fairgate_call::{Call, Refusal};
use fairgate_proxy::{
    auth::{IdentityError, UpstreamIdentity, upstream},
    forward,
};

/// How often a token file is reloaded: such tokens are renewed well before they expire.
const REREAD: Duration = Duration::from_secs(60);

/// The gateway's own bearer token, if it has one.
#[derive(Clone, Debug)]
pub(super) struct UpstreamCredential {
    path: Option<PathBuf>,
    header: Arc<ArcSwapOption<HeaderValue>>,
}

impl UpstreamCredential {
    /// The token in the file at `path`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or contains no token.
    pub(super) fn new(path: Option<PathBuf>) -> Result<Self, SettingsError> {
        let credential = Self {
            path,
            header: Arc::default(),
        };
        credential.reread()?;
        Ok(credential)
    }

    /// The `Authorization` header of the gateway.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        self.header
            .load()
            .as_ref()
            .map(|header| HeaderValue::clone(header))
    }

    /// Reloads the file periodically, until it is dropped.
    pub(super) async fn follow(self) {
        if self.path.is_none() {
            return;
        }
        loop {
            tokio::time::sleep(REREAD).await;
            let again = self.clone();
            match tokio::task::spawn_blocking(move || again.reread()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot reload the token file; the last token stays in use");
                }
                Err(error) => tracing::warn!(%error, "cannot reload the token file"),
            }
        }
    }

    fn reread(&self) -> Result<(), SettingsError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let token = std::fs::read_to_string(path).map_err(|source| SettingsError::TokenFile {
            path: path.clone(),
            source,
        })?;
        let token = token.trim();
        let header = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut header = header
            .ok()
            .filter(|_| !token.is_empty())
            .ok_or_else(|| SettingsError::NotAToken { path: path.clone() })?;
        header.set_sensitive(true);
        self.header.store(Some(Arc::new(header)));
        Ok(())
    }
}

/// Writes the user's identity and the gateway's credential into requests to the upstream.
#[derive(Clone, Debug)]
pub(super) struct IdentityWriter {
    identity: UpstreamIdentity,
    credential: UpstreamCredential,
}

impl IdentityWriter {
    pub(super) fn new(identity: UpstreamIdentity, credential: UpstreamCredential) -> Self {
        Self {
            identity,
            credential,
        }
    }
}

impl forward::WriteIdentity for IdentityWriter {
    fn write(&self, call: &Call, headers: &mut HeaderMap) -> Result<(), Refusal> {
        let written = match &call.identity {
            Some(identity) => upstream::write_identity(&self.identity, identity, headers),
            None => upstream::write(&self.identity, &call.digest.user, headers),
        };
        written.map_err(|error| {
            tracing::warn!(%error, "the user cannot be represented in request headers");
            match error {
                IdentityError::Empty { .. } | IdentityError::Unrepresentable { .. } => {
                    Refusal::IdentityNotRepresentable(error.to_string().into())
                }
                IdentityError::AlreadyPresent { .. } => Refusal::Internal(error.to_string().into()),
            }
        })?;
        if let Some(header) = self.credential.header() {
            headers.insert(AUTHORIZATION, header);
        }
        Ok(())
    }
}
