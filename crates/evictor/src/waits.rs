//! The places of evictions that wait for their budgets, shared by all cores.
//!
//! Dropping a [`HeldPlace`] gives the place up. That includes the case that a client disconnects, because its
//! request holds the place.

use std::{collections::BTreeMap, sync::Arc};

use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_eviction::{
    budget::DisruptionBudget,
    waiting::{BudgetName, JoinedWait, WaitLimits, WaitPlace, WaitingEvictions},
};
use serde_json::Value;
use tokio::sync::{Notify, watch};

/// All evictions that wait.
#[derive(Debug)]
pub(crate) struct BudgetWaits {
    state: Mutex<WaitState>,
    /// Whether waiting has ended, because the gateway shuts down.
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct WaitState {
    waiting: WaitingEvictions,
    /// Notifies each place, by its number, when it is its turn.
    turns: BTreeMap<u64, Arc<Notify>>,
    /// Whether a task reads the budgets.
    is_followed: bool,
}

/// The place of an eviction that waits.
#[derive(Debug)]
pub(crate) struct HeldPlace {
    waits: Arc<BudgetWaits>,
    place: WaitPlace,
    turn: Arc<Notify>,
    is_granted: bool,
}

impl BudgetWaits {
    pub(crate) fn new(limits: WaitLimits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(WaitState {
                waiting: WaitingEvictions::new(limits),
                turns: BTreeMap::new(),
                is_followed: false,
            }),
            ended: watch::Sender::new(false),
        })
    }

    /// The number of evictions that wait.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Takes a place for the eviction of a pod; `None` if no place is left for this flow, if an eviction of the pod waits, or if
    /// waiting has ended. If the place was another flow's, its eviction learns that ([`HeldPlace::is_lost`]). The caller that takes
    /// the first must start reading the budgets ([`Self::follow`]).
    pub(crate) fn join(
        self: &Arc<Self>,
        budget: &BudgetName,
        flow: &str,
        pod: &str,
    ) -> Option<HeldPlace> {
        if *self.ended.borrow() {
            return None;
        }
        let turn = Arc::<Notify>::default();
        let mut state = lock(&self.state);
        let JoinedWait { place, pushed_out } = state.waiting.join(budget, flow, pod)?;
        if let Some(turn) = pushed_out.and_then(|number| state.turns.remove(&number)) {
            turn.notify_one();
        }
        state.turns.insert(place.number(), Arc::clone(&turn));
        Some(HeldPlace {
            waits: Arc::clone(self),
            place,
            turn,
            is_granted: false,
        })
    }

    /// Whether an eviction may charge this budget, if that allows it.
    pub(crate) fn may_charge(&self, budget: &BudgetName, place: Option<&WaitPlace>) -> bool {
        lock(&self.state).waiting.may_charge(budget, place)
    }

    /// Returns `true` to the first caller, which must then read the budgets until [`Self::followed`] returns none.
    pub(crate) fn follow(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).is_followed, true)
    }

    /// The budgets to read. If there are none, because no eviction waits, the caller must stop.
    pub(crate) fn followed(&self) -> Vec<BudgetName> {
        let mut state = lock(&self.state);
        let budgets: Vec<BudgetName> = state.waiting.budgets().cloned().collect();
        state.is_followed = !budgets.is_empty();
        budgets
    }

    /// Records that the budget was read at `now` and how many disruptions it allows, and wakes the evictions
    /// whose turn it is.
    pub(crate) fn observed(&self, now: Time, budget: &BudgetName, allowed: usize) {
        let mut state = lock(&self.state);
        let turns = state.waiting.observed(now, budget, allowed);
        let turns: Vec<_> = turns
            .iter()
            .filter_map(|number| state.turns.get(number).cloned())
            .collect();
        drop(state);
        for turn in turns {
            turn.notify_one();
        }
    }

    /// As [`Self::observed`], for a budget that was written at `now`.
    pub(crate) fn written(&self, now: Time, budget: Value) {
        if self.len() == 0 {
            return;
        }
        if let Ok(budget) = DisruptionBudget::from_value(budget) {
            let name = BudgetName {
                namespace: budget.namespace.clone(),
                name: budget.name.clone(),
            };
            self.observed(now, &name, budget.allows());
        }
    }

    /// Ends all waits, and refuses new ones.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Completes once waiting has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

