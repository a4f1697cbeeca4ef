//! The deletion: sets the condition `DisruptionTarget` of the pod, then deletes it.
//!
//! Both calls have the UID of the pod as a precondition, even if the caller does not demand one. A call that is
//! delayed or repeated must not delete a new pod of the same name, for which no budget was charged.
//! kube-apiserver needs no such precondition, because it does not make these calls over a network.
//!
//! The patch changes the resource version of the pod, so a deletion that is guarded by a resource version uses
//! the one that resulted from the patch. If the outcome of a deletion is unknown, the pod is read.

use serde_json::{Value, json};

use super::{
    ATTEMPTS, AfterPause, Eviction, EvictionResult, LastStep, Permit, REPEATS, Stage, is_transient,
};
use crate::{
    pod::Pod,
    procedure::{calls::CallOutcome, refusal::EvictionRefusal, request::preconditions},
    read::{MalformedObject, ObjectField, whole_seconds},
};
use jiff::Timestamp;

impl<R> Eviction<R> {
    /// Starts the deletion, if the preconditions hold.
    pub(super) fn begin_deletion(&mut self, now: Timestamp) -> Stage<R> {
        let checked = self.check_preconditions();
        if let Err(refusal) = checked.and_then(|()| self.request.check_options()) {
            return Self::refuse(refusal);
        }
        if self.request.is_dry_run() {
            return Stage::Delete;
        }
        let had = self
            .pod
            .as_ref()
            .and_then(|pod| pod.disruption_target.as_ref());
        let since = had.filter(|had| had.is_true).and_then(|had| had.since);
        self.target_since = whole_seconds(since.unwrap_or_else(|| self.clock.at(now)));
        self.committed = true;
        Stage::Patch
    }

