//! HTTP/1 connections that wait for their next request.
//!
//! The one used last is taken first: it is the likeliest to be alive, and the others grow old and are
//! swept out. What a request pays does not depend on how many wait: it looks at the end alone, where
//! dead ones are dropped on the way. The rest is for [`IdleConnections::sweep`], which a timer calls.

use std::{collections::VecDeque, time::Duration};

use fairgate_core::time::Time;

/// How many connections that are still busy with their last request are passed over. One is ready as
/// soon as its task has run once more, so hardly ever is there more than one.
const MAX_BUSY: usize = 8;

/// What can be said of a connection that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It takes a request.
    Ready,
    /// It has not done with its last request.
    Busy,
    /// It is closed.
    Dead,
}

/// A connection that may wait.
pub(super) trait IdleConnection {
    /// How it is.
    fn condition(&self) -> Condition;
}

/// Connections that wait, the one used last at the end.
#[derive(Debug)]
pub(super) struct IdleConnections<T>(VecDeque<(Time, T)>);

impl<T> Default for IdleConnections<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: IdleConnection> IdleConnections<T> {
    /// Keeps a connection that has done its work at `now`.
    pub(super) fn keep(&mut self, now: Time, connection: T) {
        self.0.push_back((now, connection));
    }

    /// The connection used last, unless it has waited for `limit`. O(1) but for dead ones, each of which is
    /// dropped.
    pub(super) fn take(&mut self, now: Time, limit: Duration) -> Option<T> {
        let mut busy: [Option<(Time, T)>; MAX_BUSY] = Default::default();
        let mut passed_over = 0;
        let mut taken = None;
        while let Some((since, connection)) = self.0.pop_back() {
            if now.since(since) >= limit {
                // All before it are older still.
                self.0.clear();
                break;
            }
            match connection.condition() {
                Condition::Dead => {}
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

    /// Drops what has waited for `limit`, or is dead. O(connections).
    pub(super) fn sweep(&mut self, now: Time, limit: Duration) {
        self.0.retain(|(since, connection)| {
            now.since(*since) < limit && connection.condition() != Condition::Dead
        });
        self.0.shrink_to(2 * self.0.len());
    }

    /// Whether none waits.
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
        looks: Rc<Cell<usize>>,
    }

    impl IdleConnection for Connection {
        fn condition(&self) -> Condition {
            self.looks.set(self.looks.get() + 1);
            self.condition.get()
        }
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    type Conditions = Vec<Rc<Cell<Condition>>>;

    /// `number` connections, one a second, and how often any was looked at.
    fn idle(number: usize) -> (IdleConnections<Connection>, Conditions, Rc<Cell<usize>>) {
        let looks = Rc::<Cell<usize>>::default();
        let conditions: Vec<_> = (0..number)
            .map(|_| Rc::new(Cell::new(Condition::Ready)))
            .collect();
        let mut idle = IdleConnections::default();
        for (name, condition) in conditions.iter().enumerate() {
            let connection = Connection {
                name,
                condition: condition.clone(),
                looks: looks.clone(),
            };
            idle.keep(at(name as u64), connection);
        }
        (idle, conditions, looks)
    }

    #[test]
    fn what_a_request_pays_does_not_depend_on_how_many_wait() {
        for number in [1, 16, 1024, 16 * 1024] {
            let (mut idle, _, looks) = idle(number);
            let now = at(number as u64);
            for _ in 0..100 {
                let connection = idle.take(now, LIMIT).unwrap();
                idle.keep(now, connection);
            }
            assert_eq!(looks.get(), 100, "of {number}");
        }
    }

    #[test]
    fn dead_ones_are_dropped_on_the_way_and_busy_ones_stay() {
        let (mut idle, conditions, looks) = idle(6);
        conditions[5].set(Condition::Busy);
        conditions[4].set(Condition::Dead);
        conditions[3].set(Condition::Busy);
        assert_eq!(idle.take(at(6), LIMIT).unwrap().name, 2);
        assert_eq!(looks.get(), 4);
        let left: Vec<_> = idle
            .0
            .iter()
            .map(|(_, connection)| connection.name)
            .collect();
        assert_eq!(left, [0, 1, 3, 5]);
    }

    #[test]
    fn no_more_than_a_few_busy_ones_are_looked_at() {
        let (mut idle, conditions, looks) = idle(100);
        for condition in &conditions {
            condition.set(Condition::Busy);
        }
        assert!(idle.take(at(50), LIMIT).is_none());
        assert_eq!((looks.get(), idle.0.len()), (MAX_BUSY, 100));
    }

    #[test]
    fn old_ones_are_not_used_and_are_swept() {
        let (mut idle, conditions, _) = idle(100);
        conditions[98].set(Condition::Dead);
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
