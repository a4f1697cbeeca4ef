//! The defaults of pods and of templates of pods.
//!
//! Some are those of pods alone, so that the template of a Deployment is not changed by them.

use serde_json::{Map, Value};

use super::{
    fields::{
        FieldMap, default_if_nil, default_if_zero, is_zero, items, object, object_or_insert,
        set_if_nil, text,
    },
    image::default_pull_policy,
    resources::{self, round, round_requirements},
    volumes::{field_selector, volume},
};

/// How long a pod has to end by default, in seconds.
const GRACE_SECONDS: i64 = 30;

/// The fields of a pod that list its containers, and those of its status.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const STATUSES: [&str; 3] = [
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// The defaults of a pod.
pub(super) fn pod(pod: &mut FieldMap) {
    if let Some(spec) = object_or_insert(pod, "spec") {
        of_pods_alone(spec);
        pod_spec(spec);
    }
    let Some(status) = object_or_insert(pod, "status") else {
        return;
    };
    for name in STATUSES {
        for container in items(status, name) {
            round(container, "allocatedResources");
            round_requirements(container, "resources");
        }
    }
    round(status, "allocatedResources");
    round_requirements(status, "resources");
}

/// The defaults of the pods that are made from a template.
pub(super) fn template(parent: &mut FieldMap, name: &str) {
    if let Some(template) = object_or_insert(parent, name)
        && let Some(spec) = object_or_insert(template, "spec")
    {
        pod_spec(spec);
    }
}

/// Defaults that templates do not get. They come before all others: sums are those of amounts that are not rounded.
fn of_pods_alone(spec: &mut FieldMap) {
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for name in ["containers", "initContainers"] {
        for container in items(spec, name) {
            if let Some(resources) = object(container, "resources") {
                resources::fill_from(resources, "limits", "requests");
            }
            if host_network {
                for port in items(container, "ports") {
                    host_port(port);
                }
            }
        }
    }
    resources::of_pod(spec);
    default_if_nil(spec, "enableServiceLinks", true);
}

/// On the network of its node, a container's port is the node's.
fn host_port(port: &mut FieldMap) {
    let number = port.get("containerPort").and_then(Value::as_i64);
    if let Some(number) = number.filter(|&number| number != 0) {
        default_if_zero(port, "hostPort", number);
    }
}

/// The defaults of a pod's specification.
fn pod_spec(spec: &mut FieldMap) {
    default_if_zero(spec, "dnsPolicy", "ClusterFirst");
    default_if_zero(spec, "restartPolicy", "Always");
    set_if_nil(spec, "securityContext", Map::new);
    default_if_nil(spec, "terminationGracePeriodSeconds", GRACE_SECONDS);
    default_if_zero(spec, "schedulerName", "default-scheduler");
    for source in items(spec, "volumes") {
        volume(source);
    }
    for name in CONTAINERS {
        items(spec, name).for_each(container);
    }
    round(spec, "overhead");
    round_requirements(spec, "resources");
}

/// The defaults of a container of any kind.
fn container(container: &mut FieldMap) {
    if is_zero(container, "imagePullPolicy") {
        let policy = default_pull_policy(text(container, "image"));
        container.insert("imagePullPolicy".to_owned(), policy.into());
    }
    default_if_zero(container, "terminationMessagePath", "/dev/termination-log");
    default_if_zero(container, "terminationMessagePolicy", "File");
    for port in items(container, "ports") {
        default_if_zero(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        if let Some(source) = object(variable, "valueFrom") {
            variable_source(source);
        }
    }
    round_requirements(container, "resources");
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(object) = object(container, name) {
            probe(object);
        }
    }
    if let Some(lifecycle) = object(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = object(lifecycle, name) {
                http_get(handler);
            }
        }
    }
}

fn variable_source(source: &mut FieldMap) {
    if let Some(field) = object(source, "fieldRef") {
        field_selector(field);
    }
    if let Some(key) = object(source, "fileKeyRef") {
        default_if_nil(key, "optional", false);
    }
}

fn probe(probe: &mut FieldMap) {
    default_if_zero(probe, "timeoutSeconds", 1);
    default_if_zero(probe, "periodSeconds", 10);
    default_if_zero(probe, "successThreshold", 1);
    default_if_zero(probe, "failureThreshold", 3);
    http_get(probe);
    if let Some(call) = object(probe, "grpc") {
        default_if_nil(call, "service", "");
    }
}

/// The defaults of a request that a probe or a hook makes.
fn http_get(handler: &mut FieldMap) {
    if let Some(request) = object(handler, "httpGet") {
        default_if_zero(request, "path", "/");
        default_if_zero(request, "scheme", "HTTP");
    }
}
