//! The defaults of kinds with few of them, in the order of their groups.

use serde_json::{Value, json};

use super::{
    fields::{
        FieldMap, default_if_nil, default_if_zero, is_zero, items, object, object_or_insert,
        set_if_nil, text,
    },
    volumes,
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The annotation that says that zero shares are meant where zero is absence.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// Shares of a priority level.
const SHARES: i32 = 30;

/// The defaults of a `TokenRequest`.
pub(super) fn token_request(request: &mut FieldMap) {
    if let Some(spec) = object_or_insert(request, "spec") {
        default_if_nil(spec, "expirationSeconds", 3600);
    }
}

/// The defaults of a `HorizontalPodAutoscaler` of version v1.
pub(super) fn autoscaler_v1(autoscaler: &mut FieldMap) {
    if let Some(spec) = object_or_insert(autoscaler, "spec") {
        default_if_nil(spec, "minReplicas", 1);
    }
}

/// The defaults of a `HorizontalPodAutoscaler` of version v2.
pub(super) fn autoscaler_v2(autoscaler: &mut FieldMap) {
    let Some(spec) = object_or_insert(autoscaler, "spec") else {
        return;
    };
    default_if_nil(spec, "minReplicas", 1);
    if is_zero(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    let Some(behavior) = object(spec, "behavior") else {
        return;
    };
    if let Some(rules) = object_or_insert(behavior, "scaleUp") {
        default_if_nil(rules, "stabilizationWindowSeconds", 0);
        let policies = || vec![scaling_policy("Pods", 4), scaling_policy("Percent", 100)];
        set_if_nil(rules, "policies", policies);
        default_if_nil(rules, "selectPolicy", "Max");
    }
    if let Some(rules) = object_or_insert(behavior, "scaleDown") {
        let policies = || vec![scaling_policy("Percent", 100)];
        set_if_nil(rules, "policies", policies);
        default_if_nil(rules, "selectPolicy", "Max");
    }
}

fn scaling_policy(kind: &str, value: i32) -> Value {
    json!({"type": kind, "value": value, "periodSeconds": 15})
}

/// The defaults of a `PodCertificateRequest`.
pub(super) fn pod_certificate_request(request: &mut FieldMap) {
    if let Some(spec) = object_or_insert(request, "spec") {
        default_if_nil(spec, "maxExpirationSeconds", 86_400);
    }
}

/// The defaults of an `EndpointSlice`.
pub(super) fn endpoint_slice(slice: &mut FieldMap) {
    for port in items(slice, "ports") {
        default_if_nil(port, "name", "");
        default_if_nil(port, "protocol", "TCP");
    }
}

/// The defaults of a `FlowSchema`.
pub(super) fn flow_schema(schema: &mut FieldMap) {
    if let Some(spec) = object_or_insert(schema, "spec") {
        default_if_zero(spec, "matchingPrecedence", 1000);
    }
}

/// The defaults of a `PriorityLevelConfiguration`.
pub(super) fn priority_level(level: &mut FieldMap) {
    let Some(spec) = object(level, "spec") else {
        return;
    };
    if let Some(limited) = object(spec, "limited") {
        default_if_nil(limited, "nominalConcurrencyShares", SHARES);
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
        default_if_zero(limited, "nominalConcurrencyShares", SHARES);
    }
    priority_level_spec(spec);
}

fn priority_level_spec(spec: &mut FieldMap) {
    if let Some(limited) = object(spec, "limited") {
        default_if_nil(limited, "lendablePercent", 0);
        if let Some(response) = object(limited, "limitResponse")
            && let Some(queuing) = object(response, "queuing")
        {
            default_if_zero(queuing, "handSize", 8);
            default_if_zero(queuing, "queues", 64);
            default_if_zero(queuing, "queueLengthLimit", 50);
        }
    }
    if let Some(exempt) = object(spec, "exempt") {
        default_if_nil(exempt, "nominalConcurrencyShares", 0);
        default_if_nil(exempt, "lendablePercent", 0);
    }
}

/// The defaults of a `NetworkPolicy`.
pub(super) fn network_policy(policy: &mut FieldMap) {
    let Some(spec) = object_or_insert(policy, "spec") else {
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
                default_if_nil(port, "protocol", "TCP");
            }
        }
    }
}

/// The defaults of an `IngressClass`.
pub(super) fn ingress_class(class: &mut FieldMap) {
    if let Some(spec) = object(class, "spec")
        && let Some(parameters) = object(spec, "parameters")
    {
        default_if_nil(parameters, "scope", "Cluster");
    }
}

/// The defaults of a `RoleBinding` or a `ClusterRoleBinding`.
pub(super) fn role_binding(binding: &mut FieldMap) {
    if let Some(role) = object_or_insert(binding, "roleRef") {
        default_if_zero(role, "apiGroup", RBAC);
    }
    for subject in items(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_if_zero(subject, "apiGroup", RBAC);
        }
    }
}

/// The defaults of a `StorageClass`.
pub(super) fn storage_class(class: &mut FieldMap) {
    default_if_nil(class, "reclaimPolicy", "Delete");
    default_if_nil(class, "volumeBindingMode", "Immediate");
}

/// The defaults of a `CSIDriver`.
pub(super) fn csi_driver(driver: &mut FieldMap) {
    let Some(spec) = object_or_insert(driver, "spec") else {
        return;
    };
    default_if_nil(spec, "attachRequired", true);
    default_if_nil(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    default_if_zero(spec, "volumeLifecycleModes", json!(["Persistent"]));
    // Not preventPodSchedulingIfMissing: the feature gate VolumeLimitScaling is off by default.
    for name in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
    ] {
        default_if_nil(spec, name, false);
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

/// The defaults of a `PodGroup`.
pub(super) fn pod_group(group: &mut FieldMap) {
    if let Some(spec) = object_or_insert(group, "spec") {
        default_if_nil(spec, "disruptionMode", "Pod");
    }
}
