//! The load of a core. By it, the acceptor chooses a core for each new connection.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use fairgate_base::account::BytesHeld;
use fairgate_call::ReadAheadMeter;

/// The load of a core. Written by its own core with each request, read by the acceptor. No other core's is in the same line of a
/// cache, nor in the one that processors fetch with it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreLoad {
    connections: AtomicUsize,
    streams: AtomicUsize,
    pub(super) read_ahead: Arc<ReadAheadMeter>,
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

    /// The bytes of bodies that it has read ahead.
    pub fn read_ahead(&self) -> BytesHeld {
        self.read_ahead.held()
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
