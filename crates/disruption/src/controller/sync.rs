//! The sync of one budget: computes its status from its pods and the scales of their controllers.
//!
//! Budget and pods may come from caches. The status must be written on condition that the budget still has the resource
//! version that was read. If the write fails with 409, the status is out of date and must be dropped; the budget is
//! synced again later.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    events::DisruptionEvent,
    scale::{ScaleError, ScaleResult},
};
use crate::{
    amounts::{self, Bound, ExpectedPodCount},
    budget::{BudgetStatus, DisruptionBudget},
    conditions::DisruptionAllowed,
    int_or_percent::{BoundError, saturate},
    pod::{ControllerRef, Pod},
};
use fairgate_gotext::Quoted;

/// The scales that have been looked up, by owner.
pub(crate) type Scales = BTreeMap<ControllerRef, ScaleResult>;

/// The result of a sync.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SyncResult {
    /// The scales of these owners must be looked up first, in this order; then sync again, at once if an owner has none.
    NeedScales(Vec<ControllerRef>),
    /// The sync is complete.
    Done(SyncOutcome),
}

/// What the caller has to do after a sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SyncOutcome {
    /// The object to PUT to the budget's `/status`; `None` if the status is up to date.
    pub write: Option<Value>,
    /// Events to record.
    pub events: Vec<DisruptionEvent>,
    /// When to sync again, even if nothing changes until then.
    pub recheck_at: Option<Timestamp>,
    /// Why the status could not be computed. `write` still has to be written, and the sync is retried with back-off.
    pub error: Option<SyncError>,
}

/// Why a status cannot be computed. The text becomes the message of the condition and of refused evictions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SyncError {
    /// The selector is invalid.
    #[error("{0}")]
    Selector(String),
    /// A bound is neither a number nor a percentage.
    #[error(transparent)]
    Bound(#[from] BoundError),
    /// The owner of a pod does not exist.
    #[error("found no controllers for pod {}", Quoted(pod))]
    NoController {
        /// The pod's name.
        pod: String,
    },
    /// The scale of an owner could not be determined.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The selectors of the namespace exceed their limit.
    #[error(
        "the selectors of the PodDisruptionBudgets of this namespace exceed the limit of {limit} requirements and values, \
         and older budgets count first: remove budgets, or shorten their selectors"
    )]
    TooManyTerms {
        /// The limit.
        limit: u64,
    },
    /// The status could not be written.
    #[error("{0}")]
    Write(String),
}

/// Computes the status of a budget. `pods` are those that it selects, sorted by name so that events and errors are
/// deterministic.
///
/// The cost is `O(n log n)` in the number of `pods`.
pub(crate) fn sync(
    budget: &DisruptionBudget,
    pods: &[&Pod],
    scales: &Scales,
    now: Timestamp,
) -> SyncResult {
    let mut events = Vec::new();
    let attempt = match check(budget, pods, &mut events) {
        Ok(()) => compute(budget, pods, scales, now, &mut events),
        Err(error) => Err(Stop::Failed(error)),
    };
    match attempt {
        Ok((status, recheck_at)) => SyncResult::Done(SyncOutcome {
            write: status.map(|status| budget.with_status(&status)),
            events,
            recheck_at,
            error: None,
        }),
        Err(Stop::NeedScales(owners)) => SyncResult::NeedScales(owners),
        Err(Stop::Failed(error)) => SyncResult::Done(SyncOutcome {
            write: fail_safe(budget, &error, now),
            events,
            recheck_at: None,
            error: Some(error),
        }),
    }
}

/// Why a sync ends without a status.
enum Stop {
    NeedScales(Vec<ControllerRef>),
    Failed(SyncError),
}

impl<E: Into<SyncError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// An error, if the selector is invalid.
fn check(
    budget: &DisruptionBudget,
    pods: &[&Pod],
    events: &mut Vec<DisruptionEvent>,
) -> Result<(), SyncError> {
    if let Err(error) = &budget.spec.selector {
        events.push(DisruptionEvent::selector_failed(budget, error));
        return Err(SyncError::Selector(error.clone()));
    }
    if pods.is_empty() {
        events.push(DisruptionEvent::no_pods(budget));
    }
    Ok(())
}

