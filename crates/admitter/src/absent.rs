//! Guarded writes of objects that do not exist.
//!
//! The API has no condition for that, and forwarded, a write would be carried out on an object that was created meanwhile, and
//! that no policy has seen. So the gateway answers itself what the server would. Only a server-side apply is forwarded, with a
//! version that no object has: it creates the object, and is a conflict if there is one.
//!
//! Source: Kubernetes, `AllowCreateOnUpdate` of all strategies.

use fairgate_apiserver::StatusError;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    evaluate::Evaluation,
    facts::WriteFacts,
    responses::{RefusedRequest, reasons},
    write_request::WriteVerb,
};

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

impl Evaluation {
    /// The response to a guarded write of an object that does not exist.
    pub(crate) fn absent(&self) -> RefusedRequest {
        let facts = &self.plan.facts;
        let kind = (facts.group.as_str(), facts.resource.as_str());
        let creates = facts.verb == WriteVerb::Update
            && facts.subresource.is_empty()
            && CREATED_BY_PUT.contains(&kind);
        let error = if creates {
            let why = "the object does not exist, and a PUT cannot be kept from changing one that is created meanwhile \
                       (admission.guard of fairgate): create it with POST";
            conflict(facts, why)
        } else {
            not_found(facts)
        };
        RefusedRequest::error(&error, reasons::MALFORMED, self.output)
    }
}

fn not_found(facts: &WriteFacts) -> StatusError {
    let message = format!("{} {:?} not found", dotted(facts), facts.name);
    StatusError::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(details(facts))
}

/// 409 for the object of a request.
pub(crate) fn conflict(facts: &WriteFacts, why: &str) -> StatusError {
    let message = format!(
        "Operation cannot be fulfilled on {} {:?}: {why}",
        dotted(facts),
        facts.name
    );
    StatusError::new(StatusCode::CONFLICT, "Conflict", message).with_details(details(facts))
}

/// The resource with its group, as messages name it.
fn dotted(facts: &WriteFacts) -> String {
    match facts.group.as_str() {
        "" => facts.resource.clone(),
        group => format!("{}.{group}", facts.resource),
    }
}

fn details(facts: &WriteFacts) -> Value {
    match facts.group.as_str() {
        "" => json!({"name": facts.name, "kind": facts.resource}),
        group => json!({"name": facts.name, "group": group, "kind": facts.resource}),
    }
}
