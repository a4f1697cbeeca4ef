//! The places of evictions that wait for their budgets, shared by all cores.
//!
//! Dropping a [`HeldPlace`] gives the place up. That includes the case that a client disconnects, because its
//! request holds the place.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_disruption::{
    budget::DisruptionBudget,
    waiting::{BudgetName, JoinedWait, WaitAnnouncements, WaitLimits, WaitPlace, WaitingEvictions},
};
use serde_json::Value;
use tokio::sync::{Notify, watch};

/// An eviction that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingEviction {
    /// The budget that it waits for, which is in the namespace of the pod.
    pub budget: BudgetName,
    /// Its position among those that wait for this budget, from 1, if nothing changes.
    pub position: usize,
    /// The name of the pod.
    pub pod: String,
    /// The name of the user who evicts it.
    pub user: String,
    /// How long it has waited.
    pub age: Duration,
    /// How much longer it waits at most.
    pub left: Duration,
    /// Whether it is being tried again.
    pub has_turn: bool,
    /// What the budget lacked when it refused the eviction last.
    pub reason: String,
}

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
    /// Each place, by its number.
    held: BTreeMap<u64, HeldDetails>,
    /// Whether a task reads the budgets.
    is_followed: bool,
    /// The budgets for which evictions began to wait, and which were not read since.
    new: BTreeSet<BudgetName>,
    announcements: WaitAnnouncements,
}

/// What is known of a place.
#[derive(Debug)]
struct HeldDetails {
    /// Notified when it is its turn.
    turn: Arc<Notify>,
    wait: EvictionWait,
}

