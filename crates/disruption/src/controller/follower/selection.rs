//! Which budgets select a changed pod, and which pods a budget selects: what may take long, in slices.

use std::{ops::Bound, sync::Arc};

use fairgate_core::time::Time;
use fairgate_objects::selector::{LabelSelector, LabelSet as _};
use jiff::Timestamp;

use super::{
    super::{changed_pods::PodMatch, events::DisruptionEvent, object_key::ObjectKey, slice::Slice},
    DisruptionController, Selecting, Syncing, Working, in_namespace,
};
use crate::pod::Pod;

impl DisruptionController {
    /// Has the budgets of a pod looked for. If there is no budget in its namespace, that is at once.
    pub(super) fn look_for_budget_of(&mut self, key: ObjectKey, pod: Pod) {
        if !self.namespaces.contains_key(&key.namespace) {
            return;
        }
        let namespace = key.namespace.clone();
        if !self.changed.add(key, pod) {
            // It changes faster than its budgets are found.
            let budgets = in_namespace(&self.budgets, &namespace);
            for (key, _) in budgets {
                self.syncs.add(key.clone());
            }
        }
    }

    /// Queues the budgets that select a changed pod, for as many pods as the slice allows. Of several, kube-controller-manager queues an
    /// arbitrary one, another one each time. Always the same one would leave the others with statuses that allow too much.
    pub(super) fn match_changed(&mut self, slice: &mut Slice) {
        while !slice.is_spent() {
            let matching = self.matching.take().or_else(|| {
                let pod = self.changed.take()?;
                let budgets = self.namespaces.get(&pod.namespace);
                let found = budgets.map(|budgets| budgets.candidates(&pod.labels));
                let (candidates, look_ups) = found.unwrap_or_default();
                slice.spend(look_ups);
                self.changed.charge(&pod.namespace, look_ups);
                Some(PodMatch {
                    pod,
                    candidates: candidates.into_iter(),
                    first: None,
                    is_reported: false,
                })
            });
            let Some(matching) = matching else { return };
            self.matching = self.look_at_candidates(matching, slice);
        }
    }

    /// Looks for the budgets that select a pod. Returns what is left when the slice is spent.
    fn look_at_candidates(
        &mut self,
        mut matching: PodMatch,
        slice: &mut Slice,
    ) -> Option<PodMatch> {
        let pod = &matching.pod;
        while !slice.is_spent() {
            let name = matching.candidates.next()?;
            let key = ObjectKey::new(&pod.namespace, &name);
            let Some(budget) = self.budgets.get(&key) else {
                continue;
            };
            let look_ups = look_ups(budget.selector(), pod);
            slice.spend(look_ups);
            self.changed.charge(&pod.namespace, look_ups);
            if !budget.selects(pod) {
                continue;
            }
            self.syncs.add(key);
            match &matching.first {
                None => matching.first = Some(name),
                Some(first) if !matching.is_reported => {
                    let event = DisruptionEvent::multiple_budgets(pod, first);
                    self.events.push((ObjectKey::of_pod(pod), event));
                    matching.is_reported = true;
                }
                Some(_) => {}
            }
        }
        Some(matching)
    }

    /// Compares pods with the selector of a budget, as many as the slice allows. After the last one the sync goes on.
    pub(super) fn select(
        &mut self,
        key: ObjectKey,
        mut selecting: Selecting,
        slice: &mut Slice,
        now: Time,
        date: Timestamp,
    ) {
        let budget = &selecting.budget;
        let after = match &selecting.last {
            Some(last) => Bound::Excluded(last.clone()),
            None => Bound::Included(ObjectKey::new(&key.namespace, "")),
        };
        let mut pods = self.pods.range((after, Bound::Unbounded));
        let is_complete = budget.spec.selector.is_err()
            || loop {
                if slice.is_spent() {
                    break false;
                }
                let in_namespace = |(other, _): &(&ObjectKey, _)| other.namespace == key.namespace;
                let Some((pod_key, pod)) = pods.next().filter(in_namespace) else {
                    break true;
                };
                let look_ups = look_ups(budget.spec.selector.as_ref().ok(), pod);
                slice.spend(look_ups);
                selecting.look_ups += look_ups;
                if budget.selects(pod) {
                    selecting.selected.push(pod_key.clone());
                }
                if slice.is_spent() {
                    selecting.last = Some(pod_key.clone());
                }
            };
        if is_complete {
            self.syncs.charge(&key.namespace, selecting.look_ups);
            self.selected(key, selecting, now, date);
        } else {
            self.working = Some(Working::Sync(key, Syncing::Selecting(selecting)));
        }
    }
}

/// How many look-ups it takes to compare a pod with the selector of a budget, if that is valid; at least 1.
fn look_ups(selector: Option<&Arc<LabelSelector>>, pod: &Pod) -> u64 {
    let look_ups = selector.map_or(0, |selector| selector.look_ups(pod.labels.count()));
    1 + u64::try_from(look_ups).unwrap_or(u64::MAX)
}
