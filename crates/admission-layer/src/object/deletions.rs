//! What kube-apiserver does with the options of a deletion before it asks policies, which see the result.
//!
//! Source: Kubernetes `apiserver/pkg/registry/rest/delete.go`, `kubernetes/pkg/registry/core/pod/strategy.go` and
//! `kubernetes/pkg/registry/core/namespace/storage/storage.go`.

use fairgate_apihttp::{deletion_checks, status_error::StatusError};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    object::objects,
    request::{facts::WriteFacts, write_request::WriteVerb},
};

/// Checks the preconditions of a deletion.
///
/// # Errors
///
/// 409.
pub(crate) fn check(options: &Value, old: &Value, facts: &WriteFacts) -> Result<(), StatusError> {
    if is_of_namespace(facts) {
        return check_namespace(options, old);
    }
    let [group, _, kind] = &facts.kind;
    deletion_checks::check_preconditions(kind, group, old, options)
}

/// Sets the options that the server chooses for an object.
pub(crate) fn choose(options: &mut Value, old: &Value, facts: &WriteFacts) {
    // As the storages of namespaces and of definitions do, so that no later one of this name is deleted.
    let uid = &old["metadata"]["uid"];
    let names_uid = is_of_namespace(facts) || is_of_definition(facts);
    if names_uid && options["preconditions"]["uid"].is_null() && uid.is_string() {
        options["preconditions"]["uid"] = uid.clone();
    }
    // As `BeforeDelete`, which takes a negative period for one second. The storages of namespaces and definitions ask policies before that, the first time.
    let is_first = names_uid && old["metadata"]["deletionTimestamp"].is_null();
    if !is_first && grace_period(options).is_some_and(|period| period < 0) {
        set_grace_period(options, 1);
    }
    let is_pod = is_of_pod(facts);
    let metadata = &old["metadata"];
    if is_pod && metadata["deletionTimestamp"].is_null() {
        let period = grace_period_of_pod(options, old);
        set_grace_period(options, period);
    } else if is_pod && options["gracePeriodSeconds"].is_null() {
        let pending = metadata["deletionGracePeriodSeconds"].as_i64();
        if let Some(pending) = pending.filter(|pending| *pending != 0) {
            set_grace_period(options, pending);
        }
    }
}

/// Whether the server may be about to delete a pod immediately, which it marks before: by the deletion that is evaluated, or another one.
pub(crate) fn may_be_under_way(pod: &Value, facts: &WriteFacts) -> bool {
    let metadata = &pod["metadata"];
    is_of_pod(facts)
        && !metadata["deletionTimestamp"].is_null()
        && metadata["deletionGracePeriodSeconds"] == 0
}

/// Whether the deletion of a pod or a namespace that is being deleted already changes nothing: only a shorter grace period does.
pub(crate) fn changes_nothing(options: Option<&Value>, old: &Value, facts: &WriteFacts) -> bool {
    if old["metadata"]["deletionTimestamp"].is_null() {
        return false;
    }
    if is_of_namespace(facts) {
        let finalizers = old["spec"]["finalizers"].as_array();
        return finalizers.is_some_and(|finalizers| !finalizers.is_empty());
    }
    let pending = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let pending = pending.map_or(0, |pending| if pending < 0 { 1 } else { pending });
    if !is_of_pod(facts) || pending == 0 {
        return false;
    }
    let wanted = options.and_then(grace_period);
    wanted.is_none_or(|wanted| if wanted < 0 { 1 } else { wanted } >= pending)
}

/// The grace period of a pod that is not being deleted yet: none for one that does not run.
fn grace_period_of_pod(options: &Value, pod: &Value) -> i64 {
    let spec = &pod["spec"];
    let is_scheduled = spec["nodeName"]
        .as_str()
        .is_some_and(|name| !name.is_empty());
    let has_ended = matches!(
        pod["status"]["phase"].as_str(),
        Some("Failed" | "Succeeded")
    );
    // There is no kubelet that has to stop it.
    if !is_scheduled || has_ended {
        return 0;
    }
    let own = spec["terminationGracePeriodSeconds"].as_i64();
    let period = grace_period(options).or(own).unwrap_or_default();
    if period < 0 { 1 } else { period }
}

fn grace_period(options: &Value) -> Option<i64> {
    options["gracePeriodSeconds"].as_i64()
}

fn set_grace_period(options: &mut Value, seconds: i64) {
    options["gracePeriodSeconds"] = json!(seconds);
}

fn is_of_pod(facts: &WriteFacts) -> bool {
    facts.group.is_empty() && facts.resource == "pods" && facts.subresource.is_empty()
}

fn is_of_namespace(facts: &WriteFacts) -> bool {
    facts.is_namespace() && facts.subresource.is_empty()
}

/// Whether it is a definition of custom resources that is deleted by its name.
fn is_of_definition(facts: &WriteFacts) -> bool {
    let of = (&*facts.group, &*facts.resource, &*facts.subresource);
    facts.verb == WriteVerb::Delete
        && of == ("apiextensions.k8s.io", "customresourcedefinitions", "")
}

fn check_namespace(options: &Value, old: &Value) -> Result<(), StatusError> {
    for (key, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let found = old["metadata"][key].as_str().unwrap_or_default();
        if let Some(wanted) = options["preconditions"][key].as_str()
            && wanted != found
        {
            let name = objects::name_of(old);
            let message = format!(
                "Operation cannot be fulfilled on namespaces {name:?}: Precondition failed: {what} in precondition: \
                 {wanted}, {what} in object meta: {found}"
            );
            let error = StatusError::new(StatusCode::CONFLICT, "Conflict", message);
            return Err(error.with_details(json!({"name": name, "kind": "namespaces"})));
        }
    }
    Ok(())
}
