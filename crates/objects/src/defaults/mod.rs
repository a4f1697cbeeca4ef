//! The defaults of Kubernetes' kinds: what a server sets in an object that it is sent, before admission sees it.
//!
//! [`apply`] changes an object in the JSON of its version, as the defaulting functions of Kubernetes 1.36 do with its
//! default feature gates. It is meant for objects in canonical form ([`crate::schema`]), and leaves them in it. What has
//! another type than its field is left as it is.
//!
//! Not here: defaults of custom resources ([`crate::custom`]), of fields that a server sets when it stores an object
//! (addresses of a service, tolerations of a pod).
//! Lists of objects have no defaults here: no server takes one.
//!
//! Source: `SetDefaults_*` and `SetObjectDefaults_*` in `k8s.io/kubernetes/pkg/apis`.

mod core;
mod devices;
mod fields;
mod image;
mod others;
mod places;
mod pod;
mod registration;
mod resources;
#[cfg(test)]
mod tests;
mod volumes;
mod workloads;

use serde_json::Value;

use fields::{FieldMap, default_if_nil, default_if_zero};
pub use places::DefaultedKinds;

/// Sets the defaults of a built-in kind in an object of it; there are none for other kinds.
///
/// Costs time linear in the size of the object.
pub fn apply(group: &str, version: &str, kind: &str, object: &mut Value) {
    if let Some(defaults) = defaults_of(group, version, kind)
        && let Some(object) = object.as_object_mut()
    {
        defaults(object);
    }
}

/// Sets the defaults of a built-in kind that are the time of the request: when a device was tainted. `now` is RFC 3339 in whole seconds
/// of UTC.
///
/// Costs time linear in the number of taints.
pub fn apply_times(group: &str, version: &str, kind: &str, object: &mut Value, now: &str) {
    if group == "resource.k8s.io"
        && let Some(object) = object.as_object_mut()
    {
        devices::taint_times(version, kind, object, now);
    }
}

/// Sets the defaults in the metadata of an object, which matching needs: the labels that some kinds have.
pub fn apply_to_metadata(group: &str, kind: &str, object: &mut Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    match (group, kind) {
        ("", "Namespace") => core::namespace_label(object),
        ("", "ReplicationController") | ("batch", "Job") => workloads::labels_of_template(object),
        _ => {}
    }
}

/// What sets the defaults of a kind.
type Defaults = fn(&mut FieldMap);

fn defaults_of(group: &str, version: &str, kind: &str) -> Option<Defaults> {
    Some(match (group, version) {
        ("", "v1") => return of_core(kind),
        ("apps" | "batch", "v1") => return of_workloads(group, kind),
        ("admissionregistration.k8s.io", "v1" | "v1beta1") => {
            return of_admission(version, kind);
        }
        ("resource.k8s.io", _) => return of_devices(version, kind),
        ("flowcontrol.apiserver.k8s.io", "v1" | "v1beta3") => match (kind, version) {
            ("FlowSchema", _) => others::flow_schema,
            ("PriorityLevelConfiguration", "v1") => others::priority_level,
            ("PriorityLevelConfiguration", _) => others::priority_level_v1beta3,
            _ => return None,
        },
        _ => match (group, version, kind) {
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition") => {
                registration::custom_resource_definition
            }
            ("apiregistration.k8s.io", "v1", "APIService") => registration::api_service,
            ("authentication.k8s.io", "v1", "TokenRequest") => others::token_request,
            ("autoscaling", "v1", "HorizontalPodAutoscaler") => others::autoscaler_v1,
            ("autoscaling", "v2", "HorizontalPodAutoscaler") => others::autoscaler_v2,
            ("certificates.k8s.io", "v1beta1", "PodCertificateRequest") => {
                others::pod_certificate_request
            }
            ("discovery.k8s.io", "v1", "EndpointSlice") => others::endpoint_slice,
            ("networking.k8s.io", "v1", "IngressClass") => others::ingress_class,
            ("networking.k8s.io", "v1", "NetworkPolicy") => others::network_policy,
            ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding" | "RoleBinding") => {
                others::role_binding
            }
            ("scheduling.k8s.io", "v1", "PriorityClass") => {
                |class| default_if_nil(class, "preemptionPolicy", "PreemptLowerPriority")
            }
            ("scheduling.k8s.io", "v1alpha2", "PodGroup") => others::pod_group,
            ("storage.k8s.io", "v1", "CSIDriver") => others::csi_driver,
            ("storage.k8s.io", "v1", "StorageClass") => others::storage_class,
            ("storage.k8s.io", "v1", "VolumeAttachment") => others::volume_attachment,
            _ => return None,
        },
    })
}

/// Kinds of the core group, in version v1.
fn of_core(kind: &str) -> Option<Defaults> {
    Some(match kind {
        "Endpoints" => core::endpoints,
        "LimitRange" => core::limit_range,
        "Namespace" => core::namespace,
        "Node" => core::node,
        "PersistentVolume" => volumes::persistent_volume,
        "PersistentVolumeClaim" => volumes::claim,
        "Pod" => pod::pod,
        "PodTemplate" => |object| pod::template(object, "template"),
        "ReplicationController" => workloads::replication_controller,
        "ResourceQuota" => core::resource_quota,
        "Secret" => |secret| default_if_zero(secret, "type", "Opaque"),
        "Service" => core::service,
        _ => return None,
    })
}

/// Kinds of the groups apps and batch, in version v1.
fn of_workloads(group: &str, kind: &str) -> Option<Defaults> {
    Some(match (group, kind) {
        ("apps", "DaemonSet") => workloads::daemon_set,
        ("apps", "Deployment") => workloads::deployment,
        ("apps", "ReplicaSet") => workloads::replica_set,
        ("apps", "StatefulSet") => workloads::stateful_set,
        ("batch", "CronJob") => workloads::cron_job,
        ("batch", "Job") => workloads::job,
        _ => return None,
    })
}

/// Kinds of admission. Webhooks are not served in version v1beta1 any more.
fn of_admission(version: &str, kind: &str) -> Option<Defaults> {
    Some(match (version, kind) {
        ("v1", "MutatingWebhookConfiguration") => registration::mutating_webhooks,
        ("v1", "ValidatingWebhookConfiguration") => registration::validating_webhooks,
        (_, "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy") => registration::policy,
        (_, "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding") => {
            registration::policy_binding
        }
        _ => return None,
    })
}

/// Kinds of devices.
fn of_devices(version: &str, kind: &str) -> Option<Defaults> {
    Some(match (version, kind) {
        ("v1" | "v1beta2", "ResourceClaim") => devices::claim,
        ("v1" | "v1beta2", "ResourceClaimTemplate") => devices::claim_template,
        ("v1" | "v1beta2", "ResourceSlice") => devices::slice,
        ("v1beta1", "ResourceClaim") => devices::claim_v1beta1,
        ("v1beta1", "ResourceClaimTemplate") => devices::claim_template_v1beta1,
        ("v1beta1", "ResourceSlice") => devices::slice_v1beta1,
        ("v1alpha3", "ResourcePoolStatusRequest") => devices::pool_status_request,
        _ => return None,
    })
}
