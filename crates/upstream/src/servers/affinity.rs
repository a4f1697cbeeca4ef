//! What holds a server: the connection of a client that prefers it, and a request that runs for long.

use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use super::{UpstreamServer, moving::Place};

/// A client connection that prefers a server. Counted at the server until it is dropped.
#[derive(Debug)]
pub struct Affinity(Arc<UpstreamServer>);

impl Affinity {
    /// A connection that prefers `server` from now on.
    pub fn to(server: &Arc<UpstreamServer>) -> Self {
        server.load.count_connection(true);
        Self(Arc::clone(server))
    }

    /// The server.
    pub fn server(&self) -> &Arc<UpstreamServer> {
        &self.0
    }

    /// Whether the connection is to choose another server now, because this one has too many.
    pub fn is_to_move(&self) -> bool {
        self.0.moving_connections.take_one()
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        self.0.load.count_connection(false);
    }
}

/// A watch, or another request that runs for long. Counted at its server until it is dropped.
#[derive(Debug)]
pub struct LongRunningAt {
    server: Arc<UpstreamServer>,
    /// Its place among the watches that can be moved, once it has one.
    place: Option<Place>,
}

impl LongRunningAt {
    /// One more at `server`.
    pub fn new(server: &Arc<UpstreamServer>) -> Self {
        server.load.count_long_running(true);
        Self {
            server: Arc::clone(server),
            place: None,
        }
    }

    /// Ready when this watch is to end, so that its client opens it again at another server. For watches only: what else runs
    /// for long cannot be continued.
    pub fn poll_move(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.server.moving.takes(&mut self.place, cx) {
            self.server
                .counts
                .moved_watches
                .fetch_add(1, Ordering::Relaxed);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for LongRunningAt {
    fn drop(&mut self) {
        self.server.moving.leave(&mut self.place);
        self.server.load.count_long_running(false);
    }
}