/// The new status, if it differs from the old one, and when to sync again.
fn compute(
    budget: &DisruptionBudget,
    pods: &[&Pod],
    scales: &Scales,
    now: Timestamp,
    events: &mut Vec<DisruptionEvent>,
) -> Result<(Option<BudgetStatus>, Option<Timestamp>), Stop> {
    let (expected_pods, desired_healthy) = match target(budget, pods, scales, events) {
        Err(Stop::Failed(error)) => {
            events.push(DisruptionEvent::calculation_failed(budget, &error));
            return Err(error.into());
        }
        target => target?,
    };
    let pruned = amounts::prune(&budget.status.disrupted_pods, pods, now);
    let not_deleted = pruned.not_deleted.iter();
    events.extend(not_deleted.map(|pod| DisruptionEvent::not_deleted(budget, pod)));
    let current_healthy = amounts::healthy(pods, &pruned.disrupted, now);
    let disruptions_allowed =
        amounts::disruptions_allowed(current_healthy, desired_healthy, expected_pods);
    let mut status = BudgetStatus {
        observed_generation: budget.generation,
        disrupted_pods: pruned.disrupted,
        disruptions_allowed,
        current_healthy,
        desired_healthy,
        expected_pods,
        conditions: budget.status.conditions.clone(),
    };
    let condition = DisruptionAllowed::for_budget(disruptions_allowed);
    let is_new = status != budget.status || !condition.is_in(&status.conditions);
    condition.set(&mut status.conditions, status.observed_generation, now);
    Ok((is_new.then_some(status), pruned.recheck_at))
}

/// `expectedPods` and `desiredHealthy`.
fn target(
    budget: &DisruptionBudget,
    pods: &[&Pod],
    scales: &Scales,
    events: &mut Vec<DisruptionEvent>,
) -> Result<(i32, i32), Stop> {
    let bound = Bound::of(&budget.spec)?;
    let expected = match bound.expected_pod_count() {
        ExpectedPodCount::Nothing => 0,
        ExpectedPodCount::SelectedPods => i32::try_from(pods.len()).unwrap_or(i32::MAX),
        ExpectedPodCount::Scales => {
            let expected = sum_of_scales(pods, scales)?;
            if pods.iter().any(|pod| pod.controller.is_none()) {
                events.push(DisruptionEvent::unmanaged_pods(budget));
            }
            expected
        }
    };
    Ok((expected, bound.desired_healthy(expected)))
}

/// The sum of the scales of the pods' controllers, each counted once.
fn sum_of_scales(pods: &[&Pod], scales: &Scales) -> Result<i32, Stop> {
    // In the order of the pods: the first one whose owner has no scale decides, as in Kubernetes, whatever others may have.
    let (mut unknown, mut asked) = (Vec::new(), BTreeSet::new());
    // Keyed by the UID of the scaled object, so that two ReplicaSets of one Deployment count once.
    let mut counted = BTreeMap::new();
    for pod in pods {
        let Some(owner) = pod.controller.as_deref() else {
            continue;
        };
        match scales.get(owner) {
            Some(Ok(Some(scale))) => {
                counted.insert(&scale.uid, scale.replicas);
            }
            Some(Err(error)) => return Err(error.clone().into()),
            Some(Ok(None)) => {
                let pod = pod.name.to_string();
                return Err(SyncError::NoController { pod }.into());
            }
            None if asked.insert(owner) => unknown.push(owner.clone()),
            None => {}
        }
    }
    if !unknown.is_empty() {
        return Err(Stop::NeedScales(unknown));
    }
    Ok(saturate(counted.into_values().map(i128::from).sum()))
}

/// The budget with the status after a failed sync, if it differs from the old one: no disruptions are allowed, and all
/// else stays as it was. That includes the observed generation, so evictions under a new spec that could not be
/// processed are still refused with "still being processed".
pub(super) fn fail_safe(
    budget: &DisruptionBudget,
    error: &SyncError,
    now: Timestamp,
) -> Option<Value> {
    let mut status = budget.status.clone();
    status.disruptions_allowed = 0;
    let condition = DisruptionAllowed::SyncFailed(error.to_string());
    condition.set(&mut status.conditions, status.observed_generation, now);
    (status != budget.status).then(|| budget.with_status(&status))
}
