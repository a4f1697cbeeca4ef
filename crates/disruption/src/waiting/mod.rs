//! The order of evictions that wait for their budgets.
//!
//! [`WaitingEvictions`] holds the places of all evictions that wait. When a budget allows disruptions, it selects the
//! evictions whose turn it is. The clients that drain nodes (*flows*) take turns at each budget, and the evictions of
//! one flow get their turns in the order of arrival. So a drain of two pods does not wait behind a drain of fifty.
//!
//! The order is self-clocked fair queuing with equal weights (Golestani, 1994). The *share* of a flow is the number of
//! its granted evictions. The flow with the lowest share is next; of several, the one that arrived, or was granted an
//! eviction, longest ago. A flow that arrives later, or again, begins with the highest share so far. So it is next once
//! each of the others has had one more turn, and a drain that sends its evictions one after the other has no advantage.
//!
//! A *turn* is not a grant: the eviction runs its whole procedure, and the budget decides. An eviction that is refused
//! in its turn keeps its place. After [`TURN_LIMIT`], a turn no longer counts against what the budget allows, so that a
//! slow eviction does not keep others waiting. If a turn ends for a reason that is not the budget's, the flow lets the others pass for as
//! long.
//!
//! A flow has at most as many places as are still free. Where that leaves it fewer than another flow has, the one with most gives
//! up its newest place: so whoever drains, and however many others do, has as many places as anybody who has none left.
//!
//! Not here: how long evictions wait, how they learn that their budget has changed, and which evictions may wait.

mod announcements;
mod order;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use announcements::{ANNOUNCED_FOR, WaitAnnouncements};
use fairgate_core::time::Time;
pub use order::PlaceInOrder;

/// How long a turn counts against what its budget allows.
pub const TURN_LIMIT: Duration = Duration::from_secs(5);

/// A budget's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetName {
    /// The namespace of the budget.
    pub namespace: String,
    /// The name of the budget.
    pub name: String,
}

/// The maximum number of evictions that wait. Of both limits, one flow may have at most as many as are still free, or as many as
/// the flow with most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// The limit for one budget.
    pub per_budget: usize,
    /// The limit for all budgets together.
    pub total: usize,
}

/// The place of an eviction that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitPlace {
    budget: BudgetName,
    flow: String,
    pod: String,
    number: u64,
}

impl WaitPlace {
    /// The budget that the eviction waits for.
    pub fn budget(&self) -> &BudgetName {
        &self.budget
    }

    /// The number of the place, which no other place has.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A place that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedWait {
    /// The place.
    pub place: WaitPlace,
    /// The number of another place, which its eviction has lost for this one.
    pub pushed_out: Option<u64>,
}

/// The evictions that wait, of all budgets.
#[derive(Debug)]
pub struct WaitingEvictions {
    limits: WaitLimits,
    budgets: BTreeMap<BudgetName, BudgetWaiters>,
    waiting: usize,
    /// The places of each flow, at all budgets.
    of_flow: BTreeMap<String, usize>,
    /// The pods whose eviction waits, by namespace and name, with the numbers of their places.
    pods: BTreeMap<(String, String), u64>,
    next_number: u64,
}

