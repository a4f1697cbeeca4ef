//! The disruption controller: its caches and queues, and the choice of its next operation.

mod selection;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use fairgate_core::time::Time;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    cached_budget::CachedBudget,
    changed_pods::{ChangedPods, PodMatch},
    events::DisruptionEvent,
    namespace_budgets::NamespaceBudgets,
    object_key::ObjectKey,
    operations::{ControllerCounts, ControllerStep, StatusWriteOutcome, SyncEnding, SyncReport},
    scale::ScaleResult,
    slice::{SelectorWork, Slice},
    stale_target::{StaleTarget, stale_target},
    sync::{Scales, SyncError, SyncOutcome, SyncResult, fail_safe, sync},
    work_queue::WorkQueue,
};
use crate::{
    budget::DisruptionBudget,
    pod::{ControllerRef, Pod},
};

/// How many requirements and values the selectors of a namespace may have together by default, and ten more for each budget.
pub const DEFAULT_SELECTOR_TERMS: u64 = 100_000;
/// The status of a budget with so many requirements and values costs as much to write as one look-up more.
const TERMS_WRITTEN: u64 = 16;

/// The controller: caches of pods and budgets, and work queues. It has a single worker, so it requests
/// one operation at a time.
#[derive(Debug)]
pub struct DisruptionController {
    selector_terms: u64,
    budgets: BTreeMap<ObjectKey, CachedBudget>,
    namespaces: BTreeMap<Box<str>, NamespaceBudgets>,
    /// The number of budgets over the limit of their namespace.
    over_limit: usize,
    changed: ChangedPods,
    matching: Option<PodMatch>,
    work: SelectorWork,
    pods: BTreeMap<ObjectKey, Pod>,
    syncs: WorkQueue<ObjectKey>,
    stale_pods: WorkQueue<ObjectKey>,
    events: Vec<(ObjectKey, DisruptionEvent)>,
    working: Option<Working>,
    /// The number of `budgets` that allow no disruption.
    exhausted: usize,
    /// The syncs that have ended since the last [`DisruptionController::take_reports`].
    reports: Vec<SyncReport>,
    /// When the sync in progress began.
    begun: Time,
}

#[derive(Debug)]
enum Working {
    Sync(ObjectKey, Syncing),
    Pod(ObjectKey, Value),
}

#[derive(Debug)]
enum Syncing {
    /// The pods of the namespace are compared with the selector.
    Selecting(Selecting),
    LookingUp {
        left: VecDeque<ControllerRef>,
        found: Scales,
    },
    Writing {
        /// The budget that the status was computed from.
        budget: Arc<DisruptionBudget>,
        object: Value,
        then: AfterWrite,
    },
}

#[derive(Debug)]
struct Selecting {
    budget: Arc<DisruptionBudget>,
    scales: Scales,
    /// The last pod that was compared.
    last: Option<ObjectKey>,
    /// Those that are selected, in order.
    selected: Vec<ObjectKey>,
    look_ups: u64,
}

/// What follows a successful write.
#[derive(Clone, Copy, Debug)]
enum AfterWrite {
    /// A sync after this time, if there is one.
    Recheck(Option<Duration>),
    /// A retry, because the status could not be computed.
    Retry,
}

impl Default for DisruptionController {
    fn default() -> Self {
        Self::new(DEFAULT_SELECTOR_TERMS)
    }
}

impl DisruptionController {
    /// A controller without objects. The selectors of a namespace may have so many requirements and values together.
    pub fn new(selector_terms: u64) -> Self {
        Self {
            selector_terms,
            budgets: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            over_limit: 0,
            changed: ChangedPods::default(),
            matching: None,
            work: SelectorWork::default(),
            pods: BTreeMap::new(),
            syncs: WorkQueue::default(),
            stale_pods: WorkQueue::default(),
            events: Vec::new(),
            working: None,
            exhausted: 0,
            reports: Vec::new(),
            begun: Time::ZERO,
        }
    }

    /// A budget was created or changed, or was found in the initial list.
    pub fn apply_budget(&mut self, mut budget: DisruptionBudget) {
        let key = ObjectKey::of_budget(&budget);
        if let Ok(selector) = &mut budget.spec.selector
            && let Some(old) = self.budgets.get(&key).and_then(CachedBudget::selector)
            && old == selector
        {
            selector.clone_from(old);
        }
        let limit = self.selector_terms;
        self.in_budgets_of(&key.namespace, |namespace| namespace.put(&budget, limit));
        let budget = CachedBudget::new(budget);
        self.exhausted += usize::from(budget.is_exhausted());
        let old = self.budgets.insert(key.clone(), budget);
        self.exhausted -= usize::from(old.is_some_and(|old| old.is_exhausted()));
        self.syncs.add(key);
    }