impl HeldPlace {
    pub(crate) fn place(&self) -> &WaitPlace {
        &self.place
    }

    /// Whether another flow, which has fewer places, has this one now.
    pub(crate) fn is_lost(&self) -> bool {
        !lock(&self.waits.state)
            .turns
            .contains_key(&self.place.number())
    }

    /// Completes when it is this place's turn, or when it [is lost](Self::is_lost).
    pub(crate) async fn turn(&self) {
        self.turn.notified().await;
    }

    /// Records that the eviction was refused although it was, or may have been, its turn. It continues to wait.
    pub(crate) fn refused(&self) {
        lock(&self.waits.state).waiting.refused(&self.place);
    }

    /// Records that the eviction was granted.
    pub(crate) fn granted(mut self) {
        self.is_granted = true;
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let mut state = lock(&self.waits.state);
        state.turns.remove(&self.place.number());
        state.waiting.leave(&self.place, self.is_granted);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use serde_json::json;

    use super::*;

    fn foo() -> BudgetName {
        BudgetName {
            namespace: "ns".to_owned(),
            name: "foo".to_owned(),
        }
    }

    fn waits() -> Arc<BudgetWaits> {
        BudgetWaits::new(WaitLimits {
            per_budget: 4,
            total: 4,
        })
    }

    #[tokio::test]
    async fn a_place_is_notified_of_its_turn_and_given_up_when_it_is_dropped() {
        let waits = waits();
        let first = waits.join(&foo(), "a", "p0").unwrap();
        let second = waits.join(&foo(), "a", "p1").unwrap();
        assert!(
            waits.join(&foo(), "a", "p2").is_none(),
            "half are left for others"
        );
        assert!(waits.join(&foo(), "b", "p1").is_none(), "it waits already");
        waits.observed(Time::ZERO, &foo(), 1);
        first.turn().await;
        assert!(waits.may_charge(&foo(), Some(first.place())));
        assert!(!waits.may_charge(&foo(), Some(second.place())));
        drop(first);
        waits.observed(Time::ZERO, &foo(), 1);
        second.turn().await;
        second.granted();
        assert_eq!(waits.len(), 0);
        assert!(lock(&waits.state).turns.is_empty());
    }

    #[tokio::test]
    async fn a_place_that_another_flow_needs_is_told_that_it_is_lost() {
        let waits = waits();
        let [first, newest] = ["p0", "p1"].map(|pod| waits.join(&foo(), "a", pod).unwrap());
        let others = ["b", "c", "d"].map(|flow| waits.join(&foo(), flow, flow).unwrap());
        newest.turn().await;
        assert!(newest.is_lost() && !first.is_lost());
        assert!(others.iter().all(|other| !other.is_lost()));
        drop(newest);
        assert_eq!(waits.len(), 4);
    }

    #[test]
    fn a_budget_that_is_written_begins_turns_without_a_read() {
        let waits = waits();
        let place = waits.join(&foo(), "a", "p").unwrap();
        let written = |name: &str, allowed: i32| {
            waits.written(
                Time::ZERO,
                json!({
                    "metadata": {"namespace": "ns", "name": name, "generation": 1},
                    "spec": {},
                    "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
                }),
            );
            let mut turn = pin!(place.turn());
            let mut context = Context::from_waker(Waker::noop());
            turn.as_mut().poll(&mut context).is_ready()
        };
        assert!(!written("other", 1) && !written("foo", 0));
        assert!(written("foo", 1));
    }

    #[test]
    fn budgets_are_read_by_one_and_only_while_somebody_waits() {
        let waits = waits();
        let place = waits.join(&foo(), "a", "p").unwrap();
        assert!(waits.follow() && !waits.follow());
        assert_eq!(waits.followed(), [foo()]);
        drop(place);
        assert_eq!(waits.followed(), []);
        assert!(waits.follow());
    }

    #[tokio::test]
    async fn nobody_waits_after_the_end() {
        let waits = waits();
        let place = waits.join(&foo(), "a", "p").unwrap();
        waits.end();
        waits.ended().await;
        drop(place);
        assert!(waits.join(&foo(), "a", "p").is_none());
    }
}
