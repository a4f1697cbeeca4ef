//! Disruption budgets and evictions: how many pods of an application may be taken away at a time.
//!
//! # How budgets work
//!
//! Draining a node deletes its pods one after the other. Done carelessly, this takes an
//! application down that would have survived had its pods gone one by one, each after the one before
//! was replaced. A `PodDisruptionBudget` says how much its pods can spare: `minAvailable` pods must
//! stay healthy, or at most `maxUnavailable` may be missing. Those who care do not delete a pod but *evict* it:
//! they POST to its subresource `eviction`, and the pod is deleted only if its budgets allow that.
//!
//! The work is divided between two parties that never talk to each other, but only through the budget's
//! status:
//!
//! - The *disruption controller* ([`controller`]) counts. From the pods that the budget selects it finds
//!   how many are healthy, and from their controllers how many there should be:
//!
//!   ```text
//!   expectedPods       = the pods themselves, for minAvailable as a number;
//!                        else what their controllers want (spec.replicas), each counted once
//!   desiredHealthy     = minAvailable, or expectedPods − maxUnavailable; percentages are rounded up
//!   currentHealthy     = pods that are ready, and neither terminating nor about to be evicted
//!   disruptionsAllowed = currentHealthy − desiredHealthy, at least 0; 0 if no pod is expected
//!   ```
//!
//! - The *eviction procedure* ([`procedure`]) spends. It takes one from `disruptionsAllowed` and enters the
//!   pod into `disruptedPods`, in one conditional write; then it deletes the pod.
//!
//! Three things make this safe without a lock, on any number of servers:
//!
//! 1. **The write is conditional** on the resource version that was read. Of two evictions that read
//!    the same number one loses, reads again, and finds what the other has left. A controller that has computed
//!    its figures from an older view loses as well.
//! 2. **The write comes before the deletion.** A server that dies in between has wasted a disruption, not
//!    hidden one.
//! 3. **The entry in `disruptedPods`** makes the pod count as unhealthy until its deletion shows. Without it
//!    the next count would give the disruption back. If the deletion never comes, the entry expires after two
//!    minutes (`amounts::DELETION_TIMEOUT`), and the count repairs itself.
//!
//! `observedGeneration` shows whether the figures are those of the current spec; until the controller
//! has seen a changed spec, evictions are refused as "still being processed".
//!
//! Some pods need no budget: those that have ended, are terminating, or do not run yet; and those that are
//! not ready, if the others keep the budget or the budget says so (`unhealthyPodEvictionPolicy`), because
//! nobody counts them as healthy. Such a deletion is guarded by the pod's resource version: should the pod
//! become ready meanwhile, it fails.
//!
//! A budget is a promise about evictions alone. Nodes fail, deployments roll, and a plain DELETE ignores budgets.
//!
//! [`fairgate_objects::disruption_budget`] finds invalid budgets, and [`advice`] those that keep nodes from
//! being drained.
//!
//! # How this crate works
//!
//! Everything here is pure: time comes in as an argument, objects as JSON, and what comes out says what to
//! read or write next. There is no clock, no I/O and no random number, so that the whole of it is tested in
//! virtual time, against lost and late messages.
//!
//! Source: the API reference of `policy/v1`, the Kubernetes documentation on disruptions, and observation of
//! kube-apiserver and kube-controller-manager. Texts that clients see are theirs.
//!
//! Not here: HTTP, watches, leader election, authorization, and how evictions are held while they wait ([`waiting`] is
//! their order).

pub mod advice;
pub mod amounts;
pub mod budget;
mod conditions;
pub mod controller;
pub mod int_or_percent;
pub mod labels;
pub mod pod;
pub mod procedure;
mod read;
pub mod waiting;

pub use read::MalformedObject;
