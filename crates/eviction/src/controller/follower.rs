//! The disruption controller: its caches and queues, and the choice of its next operation.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    time::Duration,
};

use fairgate_core::time::Time;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    events::DisruptionEvent,
    object_key::ObjectKey,
    scale::ScaleResult,
    stale_target::{StaleTarget, stale_target},
    sync::{Scales, SyncError, SyncOutcome, SyncResult, fail_safe, sync},
    work_queue::WorkQueue,
};
use crate::{
    budget::DisruptionBudget,
    pod::{ControllerRef, Pod},
};

/// The controller: caches of pods and budgets, and work queues. It has a single worker, so it requests
/// one operation at a time.
#[derive(Debug, Default)]
pub struct DisruptionController {
    budgets: BTreeMap<ObjectKey, DisruptionBudget>,
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

/// A sync that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncReport {
    /// How it ended.
    pub ending: SyncEnding,
    /// How long it took, lookups and writes included.
    pub took: Duration,
}

/// How a sync of a budget ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEnding {
    /// The status was written.
    Written,
    /// The status was up to date, or the budget was deleted.
    Unchanged,
    /// The budget changed during the sync, and will be synced again.
    Conflict,
    /// The status could not be computed or written.
    Failed,
}

impl SyncEnding {
    /// All endings.
    pub const ALL: [Self; 4] = [Self::Written, Self::Unchanged, Self::Conflict, Self::Failed];

    /// The name of the ending in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Unchanged => "unchanged",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

/// The number of cached objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerCounts {
    /// The number of pods.
    pub pods: usize,
    /// The number of budgets.
    pub budgets: usize,
    /// The number of budgets that allow no disruption now.
    pub exhausted: usize,
}

/// The operation that the controller needs next.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerStep {
    /// Look up the scale of an owner in this namespace, then call
    /// [`DisruptionController::looked_up`].
    LookUp(Box<str>, ControllerRef),
    /// PUT the object to `/status` of the budget, then call [`DisruptionController::written`].
    WriteStatus(ObjectKey, Value),
    /// PATCH `/status` of the pod with this strategic merge patch, then call [`DisruptionController::patched`].
    PatchPod(ObjectKey, Value),
    /// Nothing to do before this time, unless an object changes.
    Wait(Option<Time>),
}

/// The outcome of a status write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusWriteOutcome {
    /// The status was stored.
    Written,
    /// 409: the budget has changed. The new version arrives by watch.
    Conflict,
    /// Any other error, with its message. The status may have been stored.
    Failed(String),
}

#[derive(Debug)]
enum Working {
    Sync(ObjectKey, Syncing),
    Pod(ObjectKey, Value),
}

#[derive(Debug)]
enum Syncing {
    LookingUp {
        left: VecDeque<ControllerRef>,
        found: Scales,
    },
    Writing {
        /// The budget that the status was computed from.
        budget: Box<DisruptionBudget>,
        object: Value,
        then: AfterWrite,
    },
}

/// What follows a successful write.
#[derive(Clone, Copy, Debug)]
enum AfterWrite {
    /// A sync after this time, if there is one.
    Recheck(Option<Duration>),
    /// A retry, because the status could not be computed.
    Retry,
}

impl DisruptionController {
    /// A budget was created or changed, or was found in the initial list.
    pub fn apply_budget(&mut self, budget: DisruptionBudget) {
        let key = ObjectKey::of_budget(&budget);
        self.exhausted += usize::from(is_exhausted(&budget));
        let old = self.budgets.insert(key.clone(), budget);
        self.exhausted -= usize::from(old.as_ref().is_some_and(is_exhausted));
        self.syncs.add(key);
    }

    /// A budget was deleted.
    pub fn delete_budget(&mut self, key: &ObjectKey) {
        let old = self.budgets.remove(key);
        self.exhausted -= usize::from(old.as_ref().is_some_and(is_exhausted));
        self.syncs.forget(key);
    }

