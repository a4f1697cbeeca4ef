//! The defaults of kinds with few of them, in the order of their groups.

use serde_json::{Value, json};

use super::{
    fields::{FieldMap, is_zero, items, nil_to, object, part, set_if_nil, text, zero_to},
    volumes,
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The annotation that says that zero shares are meant where zero is absence.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// Shares of a priority level.
const SHARES: i32 = 30;

/// The defaults of a `TokenRequest`.
pub(super) fn token_request(request: &mut FieldMap) {
    if let Some(spec) = part(request, "spec") {
        nil_to(spec, "expirationSeconds", 3600);
    }
}

/// The defaults of a `HorizontalPodAutoscaler` of version v1.
pub(super) fn autoscaler_v1(autoscaler: &mut FieldMap) {
    if let Some(spec) = part(autoscaler, "spec") {
        nil_to(spec, "minReplicas", 1);
    }
}

/// The defaults of a `HorizontalPodAutoscaler` of version v2.
pub(super) fn autoscaler_v2(autoscaler: &mut FieldMap) {
    let Some(spec) = part(autoscaler, "spec") else {
        return;
    };
    nil_to(spec, "minReplicas", 1);
    if is_zero(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    let Some(behavior) = object(spec, "behavior") else {
        return;
    };
    if let Some(rules) = part(behavior, "scaleUp") {
        nil_to(rules, "stabilizationWindowSeconds", 0);
        let policies = || vec![scaling_policy("Pods", 4), scaling_policy("Percent", 100)];
        set_if_nil(rules, "policies", policies);
        nil_to(rules, "selectPolicy", "Max");
    }
    if let Some(rules) = part(behavior, "scaleDown") {
        let policies = || vec![scaling_policy("Percent", 100)];
        set_if_nil(rules, "policies", policies);
        nil_to(rules, "selectPolicy", "Max");
    }
}

fn scaling_policy(kind: &str, value: i32) -> Value {
    json!({"type": kind, "value": value, "periodSeconds": 15})
}

/// The defaults of a `PodCertificateRequest`.
pub(super) fn pod_certificate_request(request: &mut FieldMap) {
    if let Some(spec) = part(request, "spec") {
        nil_to(spec, "maxExpirationSeconds", 86_400);
    }
}

/// The defaults of an `EndpointSlice`.
pub(super) fn endpoint_slice(slice: &mut FieldMap) {
    for port in items(slice, "ports") {
        nil_to(port, "name", "");
        nil_to(port, "protocol", "TCP");
    }
}

/// The defaults of a `FlowSchema`.
pub(super) fn flow_schema(schema: &mut FieldMap) {
    if let Some(spec) = part(schema, "spec") {
        zero_to(spec, "matchingPrecedence", 1000);
    }
}

/// The defaults of a `PriorityLevelConfiguration`.
pub(super) fn priority_level(level: &mut FieldMap) {
    let Some(spec) = object(level, "spec") else {
        return;
    };
    if let Some(limited) = object(spec, "limited") {
        nil_to(limited, "nominalConcurrencyShares", SHARES);
    }
    priority_level_spec(spec);
}

/// The same in version v1beta3, in which the absence of shares is zero.
pub(super) fn priority_level_v1beta3(level: &mut FieldMap) {
    let annotations = level
        .get("metadata")
        .and_then(|meta| meta.get("annotations"));
    let zero_is_meant =
        annotations.is_some_and(|annotations| annotations.get(ZERO_SHARES).is_some());
    let Some(spec) = object(level, "spec") else {
        return;
    };
    if let Some(limited) = object(spec, "limited")
        && !zero_is_meant
    {
        zero_to(limited, "nominalConcurrencyShares", SHARES);
    }
    priority_level_spec(spec);
}

fn priority_level_spec(spec: &mut FieldMap) {
    if let Some(limited) = object(spec, "limited") {
        nil_to(limited, "lendablePercent", 0);
        if let Some(response) = object(limited, "limitResponse")
            && let Some(queuing) = object(response, "queuing")
        {
            zero_to(queuing, "handSize", 8);
            zero_to(queuing, "queues", 64);
            zero_to(queuing, "queueLengthLimit", 50);
        }
    }
    if let Some(exempt) = object(spec, "exempt") {
        nil_to(exempt, "nominalConcurrencyShares", 0);
        nil_to(exempt, "lendablePercent", 0);
    }
}

/// The defaults of a `NetworkPolicy`.
pub(super) fn network_policy(policy: &mut FieldMap) {
    let Some(spec) = part(policy, "spec") else {
        return;
    };
    if is_zero(spec, "policyTypes") {
        let types = if is_zero(spec, "egress") {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        spec.insert("policyTypes".to_owned(), types);
    }
    for direction in ["ingress", "egress"] {
        for rule in items(spec, direction) {
            for port in items(rule, "ports") {
                nil_to(port, "protocol", "TCP");
            }
        }
    }
}

/// The defaults of an `IngressClass`.
pub(super) fn ingress_class(class: &mut FieldMap) {
    if let Some(spec) = object(class, "spec")
        && let Some(parameters) = object(spec, "parameters")
    {
        nil_to(parameters, "scope", "Cluster");
    }
}

/// The defaults of a `RoleBinding` or a `ClusterRoleBinding`.
pub(super) fn role_binding(binding: &mut FieldMap) {
    if let Some(role) = part(binding, "roleRef") {
        zero_to(role, "apiGroup", RBAC);
    }
    for subject in items(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            zero_to(subject, "apiGroup", RBAC);
        }
    }
}

/// The defaults of a `StorageClass`.
pub(super) fn storage_class(class: &mut FieldMap) {
    nil_to(class, "reclaimPolicy", "Delete");
    nil_to(class, "volumeBindingMode", "Immediate");
}

/// The defaults of a `CSIDriver`.
pub(super) fn csi_driver(driver: &mut FieldMap) {
    let Some(spec) = part(driver, "spec") else {
        return;
    };
    nil_to(spec, "attachRequired", true);
    nil_to(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    zero_to(spec, "volumeLifecycleModes", json!(["Persistent"]));
    // Not preventPodSchedulingIfMissing: the feature gate VolumeLimitScaling is off by default.
    for name in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
    ] {
        nil_to(spec, name, false);
    }
}

/// The defaults of a `VolumeAttachment`.
pub(super) fn volume_attachment(attachment: &mut FieldMap) {
    if let Some(spec) = object(attachment, "spec")
        && let Some(source) = object(spec, "source")
        && let Some(volume) = object(source, "inlineVolumeSpec")
    {
        volumes::persistent_source(volume);
    }
}
