//! Idle HTTP/1 connections.
//!
//! The one used last is taken first: it is the most likely to be still open, and the others age and are
//! closed. The cost of a request does not depend on how many are idle: it looks at the end of the list only, and
//! drops closed ones there. The rest is done by [`IdleConnections::sweep`], which a
//! timer calls.

use std::{collections::VecDeque, time::Duration};

use fairgate_core::time::Time;

/// How many connections that are still busy with their last request are skipped. A connection is ready as soon as
/// its task has run once more, so there is hardly ever more than one.
const MAX_BUSY: usize = 8;

/// The state of an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It can take a request.
    Ready,
    /// It is still busy with its last request.
    Busy,
    /// It is closed.
    Closed,
}

/// A connection that can be kept while idle.
pub(super) trait IdleConnection {
    /// Whether the connection is ready, busy or closed.
    fn condition(&self) -> Condition;
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
        let mut busy: [Option<(Time, T)>; MAX_BUSY] = Default::default();
        let mut passed_over = 0;
        let mut taken = None;
        while let Some((since, connection)) = self.0.pop_back() {
            if now.since(since) >= limit {
                // All others have been idle for even longer.
                self.0.clear();
                break;
            }
            match connection.condition() {
                Condition::Closed => {}
                Condition::Ready => {
                    taken = Some(connection);
                    break;
                }
                Condition::Busy => {
                    busy[passed_over] = Some((since, connection));
                    passed_over += 1;
                    if passed_over == MAX_BUSY {
                        break;
                    }
                }
            }
        }
        self.0.extend(busy.into_iter().rev().flatten());
        taken
    }

    /// Drops connections that have been idle for `limit`, or are closed. O(connections).
    pub(super) fn sweep(&mut self, now: Time, limit: Duration) {
        self.0.retain(|(since, connection)| {
            now.since(*since) < limit && connection.condition() != Condition::Closed
        });
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
        condition: Rc<Cell<Condition>>,
        checks: Rc<Cell<usize>>,
    }

    impl IdleConnection for Connection {
        fn condition(&self) -> Condition {
            self.checks.set(self.checks.get() + 1);
            self.condition.get()
        }
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    type Conditions = Vec<Rc<Cell<Condition>>>;

    /// `number` connections that became idle one second after the other, and how often any was checked.
    fn idle(number: usize) -> (IdleConnections<Connection>, Conditions, Rc<Cell<usize>>) {
        let checks = Rc::<Cell<usize>>::default();
        let conditions: Vec<_> = (0..number)
            .map(|_| Rc::new(Cell::new(Condition::Ready)))
            .collect();
        let mut idle = IdleConnections::default();
        for (name, condition) in conditions.iter().enumerate() {
            let connection = Connection {
                name,
                condition: condition.clone(),
                checks: checks.clone(),
            };
            idle.keep(at(name as u64), connection);
        }
        (idle, conditions, checks)
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
    fn closed_connections_are_dropped_and_busy_ones_stay() {
        let (mut idle, conditions, checks) = idle(6);
        conditions[5].set(Condition::Busy);
        conditions[4].set(Condition::Closed);
        conditions[3].set(Condition::Busy);
        assert_eq!(idle.take(at(6), LIMIT).unwrap().name, 2);
        assert_eq!(checks.get(), 4);
        let left: Vec<_> = idle
            .0
            .iter()
            .map(|(_, connection)| connection.name)
            .collect();
        assert_eq!(left, [0, 1, 3, 5]);
    }

    #[test]
    fn only_a_few_busy_connections_are_checked() {
        let (mut idle, conditions, checks) = idle(100);
        for condition in &conditions {
            condition.set(Condition::Busy);
        }
        assert!(idle.take(at(50), LIMIT).is_none());
        assert_eq!((checks.get(), idle.0.len()), (MAX_BUSY, 100));
    }

    #[test]
    fn old_connections_are_not_used_and_are_removed() {
        let (mut idle, conditions, _) = idle(100);
        conditions[98].set(Condition::Closed);
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
