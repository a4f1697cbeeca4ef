//! Whether levels are full, during one check of clients that are slow.

use super::waiters::Waiter;
use fairgate_core::apf::{level::Level, queueset::QueueSet};

/// Whether levels are full, during one check.
///
/// The lock of a level is taken once for all its slow clients, and again only after one of them was disconnected:
/// requests wait for the same lock.
#[derive(Debug, Default)]
pub(super) struct LevelFullness {
    /// By level; a core serves few.
    known: Vec<(Level<Waiter>, bool)>,
}

impl LevelFullness {
    /// Whether `level` is full. `look` is called if that is not known.
    pub(super) fn get(
        &mut self,
        level: &Level<Waiter>,
        look: impl FnOnce(&Level<Waiter>) -> bool,
    ) -> bool {
        let mut known = self.known.iter();
        if let Some((_, is_full)) = known.find(|(of, _)| of.is(level)) {
            return *is_full;
        }
        let is_full = look(level);
        self.known.push((level.clone(), is_full));
        is_full
    }

    /// A seat of `level` may have become free.
    pub(super) fn forget(&mut self, level: &Level<Waiter>) {
        self.known.retain(|(of, _)| !of.is(level));
    }
}

/// Whether no seat of the level is free. Takes its lock.
pub(super) fn is_full(level: &Level<Waiter>) -> bool {
    let summary = level.inspect(QueueSet::summary);
    summary.waiting > 0 || summary.seats_in_use >= summary.limit
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use fairgate_core::{
        apf::{Semantics, queueset::Discipline},
        time::Time,
    };

    fn level() -> Level<Waiter> {
        Level::new(Semantics::Improved, Discipline::Reject, 1, Time::ZERO)
    }

    #[test]
    fn one_check_looks_at_a_level_once_however_many_slow_readers_it_has() {
        let (checks, a, b) = (Cell::new(0), level(), level());
        let mut fullness = LevelFullness::default();
        let mut ask = |of: &Level<Waiter>| {
            fullness.get(of, |looked_at| {
                checks.set(checks.get() + 1);
                looked_at.is(&b)
            })
        };
        for _ in 0..1000 {
            assert!(!ask(&a));
            assert!(ask(&b));
        }
        assert_eq!(checks.get(), 2);
    }

    #[test]
    fn after_a_cut_a_level_is_looked_at_again_and_other_levels_are_not() {
        let (a, b) = (level(), level());
        let mut fullness = LevelFullness::default();
        assert!(fullness.get(&a, |_| true));
        assert!(fullness.get(&b, |_| true));
        fullness.forget(&a);
        assert!(!fullness.get(&a, |_| false));
        assert!(fullness.get(&b, |_| false));
    }
}