impl WaitingEvictions {
    /// No evictions wait yet.
    pub fn new(limits: WaitLimits) -> Self {
        Self {
            limits,
            budgets: BTreeMap::new(),
            waiting: 0,
            of_flow: BTreeMap::new(),
            pods: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// The number of evictions that wait or have their turn.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no evictions wait or have their turn.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The budgets that evictions wait for.
    pub fn budgets(&self) -> impl Iterator<Item = &BudgetName> {
        self.budgets.keys()
    }

    /// Whether an eviction may charge the budget, if the budget allows it. An eviction with a place may if it has its
    /// turn or is the only one that waits. An eviction without a place may if no other one waits, if all that wait let others
    /// pass at `now`, or if there is no place left.
    pub fn may_charge(&self, now: Time, budget: &BudgetName, place: Option<&WaitPlace>) -> bool {
        let Some(waiters) = self.budgets.get(budget) else {
            return true;
        };
        match place {
            Some(place) if place.budget == *budget => {
                waiters.places == 1 || waiters.turns.contains_key(&place.number)
            }
            // The place is for another budget: meanwhile, this budget selects the pod.
            Some(_) | None => waiters.all_let_pass(now) || self.is_full(budget),
        }
    }

    fn is_full(&self, budget: &BudgetName) -> bool {
        let places = self.budgets.get(budget).map_or(0, |waiters| waiters.places);
        self.waiting >= self.limits.total || places >= self.limits.per_budget
    }

    /// The places of a flow at all budgets.
    fn places_of(&self, flow: &str) -> usize {
        self.of_flow.get(flow).copied().unwrap_or(0)
    }

    /// Whether a flow has as many places as are still free, in total and at this budget.
    fn has_its_share(&self, budget: &BudgetName, flow: &str) -> [bool; 2] {
        let waiters = self.budgets.get(budget);
        let here = waiters.map_or(0, |waiters| waiters.places_of(flow));
        let places = waiters.map_or(0, |waiters| waiters.places);
        [
            self.places_of(flow) + self.waiting >= self.limits.total,
            here + places >= self.limits.per_budget,
        ]
    }

    /// The place that is given up for another one of `flow` at this budget, where the flow has its share: the newest of the flow that
    /// has most, if it has more than `flow` will have.
    fn given_up_for(&self, budget: &BudgetName, flow: &str) -> Option<WaitPlace> {
        let [of_all, here] = self.has_its_share(budget, flow);
        let has_more = |other: &str| self.places_of(other) > self.places_of(flow) + 1;
        if here {
            let waiters = self.budgets.get(budget)?;
            let (most, number) = waiters.newest_of_most(waiters.places_of(flow) + 1)?;
            return (!of_all || has_more(most)).then(|| self.place(budget, most, number))?;
        }
        let (most, _) = self.of_flow.iter().max_by_key(|(_, places)| **places)?;
        let newest = self.budgets.iter().filter_map(|(budget, waiters)| {
            let number = waiters.flows.get(most)?.waiting.last()?;
            Some((*number, budget))
        });
        let (number, budget) = newest.max()?;
        has_more(most).then(|| self.place(budget, most, number))?
    }

    fn place(&self, budget: &BudgetName, flow: &str, number: u64) -> Option<WaitPlace> {
        let pod = self.pods.iter().find(|(_, place)| **place == number)?;
        Some(WaitPlace {
            budget: budget.clone(),
            flow: flow.to_owned(),
            pod: pod.0.1.clone(),
            number,
        })
    }

    /// Gives an eviction of `flow` the last place of its flow; `None` if the flow has its share, or if an eviction of this pod
    /// waits already. It costs `O(log n)`, where n is the number of waiting evictions, and `O(n)` if another one is pushed out for it.
    pub fn join(&mut self, budget: &BudgetName, flow: &str, pod: &str) -> Option<JoinedWait> {
        let own = (budget.namespace.clone(), pod.to_owned());
        if self.pods.contains_key(&own) {
            return None;
        }
        let has_room = self.has_its_share(budget, flow) == [false; 2];
        let pushed_out = if has_room {
            None
        } else {
            Some(self.given_up_for(budget, flow)?)
        };
        if let Some(place) = &pushed_out {
            self.leave(place, false);
        }
        let number = self.next_number;
        self.pods.insert(own, number);
        self.next_number += 1;
        self.waiting += 1;
        *self.of_flow.entry(flow.to_owned()).or_default() += 1;
        let waiters = self.budgets.entry(budget.clone()).or_default();
        waiters.join(flow, number);
        Some(JoinedWait {
            place: WaitPlace {
                budget: budget.clone(),
                flow: flow.to_owned(),
                pod: pod.to_owned(),
                number,
            },
            pushed_out: pushed_out.map(|place| place.number),
        })
    }

    /// Removes a place, because the eviction was granted or has ended otherwise. Does nothing if it was pushed out.
    pub fn leave(&mut self, place: &WaitPlace, is_granted: bool) {
        let Some(waiters) = self.budgets.get_mut(&place.budget) else {
            return;
        };
        if waiters.leave(&place.flow, place.number, is_granted) {
            self.waiting -= 1;
            let pod = (place.budget.namespace.clone(), place.pod.clone());
            self.pods.remove(&pod);
            if let Some(places) = self.of_flow.get_mut(&place.flow) {
                *places -= 1;
                if *places == 0 {
                    self.of_flow.remove(&place.flow);
                }
            }
        }
        if waiters.places == 0 {
            self.budgets.remove(&place.budget);
        }
    }

    /// The eviction was refused in its turn. It continues to wait at its place.
    pub fn refused(&mut self, place: &WaitPlace) {
        if let Some(waiters) = self.budgets.get_mut(&place.budget) {
            waiters.end_turn(&place.flow, place.number);
        }
    }

    /// The turn has ended at `now` for a reason that is not the budget's: flow control has rejected the attempt, or a call has failed.
    /// The eviction continues to wait at its place, but for [`TURN_LIMIT`] its flow lets the others pass. Otherwise it would soon have the
    /// turn again, and again, while theirs could succeed.
    pub fn stepped_back(&mut self, now: Time, place: &WaitPlace) {
        if let Some(waiters) = self.budgets.get_mut(&place.budget)
            && waiters.end_turn(&place.flow, place.number)
            && let Some(flow) = waiters.flows.get_mut(&place.flow)
        {
            flow.lets_pass_until = now.plus(TURN_LIMIT);
        }
    }

    /// The budget was read at `now`, and allows `allowed` disruptions. Returns the numbers of the places whose turn
    /// begins. Each costs `O(n)`, where n is the number of flows that wait for the budget.
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
    /// The places that have their turn, with its start.
    turns: BTreeMap<u64, Time>,
    places: usize,
    /// The highest share of any flow.
    virtual_time: u64,
    /// A counter that orders flows with the same share.
    next_order: u64,
}

/// The evictions of one flow.
#[derive(Debug)]
struct FlowWaiters {
    /// The number of granted evictions, plus the highest share of any flow when this one arrived.
    share: u64,
    /// When the flow arrived or was last granted an eviction, as a value of `BudgetWaiters::next_order`.
    order: u64,
    waiting: BTreeSet<u64>,
    on_turn: u64,
    /// Until then the other flows are before it, whatever its share.
    lets_pass_until: Time,
}

/// The flow with the lowest rank is next: whether it lets the others pass, its share, and its order.
type FlowRank = (bool, u64, u64);

impl FlowWaiters {
    fn places(&self) -> usize {
        self.waiting.len() + usize::try_from(self.on_turn).unwrap_or(usize::MAX)
    }

    /// Turns count like granted evictions.
    fn rank(&self, now: Time) -> FlowRank {
        let lets_pass = now < self.lets_pass_until;
        (lets_pass, self.share + self.on_turn, self.order)
    }
}

impl BudgetWaiters {
    fn places_of(&self, flow: &str) -> usize {
        self.flows.get(flow).map_or(0, FlowWaiters::places)
    }

    /// Whether no eviction has its turn, and the last turns of all flows ended before the budget decided.
    fn all_let_pass(&self, now: Time) -> bool {
        self.turns.is_empty() && self.flows.values().all(|flow| now < flow.lets_pass_until)
    }

    /// The flow that has most places, if it has more than so many, and the newest of these that has no turn.
    fn newest_of_most(&self, than: usize) -> Option<(&str, u64)> {
        let (flow, most) = self.flows.iter().max_by_key(|(_, flow)| flow.places())?;
        let number = most.waiting.last().filter(|_| most.places() > than)?;
        Some((flow, *number))
    }

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
            lets_pass_until: Time::ZERO,
        };
        self.places += 1;
        let flow = self.flows.entry(flow.to_owned()).or_insert(new);
        flow.waiting.insert(number);
    }

    /// Begins the turn of the next eviction. Returns the number of its place; `None` if no others wait.
    fn next_turn(&mut self, now: Time) -> Option<u64> {
        let flows = self.flows.values_mut();
        let flow = flows
            .filter(|flow| !flow.waiting.is_empty())
            .min_by_key(|flow| flow.rank(now))?;
        let number = flow.waiting.pop_first()?;
        flow.on_turn += 1;
        self.turns.insert(number, now);
        Some(number)
    }

    /// Ends a turn without a grant. The place keeps its number, so it is before all that joined the flow later. Returns `false` if it
    /// has no turn.
    fn end_turn(&mut self, flow: &str, number: u64) -> bool {
        let had_turn = self.turns.remove(&number).is_some();
        if had_turn && let Some(flow) = self.flows.get_mut(flow) {
            flow.on_turn -= 1;
            flow.waiting.insert(number);
        }
        had_turn
    }

    /// Removes a place. Returns `false` if there is no place with this number.
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
