//! The defaults of kinds of the core group that make no pods.

use serde_json::{Value, json};

use super::{
    fields::{
        FieldMap, default_if_nil, default_if_zero, is_nil, items, object, object_or_insert, text,
    },
    resources::{fill_from, round},
};

/// How long a client stays with one endpoint of a service, in seconds.
const AFFINITY_SECONDS: i32 = 10_800;

/// The label that has the name of a namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// The defaults of a Service.
pub(super) fn service(service: &mut FieldMap) {
    let Some(spec) = object_or_insert(service, "spec") else {
        return;
    };
    affinity(spec);
    default_if_zero(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        default_if_zero(port, "protocol", "TCP");
        let number = port.get("port").and_then(Value::as_i64);
        default_if_zero(port, "targetPort", number.unwrap_or(0));
    }
    let external_addresses = (spec.get("externalIPs").and_then(Value::as_array))
        .is_some_and(|addresses| !addresses.is_empty());
    let (is_local, is_external, is_balanced) = match text(spec, "type") {
        "ClusterIP" => (true, external_addresses, false),
        "NodePort" => (true, true, false),
        "LoadBalancer" => (true, true, true),
        _ => (false, false, false),
    };
    if is_external {
        default_if_zero(spec, "externalTrafficPolicy", "Cluster");
    }
    if is_local {
        default_if_nil(spec, "internalTrafficPolicy", "Cluster");
    }
    if is_balanced {
        default_if_nil(spec, "allocateLoadBalancerNodePorts", true);
        balancer_addresses(service);
    }
}

/// Whether requests of a client go to the same endpoint, and how long.
fn affinity(spec: &mut FieldMap) {
    default_if_zero(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => _ = spec.remove("sessionAffinityConfig"),
        "ClientIP" => {
            let seconds = spec
                .get("sessionAffinityConfig")
                .and_then(|config| config.get("clientIP")?.get("timeoutSeconds"));
            if seconds.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
}

fn balancer_addresses(service: &mut FieldMap) {
    if let Some(status) = object(service, "status")
        && let Some(balancer) = object(status, "loadBalancer")
    {
        for address in items(balancer, "ingress") {
            if !text(address, "ip").is_empty() {
                default_if_nil(address, "ipMode", "VIP");
            }
        }
    }
}

/// The defaults of Endpoints.
pub(super) fn endpoints(endpoints: &mut FieldMap) {
    for subset in items(endpoints, "subsets") {
        for port in items(subset, "ports") {
            default_if_zero(port, "protocol", "TCP");
        }
    }
}

/// The defaults of a Namespace.
pub(super) fn namespace(namespace: &mut FieldMap) {
    namespace_label(namespace);
    if let Some(status) = object_or_insert(namespace, "status") {
        default_if_zero(status, "phase", "Active");
    }
}

/// The label of a Namespace. One whose name is still to be generated gets it later.
pub(super) fn namespace_label(namespace: &mut FieldMap) {
    if let Some(metadata) = object(namespace, "metadata") {
        let name = text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = object_or_insert(metadata, "labels")
        {
            labels.insert(NAMESPACE_LABEL.to_owned(), Value::String(name));
        }
    }
}

/// The defaults of a Node.
pub(super) fn node(node: &mut FieldMap) {
    let Some(status) = object(node, "status") else {
        return;
    };
    if is_nil(status, "allocatable") {
        fill_from(status, "capacity", "allocatable");
    }
    round(status, "capacity");
    round(status, "allocatable");
}

/// The defaults of a `LimitRange`: a container's limits are at most the largest ones, its requests its limits.
pub(super) fn limit_range(range: &mut FieldMap) {
    let Some(spec) = object(range, "spec") else {
        return;
    };
    for limit in items(spec, "limits") {
        if text(limit, "type") == "Container" {
            fill_from(limit, "max", "default");
            fill_from(limit, "default", "defaultRequest");
            fill_from(limit, "min", "defaultRequest");
        }
        for name in [
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ] {
            round(limit, name);
        }
    }
}

/// The defaults of a `ResourceQuota`.
pub(super) fn resource_quota(quota: &mut FieldMap) {
    if let Some(spec) = object(quota, "spec") {
        round(spec, "hard");
    }
    if let Some(status) = object(quota, "status") {
        round(status, "hard");
        round(status, "used");
    }
}
