//! Idle HTTP/1 connections.
//!
//! The one used last is taken first: it is the most likely to be still open, and the others age and are
//! closed. The cost of a request does not depend on how many are idle: it looks at the end of the list only, and
//! drops closed ones there. The rest is done by [`IdleConnections::sweep`], which is called from time to time, and
//! when the upstream has closed a connection.

use std::{collections::VecDeque, time::Duration};

use fairgate_core::time::Time;

/// A connection that can be kept while idle.
pub(super) trait IdleConnection {
    /// Whether the connection is still open.
    fn is_open(&self) -> bool;
}

/// Idle connections, the one used last at the end.
#[derive(Debug)]
pub(super) struct IdleConnections<T>(VecDeque<(Time, T)>);

impl<T> Default for IdleConnections<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: IdleConnection> IdleConnections<T> {
    /// Keeps a connection that is idle since `now`.
    pub(super) fn keep(&mut self, now: Time, connection: T) {
        self.0.push_back((now, connection));
    }

    /// The connection used last, unless it has been idle for `limit`. O(1), except for closed ones, each of which
    /// is dropped.
    pub(super) fn take(&mut self, now: Time, limit: Duration) -> Option<T> {
        while let Some((since, connection)) = self.0.pop_back() {
            if now.since(since) >= limit {
                // All others have been idle for even longer.
                self.0.clear();
                break;
            }
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    /// Drops connections that have been idle for `limit`, or are closed. O(connections).
    pub(super) fn sweep(&mut self, now: Time, limit: Duration) {
        self.0
            .retain(|(since, connection)| now.since(*since) < limit && connection.is_open());
        self.0.shrink_to(2 * self.0.len());
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[derive(Debug)]
    struct Connection {
        name: usize,
        open: Rc<Cell<bool>>,
        checks: Rc<Cell<usize>>,
    }

    impl IdleConnection for Connection {
        fn is_open(&self) -> bool {
            self.checks.set(self.checks.get() + 1);
            self.open.get()
        }
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    type Open = Vec<Rc<Cell<bool>>>;

    /// `number` connections that became idle one second after the other, and how often any was checked.
    fn idle(number: usize) -> (IdleConnections<Connection>, Open, Rc<Cell<usize>>) {
        let checks = Rc::<Cell<usize>>::default();
        let open: Vec<_> = (0..number).map(|_| Rc::new(Cell::new(true))).collect();
        let mut idle = IdleConnections::default();
        for (name, open) in open.iter().enumerate() {
            let connection = Connection {
                name,
                open: open.clone(),
                checks: checks.clone(),
            };
            idle.keep(at(name as u64), connection);
        }
        (idle, open, checks)
    }

    #[test]
    fn the_cost_of_a_request_does_not_depend_on_how_many_are_idle() {
        for number in [1, 16, 1024, 16 * 1024] {
            let (mut idle, _, checks) = idle(number);
            let now = at(number as u64);
            for _ in 0..100 {
                let connection = idle.take(now, LIMIT).unwrap();
                idle.keep(now, connection);
            }
            assert_eq!(checks.get(), 100, "of {number}");
        }
    }

    #[test]
    fn closed_connections_are_dropped_when_they_are_found() {
        let (mut idle, open, checks) = idle(6);
        open[5].set(false);
        open[4].set(false);
        open[1].set(false);
        assert_eq!(idle.take(at(6), LIMIT).unwrap().name, 3);
        assert_eq!(checks.get(), 3);
        let left: Vec<_> = idle
            .0
            .iter()
            .map(|(_, connection)| connection.name)
            .collect();
        assert_eq!(left, [0, 1, 2]);
    }

    #[test]
    fn old_connections_are_not_used_and_are_removed() {
        let (mut idle, open, _) = idle(100);
        open[98].set(false);
        idle.sweep(at(119), LIMIT);
        let left: Vec<_> = idle
            .0
            .iter()
            .map(|(_, connection)| connection.name)
            .collect();
        assert_eq!(left.len(), 39);
        assert_eq!((left[0], left[38]), (60, 99));
        assert!(idle.take(at(159), LIMIT).is_none());
        assert!(idle.is_empty());
    }
}