    /// A pod was created or changed, or was found in the initial list.
    pub fn apply_pod(&mut self, mut pod: Pod) {
        let key = ObjectKey::of_pod(&pod);
        self.queue_budget_of(&pod);
        // Keys are sorted by name, so pods of one owner are neighbours.
        let neighbours = [
            self.pods.range(..=&key).next_back(),
            self.pods.range(&key..).next(),
        ];
        for (_, neighbour) in neighbours.into_iter().flatten() {
            pod.share_with(neighbour);
        }
        self.pods.insert(key.clone(), pod);
        self.stale_pods.add(key);
    }

    /// A pod was deleted.
    pub fn delete_pod(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.queue_budget_of(&pod);
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

    /// The number of cached objects.
    pub fn counts(&self) -> ControllerCounts {
        ControllerCounts {
            pods: self.pods.len(),
            budgets: self.budgets.len(),
            exhausted: self.exhausted,
        }
    }

    /// Takes the syncs that have ended since the last call.
    pub fn take_reports(&mut self) -> Vec<SyncReport> {
        std::mem::take(&mut self.reports)
    }

    /// Takes the events since the last call, each with the object that it is about.
    pub fn take_events(&mut self) -> Vec<(ObjectKey, DisruptionEvent)> {
        std::mem::take(&mut self.events)
    }

    /// Queues the first budget, by name, that selects the pod. kube-controller-manager queues an arbitrary
    /// one of them.
    fn queue_budget_of(&mut self, pod: &Pod) {
        let mut selecting = in_namespace(&self.budgets, &pod.namespace)
            .filter(|(_, budget)| budget.selects(pod))
            .map(|(key, _)| key);
        let Some(first) = selecting.next() else {
            return;
        };
        if selecting.next().is_some() {
            let event = DisruptionEvent::multiple_budgets(pod, &first.name);
            self.events.push((ObjectKey::of_pod(pod), event));
        }
        self.syncs.add(first.clone());
    }

    /// The operation that is needed next. `now` is monotonic time, `date` wall-clock time.
    pub fn step(&mut self, now: Time, date: Timestamp) -> ControllerStep {
        while self.working.is_none() {
            if let Some(key) = self.syncs.take(now) {
                self.begun = now;
                self.begin_sync(key, Scales::new(), now, date);
            } else if let Some(key) = self.stale_pods.take(now) {
                self.begin_pod(key, now, date);
            } else {
                let next = [self.syncs.next(now), self.stale_pods.next(now)];
                return ControllerStep::Wait(next.into_iter().flatten().min());
            }
        }
        match &self.working {
            Some(Working::Pod(key, patch)) => ControllerStep::PatchPod(key.clone(), patch.clone()),
            Some(Working::Sync(key, Syncing::Writing { object, .. })) => {
                ControllerStep::WriteStatus(key.clone(), object.clone())
            }
            Some(Working::Sync(key, Syncing::LookingUp { left, .. })) => match left.front() {
                Some(owner) => ControllerStep::LookUp(key.namespace.clone(), owner.clone()),
                None => ControllerStep::Wait(Some(now)),
            },
            None => ControllerStep::Wait(Some(now)),
        }
    }

    fn begin_sync(&mut self, key: ObjectKey, scales: Scales, now: Time, date: Timestamp) {
        let Some(budget) = self.budgets.get(&key) else {
            let then = AfterWrite::Recheck(None);
            self.finish(&key, then, SyncEnding::Unchanged, now);
            return;
        };
        let pods: Vec<&Pod> = in_namespace(&self.pods, &key.namespace)
            .map(|(_, pod)| pod)
            .collect();
        let outcome = match sync(budget, &pods, &scales, date) {
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
        self.write(key, Box::new(budget.clone()), write, then, now);
    }

    /// Writes a status, if it has changed, and continues with `then`.
    fn write(
        &mut self,
        key: ObjectKey,
        budget: Box<DisruptionBudget>,
        object: Option<Value>,
        then: AfterWrite,
        now: Time,
    ) {
        if let Some(object) = object {
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
        left.retain(|other| *other != owner);
        found.insert(owner, result);
        if left.is_empty() {
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

fn is_exhausted(budget: &DisruptionBudget) -> bool {
    budget.status.disruptions_allowed <= 0
}

/// The time from `from` until `at`; zero if `at` is earlier.
fn span(from: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(from)).unwrap_or_default()
}
