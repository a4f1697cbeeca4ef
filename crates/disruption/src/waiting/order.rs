//! The order in which evictions that wait get their turns, as far as it is known: for dumps.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, btree_set},
};

use fairgate_core::time::Time;

use super::{BudgetName, BudgetWaiters, WaitingEvictions};

/// A place, in the order of turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceInOrder<'a> {
    /// The budget that the eviction waits for.
    pub budget: &'a BudgetName,
    /// How many places of this budget are before it, itself included.
    pub position: usize,
    /// The number of the place.
    pub number: u64,
    /// Whether it has its turn.
    pub has_turn: bool,
}

impl WaitingEvictions {
    /// All places, by budget, in the order of their turns from `now` if nothing changes: those that have a turn first. Costs `O(n · log n)`
    /// for n places.
    pub fn in_order(&self, now: Time) -> Vec<PlaceInOrder<'_>> {
        let mut all = Vec::with_capacity(self.waiting);
        for (budget, waiters) in &self.budgets {
            all.extend(
                (1..)
                    .zip(waiters.in_order(now))
                    .map(|(position, (number, has_turn))| PlaceInOrder {
                        budget,
                        position,
                        number,
                        has_turn,
                    }),
            );
        }
        all
    }

    /// The numbers of the places of one budget, in any order.
    pub fn places_at(&self, budget: &BudgetName) -> impl Iterator<Item = u64> {
        let waiters = self.budgets.get(budget).into_iter();
        waiters.flat_map(|waiters| {
            let waiting = waiters.flows.values().flat_map(|flow| &flow.waiting);
            waiting.chain(waiters.turns.keys()).copied()
        })
    }
}

impl BudgetWaiters {
    /// The places, and whether they have a turn.
    fn in_order(&self, now: Time) -> impl Iterator<Item = (u64, bool)> {
        let waiting = self.next_turns(now).into_iter();
        let on_turn = self.on_turn().map(|number| (number, true));
        on_turn.chain(waiting.map(|number| (number, false)))
    }

    /// The places that have a turn, the longest first.
    fn on_turn(&self) -> impl Iterator<Item = u64> {
        let mut turns: Vec<_> = self
            .turns
            .iter()
            .map(|(number, since)| (*since, *number))
            .collect();
        turns.sort_unstable();
        turns.into_iter().map(|(_, number)| number)
    }

    /// The places of those that wait, in the order of [`Self::next_turn`].
    fn next_turns(&self, now: Time) -> Vec<u64> {
        let mut flows: Vec<btree_set::Iter<'_, u64>> = Vec::new();
        let mut next = BinaryHeap::new();
        // As if each were granted before the next begins its turn.
        let mut last_order = self.next_order;
        for flow in self.flows.values() {
            next.push(Reverse((flow.rank(now), flows.len())));
            flows.push(flow.waiting.iter());
        }
        let mut numbers = Vec::new();
        while let Some(Reverse(((lets_pass, share, _), flow))) = next.pop() {
            if let Some(number) = flows[flow].next() {
                numbers.push(*number);
                last_order += 1;
                next.push(Reverse(((lets_pass, share + 1, last_order), flow)));
            }
        }
        numbers
    }
}
