//! Encodes a `SubjectAccessReview`, and decodes the decision in the response.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{AccessDecision, AccessReviewError, Attributes};
use fairgate_core::digest::User;

/// The characters of a reason that are kept; an authorizer may return any text, and reasons are cached.
const MAX_REASON_CHARS: usize = 1_000;

/// The review of whether `user` may do what `attributes` say.
pub(super) fn request(user: &User, attributes: &Attributes) -> Value {
    let mut spec = Map::new();
    spec.insert("user".into(), json!(user.name));
    if !user.uid.is_empty() {
        spec.insert("uid".into(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    if attributes.is_resource {
        let mut resource: BTreeMap<&str, Value> = [
            ("verb", attributes.verb.as_str()),
            ("group", &attributes.group),
            ("version", &attributes.version),
            ("resource", &attributes.resource),
            ("subresource", &attributes.subresource),
            ("namespace", &attributes.namespace),
            ("name", &attributes.name),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key, json!(value)))
        .collect();
        let selectors = [
            ("fieldSelector", &attributes.field_selector),
            ("labelSelector", &attributes.label_selector),
        ];
        for (key, selector) in selectors {
            if !selector.is_empty() {
                // The server parses it; one that it cannot parse limits nothing, as in its own checks.
                resource.insert(key, json!({"rawSelector": selector}));
            }
        }
        spec.insert("resourceAttributes".into(), json!(resource));
    } else {
        let path = json!({"verb": attributes.verb, "path": attributes.path});
        spec.insert("nonResourceAttributes".into(), path);
    }
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    })
}

/// The decision in the body of a response. `denied` overrides `allowed`.
pub(super) fn decision(body: &[u8]) -> Result<AccessDecision, AccessReviewError> {
    let malformed = AccessReviewError::Malformed;
    let review: Value = serde_json::from_slice(body).map_err(|_| malformed.clone())?;
    let status = &review["status"];
    let allowed = status["allowed"].as_bool().ok_or(malformed)?;
    let denied = status["denied"].as_bool().unwrap_or_default();
    let reason = status["reason"].as_str().unwrap_or_default();
    Ok(AccessDecision {
        // The API forbids both at once; of a webhook that sends both, the deny is the safe one.
        allowed: allowed && !denied,
        reason: reason
            .chars()
            .take(MAX_REASON_CHARS)
            .collect::<String>()
            .into(),
    })
}