    /// The patch that sets the condition.
    pub(super) fn patch(&self) -> Value {
        let mut patch = json!({"status": {"conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": self.target_since.to_string(),
        }]}});
        let metadata = preconditions(self.uid(), self.guard.as_deref());
        if !metadata.is_empty() {
            patch["metadata"] = Value::Object(metadata);
        }
        patch
    }

    /// The options of the deletion.
    pub(super) fn delete_options(&self) -> Value {
        let version = self.guard.as_deref();
        self.request.delete_options(self.uid(), version)
    }

    /// The UID of the pod as it was read, which is a precondition of both calls; `None` if it has none.
    fn uid(&self) -> Option<&str> {
        let read = self.pod.as_ref().map(|pod| &*pod.uid);
        read.filter(|uid| !uid.is_empty())
    }

    pub(super) fn on_patch(&mut self, outcome: CallOutcome<R>) -> Stage<R> {
        let object = match outcome {
            CallOutcome::Success(object) => object,
            outcome => return self.on_failure(outcome, LastStep::Patch),
        };
        if self.guard.is_some() {
            match version(&object) {
                Ok(version) => self.guard = Some(version),
                Err(error) => return Self::malformed(error),
            }
        }
        Stage::Delete
    }

    pub(super) fn on_deletion(&mut self, outcome: CallOutcome<R>) -> Stage<R> {
        match outcome {
            CallOutcome::Success(_) => Stage::Done(EvictionResult::Evicted),
            // The earlier deletion, whose outcome was unknown, was executed.
            CallOutcome::Failure { code: 404, .. } if self.uncertain_deletion => {
                Stage::Done(EvictionResult::Evicted)
            }
            CallOutcome::Failure {
                code: 409,
                response,
            } if self.uncertain_deletion => self.repeat_or(
                LastStep::Delete,
                EvictionResult::Upstream {
                    code: 409,
                    response,
                },
            ),
            outcome => self.on_failure(outcome, LastStep::Delete),
        }
    }

    /// Continues after a failed patch or deletion.
    fn on_failure(&mut self, outcome: CallOutcome<R>, last: LastStep) -> Stage<R> {
        let may_have_deleted = last == LastStep::Delete && !self.request.is_dry_run();
        match outcome {
            CallOutcome::Failure {
                code: 409,
                response,
            } => self.on_conflict(last, response),
            CallOutcome::Failure { code, response } => {
                let result = match code {
                    401 => self.unavailable_result(),
                    _ => EvictionResult::Upstream { code, response },
                };
                // Giving up now would waste the charge of the budget.
                if self.permit == Permit::Charged && is_transient(code) {
                    self.uncertain_deletion |= may_have_deleted && code != 429;
                    return self.repeat_or(last, result);
                }
                Stage::Done(result)
            }
            CallOutcome::NotSent => self.repeat_or(last, self.unavailable_result()),
            CallOutcome::Unknown | CallOutcome::Success(_) => {
                self.uncertain_deletion |= may_have_deleted;
                self.repeat_or(last, self.unavailable_result())
            }
        }
    }

    /// Pauses, reads the pod and repeats the call; ends with `result` once the repetitions are used up.
    fn repeat_or(&mut self, last: LastStep, result: EvictionResult<R>) -> Stage<R> {
        if self.repeats >= REPEATS {
            return Stage::Done(result);
        }
        self.repeats += 1;
        Stage::Pause(AfterPause::LookUp(last))
    }

    pub(super) fn on_look_up(&mut self, outcome: CallOutcome<R>, last: LastStep) -> Stage<R> {
        let evicted = Stage::Done(EvictionResult::Evicted);
        let object = match outcome {
            CallOutcome::Success(object) => object,
            CallOutcome::Failure { code: 404, .. } if self.uncertain_deletion => return evicted,
            CallOutcome::Failure { code, response } if is_transient(code) => {
                return self.repeat_or(last, EvictionResult::Upstream { code, response });
            }
            CallOutcome::Unknown | CallOutcome::NotSent => {
                return self.repeat_or(last, self.unavailable_result());
            }
            outcome @ CallOutcome::Failure { .. } => return self.failed(outcome),
        };
        let (now, before) = match (Pod::from_value(&object), &self.pod) {
            (Ok(now), Some(before)) => (now, before),
            (Ok(_), None) => return Stage::ReadPod,
            (Err(error), _) => return Self::malformed(error),
        };
        if self.is_deletion_of(&now) {
            return evicted;
        }
        if now.uid != before.uid {
            let pod = self.request.pod.clone();
            let found = now.uid.to_string();
            return Self::refuse(match self.request.uid.clone() {
                Some(wanted) => EvictionRefusal::UidMismatch { pod, wanted, found },
                None => EvictionRefusal::PodGone { pod },
            });
        }
        if self
            .guard
            .as_deref()
            .is_some_and(|guard| *guard != *now.resource_version)
        {
            // The pod was changed by the patch whose outcome is unknown, or by another client. Nothing tells which.
            return self.on_change(&now);
        }
        match last {
            LastStep::Patch => Stage::Patch,
            LastStep::Delete => Stage::Delete,
        }
    }

    /// Continues after a 409: a precondition of the call did not hold.
    fn on_conflict(&mut self, last: LastStep, response: R) -> Stage<R> {
        let result = EvictionResult::Upstream {
            code: 409,
            response,
        };
        if let Some(next) = self.retry_exempt().or_else(|| self.pod_changed()) {
            return next;
        }
        match result {
            EvictionResult::Upstream { code, response }
                if self.permit == Permit::Exempt || self.guard.is_some() =>
            {
                Stage::Explain { code, response }
            }
            // Only the UID was a precondition; the lookup shows whether the pod was replaced.
            result => self.repeat_or(last, result),
        }
    }

    /// Continues after the pod was found with another resource version than the guard.
    fn on_change(&mut self, now: &Pod) -> Stage<R> {
        if let Some(next) = self.retry_exempt().or_else(|| self.pod_changed()) {
            return next;
        }
        Self::refuse(EvictionRefusal::ResourceVersionMismatch {
            pod: self.request.pod.clone(),
            wanted: self.guard.clone().unwrap_or_default(),
            found: now.resource_version.to_string(),
        })
    }

    /// Starts over with an exempt pod, which may no longer be exempt. `None` for other pods, if the caller demands a
    /// resource version, or if the attempts are used up.
    fn retry_exempt(&mut self) -> Option<Stage<R>> {
        let retries = self.permit == Permit::Exempt
            && self.request.resource_version.is_none()
            && self.pod_attempts < ATTEMPTS;
        if !retries {
            return None;
        }
        self.committed = self.uncertain_deletion;
        if self.abandoned && !self.committed {
            return Some(self.unavailable());
        }
        Some(Stage::Pause(AfterPause::ReadPod))
    }

    /// Refuses the eviction of an unready pod that may be ready now; the client should retry. `None` for other pods,
    /// and if the caller demands a resource version.
    fn pod_changed(&self) -> Option<Stage<R>> {
        let asks_again = self.permit == Permit::Unready && self.request.resource_version.is_none();
        asks_again.then(|| {
            let budget = self.budget.clone();
            Self::refuse(EvictionRefusal::PodChanged { budget })
        })
    }

    /// Ends with the precondition that does not hold, if the pod that was read shows it; otherwise with the upstream's
    /// response.
    pub(super) fn on_explanation(
        &mut self,
        outcome: CallOutcome<R>,
        code: u16,
        response: R,
    ) -> Stage<R> {
        if let CallOutcome::Success(object) = outcome
            && let Ok(pod) = Pod::from_value(&object)
        {
            self.pod = Some(pod);
            if let Err(refusal) = self.check_preconditions() {
                return Self::refuse(refusal);
            }
        }
        Stage::Done(EvictionResult::Upstream { code, response })
    }
}

/// The resource version of an object that was written.
fn version(object: &Value) -> Result<String, MalformedObject> {
    let root = ObjectField::root(object);
    let metadata = root.get("metadata")?;
    Ok(metadata.get("resourceVersion")?.required_text()?.to_owned())
}
