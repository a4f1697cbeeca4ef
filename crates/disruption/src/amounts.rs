//! The arithmetic of a budget: from pods and scales to the number of pods that may be evicted.
//!
//! ```text
//! disruptionsAllowed = max(0, currentHealthy − desiredHealthy), and 0 if no pod is expected
//! ```

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    budget::BudgetSpec,
    int_or_percent::{BoundError, IntOrPercent, saturate},
    pod::Pod,
};

/// How long after the grant of an eviction the pod's deletion must be observed. After that the pod
/// counts as healthy again if it is ready.
pub(crate) const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

/// How long after the time-out of an entry a budget is checked again. At exactly the time-out the entry is still kept,
/// so an earlier check would have to be repeated.
const RECHECK_MARGIN: Duration = Duration::from_millis(1);

/// How the number of expected pods is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedPodCount {
    /// The number of selected pods, including terminating ones.
    SelectedPods,
    /// The sum of the scales of their controllers.
    Scales,
    /// No pods are expected, because the budget has no bound.
    Nothing,
}

/// The bound of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    MaxUnavailable(IntOrPercent),
    MinAvailable(IntOrPercent),
    None,
}

impl Bound {
    /// The bound of a spec. A budget with both bounds is invalid; `maxUnavailable` takes precedence.
    pub(crate) fn of(spec: &BudgetSpec) -> Result<Self, BoundError> {
        Ok(match (spec.max_unavailable.clone()?, &spec.min_available) {
            (Some(most), _) => Self::MaxUnavailable(most),
            (None, least) => least.clone()?.map_or(Self::None, Self::MinAvailable),
        })
    }

    pub(crate) fn expected_pod_count(self) -> ExpectedPodCount {
        match self {
            Self::MaxUnavailable(_) | Self::MinAvailable(IntOrPercent::Percent(_)) => {
                ExpectedPodCount::Scales
            }
            Self::MinAvailable(IntOrPercent::Int(_)) => ExpectedPodCount::SelectedPods,
            Self::None => ExpectedPodCount::Nothing,
        }
    }

    /// The number of pods that must be healthy, of `expected` pods.
    pub(crate) fn desired_healthy(self, expected: i32) -> i32 {
        match self {
            Self::MaxUnavailable(most) => {
                let left = i128::from(expected) - i128::from(most.of(expected));
                saturate(left.max(0))
            }
            Self::MinAvailable(least) => least.of(expected),
            Self::None => 0,
        }
    }
}

/// The number of pods that may be evicted.
pub(crate) fn disruptions_allowed(
    current_healthy: i32,
    desired_healthy: i32,
    expected_pods: i32,
) -> i32 {
    if expected_pods <= 0 {
        return 0;
    }
    current_healthy.saturating_sub(desired_healthy).max(0)
}

/// The result of pruning `disruptedPods`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pruned<'p> {
    /// The entries that are kept.
    pub(crate) disrupted: BTreeMap<String, Timestamp>,
    /// The time just after the first of these entries times out; `None` if there are none.
    pub(crate) recheck_at: Option<Timestamp>,
    /// The pods that were not deleted in time.
    pub(crate) not_deleted: Vec<&'p Pod>,
}

/// When an entry times out.
fn times_out_at(entry: Timestamp) -> Timestamp {
    entry.saturating_add(DELETION_TIMEOUT).unwrap_or(entry)
}

/// Drops the entries of pods that are gone, are terminating, or were not deleted in time.
pub(crate) fn prune<'p>(
    disrupted: &BTreeMap<String, Timestamp>,
    pods: &[&'p Pod],
    now: Timestamp,
) -> Pruned<'p> {
    let mut pruned = Pruned::default();
    for pod in pods {
        let Some(entry) = disrupted.get(&*pod.name).filter(|_| !pod.terminating) else {
            continue;
        };
        let times_out = times_out_at(*entry);
        if times_out < now {
            pruned.not_deleted.push(pod);
            continue;
        }
        pruned.disrupted.insert(pod.name.to_string(), *entry);
        let after = times_out
            .saturating_add(RECHECK_MARGIN)
            .unwrap_or(times_out);
        pruned.recheck_at = Some(pruned.recheck_at.map_or(after, |at| at.min(after)));
    }
    pruned
}

/// The number of pods that are ready, not terminating and not about to be evicted.
///
/// At exactly the time-out of an entry, the entry is still kept, but its pod counts as healthy.
pub(crate) fn healthy(
    pods: &[&Pod],
    disrupted: &BTreeMap<String, Timestamp>,
    now: Timestamp,
) -> i32 {
    let is_disrupted = |pod: &Pod| {
        let entry = disrupted.get(&*pod.name);
        entry.is_some_and(|entry| times_out_at(*entry) > now)
    };
    let count = pods
        .iter()
        .filter(|pod| pod.ready && !pod.terminating && !is_disrupted(pod))
        .count();
    i32::try_from(count).unwrap_or(i32::MAX)
}
