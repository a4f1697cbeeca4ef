//! The defaults of Kubernetes' kinds: what a server sets in an object that it is sent, before admission sees it.
//!
//! [`apply`] changes an object in the JSON of its version, as the defaulting functions of Kubernetes 1.36 do with its
//! default feature gates. It is meant for objects in canonical form ([`crate::schema`]), and leaves them in it. What has
//! another type than its field is left as it is.
//!
//! Not here: defaults of custom resources ([`crate::custom`]), of fields that a server sets when it stores an object
//! (addresses of a service, tolerations of a pod), and what depends on the time (`timeAdded` of a taint of a device).
//! Lists of objects have no defaults here: no server takes one.
//!
//! Source: `SetDefaults_*` and `SetObjectDefaults_*` in `k8s.io/kubernetes/pkg/apis`.

mod fields;
mod image;
mod pod;
mod resources;
#[cfg(test)]
mod tests;
mod volumes;
mod workloads;

use serde_json::Value;

use fields::JsonObject;

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

/// What sets the defaults of a kind.
type Defaults = fn(&mut JsonObject);

fn defaults_of(group: &str, version: &str, kind: &str) -> Option<Defaults> {
    Some(match (group, version, kind) {
        ("", "v1", "PersistentVolume") => volumes::persistent_volume,
        ("", "v1", "PersistentVolumeClaim") => volumes::claim,
        ("", "v1", "Pod") => pod::pod,
        ("", "v1", "PodTemplate") => |object| pod::template(object, "template"),
        ("", "v1", "ReplicationController") => workloads::replication_controller,
        ("apps", "v1", "DaemonSet") => workloads::daemon_set,
        ("apps", "v1", "Deployment") => workloads::deployment,
        ("apps", "v1", "ReplicaSet") => workloads::replica_set,
        ("apps", "v1", "StatefulSet") => workloads::stateful_set,
        ("batch", "v1", "CronJob") => workloads::cron_job,
        ("batch", "v1", "Job") => workloads::job,
        _ => return None,
    })
}