    /// A budget was deleted.
    pub fn delete_budget(&mut self, key: &ObjectKey) {
        let old = self.budgets.remove(key);
        self.exhausted -= usize::from(old.as_ref().is_some_and(CachedBudget::is_exhausted));
        if old.is_some() {
            let limit = self.selector_terms;
            self.in_budgets_of(&key.namespace, |namespace| {
                namespace.remove(&key.name, limit)
            });
        }
        self.syncs.forget(key);
    }

    /// Changes the budgets of a namespace, and queues those that the change is told of.
    fn in_budgets_of(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut NamespaceBudgets) -> Vec<Arc<str>>,
    ) {
        let budgets = self.namespaces.entry(namespace.into()).or_default();
        self.over_limit -= budgets.over();
        for name in change(budgets) {
            self.syncs.add(ObjectKey::new(namespace, &name));
        }
        self.over_limit += budgets.over();
        if budgets.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// A pod was created or changed, or was found in the initial list.
    pub fn apply_pod(&mut self, mut pod: Pod) {
        let key = ObjectKey::of_pod(&pod);
        // Keys are sorted by name, so pods of one owner are neighbours.
        let neighbours = [
            self.pods.range(..=&key).next_back(),
            self.pods.range(&key..).next(),
        ];
        for (_, neighbour) in neighbours.into_iter().flatten() {
            pod.share_with(neighbour);
        }
        self.pods.insert(key.clone(), pod.clone());
        self.look_for_budget_of(key.clone(), pod);
        self.stale_pods.add(key);
    }

    /// A pod was deleted.
    pub fn delete_pod(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.look_for_budget_of(key.clone(), pod);
        }
        self.stale_pods.forget(key);
    }

    /// Queues all budgets: as a periodic resync, and after becoming the leader.
    pub fn queue_all(&mut self) {
        for key in self.budgets.keys() {
            self.syncs.add(key.clone());
        }
    }

    /// The keys of all cached pods, to find the deleted ones after a watch was interrupted.
    pub fn pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pods.keys()
    }

    /// The keys of all cached budgets.
    pub fn budgets(&self) -> impl Iterator<Item = &ObjectKey> {
        self.budgets.keys()
    }

    #[cfg(test)]
    pub(super) fn budget(&self, key: &ObjectKey) -> Option<Arc<DisruptionBudget>> {
        self.budgets.get(key)?.budget()
    }

    /// The number of cached objects.
    pub fn counts(&self) -> ControllerCounts {
        ControllerCounts {
            pods: self.pods.len(),
            budgets: self.budgets.len(),
            exhausted: self.exhausted,
            over_limit: self.over_limit,
        }
    }

    /// The work that was done so far.
    pub fn work(&self) -> SelectorWork {
        self.work
    }

    /// Takes the syncs that have ended since the last call.
    pub fn take_reports(&mut self) -> Vec<SyncReport> {
        std::mem::take(&mut self.reports)
    }

    /// Takes the events since the last call, each with the object that it is about.
    pub fn take_events(&mut self) -> Vec<(ObjectKey, DisruptionEvent)> {
        std::mem::take(&mut self.events)
    }

    /// The operation that is needed next. `now` is monotonic time, `date` wall-clock time.
    pub fn step(&mut self, now: Time, date: Timestamp) -> ControllerStep {
        let mut slice = Slice::default();
        slice.allow_half();
        self.match_changed(&mut slice);
        slice.allow_half();
        let step = loop {
            if let Some(call) = self.call() {
                break call;
            }
            if slice.is_spent() {
                break ControllerStep::Continue;
            }
            if !self.advance(&mut slice, now, date) {
                let next = [self.syncs.next(now), self.stale_pods.next(now)];
                let has_more = self.matching.is_some() || !self.changed.is_empty();
                break if has_more {
                    ControllerStep::Continue
                } else {
                    ControllerStep::Wait(next.into_iter().flatten().min())
                };
            }
        };
        self.work.add(&slice);
        step
    }

    /// The call that is needed for what is in progress.
    fn call(&self) -> Option<ControllerStep> {
        match self.working.as_ref()? {
            Working::Pod(key, patch) => Some(ControllerStep::PatchPod(key.clone(), patch.clone())),
            Working::Sync(key, Syncing::Writing { object, .. }) => {
                Some(ControllerStep::WriteStatus(key.clone(), object.clone()))
            }
            Working::Sync(key, Syncing::LookingUp { left, .. }) => {
                let owner = left.front()?;
                Some(ControllerStep::LookUp(key.namespace.clone(), owner.clone()))
            }
            Working::Sync(_, Syncing::Selecting(_)) => None,
        }
    }

    /// Continues what is in progress, or begins what is next. Returns `false` if there is nothing.
    fn advance(&mut self, slice: &mut Slice, now: Time, date: Timestamp) -> bool {
        match self.working.take() {
            Some(Working::Sync(key, Syncing::Selecting(selecting))) => {
                self.select(key, selecting, slice, now, date);
                return true;
            }
            other => self.working = other,
        }
        // Each costs something, so that a slice has an end.
        if let Some(key) = self.syncs.take(now) {
            slice.spend(1);
            self.begun = now;
            self.begin_sync(key, Scales::new(), now, date);
        } else if let Some(key) = self.stale_pods.take(now) {
            slice.spend(1);
            self.begin_pod(key, now, date);
        } else {
            return false;
        }
        true
    }

    fn begin_sync(&mut self, key: ObjectKey, scales: Scales, now: Time, date: Timestamp) {
        let Some(budget) = self.budgets.get(&key).and_then(CachedBudget::budget) else {
            let then = AfterWrite::Recheck(None);
            self.finish(&key, then, SyncEnding::Unchanged, now);
            return;
        };
        let namespace = self.namespaces.get(&key.namespace);
        if namespace.is_some_and(|namespace| namespace.is_over(&key.name)) {
            let limit = self.selector_terms;
            let error = SyncError::TooManyTerms { limit };
            let write = fail_safe(&budget, &error, date);
            if write.is_some() {
                let event = DisruptionEvent::too_many_terms(&budget, &error);
                self.events.push((event.key(&key.namespace), event));
            }
            // It is synced again once it is within the limit.
            let then = AfterWrite::Recheck(None);
            self.write(key, budget, write, then, now);
            return;
        }
        let selecting = Selecting {
            budget,
            scales,
            last: None,
            selected: Vec::new(),
            look_ups: 0,
        };
        self.working = Some(Working::Sync(key, Syncing::Selecting(selecting)));
    }

    /// Continues a sync whose pods are known.
    fn selected(&mut self, key: ObjectKey, selecting: Selecting, now: Time, date: Timestamp) {
        let Selecting {
            budget,
            scales,
            selected,
            ..
        } = selecting;
        // Some may have been deleted since they were compared.
        let pods = selected.iter().filter_map(|pod| self.pods.get(pod));
        let pods: Vec<&Pod> = pods.collect();
        let outcome = match sync(&budget, &pods, &scales, date) {
            SyncResult::NeedScales(owners) => {
                let looking_up = Syncing::LookingUp {
                    left: owners.into(),
                    found: scales,
                };
                self.working = Some(Working::Sync(key, looking_up));
                return;
            }
            SyncResult::Done(outcome) => outcome,
        };
        let SyncOutcome {
            write,
            events,
            recheck_at,
            error,
        } = outcome;
        for event in events {
            self.events.push((event.key(&key.namespace), event));
        }
        let then = match error {
            Some(_) => AfterWrite::Retry,
            None => AfterWrite::Recheck(recheck_at.map(|at| span(date, at))),
        };
        self.write(key, budget, write, then, now);
    }

    /// Writes a status, if it has changed, and continues with `then`.
    fn write(
        &mut self,
        key: ObjectKey,
        budget: Arc<DisruptionBudget>,
        object: Option<Value>,
        then: AfterWrite,
        now: Time,
    ) {
        if let Some(object) = object {
            let terms = u64::try_from(budget.selector_terms()).unwrap_or(u64::MAX);
            self.syncs.charge(&key.namespace, 1 + terms / TERMS_WRITTEN);
            let writing = Syncing::Writing {
                budget,
                object,
                then,
            };
            self.working = Some(Working::Sync(key, writing));
        } else {
            let ending = match then {
                AfterWrite::Retry => SyncEnding::Failed,
                AfterWrite::Recheck(_) => SyncEnding::Unchanged,
            };
            self.finish(&key, then, ending, now);
        }
    }

    /// Continues with the result of a lookup.
    pub fn looked_up(
        &mut self,
        owner: ControllerRef,
        result: ScaleResult,
        now: Time,
        date: Timestamp,
    ) {
        let Some(Working::Sync(
            key,
            Syncing::LookingUp {
                mut left,
                mut found,
            },
        )) = self.working.take()
        else {
            debug_assert!(false, "no lookup was requested");
            return;
        };
        // It takes the only worker about as long as a write.
        self.syncs.charge(&key.namespace, 1);
        let has_scale = matches!(result, Ok(Some(_)));
        left.retain(|other| *other != owner);
        found.insert(owner, result);
        // A pod whose owner has no scale decides the sync: the others need not be looked up.
        if left.is_empty() || !has_scale {
            // The caches may have changed meanwhile, and the selected pods may have further owners.
            self.begin_sync(key, found, now, date);
        } else {
            let looking_up = Syncing::LookingUp { left, found };
            self.working = Some(Working::Sync(key, looking_up));
        }
    }

    /// Continues with the outcome of a status write.
    pub fn written(&mut self, outcome: StatusWriteOutcome, now: Time, date: Timestamp) {
        let Some(Working::Sync(key, Syncing::Writing { budget, then, .. })) = self.working.take()
        else {
            debug_assert!(false, "no write was requested");
            return;
        };
        let retry = AfterWrite::Retry;
        match (outcome, then) {
            (StatusWriteOutcome::Written, AfterWrite::Recheck(_)) => {
                self.finish(&key, then, SyncEnding::Written, now);
            }
            // A status that was computed from an older version must not be written.
            (StatusWriteOutcome::Conflict, _) => {
                self.finish(&key, retry, SyncEnding::Conflict, now);
            }
            (_, AfterWrite::Retry) => self.finish(&key, retry, SyncEnding::Failed, now),
            (StatusWriteOutcome::Failed(text), AfterWrite::Recheck(_)) => {
                let object = fail_safe(&budget, &SyncError::Write(text), date);
                self.write(key, budget, object, AfterWrite::Retry, now);
            }
        }
    }

    fn finish(&mut self, key: &ObjectKey, then: AfterWrite, ending: SyncEnding, now: Time) {
        let took = now.since(self.begun);
        self.reports.push(SyncReport { ending, took });
        match then {
            AfterWrite::Retry => {
                self.syncs.retry(key.clone(), now);
                self.syncs.done(key);
            }
            AfterWrite::Recheck(after) => {
                if let Some(after) = after {
                    self.syncs.add_at(key.clone(), now.plus(after));
                }
                self.syncs.forget(key);
                self.syncs.done(key);
            }
        }
    }

    fn begin_pod(&mut self, key: ObjectKey, now: Time, date: Timestamp) {
        let target = self.pods.get(&key).map(|pod| stale_target(pod, date));
        match target {
            Some(StaleTarget::Clear(patch)) => self.working = Some(Working::Pod(key, patch)),
            Some(StaleTarget::LookAt(at)) => {
                self.stale_pods
                    .add_at(key.clone(), now.plus(span(date, at)));
                self.stale_pods.done(&key);
            }
            Some(StaleTarget::None) | None => self.stale_pods.done(&key),
        }
    }

    /// Continues after a patch of a pod. `patched` says whether it succeeded; if not, it is retried later.
    pub fn patched(&mut self, patched: bool, now: Time) {
        let Some(Working::Pod(key, _)) = self.working.take() else {
            debug_assert!(false, "no patch was requested");
            return;
        };
        if patched {
            self.stale_pods.forget(&key);
        } else {
            self.stale_pods.retry(key.clone(), now);
        }
        self.stale_pods.done(&key);
    }
}

/// The objects of a namespace.
fn in_namespace<'m, V>(
    map: &'m BTreeMap<ObjectKey, V>,
    namespace: &'m str,
) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> {
    let first = ObjectKey::new(namespace, "");
    map.range((Bound::Included(first), Bound::Unbounded))
        .take_while(move |(key, _)| *key.namespace == *namespace)
}

/// The time from `from` until `at`; zero if `at` is earlier.
fn span(from: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(from)).unwrap_or_default()
}
