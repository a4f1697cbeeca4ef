//! Granted requests of one core that are held back for a moment, to spread starts out
//! ([`super::spread`]).

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use super::{gate::Gate, slots::Waiter, spread::Spread};
use fairgate_core::{
    apf::level::{Level, Ticket},
    time::Time,
};

/// The starts of each level.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// As many as a policy has levels for which requests of this core have waited.
    levels: RefCell<Vec<Rc<LevelStarts>>>,
}

#[derive(Debug)]
struct LevelStarts {
    level: Level<Waiter>,
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    spread: Spread,
    /// In order of their time.
    held_back: VecDeque<(Time, Waiter, Ticket<Waiter>)>,
    /// Whether a task starts them.
    followed: bool,
}

impl Starts {
    /// Forgets levels of an old policy, as far as nobody is held back there.
    pub(super) fn forget(&self) {
        let is_used = |of: &Rc<LevelStarts>| of.inner.borrow().followed;
        self.levels.borrow_mut().retain(is_used);
    }

    /// A request of `level` has executed for `time`.
    pub(super) fn executed(&self, level: &Level<Waiter>, time: Duration) {
        if let Some(of) = self.find(level) {
            of.inner.borrow_mut().spread.executed(time);
        }
    }

    /// Holds a granted request back if it should start later; else its ticket comes back.
    pub(super) fn hold_back(
        &self,
        gate: &Rc<Gate>,
        now: Time,
        waited: Duration,
        waiter: Waiter,
        ticket: Ticket<Waiter>,
    ) -> Option<Ticket<Waiter>> {
        let of = self.find_or_add(ticket.level());
        let mut inner = of.inner.borrow_mut();
        let Some(due) = inner.spread.start(now, waited) else {
            return Some(ticket);
        };
        gate.cells.held_back.increment();
        inner.held_back.push_back((due, waiter, ticket));
        if !std::mem::replace(&mut inner.followed, true) {
            let (gate, of) = (Rc::clone(gate), Rc::clone(&of));
            tokio::task::spawn_local(async move { of.follow(&gate).await });
        }
        None
    }

    fn find(&self, level: &Level<Waiter>) -> Option<Rc<LevelStarts>> {
        let levels = self.levels.borrow();
        levels.iter().find(|of| of.level.is(level)).cloned()
    }

    fn find_or_add(&self, level: &Level<Waiter>) -> Rc<LevelStarts> {
        self.find(level).unwrap_or_else(|| {
            let of = Rc::new(LevelStarts {
                level: level.clone(),
                inner: RefCell::default(),
            });
            self.levels.borrow_mut().push(Rc::clone(&of));
            of
        })
    }
}

impl LevelStarts {
    /// Starts those held back, each at its time, until there are none.
    async fn follow(&self, gate: &Rc<Gate>) {
        while let Some((waiter, ticket)) = self.next(gate).await {
            gate.grant(waiter, ticket);
        }
    }

    async fn next(&self, gate: &Gate) -> Option<(Waiter, Ticket<Waiter>)> {
        let Some(due) = self.inner.borrow().held_back.front().map(|held| held.0) else {
            self.inner.borrow_mut().followed = false;
            return None;
        };
        if due > gate.now() {
            tokio::time::sleep_until(gate.clock().instant(due)).await;
        }
        let (_, waiter, ticket) = self.inner.borrow_mut().held_back.pop_front()?;
        Some((waiter, ticket))
    }
}
