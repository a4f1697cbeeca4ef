//! A limit on open connections at which a new connection replaces an old one.
//!
//! Where anybody may connect and every request has to be answered at once, idle connections must not
//! keep new ones out. No connection is refused: at the limit the oldest one without a request in progress
//! is evicted, or else the oldest of all.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use fairgate_core::sync::{Mutex, lock};

/// The open connections and their limit. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct AdminConnections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    by_age: BTreeMap<u64, Arc<ConnectionState>>,
}

#[derive(Debug, Default)]
struct ConnectionState {
    busy: AtomicBool,
    evicted: AtomicBool,
    notify: Notify,
}

/// A connection that counts towards the limit until this is dropped.
#[derive(Debug)]
pub(crate) struct AdminConnection {
    limit: AdminConnections,
    age: u64,
    state: Arc<ConnectionState>,
}

impl AdminConnections {
    /// A limit of `most` connections; at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            most: most.max(1),
            open: Mutex::default(),
        }))
    }

    /// Opens a connection. Returns whether another one was evicted for it. O(connections).
    pub(crate) fn open(&self) -> (AdminConnection, bool) {
        let mut open = lock(&self.0.open);
        let full = open.by_age.len() >= self.0.most;
        if full {
            let oldest = open.idle().or_else(|| open.by_age.keys().next().copied());
            open.evict(oldest);
        }
        let age = open.next;
        open.next += 1;
        let state = Arc::<ConnectionState>::default();
        open.by_age.insert(age, Arc::clone(&state));
        let connection = AdminConnection {
            limit: self.clone(),
            age,
            state,
        };
        (connection, full)
    }

    /// Evicts the oldest connection without a request in progress. False if there is none.
    pub(crate) fn evict_idle(&self) -> bool {
        let mut open = lock(&self.0.open);
        let idle = open.idle();
        open.evict(idle)
    }
}

impl OpenConnections {
    fn idle(&self) -> Option<u64> {
        let mut idle = self.by_age.iter().filter(|(_, state)| !state.is_busy());
        idle.next().map(|(age, _)| *age)
    }

    fn evict(&mut self, age: Option<u64>) -> bool {
        let Some(state) = age.and_then(|age| self.by_age.remove(&age)) else {
            return false;
        };
        state.evicted.store(true, Ordering::Release);
        state.notify.notify_one();
        true
    }
}

impl ConnectionState {
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}

impl AdminConnection {
    /// Marks whether a request is in progress.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.state.busy.store(busy, Ordering::Release);
    }

    /// Completes when the connection is evicted.
    pub(crate) async fn evicted(&self) {
        while !self.state.evicted.load(Ordering::Acquire) {
            self.state.notify.notified().await;
        }
    }
}

impl Drop for AdminConnection {
    fn drop(&mut self) {
        lock(&self.limit.0.open).by_age.remove(&self.age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(connection: &AdminConnection) -> bool {
        connection.state.evicted.load(Ordering::Acquire)
    }

    #[test]
    fn a_new_one_takes_the_place_of_the_oldest_idle_one() {
        let limit = AdminConnections::new(3);
        let all: Vec<_> = (0..3).map(|_| limit.open()).collect();
        assert!(!all.iter().any(|(_, evicted_another)| *evicted_another));
        all[0].0.set_busy(true);
        let (fourth, evicted_another) = limit.open();
        assert!(evicted_another);
        let gone: Vec<_> = all
            .iter()
            .map(|(connection, _)| is_evicted(connection))
            .collect();
        assert_eq!(gone, [false, true, false]);
        all[2].0.set_busy(true);
        fourth.set_busy(true);
        assert!(!limit.evict_idle(), "all are busy");
        let (_fifth, evicted_another) = limit.open();
        assert!(
            evicted_another && is_evicted(&all[0].0),
            "then the oldest of all"
        );
    }

    #[test]
    fn a_place_that_was_given_back_is_free() {
        let limit = AdminConnections::new(1);
        drop(limit.open());
        assert!(!limit.open().1);
    }
}
