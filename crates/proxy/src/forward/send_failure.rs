//! Why a call was not answered, and what may be done about it.

use super::{connect::ConnectError, retryable_body::ClientFailure};
use fairgate_call::{ClientBody, Refusal};
use fairgate_upstream::dial_error::DialError;

/// Why an attempt failed.
pub(super) enum AttemptFailure {
    /// It may be sent again: the upstream has not processed it, or it is a read that the end of an idle connection
    /// interrupted. Here is its complete body.
    Again(ClientBody),
    /// It is a read that the server may have processed: another server may answer it. Here is its complete body.
    Elsewhere(ClientBody),
    /// The upstream has not processed it, but part of the body is lost.
    Unsent,
    /// The client's body is incomplete.
    Client(ClientFailure),
    /// The upstream may have processed it.
    Upstream,
}

/// Who is to blame for a failure, of a server among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// No connection to the server could be opened.
    NotConnected,
    /// The server took the request and did not answer.
    NotAnswered,
    /// The client, the gateway's own limits, or a server that refused the request properly.
    Nobody,
}

/// Why a server did not answer a call.
pub(super) struct ForwardFailure {
    pub(super) refusal: Refusal,
    pub(super) blame: Blame,
    /// The complete body, if another server may be sent the call.
    pub(super) unsent: Option<ClientBody>,
}

impl ForwardFailure {
    /// No connection: nothing was sent.
    pub(super) fn not_connected(error: &ConnectError, body: ClientBody) -> Self {
        let (refusal, blame) = match error {
            ConnectError::Full { .. } => (Refusal::UpstreamFull, Blame::Nobody),
            ConnectError::Dial(_) | ConnectError::Http { .. } => {
                tracing::debug!(%error, "no upstream connection");
                (Refusal::UpstreamUnreachable, Blame::NotConnected)
            }
        };
        Self {
            refusal,
            blame,
            unsent: Some(body),
        }
    }
}

impl From<Refusal> for ForwardFailure {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            blame: Blame::Nobody,
            unsent: None,
        }
    }
}

impl From<AttemptFailure> for ForwardFailure {
    fn from(failure: AttemptFailure) -> Self {
        let (refusal, blame, unsent) = match failure {
            AttemptFailure::Again(body) => {
                (Refusal::UpstreamUnreachable, Blame::Nobody, Some(body))
            }
            AttemptFailure::Elsewhere(body) => {
                (Refusal::UpstreamFailed, Blame::NotAnswered, Some(body))
            }
            AttemptFailure::Unsent => (Refusal::UpstreamUnreachable, Blame::Nobody, None),
            AttemptFailure::Client(ClientFailure::Incomplete) => {
                let refusal = Refusal::Malformed("the request's body is incomplete");
                (refusal, Blame::Nobody, None)
            }
            AttemptFailure::Client(ClientFailure::TooSlow) => {
                (Refusal::BodyTooSlow, Blame::Nobody, None)
            }
            AttemptFailure::Upstream => (Refusal::UpstreamFailed, Blame::NotAnswered, None),
        };
        Self {
            refusal,
            blame,
            unsent,
        }
    }
}

/// Whether another attempt to connect may succeed at once: the server may just have been replaced.
pub(super) fn may_be_passing(error: &ConnectError) -> bool {
    match error {
        ConnectError::Full { .. } | ConnectError::Dial(DialError::TimedOut { .. }) => false,
        ConnectError::Dial(_) | ConnectError::Http { .. } => true,
    }
}
