//! What becomes of connections to the upstream, for whoever counts it.
//!
//! Not here: log lines; those are written where it happens.

use crate::heard::Heard;

/// What becomes of a connection to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It was opened.
    Opened,
    /// It could not be opened.
    NotOpened,
    /// It broke off; [`Closed`](Self::Closed) follows.
    Lost,
    /// It was opened once, and is no more.
    Closed,
}

/// Goes with an open connection.
#[must_use]
#[derive(Debug)]
pub(super) struct Open(Heard<ConnectionEvent>);

impl Open {
    /// A connection is open; when this is dropped, it is closed.
    pub(super) fn new(heard: &Heard<ConnectionEvent>) -> Self {
        heard.tell(ConnectionEvent::Opened);
        Self(heard.clone())
    }

    /// The connection broke off.
    pub(super) fn lost(&self) {
        self.0.tell(ConnectionEvent::Lost);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.tell(ConnectionEvent::Closed);
    }
}
