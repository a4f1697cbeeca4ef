//! How many client connections are open, in the process and on each core.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use super::core_load::CoreLoad;

/// The client connections of the process.
#[derive(Debug)]
pub struct ClientConnections {
    open: AtomicUsize,
    rejected: AtomicU64,
    pub(super) limit: usize,
    ended: Notify,
}

impl ClientConnections {
    /// At most `limit` connections are open at a time.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            rejected: AtomicU64::new(0),
            limit: limit.max(1),
            ended: Notify::new(),
        })
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections closed because the process was short of descriptors.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Counts a connection that was closed because the process was short of descriptors.
    pub(super) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Completes when no connection is open.
    pub async fn all_ended(&self) {
        self.below(1).await;
    }

    /// Completes when fewer than `limit` connections are open.
    pub(super) async fn below(&self, limit: usize) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.open() < limit {
                return;
            }
            ended.await;
        }
    }
}

/// Counts a connection as open, in the process and on its core, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    connections: Arc<ClientConnections>,
    load: Arc<CoreLoad>,
}

impl CountedConnection {
    pub(super) fn new(connections: Arc<ClientConnections>, load: Arc<CoreLoad>) -> Self {
        connections.open.fetch_add(1, Ordering::Relaxed);
        load.add_connection();
        Self { connections, load }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.load.remove_connection();
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
        self.connections.ended.notify_waiters();
    }
}
