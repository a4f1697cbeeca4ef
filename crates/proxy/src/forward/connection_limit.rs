//! Limits the number of HTTP/2 connections to the upstream.
//!
//! The limit is for all cores together, since the clients of one core may need more than those of another. Each
//! [`Lane`] has a separate limit, so that watches cannot use up the connections of other requests. Every core
//! may have one connection for each lane in any case.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use super::lane::Lane;
use fairgate_core::sync::{Mutex, lock};

/// The shared connections of all cores.
#[derive(Debug)]
pub struct ConnectionLimit {
    max_connections: usize,
    /// Streams that a connection may have: what the upstream announced last, or the gateway's own limit.
    streams_each: AtomicUsize,
    lanes: [InUse; Lane::ALL.len()],
    /// The limits of all servers, where streams are counted as well.
    all: Option<Arc<Self>>,
    /// How many servers there are.
    servers: AtomicUsize,
    /// The limits of each server, by its name.
    of_servers: Mutex<Vec<(Arc<str>, Weak<Self>)>>,
}

#[derive(Debug, Default)]
struct InUse {
    connections: AtomicUsize,
    streams: AtomicUsize,
}

/// Counts a connection; dropped with it.
#[derive(Debug)]
pub(super) struct ConnectionLimitGuard {
    of: Arc<ConnectionLimit>,
    lane: Lane,
}

impl ConnectionLimit {
    /// At most `max_connections` connections for each lane, with `streams_each` streams each.
    pub fn new(max_connections: usize, streams_each: usize) -> Arc<Self> {
        Arc::new(Self {
            max_connections,
            streams_each: AtomicUsize::new(streams_each),
            lanes: Default::default(),
            all: None,
            servers: AtomicUsize::new(1),
            of_servers: Mutex::default(),
        })
    }

    /// The same limits for the connections of all cores to one of several servers, by its name. Its streams are counted here as well.
    pub fn of_server(self: &Arc<Self>, name: &Arc<str>) -> Arc<Self> {
        let mut known = lock(&self.of_servers);
        known.retain(|(_, limit)| limit.strong_count() > 0);
        let found = known.iter().find(|(of, _)| of == name);
        if let Some(limit) = found.and_then(|(_, limit)| limit.upgrade()) {
            return limit;
        }
        let limit = Arc::new(Self {
            max_connections: self.max_connections,
            streams_each: AtomicUsize::new(self.streams_each.load(Ordering::Relaxed)),
            lanes: Default::default(),
            all: Some(Arc::clone(self)),
            servers: AtomicUsize::new(1),
            of_servers: Mutex::default(),
        });
        known.push((Arc::clone(name), Arc::downgrade(&limit)));
        limit
    }

    /// Streams in use; always 0 for the lanes whose streams are not counted.
    pub fn streams(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].streams.load(Ordering::Relaxed)
    }

    /// The maximum number of streams that all connections of a lane may have together.
    pub fn streams_limit(&self) -> usize {
        let streams_each = self.streams_each.load(Ordering::Relaxed);
        self.max_connections * streams_each * self.servers.load(Ordering::Relaxed)
    }

    /// There are so many servers, each with these limits.
    pub fn set_servers(&self, servers: usize) {
        self.servers.store(servers.max(1), Ordering::Relaxed);
    }

    /// Whether there may be one more connection. A core that has `none` may always open one.
    pub(super) fn has_room(&self, lane: Lane, none: bool) -> bool {
        none || self.lanes[lane as usize]
            .connections
            .load(Ordering::Relaxed)
            < self.max_connections
    }

    /// Counts one more connection; `None` if there may be no more.
    pub(super) fn enter(self: &Arc<Self>, lane: Lane, none: bool) -> Option<ConnectionLimitGuard> {
        let connections = &self.lanes[lane as usize].connections;
        let before = connections.fetch_add(1, Ordering::Relaxed);
        let guard = ConnectionLimitGuard {
            of: Arc::clone(self),
            lane,
        };
        (none || before < self.max_connections).then_some(guard)
    }
}

impl ConnectionLimitGuard {
    /// The upstream allows this many streams on a connection.
    pub(super) fn set_streams_each(&self, streams: usize) {
        for limit in [Some(&self.of), self.of.all.as_ref()].into_iter().flatten() {
            limit.streams_each.store(streams, Ordering::Relaxed);
        }
    }

    fn streams(&self) -> impl Iterator<Item = &AtomicUsize> {
        // Ordinary requests are too many and too short for a counter that all cores write.
        let counted = matches!(self.lane, Lane::Watches | Lane::LongRunning);
        let limits = [Some(&self.of), self.of.all.as_ref()];
        let limits = limits.into_iter().flatten().filter(move |_| counted);
        limits.map(|limit| &limit.lanes[self.lane as usize].streams)
    }

    /// Counts one more stream in use.
    pub(super) fn begin_stream(&self) {
        for streams in self.streams() {
            streams.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one less stream.
    pub(super) fn end_stream(&self) {
        for streams in self.streams() {
            streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionLimitGuard {
    fn drop(&mut self) {
        let connections = &self.of.lanes[self.lane as usize].connections;
        connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_core_without_a_connection_may_exceed_the_maximum() {
        let all = ConnectionLimit::new(2, 100);
        let guards: Vec<_> = (0..2)
            .map(|_| all.enter(Lane::Watches, false).unwrap())
            .collect();
        assert!(!all.has_room(Lane::Watches, false));
        assert!(all.enter(Lane::Watches, false).is_none());
        assert!(all.enter(Lane::Watches, true).is_some());
        assert!(
            all.enter(Lane::Ordinary, false).is_some(),
            "the lane has its own limit"
        );
        drop(guards);
        assert!(all.has_room(Lane::Watches, false));
    }

    #[test]
    fn streams_of_watches_are_counted() {
        let all = ConnectionLimit::new(3, 100);
        let guard = all.enter(Lane::Watches, false).unwrap();
        guard.set_streams_each(50);
        guard.begin_stream();
        guard.begin_stream();
        guard.end_stream();
        assert_eq!((all.streams(Lane::Watches), all.streams_limit()), (1, 150));
    }

    #[test]
    fn each_server_has_the_whole_limit_and_streams_are_counted_together() {
        let all = ConnectionLimit::new(1, 100);
        all.set_servers(2);
        let names = ["a", "b"].map(Arc::<str>::from);
        let servers = names.each_ref().map(|name| all.of_server(name));
        assert!(
            Arc::ptr_eq(&servers[0], &all.of_server(&names[0])),
            "of all cores"
        );
        let guards = servers
            .each_ref()
            .map(|server| server.enter(Lane::Watches, false).unwrap());
        assert!(servers[0].enter(Lane::Watches, false).is_none());
        guards.iter().for_each(ConnectionLimitGuard::begin_stream);
        guards[0].begin_stream();
        guards[0].end_stream();
        assert_eq!((all.streams(Lane::Watches), all.streams_limit()), (2, 200));
        assert_eq!(servers[1].streams(Lane::Watches), 1);
    }
}
