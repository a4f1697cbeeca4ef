//! The defaults of kinds that make pods from a template.

use serde_json::Value;

use super::{
    fields::{FieldMap, is_nil, is_zero, items, nil_to, object, part, text, zero_to},
    pod, volumes,
};

/// How many old revisions are kept.
const REVISIONS: i32 = 10;

const ROLLING_UPDATE: &str = "RollingUpdate";

/// The defaults of a Deployment.
pub(super) fn deployment(object: &mut FieldMap) {
    let Some(spec) = part(object, "spec") else {
        return;
    };
    nil_to(spec, "replicas", 1);
    if let Some(strategy) = part(spec, "strategy") {
        rolling_update(strategy, "25%", "25%");
    }
    nil_to(spec, "revisionHistoryLimit", REVISIONS);
    nil_to(spec, "progressDeadlineSeconds", 600);
    pod::template(spec, "template");
}

/// How pods are replaced: some at a time, if nothing else is wanted.
fn rolling_update(strategy: &mut FieldMap, unavailable: impl Into<Value>, surge: impl Into<Value>) {
    zero_to(strategy, "type", ROLLING_UPDATE);
    if text(strategy, "type") == ROLLING_UPDATE
        && let Some(update) = part(strategy, "rollingUpdate")
    {
        nil_to(update, "maxUnavailable", unavailable);
        nil_to(update, "maxSurge", surge);
    }
}

/// The defaults of a `DaemonSet`.
pub(super) fn daemon_set(object: &mut FieldMap) {
    let Some(spec) = part(object, "spec") else {
        return;
    };
    if let Some(strategy) = part(spec, "updateStrategy") {
        rolling_update(strategy, 1, 0);
    }
    nil_to(spec, "revisionHistoryLimit", REVISIONS);
    pod::template(spec, "template");
}

/// The defaults of a `ReplicaSet`.
pub(super) fn replica_set(object: &mut FieldMap) {
    if let Some(spec) = part(object, "spec") {
        nil_to(spec, "replicas", 1);
        pod::template(spec, "template");
    }
}

/// The defaults of a `StatefulSet`.
pub(super) fn stateful_set(object: &mut FieldMap) {
    let Some(spec) = part(object, "spec") else {
        return;
    };
    zero_to(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = part(spec, "updateStrategy") {
        stateful_update(strategy);
    }
    if let Some(policy) = part(spec, "persistentVolumeClaimRetentionPolicy") {
        zero_to(policy, "whenDeleted", "Retain");
        zero_to(policy, "whenScaled", "Retain");
    }
    nil_to(spec, "replicas", 1);
    nil_to(spec, "revisionHistoryLimit", REVISIONS);
    pod::template(spec, "template");
    items(spec, "volumeClaimTemplates").for_each(volumes::claim);
}

/// Unlike others, a rolling update that is asked for has no parameters unless some are given.
fn stateful_update(strategy: &mut FieldMap) {
    if is_zero(strategy, "type") {
        strategy.insert("type".to_owned(), ROLLING_UPDATE.into());
        part(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == ROLLING_UPDATE
        && let Some(update) = object(strategy, "rollingUpdate")
    {
        // Not maxUnavailable: the feature gate MaxUnavailableStatefulSet is off by default.
        nil_to(update, "partition", 0);
    }
}

/// The defaults of a `ReplicationController`. Its selector and labels are those of its pods, if it has none.
pub(super) fn replication_controller(controller: &mut FieldMap) {
    let Some(spec) = part(controller, "spec") else {
        return;
    };
    let labels = template_labels(spec);
    if let Some(labels) = &labels {
        zero_to(spec, "selector", labels.clone());
    }
    nil_to(spec, "replicas", 1);
    if !is_nil(spec, "template") {
        pod::template(spec, "template");
    }
    own_labels(controller, labels);
}

/// The labels of the pods that a template makes, if there are any.
fn template_labels(spec: &FieldMap) -> Option<Value> {
    let labels = spec.get("template")?.get("metadata")?.get("labels")?;
    let some = labels.as_object().is_some_and(|labels| !labels.is_empty());
    some.then(|| labels.clone())
}

/// Labels an object that has no labels.
fn own_labels(object: &mut FieldMap, labels: Option<Value>) {
    if let Some(labels) = labels
        && let Some(metadata) = part(object, "metadata")
    {
        zero_to(metadata, "labels", labels);
    }
}

/// The defaults of a Job.
pub(super) fn job(job: &mut FieldMap) {
    let Some(spec) = part(job, "spec") else {
        return;
    };
    if is_nil(spec, "parallelism") {
        nil_to(spec, "completions", 1);
        nil_to(spec, "parallelism", 1);
    }
    let retries = if is_nil(spec, "backoffLimitPerIndex") {
        6
    } else {
        i32::MAX
    };
    nil_to(spec, "backoffLimit", retries);
    nil_to(spec, "completionMode", "NonIndexed");
    nil_to(spec, "suspend", false);
    let replacement = if is_nil(spec, "podFailurePolicy") {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    nil_to(spec, "podReplacementPolicy", replacement);
    nil_to(spec, "manualSelector", false);
    job_pods(spec);
    let labels = template_labels(spec);
    own_labels(job, labels);
}

/// What Jobs and the templates of Jobs have in common.
fn job_pods(spec: &mut FieldMap) {
    if let Some(policy) = object(spec, "podFailurePolicy") {
        for rule in items(policy, "rules") {
            for pattern in items(rule, "onPodConditions") {
                zero_to(pattern, "status", "True");
            }
        }
    }
    pod::template(spec, "template");
}

/// The defaults of a `CronJob`. Those of its Jobs are set when they are made.
pub(super) fn cron_job(job: &mut FieldMap) {
    let Some(spec) = part(job, "spec") else {
        return;
    };
    zero_to(spec, "concurrencyPolicy", "Allow");
    nil_to(spec, "suspend", false);
    nil_to(spec, "successfulJobsHistoryLimit", 3);
    nil_to(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = part(spec, "jobTemplate")
        && let Some(spec) = part(template, "spec")
    {
        job_pods(spec);
    }
}
