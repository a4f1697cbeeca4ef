//! Values that a server replaces when it reads an object, whatever the request.
//!
//! Source: Kubernetes `pkg/apis/core/v1/conversion.go` (`Convert_v1_Pod_To_core_Pod`) and `pkg/apis/apps/v1/conversion.go`
//! (`Convert_apps_StatefulSetSpec_To_v1_StatefulSetSpec`, `Convert_apps_DaemonSet_To_v1_DaemonSet`).
//!
//! Not here: autoscalers (`autoscalers`).

use serde_json::{Value, json};

use super::changes;
use crate::request::facts::WriteFacts;

/// Replaces them in an object.
pub(super) fn replace(object: &mut Value, facts: &WriteFacts) {
    let kind = facts.group_version_kind();
    match (kind.group, kind.kind) {
        ("", "Pod") => grace_period(object),
        ("apps", "DaemonSet") => template_generation(object),
        _ => {}
    }
}

/// A daemon set counts its templates from zero in an annotation, which is a number of its own in the server.
fn template_generation(set: &mut Value) {
    let sent = changes::template_generation(set).and_then(Value::as_str);
    if sent.is_none_or(str::is_empty) {
        changes::set_template_generation(set, Some(json!("0")));
    }
}

/// A negative grace period is one second. That of a template stays.
fn grace_period(pod: &mut Value) {
    let spec = pod.get_mut("spec");
    if let Some(period) = spec.and_then(|spec| spec.get_mut("terminationGracePeriodSeconds"))
        && period.as_i64().is_some_and(|seconds| seconds < 0)
    {
        *period = json!(1);
    }
}

/// The claims within a stateful set have a type, as if they were ones of their own. This comes after the others: who owns the type is not
/// noted, since the tables of owners do not have it.
pub(super) fn add_claim_types(object: &mut Value, facts: &WriteFacts) {
    let kind = facts.group_version_kind();
    if (kind.group, kind.kind) == ("apps", "StatefulSet") {
        claim_types(object);
    }
}

fn claim_types(set: &mut Value) {
    let claims = set.pointer_mut("/spec/volumeClaimTemplates");
    let claims = claims.and_then(Value::as_array_mut).into_iter().flatten();
    for claim in claims.filter_map(Value::as_object_mut) {
        claim.insert("apiVersion".to_owned(), json!("v1"));
        claim.insert("kind".to_owned(), json!("PersistentVolumeClaim"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_grace_period_of_a_pod_is_a_second() {
        for (sent, seen) in [(-5, 1), (0, 0), (7, 7)] {
            let mut pod = json!({"spec": {"terminationGracePeriodSeconds": sent}});
            grace_period(&mut pod);
            assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], seen);
        }
    }

    #[test]
    fn the_claims_of_a_stateful_set_have_their_type() {
        let mut set = json!({"spec": {"volumeClaimTemplates": [{"kind": "Other", "spec": {}}]}});
        claim_types(&mut set);
        assert_eq!(
            set["spec"]["volumeClaimTemplates"],
            json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}}])
        );
    }
}