/// An eviction that begins to wait, or goes on waiting for another budget.
#[derive(Clone, Debug)]
pub(crate) struct EvictionWait {
    /// The user, who is the flow.
    pub(crate) user: String,
    pub(crate) pod: String,
    /// Since when it waits.
    pub(crate) since: Time,
    /// Until when it waits at most.
    pub(crate) until: Time,
    /// What the budget lacks.
    pub(crate) reason: String,
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
                held: BTreeMap::new(),
                is_followed: false,
                new: BTreeSet::new(),
                announcements: WaitAnnouncements::default(),
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
        wait: EvictionWait,
    ) -> Option<HeldPlace> {
        if *self.ended.borrow() {
            return None;
        }
        let turn = Arc::<Notify>::default();
        let mut state = lock(&self.state);
        let joined = state.waiting.join(budget, &wait.user, &wait.pod)?;
        let JoinedWait { place, pushed_out } = joined;
        if let Some(lost) = pushed_out.and_then(|number| state.held.remove(&number)) {
            // `notify_one` is kept for an eviction that does not listen yet, because an attempt of it is on its
            // way.
            lost.turn.notify_one();
        }
        let held = HeldDetails {
            turn: Arc::clone(&turn),
            wait,
        };
        state.held.insert(place.number(), held);
        state.new.insert(budget.clone());
        Some(HeldPlace {
            waits: Arc::clone(self),
            place,
            turn,
            is_granted: false,
        })
    }

    /// Whether an eviction may charge this budget, if that allows it.
    pub(crate) fn may_charge(
        &self,
        now: Time,
        budget: &BudgetName,
        place: Option<&WaitPlace>,
    ) -> bool {
        lock(&self.state).waiting.may_charge(now, budget, place)
    }

    /// Returns `true` to the first caller, which must then read the budgets until [`Self::followed`] returns none.
    pub(crate) fn follow(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).is_followed, true)
    }

    /// The budgets to read. If there are none, because no eviction waits, the caller must stop.
    pub(crate) fn followed(&self) -> Vec<BudgetName> {
        let mut state = lock(&self.state);
        let budgets: Vec<BudgetName> = state.waiting.budgets().cloned().collect();
        // Under the lock under which evictions join: one that joins now is either among these budgets, or finds
        // that nobody reads, and begins to.
        state.is_followed = !budgets.is_empty();
        // Nobody waits for the others any more, so they are not read, which would remove them.
        let WaitState { waiting, new, .. } = &mut *state;
        if !new.is_empty() {
            let followed: BTreeSet<&BudgetName> = waiting.budgets().collect();
            new.retain(|budget| followed.contains(budget));
        }
        budgets
    }

    /// Whose evictions wait for this budget, if operators are to be told `now`.
    pub(crate) fn to_announce(&self, now: Time, budget: &BudgetName) -> Option<BTreeSet<String>> {
        let mut state = lock(&self.state);
        let is_due = state.new.remove(budget) && state.announcements.may_announce(now, budget);
        is_due.then(|| state.users(budget))
    }

    /// All evictions that wait, by budget, in the order of their turns.
    pub(crate) fn report(&self, now: Time) -> Vec<WaitingEviction> {
        let state = lock(&self.state);
        let places = state.waiting.in_order(now).into_iter();
        let rows = places.filter_map(|place| {
            let wait = &state.held.get(&place.number)?.wait;
            Some(WaitingEviction {
                budget: place.budget.clone(),
                position: place.position,
                pod: wait.pod.clone(),
                user: wait.user.clone(),
                age: now.since(wait.since),
                left: wait.until.since(now),
                has_turn: place.has_turn,
                reason: wait.reason.clone(),
            })
        });
        rows.collect()
    }

    /// Records that the budget was read at `now` and how many disruptions it allows, and wakes the evictions
    /// whose turn it is.
    pub(crate) fn observed(&self, now: Time, budget: &BudgetName, allowed: usize) {
        let mut state = lock(&self.state);
        let turns = state.waiting.observed(now, budget, allowed);
        let turns: Vec<_> = turns
            .iter()
            .filter_map(|number| Some(Arc::clone(&state.held.get(number)?.turn)))
            .collect();
        // The tasks that are woken take the lock.
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

impl WaitState {
    /// Whose evictions wait for this budget.
    fn users(&self, budget: &BudgetName) -> BTreeSet<String> {
        let places = self.waiting.places_at(budget);
        let held = places.filter_map(|number| self.held.get(&number));
        held.map(|held| held.wait.user.clone()).collect()
    }
}

impl HeldPlace {
    pub(crate) fn place(&self) -> &WaitPlace {
        &self.place
    }

    /// Whether another flow, which has fewer places, has this one now.
    pub(crate) fn is_lost(&self) -> bool {
        !lock(&self.waits.state)
            .held
            .contains_key(&self.place.number())
    }

    /// Completes when it is this place's turn, or when it [is lost](Self::is_lost).
    pub(crate) async fn turn(&self) {
        self.turn.notified().await;
    }

    /// Records that the budget refused the eviction although it was, or may have been, its turn. It continues to wait. `reason` is what
    /// the budget lacks.
    pub(crate) fn refused(&self, reason: &str) {
        let mut state = lock(&self.waits.state);
        state.waiting.refused(&self.place);
        if let Some(held) = state.held.get_mut(&self.place.number()) {
            reason.clone_into(&mut held.wait.reason);
        }
    }

    /// Records that an attempt has ended at `now` before the budget decided. The eviction continues to wait, and lets others pass if
    /// it was its turn.
    pub(crate) fn stepped_back(&self, now: Time) {
        let mut state = lock(&self.waits.state);
        state.waiting.stepped_back(now, &self.place);
    }

    /// Records that the eviction was granted.
    pub(crate) fn granted(mut self) {
        self.is_granted = true;
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let mut state = lock(&self.waits.state);
        state.held.remove(&self.place.number());
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

    fn wait(user: &str, pod: &str) -> EvictionWait {
        EvictionWait {
            user: user.to_owned(),
            pod: pod.to_owned(),
            since: Time::ZERO,
            until: Time::ZERO.plus(Duration::from_secs(30)),
            reason: format!("{pod} is needed"),
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
        let first = waits.join(&foo(), wait("a", "p0")).unwrap();
        let second = waits.join(&foo(), wait("a", "p1")).unwrap();
        assert!(
            waits.join(&foo(), wait("a", "p2")).is_none(),
            "half are left for others"
        );
        assert!(
            waits.join(&foo(), wait("b", "p1")).is_none(),
            "it waits already"
        );
        waits.observed(Time::ZERO, &foo(), 1);
        first.turn().await;
        assert!(waits.may_charge(Time::ZERO, &foo(), Some(first.place())));
        assert!(!waits.may_charge(Time::ZERO, &foo(), Some(second.place())));
        drop(first);
        waits.observed(Time::ZERO, &foo(), 1);
        second.turn().await;
        second.granted();
        assert_eq!(waits.len(), 0);
        assert!(lock(&waits.state).held.is_empty());
    }

    #[tokio::test]
    async fn a_place_that_another_flow_needs_is_told_that_it_is_lost() {
        let waits = waits();
        let [first, newest] = ["p0", "p1"].map(|pod| waits.join(&foo(), wait("a", pod)).unwrap());
        let others = ["b", "c", "d"].map(|flow| waits.join(&foo(), wait(flow, flow)).unwrap());
        newest.turn().await;
        assert!(newest.is_lost() && !first.is_lost());
        assert!(others.iter().all(|other| !other.is_lost()));
        drop(newest);
        assert_eq!(waits.len(), 4);
    }

    #[test]
    fn a_budget_that_is_written_begins_turns_without_a_read() {
        let waits = waits();
        let place = waits.join(&foo(), wait("a", "p")).unwrap();
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
        let place = waits.join(&foo(), wait("a", "p")).unwrap();
        assert!(waits.follow() && !waits.follow());
        assert_eq!(waits.followed(), [foo()]);
        drop(place);
        assert_eq!(waits.followed(), []);
        assert!(waits.follow());
    }

    #[test]
    fn the_report_says_who_waits_for_what_and_how_long() {
        let waits = waits();
        let places = [("a", "p0"), ("a", "p1"), ("b", "p2")]
            .map(|(user, pod)| waits.join(&foo(), wait(user, pod)).unwrap());
        waits.observed(Time::ZERO, &foo(), 1);
        places[1].refused("other");
        places[2].stepped_back(Time::ZERO);
        let now = Time::ZERO.plus(Duration::from_secs(12));
        let report = waits.report(now);
        let rows: Vec<_> = report
            .iter()
            .map(|row| {
                (
                    row.position,
                    &*row.user,
                    &*row.pod,
                    &*row.reason,
                    row.has_turn,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                (1, "a", "p0", "p0 is needed", true),
                (2, "b", "p2", "p2 is needed", false),
                (3, "a", "p1", "other", false),
            ]
        );
        for row in &report {
            assert_eq!(row.budget, foo());
            assert_eq!((row.age.as_secs(), row.left.as_secs()), (12, 18));
        }
        drop(places);
        assert!(waits.report(now).is_empty());
    }

    #[test]
    fn a_budget_is_announced_once_for_all_that_begin_to_wait() {
        let waits = waits();
        let at = |seconds| Time::ZERO.plus(Duration::from_secs(seconds));
        let announced = |now, users: &[&str]| {
            let found = waits.to_announce(now, &foo())?;
            Some(found.iter().map(String::as_str).eq(users.iter().copied()))
        };
        assert_eq!(announced(at(0), &[]), None, "nobody waits");
        let first = waits.join(&foo(), wait("a", "p0")).unwrap();
        let second = waits.join(&foo(), wait("b", "p1")).unwrap();
        let bar = BudgetName {
            name: "bar".to_owned(),
            ..foo()
        };
        let other = waits.join(&bar, wait("c", "p9")).unwrap();
        assert_eq!(announced(at(0), &["a", "b"]), Some(true));
        assert_eq!(announced(at(90), &[]), None, "no other has begun to wait");
        drop(second);
        let third = waits.join(&foo(), wait("a", "p2")).unwrap();
        assert_eq!(
            announced(at(90), &["a"]),
            Some(true),
            "one user, two evictions"
        );
        // Whoever begins to wait and is gone before the budget is read is not announced later.
        drop((first, third));
        drop(waits.join(&foo(), wait("a", "p2")).unwrap());
        drop(other);
        assert_eq!(waits.followed(), []);
        assert_eq!(announced(at(200), &[]), None);
    }

    #[test]
    fn budgets_that_nobody_waits_for_any_more_are_not_kept() {
        let waits = waits();
        let first = waits.join(&foo(), wait("a", "p0")).unwrap();
        for number in 0..1000 {
            let other = BudgetName {
                name: format!("other-{number}"),
                ..foo()
            };
            drop(waits.join(&other, wait("a", "p1")).unwrap());
            assert_eq!(waits.followed(), [foo()]);
        }
        assert_eq!(lock(&waits.state).new, BTreeSet::from([foo()]));
        drop(first);
    }

    #[tokio::test]
    async fn nobody_waits_after_the_end() {
        let waits = waits();
        let place = waits.join(&foo(), wait("a", "p")).unwrap();
        waits.end();
        waits.ended().await;
        drop(place);
        assert!(waits.join(&foo(), wait("a", "p")).is_none());
    }
}
