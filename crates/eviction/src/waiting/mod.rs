//! The order of evictions that wait for their budgets.
//!
//! [`WaitingEvictions`] holds the places of all evictions that wait. When a budget is seen to allow disruptions,
//! it says whose turn it is: those who drain (*flows*) take turns at each budget, and the evictions of one flow go in
//! the order in which they came. So a drain of two pods does not wait behind a drain of fifty.
//!
//! The order is self-clocked fair queuing with equal weights (Golestani, 1994). The *share* of a flow is the number of
//! its granted evictions. The flow with the lowest share is next, and of equal ones the one that came, or was granted an
//! eviction, longest ago. A flow that comes later, or again, begins with the highest share of those who are there. So it
//! is next once each of them has had one turn more, and a drain that sends its evictions one after the other gains nothing.
//!
//! A *turn* is no grant: the eviction runs its whole procedure, and the budget decides. An eviction that is refused
//! although it was its turn keeps its place. A turn that takes long ([`TURN_LIMIT`]) keeps nobody else waiting.
//!
//! Not here: how long evictions wait, how they learn of their budgets, and who may wait at all.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fairgate_core::time::Time;

/// How long a turn counts against what its budget allows.
pub const TURN_LIMIT: Duration = Duration::from_secs(5);

/// A budget's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// How many evictions may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// For one budget.
    pub per_budget: usize,
    /// For all budgets together.
    pub total: usize,
}

/// The place of an eviction that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitPlace {
    budget: BudgetName,
    flow: String,
    number: u64,
}

impl WaitPlace {
    /// The budget that it waits for.
    pub fn budget(&self) -> &BudgetName {
        &self.budget
    }

    /// A number that no other place has.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The evictions that wait, of all budgets.
#[derive(Debug)]
pub struct WaitingEvictions {
    limits: WaitLimits,
    budgets: BTreeMap<BudgetName, BudgetWaiters>,
    waiting: usize,
    next_number: u64,
}

impl WaitingEvictions {
    /// Nobody waits yet.
    pub fn new(limits: WaitLimits) -> Self {
        Self {
            limits,
            budgets: BTreeMap::new(),
            waiting: 0,
            next_number: 0,
        }
    }

    /// How many evictions wait, or have their turn.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The budgets that evictions wait for.
    pub fn budgets(&self) -> impl Iterator<Item = &BudgetName> {
        self.budgets.keys()
    }

    /// Whether an eviction may charge the budget, if that allows it: on its turn, or if nobody else waits. One that
    /// has no place may also if there is none left.
    pub fn may_charge(&self, budget: &BudgetName, place: Option<&WaitPlace>) -> bool {
        let Some(waiters) = self.budgets.get(budget) else {
            return true;
        };
        match place {
            Some(place) if place.budget == *budget => {
                waiters.places == 1 || waiters.turns.contains_key(&place.number)
            }
            // Another budget selects the pod now.
            Some(_) | None => self.is_full(budget),
        }
    }

    fn is_full(&self, budget: &BudgetName) -> bool {
        let places = self.budgets.get(budget).map_or(0, |waiters| waiters.places);
        self.waiting >= self.limits.total || places >= self.limits.per_budget
    }

    /// Gives an eviction of `flow` the last place of its flow. `None` if too many wait already. Costs O(log n) of
    /// the evictions that wait.
    pub fn join(&mut self, budget: &BudgetName, flow: &str) -> Option<WaitPlace> {
        if self.is_full(budget) {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.waiting += 1;
        let waiters = self.budgets.entry(budget.clone()).or_default();
        waiters.join(flow, number);
        Some(WaitPlace {
            budget: budget.clone(),
            flow: flow.to_owned(),
            number,
        })
    }

    /// Gives up a place: the eviction was granted, or has ended otherwise.
    pub fn leave(&mut self, place: &WaitPlace, is_granted: bool) {
        let Some(waiters) = self.budgets.get_mut(&place.budget) else {
            return;
        };
        if waiters.leave(&place.flow, place.number, is_granted) {
            self.waiting -= 1;
        }
        if waiters.places == 0 {
            self.budgets.remove(&place.budget);
        }
    }

    /// The eviction was refused although it was its turn: it waits on, at its place.
    pub fn refused(&mut self, place: &WaitPlace) {
        if let Some(waiters) = self.budgets.get_mut(&place.budget) {
            waiters.end_turn(&place.flow, place.number);
        }
    }

    /// The budget was read at `now`, and allows so many disruptions. Returns the numbers of the places whose turn it
    /// is. Costs O(flows of the budget) for each.
    pub fn observed(&mut self, now: Time, budget: &BudgetName, allowed: usize) -> Vec<u64> {
        let Some(waiters) = self.budgets.get_mut(budget) else {
            return Vec::new();
        };
        let busy = waiters
            .turns
            .values()
            .filter(|since| now.since(**since) < TURN_LIMIT)
            .count();
        let turns = (busy..allowed).map_while(|_| waiters.next_turn(now));
        turns.collect()
    }
}

/// The evictions that wait for one budget.
#[derive(Debug, Default)]
struct BudgetWaiters {
    flows: BTreeMap<String, FlowWaiters>,
    /// Since when it has been these places' turn.
    turns: BTreeMap<u64, Time>,
    places: usize,
    /// The highest share of any flow.
    virtual_time: u64,
    /// Counts what decides between flows of the same share.
    next_order: u64,
}

/// The evictions of one flow.
#[derive(Debug)]
struct FlowWaiters {
    /// Granted evictions, and the share of others when the flow came.
    share: u64,
    /// When it came, or was granted an eviction last.
    order: u64,
    waiting: BTreeSet<u64>,
    on_turn: u64,
}

impl FlowWaiters {
    /// The lowest is next.
    fn rank(&self) -> (u64, u64) {
        (self.share + self.on_turn, self.order)
    }
}

impl BudgetWaiters {
    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    fn join(&mut self, flow: &str, number: u64) {
        let new = FlowWaiters {
            share: self.virtual_time,
            order: self.order(),
            waiting: BTreeSet::new(),
            on_turn: 0,
        };
        self.places += 1;
        let flow = self.flows.entry(flow.to_owned()).or_insert(new);
        flow.waiting.insert(number);
    }

    /// Gives the next eviction its turn.
    fn next_turn(&mut self, now: Time) -> Option<u64> {
        let flows = self.flows.values_mut();
        let flow = flows
            .filter(|flow| !flow.waiting.is_empty())
            .min_by_key(|flow| flow.rank())?;
        let number = flow.waiting.pop_first()?;
        flow.on_turn += 1;
        self.turns.insert(number, now);
        Some(number)
    }

    /// Ends a turn without a grant. The place is its flow's first again, for no later one is older.
    fn end_turn(&mut self, flow: &str, number: u64) {
        if self.turns.remove(&number).is_some()
            && let Some(flow) = self.flows.get_mut(flow)
        {
            flow.on_turn -= 1;
            flow.waiting.insert(number);
        }
    }

    /// Removes a place; `false` if there is none of this number.
    fn leave(&mut self, name: &str, number: u64, is_granted: bool) -> bool {
        self.end_turn(name, number);
        let order = self.order();
        let Some(flow) = self.flows.get_mut(name) else {
            return false;
        };
        if !flow.waiting.remove(&number) {
            return false;
        }
        self.places -= 1;
        if is_granted {
            flow.share += 1;
            flow.order = order;
            self.virtual_time = self.virtual_time.max(flow.share);
        }
        if flow.waiting.is_empty() && flow.on_turn == 0 {
            self.flows.remove(name);
        }
        true
    }
}
