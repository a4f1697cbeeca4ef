//! Why a call was not answered, and what may be done about it.

use std::cell::Cell;

use super::{connect::ConnectError, retryable_body::ClientFailure};
use fairgate_call::{ClientBody, Refusal};
use fairgate_upstream::dial_error::DialError;

/// Why an attempt failed.
pub(super) enum AttemptFailure {
    /// It may be sent again: the upstream has not processed it, or it is a read that the end of an idle connection
    /// interrupted. Here is its complete body.
    Again(ClientBody),
    /// It is a read that the server may have processed: another server may answer it. Here is its complete body.
    Elsewhere(ClientBody, Blame),
    /// The upstream has not processed it, but part of the body is lost.
    Unsent,
    /// The client's body is incomplete.
    Client(ClientFailure),
    /// The upstream may have processed it.
    Upstream(Blame),
}

/// Who is to blame for a failure, of a server among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// No connection to the server could be opened.
    NotConnected,
    /// The server took the request and did not answer.
    NotAnswered,
    /// The server ended the request alone, with a code of HTTP/2, and its connection lives. That may be due to the request.
    Reset,
    /// The server was ejected while a read waited for its answer.
    Ejected,
    /// The client, the gateway's own limits, or a server that refused the request properly.
    Nobody,
}

/// What becomes known of a call that one of several servers did not answer, beside why it is refused.
#[derive(Default)]
pub(super) struct Unanswered {
    blame: Cell<Option<Blame>>,
    body: Cell<Option<ClientBody>>,
}

impl Unanswered {
    /// Who is to blame.
    pub(super) fn blame(&self) -> Blame {
        self.blame.take().unwrap_or(Blame::Nobody)
    }

    /// The complete body, if another server may be sent the call.
    pub(super) fn take_body(&self) -> Option<ClientBody> {
        self.body.take()
    }

    /// The server was ejected while a read without a body waited there.
    pub(super) fn ejected(&self) -> Refusal {
        self.note(Blame::Ejected, Some(ClientBody::empty()));
        Refusal::UpstreamFailed
    }

    fn note(&self, blame: Blame, body: Option<ClientBody>) {
        self.blame.set(Some(blame));
        self.body.set(body);
    }
}

/// Why a call is refused for which there is no connection: nothing was sent.
pub(super) fn not_connected(
    error: &ConnectError,
    body: ClientBody,
    unanswered: Option<&Unanswered>,
) -> Refusal {
    let (refusal, blame) = match error {
        ConnectError::Full { .. } => (Refusal::UpstreamFull, Blame::Nobody),
        ConnectError::Dial(_) | ConnectError::Http { .. } => {
            tracing::debug!(%error, "no upstream connection");
            (Refusal::UpstreamUnreachable, Blame::NotConnected)
        }
    };
    if let Some(unanswered) = unanswered {
        unanswered.note(blame, Some(body));
    }
    refusal
}

impl AttemptFailure {
    /// Why the call is refused.
    pub(super) fn refusal(self, unanswered: Option<&Unanswered>) -> Refusal {
        let note = |blame, body| {
            if let Some(unanswered) = unanswered {
                unanswered.note(blame, body);
            }
        };
        match self {
            Self::Again(body) => {
                note(Blame::Nobody, Some(body));
                Refusal::UpstreamUnreachable
            }
            Self::Elsewhere(body, blame) => {
                note(blame, Some(body));
                Refusal::UpstreamFailed
            }
            Self::Unsent => Refusal::UpstreamUnreachable,
            Self::Client(ClientFailure::Incomplete) => {
                Refusal::Malformed("the request's body is incomplete")
            }
            Self::Client(ClientFailure::TooSlow) => Refusal::BodyTooSlow,
            Self::Upstream(blame) => {
                note(blame, None);
                Refusal::UpstreamFailed
            }
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
