//! The load of a core. By it, the acceptor chooses a core for each new connection.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The load of a core. Written by its own core, read by the acceptor.
#[derive(Debug, Default)]
pub struct CoreLoad {
    connections: AtomicUsize,
    streams: AtomicUsize,
}

impl CoreLoad {
    /// Connections and requests in progress.
    pub fn total(&self) -> usize {
        self.connections.load(Ordering::Relaxed) + self.streams.load(Ordering::Relaxed)
    }

    /// Requests in progress.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(super) fn add_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn begin_request(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_request(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
