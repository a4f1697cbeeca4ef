//! The defaults of kinds that make pods from a template.

use serde_json::Value;

use super::{
    fields::{
        FieldMap, default_if_nil, default_if_zero, is_nil, is_zero, items, object,
        object_or_insert, text,
    },
    pod, volumes,
};

/// How many old revisions are kept.
const REVISIONS: i32 = 10;

const ROLLING_UPDATE: &str = "RollingUpdate";

/// The defaults of a Deployment.
pub(super) fn deployment(object: &mut FieldMap) {
    let Some(spec) = object_or_insert(object, "spec") else {
        return;
    };
    default_if_nil(spec, "replicas", 1);
    if let Some(strategy) = object_or_insert(spec, "strategy") {
        rolling_update(strategy, "25%", "25%");
    }
    default_if_nil(spec, "revisionHistoryLimit", REVISIONS);
    default_if_nil(spec, "progressDeadlineSeconds", 600);
    pod::template(spec, "template");
}

/// How pods are replaced: some at a time, if nothing else is wanted.
fn rolling_update(strategy: &mut FieldMap, unavailable: impl Into<Value>, surge: impl Into<Value>) {
    default_if_zero(strategy, "type", ROLLING_UPDATE);
    if text(strategy, "type") == ROLLING_UPDATE
        && let Some(update) = object_or_insert(strategy, "rollingUpdate")
    {
        default_if_nil(update, "maxUnavailable", unavailable);
        default_if_nil(update, "maxSurge", surge);
    }
}

/// The defaults of a `DaemonSet`.
pub(super) fn daemon_set(object: &mut FieldMap) {
    let Some(spec) = object_or_insert(object, "spec") else {
        return;
    };
    if let Some(strategy) = object_or_insert(spec, "updateStrategy") {
        rolling_update(strategy, 1, 0);
    }
    default_if_nil(spec, "revisionHistoryLimit", REVISIONS);
    pod::template(spec, "template");
}

/// The defaults of a `ReplicaSet`.
pub(super) fn replica_set(object: &mut FieldMap) {
    if let Some(spec) = object_or_insert(object, "spec") {
        default_if_nil(spec, "replicas", 1);
        pod::template(spec, "template");
    }
}

/// The defaults of a `StatefulSet`.
pub(super) fn stateful_set(object: &mut FieldMap) {
    let Some(spec) = object_or_insert(object, "spec") else {
        return;
    };
    default_if_zero(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = object_or_insert(spec, "updateStrategy") {
        stateful_update(strategy);
    }
    if let Some(policy) = object_or_insert(spec, "persistentVolumeClaimRetentionPolicy") {
        default_if_zero(policy, "whenDeleted", "Retain");
        default_if_zero(policy, "whenScaled", "Retain");
    }
    default_if_nil(spec, "replicas", 1);
    default_if_nil(spec, "revisionHistoryLimit", REVISIONS);
    pod::template(spec, "template");
    items(spec, "volumeClaimTemplates").for_each(volumes::claim);
}

/// Unlike others, a rolling update that is asked for has no parameters unless some are given.
fn stateful_update(strategy: &mut FieldMap) {
    if is_zero(strategy, "type") {
        strategy.insert("type".to_owned(), ROLLING_UPDATE.into());
        object_or_insert(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == ROLLING_UPDATE
        && let Some(update) = object(strategy, "rollingUpdate")
    {
        // Not maxUnavailable: the feature gate MaxUnavailableStatefulSet is off by default.
        default_if_nil(update, "partition", 0);
    }
}

/// The defaults of a `ReplicationController`. Its selector and labels are those of its pods, if it has none.
pub(super) fn replication_controller(controller: &mut FieldMap) {
    let Some(spec) = object_or_insert(controller, "spec") else {
        return;
    };
    if let Some(labels) = template_labels(spec) {
        default_if_zero(spec, "selector", labels);
    }
    default_if_nil(spec, "replicas", 1);
    if !is_nil(spec, "template") {
        pod::template(spec, "template");
    }
    labels_of_template(controller);
}

/// The labels of the pods that a template makes, if there are any.
fn template_labels(spec: &FieldMap) -> Option<Value> {
    let labels = spec.get("template")?.get("metadata")?.get("labels")?;
    let some = labels.as_object().is_some_and(|labels| !labels.is_empty());
    some.then(|| labels.clone())
}

/// Labels an object that has no labels as the pods that it makes.
pub(super) fn labels_of_template(object: &mut FieldMap) {
    let spec = object.get("spec").and_then(Value::as_object);
    if let Some(labels) = spec.and_then(template_labels)
        && let Some(metadata) = object_or_insert(object, "metadata")
    {
        default_if_zero(metadata, "labels", labels);
    }
}

/// The defaults of a Job.
pub(super) fn job(job: &mut FieldMap) {
    let Some(spec) = object_or_insert(job, "spec") else {
        return;
    };
    if is_nil(spec, "parallelism") {
        default_if_nil(spec, "completions", 1);
        default_if_nil(spec, "parallelism", 1);
    }
    let retries = if is_nil(spec, "backoffLimitPerIndex") {
        6
    } else {
        i32::MAX
    };
    default_if_nil(spec, "backoffLimit", retries);
    default_if_nil(spec, "completionMode", "NonIndexed");
    default_if_nil(spec, "suspend", false);
    let replacement = if is_nil(spec, "podFailurePolicy") {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    default_if_nil(spec, "podReplacementPolicy", replacement);
    default_if_nil(spec, "manualSelector", false);
    job_pods(spec);
    labels_of_template(job);
}

/// What Jobs and the templates of Jobs have in common.
fn job_pods(spec: &mut FieldMap) {
    if let Some(policy) = object(spec, "podFailurePolicy") {
        for rule in items(policy, "rules") {
            for pattern in items(rule, "onPodConditions") {
                default_if_zero(pattern, "status", "True");
            }
        }
    }
    pod::template(spec, "template");
}

/// The defaults of a `CronJob`. Those of its Jobs are set when they are made.
pub(super) fn cron_job(job: &mut FieldMap) {
    let Some(spec) = object_or_insert(job, "spec") else {
        return;
    };
    default_if_zero(spec, "concurrencyPolicy", "Allow");
    default_if_nil(spec, "suspend", false);
    default_if_nil(spec, "successfulJobsHistoryLimit", 3);
    default_if_nil(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = object_or_insert(spec, "jobTemplate")
        && let Some(spec) = object_or_insert(template, "spec")
    {
        job_pods(spec);
    }
}
