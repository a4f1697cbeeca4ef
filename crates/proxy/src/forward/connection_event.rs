//! Events of connections to the upstream, for metrics.
//!
//! Not here: log lines, which are written where the events happen.

use fairgate_base::events::EventSink;

/// An event of a connection to the upstream, or of a request on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// A connection was opened.
    Opened,
    /// A connection could not be opened.
    NotOpened,
    /// A connection failed; [`Closed`](Self::Closed) follows.
    Lost,
    /// A connection that was open is closed.
    Closed,
    /// The response of an abandoned request was read to its end.
    Completed,
    /// The response of an abandoned request was cancelled by a reset.
    Reset,
    /// A request was sent again, because the upstream cannot have processed it, or because it only reads.
    SentAgain,
}

/// Reports the end of an open connection when it is dropped.
#[must_use]
#[derive(Debug)]
pub(super) struct OpenConnection(EventSink<ConnectionEvent>);

impl OpenConnection {
    /// A connection was opened; dropping this reports that it is closed.
    pub(super) fn new(events: &EventSink<ConnectionEvent>) -> Self {
        events.send(ConnectionEvent::Opened);
        Self(events.clone())
    }

    /// The connection failed.
    pub(super) fn lost(&self) {
        self.0.send(ConnectionEvent::Lost);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.send(ConnectionEvent::Closed);
    }
}
