//! Disruption budgets and evictions: how many pods of an application may be down at a time.
//!
//! # How budgets work
//!
//! Draining a node removes all of its pods. If several of them belong to one application, it may go down, although it
//! would stay up if each pod were replaced before the next one is removed. A `PodDisruptionBudget` limits this:
//! `minAvailable` pods must stay healthy, or at most `maxUnavailable` may be missing. A well-behaved client does not
//! delete a pod but *evicts* it: it sends a POST to the subresource `eviction`, and the pod is deleted only if its
//! budget allows that.
//!
//! The work is divided between two parties, which communicate only through the status of the budget:
//!
//! - The *disruption controller* ([`controller`]) counts. It finds the number of healthy pods from the pods that the
//!   budget selects, and the number of expected pods from their controllers:
//!
//!   ```text
//!   expectedPods       = the pods themselves, for minAvailable as a number;
//!                        else what their controllers want (spec.replicas), each counted once
//!   desiredHealthy     = minAvailable, or expectedPods − maxUnavailable; percentages are rounded up
//!   currentHealthy     = pods that are ready, and neither terminating nor about to be evicted
//!   disruptionsAllowed = currentHealthy − desiredHealthy, at least 0; 0 if no pod is expected
//!   ```
//!
//! - The *eviction procedure* ([`procedure`]) charges the budget. In one conditional write it decrements
//!   `disruptionsAllowed` and adds the pod to `disruptedPods`. Then it deletes the pod.
//!
//! Three properties make this safe without a lock, on any number of servers:
//!
//! 1. **The write is conditional** on the resource version that was read. If two evictions have read the same number,
//!    the second write fails with a conflict, and that eviction reads the budget again. The same happens to a
//!    controller that has computed a status from an older version.
//! 2. **The write comes before the deletion.** If a server fails in between, the budget is too low for a while, but no
//!    disruption remains uncounted.
//! 3. **The entry in `disruptedPods`** makes the pod count as unhealthy until its deletion is observed. Without the
//!    entry, the next sync would restore the disruption. If the pod is not deleted, the entry expires after two minutes
//!    (`amounts::DELETION_TIMEOUT`), and the next sync corrects the status.
//!
//! `observedGeneration` shows whether the status was computed from the current spec. Until the controller has observed
//! a changed spec, evictions are refused with "still being processed".
//!
//! Some pods are evicted without charging a budget: those that have ended, are terminating or do not run yet; and those
//! that are not ready, if enough other pods are healthy or the budget allows it (`unhealthyPodEvictionPolicy`), because
//! they do not count as healthy. If such a pod may still become ready, its deletion has its resource version as a
//! precondition, and fails if the pod changes meanwhile.
//!
//! A budget limits evictions only. It does not apply to failures of nodes, to rollouts, or to a plain DELETE.
//!
//! [`fairgate_objects::disruption_budget`] finds invalid budgets, [`advice`] those that keep nodes from being drained, and
//! [`NeverAllows`] says for which of them an eviction waits in vain.
//!
//! # How this crate works
//!
//! Everything here is pure. Time and objects (as JSON) are arguments, and the results say what to read or write next.
//! There is no clock, no I/O and no random number, so everything can be tested in virtual time, with lost and late
//! messages.
//!
//! Source: the API reference of `policy/v1`, the Kubernetes documentation on disruptions, and observation of
//! kube-apiserver and kube-controller-manager. Texts that clients see are theirs.
//!
//! Not here: HTTP, watches, leader election, authorization, and holding evictions while they wait ([`waiting`] only
//! decides their order).

pub mod advice;
pub mod amounts;
pub mod budget;
mod conditions;
pub mod controller;
pub mod int_or_percent;
pub mod labels;
mod mode;
mod never_allows;
pub mod pod;
pub mod procedure;
mod read;
pub mod waiting;

pub use mode::EvictionMode;
pub use never_allows::NeverAllows;
pub use read::MalformedObject;
