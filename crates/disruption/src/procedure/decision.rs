//! Whether a budget allows an eviction, and the status after it is charged.

use jiff::Timestamp;

use super::refusal::EvictionRefusal;
use crate::{
    budget::{BudgetStatus, DisruptionBudget, MAX_DISRUPTED_PODS, UnhealthyPodEvictionPolicy},
    conditions::DisruptionAllowed,
    pod::Pod,
    read::whole_seconds,
};

/// Whether a pod that is not ready may be evicted without charging its budget.
///
/// Such a pod is not counted as healthy, so its eviction does not reduce `currentHealthy`. Unless the policy
/// is `AlwaysAllow`, enough other pods must be healthy. `desiredHealthy` 0 is not sufficient, since a budget
/// that was never computed looks the same.
pub(super) fn may_skip_budget(pod: &Pod, budget: &DisruptionBudget) -> bool {
    let status = &budget.status;
    !pod.ready
        && match budget.spec.unhealthy_pods {
            UnhealthyPodEvictionPolicy::AlwaysAllow => true,
            UnhealthyPodEvictionPolicy::IfHealthyBudget => {
                status.current_healthy >= status.desired_healthy && status.desired_healthy > 0
            }
        }
}

/// Checks whether the budget can be charged. The error is the refusal.
pub(super) fn check(budget: &DisruptionBudget) -> Result<(), EvictionRefusal> {
    let status = &budget.status;
    let name = || budget.name.clone();
    if status.observed_generation < budget.generation {
        return Err(EvictionRefusal::BudgetNotProcessed { budget: name() });
    }
    if status.disruptions_allowed < 0 {
        return Err(EvictionRefusal::BudgetNegative { budget: name() });
    }
    if status.disrupted_pods.len() > MAX_DISRUPTED_PODS {
        return Err(EvictionRefusal::TooManyDisruptedPods { budget: name() });
    }
    if status.disruptions_allowed == 0 {
        return Err(EvictionRefusal::exhausted(budget));
    }
    Ok(())
}

/// Why an eviction that is charged to this budget would be refused; `None` if the budget allows it.
pub fn refusal_by(budget: &DisruptionBudget) -> Option<EvictionRefusal> {
    check(budget).err()
}

/// The status of the budget after an eviction of the pod is charged to it at the time `now`.
///
/// The entry in `disruptedPods` keeps the controller from restoring the budget before it observes the deletion.
pub(super) fn charge(budget: &DisruptionBudget, pod: &str, now: Timestamp) -> BudgetStatus {
    let mut status = budget.status.clone();
    status.disruptions_allowed = status.disruptions_allowed.saturating_sub(1);
    if status.disruptions_allowed <= 0 {
        let generation = status.observed_generation;
        DisruptionAllowed::InsufficientPods.set(&mut status.conditions, generation, now);
    }
    status
        .disrupted_pods
        .insert(pod.to_owned(), whole_seconds(now));
    status
}

/// Whether the budget has an entry for the pod with one of these times, so that its eviction was charged.
pub(super) fn is_charged(budget: &DisruptionBudget, pod: &str, times: &[Timestamp]) -> bool {
    let entry = budget.status.disrupted_pods.get(pod);
    entry.is_some_and(|entry| times.contains(entry))
}
