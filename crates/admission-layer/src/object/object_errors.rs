//! What a server says of an object that is not there, or is not in the expected state, and which kinds it stores how.
//!
//! Source: Kubernetes, `AllowCreateOnUpdate` and `AllowUnconditionalUpdate` of all strategies.

use fairgate_apihttp::status_error::StatusError;
use fairgate_gotext::Quoted;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{request::facts::WriteFacts, request::write_request::WriteVerb};

/// Group and resource of the objects that a PUT creates.
const CREATED_BY_PUT: [(&str, &str); 12] = [
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "services"),
    ("coordination.k8s.io", "leasecandidates"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
];

/// Group and resource of the objects of which a PUT has to state the version; an empty resource stands for all of the group. So have those of
/// custom resources.
const UPDATED_BY_VERSION: [(&str, &str); 16] = [
    ("admissionregistration.k8s.io", ""),
    ("apiextensions.k8s.io", ""),
    ("apiregistration.k8s.io", ""),
    ("certificates.k8s.io", "clustertrustbundles"),
    ("certificates.k8s.io", "podcertificaterequests"),
    ("coordination.k8s.io", "leasecandidates"),
    ("coordination.k8s.io", "leases"),
    ("internal.apiserver.k8s.io", "storageversions"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("resource.k8s.io", "resourcepoolstatusrequests"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
    ("storagemigration.k8s.io", "storageversionmigrations"),
];

/// Whether a write creates its object if there is none, although it is a PUT.
pub(crate) fn creates_by_put(facts: &WriteFacts) -> bool {
    let kind = (facts.group.as_str(), facts.resource.as_str());
    facts.verb == WriteVerb::Update
        && facts.subresource.is_empty()
        && CREATED_BY_PUT.contains(&kind)
}

/// Whether an update without a version is refused.
pub(crate) fn needs_version(facts: &WriteFacts, is_custom: bool) -> bool {
    let is_listed = |(group, resource): &(&str, &str)| {
        *group == facts.group && (resource.is_empty() || *resource == facts.resource)
    };
    is_custom || UPDATED_BY_VERSION.iter().any(is_listed)
}

/// 404 for the object of a request.
pub(crate) fn not_found(facts: &WriteFacts) -> StatusError {
    let message = format!("{} {} not found", dotted(facts), Quoted(&facts.name));
    StatusError::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(details(facts))
}

/// 409 for the object of a request.
pub(crate) fn conflict(facts: &WriteFacts, why: &str) -> StatusError {
    let message = format!(
        "Operation cannot be fulfilled on {} {}: {why}",
        dotted(facts),
        Quoted(&facts.name)
    );
    StatusError::new(StatusCode::CONFLICT, "Conflict", message).with_details(details(facts))
}

/// 409 for an object that has another version than the client states.
pub(crate) fn modified(facts: &WriteFacts) -> StatusError {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    conflict(facts, why)
}

/// The resource with its group, as messages name it.
pub(crate) fn dotted(facts: &WriteFacts) -> String {
    match facts.group.as_str() {
        "" => facts.resource.clone(),
        group => format!("{}.{group}", facts.resource),
    }
}

/// The details of an error about the object of a request.
pub(crate) fn details(facts: &WriteFacts) -> Value {
    match facts.group.as_str() {
        "" => json!({"name": facts.name, "kind": facts.resource}),
        group => json!({"name": facts.name, "group": group, "kind": facts.resource}),
    }
}
