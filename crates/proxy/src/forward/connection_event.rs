//! What becomes of connections to the upstream, for whoever counts it.
//!
//! Not here: log lines; those are written where it happens.

use fairgate_base::events::EventSink;

/// What becomes of a connection to the upstream, and of what is sent on it.
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
    /// An answer that nobody wanted any more came to its end.
    RanOut,
    /// An answer that nobody wanted any more was cancelled.
    Reset,
    /// A request was sent once more, as the upstream cannot have looked at it or it only reads.
    SentAgain,
}

/// Goes with an open connection.
#[must_use]
#[derive(Debug)]
pub(super) struct OpenConnection(EventSink<ConnectionEvent>);

impl OpenConnection {
    /// A connection is open; when this is dropped, it is closed.
    pub(super) fn new(events: &EventSink<ConnectionEvent>) -> Self {
        events.send(ConnectionEvent::Opened);
        Self(events.clone())
    }

    /// The connection broke off.
    pub(super) fn lost(&self) {
        self.0.send(ConnectionEvent::Lost);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.send(ConnectionEvent::Closed);
    }
}
