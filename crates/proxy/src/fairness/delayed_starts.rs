//! Granted requests of one core whose start is delayed for a moment, to spread starts out
//! ([`super::start_spreading`]).
//!
//! Not here: the tasks that start them, which the gate spawns.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use super::{start_spreading::StartSpreading, waiters::Waiter};
use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::level::{Level, Ticket},
    time::Time,
};

/// The delayed starts of all levels.
#[derive(Debug, Default)]
pub(super) struct DelayedStarts {
    /// One entry for each level in which requests of this core have waited.
    levels: RefCell<Vec<Rc<LevelStarts>>>,
}

/// The delayed starts of one level.
#[derive(Debug)]
pub(super) struct LevelStarts {
    level: Level<Waiter>,
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    spreading: StartSpreading,
    /// Delayed requests, in the order of their start times.
    delayed: VecDeque<(Time, Waiter, Ticket<Waiter>)>,
    /// Whether a task waits for their start times.
    has_task: bool,
}

/// When a granted request starts.
pub(super) enum Start {
    /// Immediately, with its ticket.
    Now(Ticket<Waiter>),
    /// Later. If there is a value, the caller must spawn a task that takes requests from it until there are
    /// none.
    Later(Option<Rc<LevelStarts>>),
}

impl DelayedStarts {
    /// Forgets levels without delayed requests, because they may be those of an old policy.
    pub(super) fn forget_unused(&self) {
        let is_used = |level: &Rc<LevelStarts>| level.inner.borrow().has_task;
        self.levels.borrow_mut().retain(is_used);
    }

    /// A request of `level` has executed for `time`.
    pub(super) fn executed(&self, level: &Level<Waiter>, time: Duration) {
        if let Some(starts) = self.find(level) {
            starts.inner.borrow_mut().spreading.executed(time);
        }
    }

    /// Decides when a granted request starts that has waited for `waited`.
    pub(super) fn start(
        &self,
        now: Time,
        waited: Duration,
        waiter: Waiter,
        ticket: Ticket<Waiter>,
    ) -> Start {
        let starts = self.find_or_add(ticket.level());
        let mut inner = starts.inner.borrow_mut();
        let Some(due) = inner.spreading.start(now, waited) else {
            return Start::Now(ticket);
        };
        inner.delayed.push_back((due, waiter, ticket));
        let is_first = !std::mem::replace(&mut inner.has_task, true);
        drop(inner);
        Start::Later(is_first.then_some(starts))
    }

    fn find(&self, level: &Level<Waiter>) -> Option<Rc<LevelStarts>> {
        let levels = self.levels.borrow();
        levels.iter().find(|starts| starts.level.is(level)).cloned()
    }

    fn find_or_add(&self, level: &Level<Waiter>) -> Rc<LevelStarts> {
        self.find(level).unwrap_or_else(|| {
            let starts = Rc::new(LevelStarts {
                level: level.clone(),
                inner: RefCell::default(),
            });
            self.levels.borrow_mut().push(Rc::clone(&starts));
            starts
        })
    }
}

impl LevelStarts {
    /// Waits for the start of the next delayed request; `None` if there is none, and then the task must end.
    pub(super) async fn next(&self, clock: &Clock) -> Option<(Waiter, Ticket<Waiter>)> {
        let Some(due) = self.inner.borrow().delayed.front().map(|next| next.0) else {
            self.inner.borrow_mut().has_task = false;
            return None;
        };
        if due > clock.now() {
            tokio::time::sleep_until(clock.instant(due)).await;
        }
        let (_, waiter, ticket) = self.inner.borrow_mut().delayed.pop_front()?;
        Some((waiter, ticket))
    }
}
