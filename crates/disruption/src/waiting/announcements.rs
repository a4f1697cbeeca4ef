//! Which waits operators are told of: at most one in a period for each budget, however many evictions wait for it.

use std::{collections::BTreeMap, time::Duration};

use fairgate_core::time::Time;

use super::BudgetName;

/// After an announcement, further evictions that wait for the same budget are not announced for this long.
pub const ANNOUNCED_FOR: Duration = Duration::from_secs(60);
/// The maximum number of budgets that are remembered. While there are so many, no others are announced.
const MAX_REMEMBERED: usize = 1024;

/// The budgets for which waits were announced.
#[derive(Debug, Default)]
pub struct WaitAnnouncements {
    last: BTreeMap<BudgetName, Time>,
}

impl WaitAnnouncements {
    /// Whether to announce `now` that evictions wait for this budget. Costs `O(log n)` for n budgets, and `O(n)` once in a while.
    pub fn may_announce(&mut self, now: Time, budget: &BudgetName) -> bool {
        let is_recent = |last: &Time| now.since(*last) < ANNOUNCED_FOR;
        if self.last.get(budget).is_some_and(is_recent) {
            return false;
        }
        if self.last.len() >= MAX_REMEMBERED {
            self.last.retain(|_, last| is_recent(last));
        }
        if self.last.len() >= MAX_REMEMBERED {
            return false;
        }
        self.last.insert(budget.clone(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(number: usize) -> BudgetName {
        BudgetName {
            namespace: "ns".to_owned(),
            name: format!("b{number}"),
        }
    }

    #[test]
    fn a_budget_is_announced_once_in_a_period() {
        let mut announcements = WaitAnnouncements::default();
        let mut at = |seconds, number| {
            let now = Time::ZERO.plus(Duration::from_secs(seconds));
            announcements.may_announce(now, &budget(number))
        };
        assert!(at(0, 1) && at(1, 2));
        assert!(!at(30, 1) && !at(59, 1));
        assert!(at(60, 1) && !at(60, 2), "each budget has its own period");
    }

    #[test]
    fn the_budgets_that_are_remembered_are_bounded() {
        let mut announcements = WaitAnnouncements::default();
        let late = Time::ZERO.plus(ANNOUNCED_FOR);
        for (now, expected) in [(Time::ZERO, MAX_REMEMBERED), (late, MAX_REMEMBERED)] {
            let announced =
                (0..3 * MAX_REMEMBERED).filter(|n| announcements.may_announce(now, &budget(*n)));
            assert_eq!(announced.count(), expected);
            assert_eq!(announcements.last.len(), MAX_REMEMBERED);
        }
    }
}
