//! Values that a server replaces when it reads an object, whatever the request.
//!
//! Source: Kubernetes `pkg/apis/core/v1/conversion.go` (`Convert_v1_Pod_To_core_Pod`) and `pkg/apis/apps/v1/conversion.go`
//! (`Convert_apps_StatefulSetSpec_To_v1_StatefulSetSpec`).

use serde_json::{Value, json};

/// Replaces them in an object.
pub(super) fn replace(object: &mut Value, group: &str, resource: &str) {
    match (group, resource) {
        ("", "pods") => grace_period(object),
        ("apps", "statefulsets") => claim_types(object),
        _ => {}
    }
}

/// A negative grace period is one second. That of a template stays.
fn grace_period(pod: &mut Value) {
    if let Some(period) = pod.pointer_mut("/spec/terminationGracePeriodSeconds")
        && period.as_i64().is_some_and(|seconds| seconds < 0)
    {
        *period = json!(1);
    }
}

/// The claims within an object have a type, as if they were ones of their own.
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
            replace(&mut pod, "", "pods");
            assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], seen);
        }
    }

    #[test]
    fn the_claims_of_a_stateful_set_have_their_type() {
        let mut set = json!({"spec": {"volumeClaimTemplates": [{"kind": "Other", "spec": {}}]}});
        replace(&mut set, "apps", "statefulsets");
        assert_eq!(
            set["spec"]["volumeClaimTemplates"],
            json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}}])
        );
    }
}
