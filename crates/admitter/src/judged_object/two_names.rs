//! Fields that an API has under two names: the server reads either into one, and shows its policies what it has read.
//!
//! Source: Kubernetes `pkg/apis/core/v1/conversion.go` (`Convert_v1_Secret_To_core_Secret`, `Convert_v1_PodSpec_To_core_PodSpec` and
//! `Convert_core_PodSpec_To_v1_PodSpec`).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

/// Where the specification of pods is, in the objects of these resources.
const POD_SPECS: [(&str, &[&str]); 9] = [
    ("pods", &["spec"]),
    ("podtemplates", &["template", "spec"]),
    ("replicationcontrollers", &["spec", "template", "spec"]),
    ("daemonsets", &["spec", "template", "spec"]),
    ("deployments", &["spec", "template", "spec"]),
    ("replicasets", &["spec", "template", "spec"]),
    ("statefulsets", &["spec", "template", "spec"]),
    ("jobs", &["spec", "template", "spec"]),
    (
        "cronjobs",
        &["spec", "jobTemplate", "spec", "template", "spec"],
    ),
];

/// Gives each such field of an object the value that it has in the server. Values of the wrong type stay, which the server refuses.
pub(super) fn unite(object: &mut Value, group: &str, resource: &str) {
    if (group, resource) == ("", "secrets") {
        unite_data(object);
    }
    let is_kubernetes = matches!(group, "" | "apps" | "batch");
    let of = POD_SPECS.iter().find(|(name, _)| *name == resource);
    if let (true, Some((_, path))) = (is_kubernetes, of) {
        let spec = (path.iter()).try_fold(object, |object, member| object.get_mut(member));
        if let Some(spec) = spec.and_then(Value::as_object_mut) {
            unite_service_account(spec);
        }
    }
}

/// `stringData` of a Secret is `data` without base64, and takes precedence.
fn unite_data(secret: &mut Value) {
    let Some(members) = secret.as_object_mut() else {
        return;
    };
    let texts = match members.get("stringData") {
        Some(Value::Object(texts)) => texts.clone(),
        Some(Value::Null) => Map::new(),
        _ => return,
    };
    let data = members.get("data");
    let is_read = |value: &Value| value.is_string() || value.is_null();
    if !texts.values().all(is_read) || !data.is_none_or(|data| data.is_object() || data.is_null()) {
        return;
    }
    members.remove("stringData");
    if texts.is_empty() {
        return;
    }
    let data = members.entry("data").or_insert_with(|| json!({}));
    if data.is_null() {
        *data = json!({});
    }
    for (key, text) in texts {
        data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

/// `serviceAccount` is the former name of `serviceAccountName`, which takes precedence unless it is empty.
fn unite_service_account(spec: &mut Map<String, Value>) {
    let text = |name| match spec.get(name) {
        None | Some(Value::Null) => Some(""),
        Some(value) => value.as_str(),
    };
    let (Some(name), Some(former)) = (text("serviceAccountName"), text("serviceAccount")) else {
        return;
    };
    let name = if name.is_empty() { former } else { name };
    if !name.is_empty() {
        let name = Value::from(name);
        spec.insert("serviceAccount".to_owned(), name.clone());
        spec.insert("serviceAccountName".to_owned(), name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn united(group: &str, resource: &str, object: &Value) -> Value {
        let mut object = object.clone();
        unite(&mut object, group, resource);
        object
    }

    #[test]
    fn string_data_becomes_data() {
        for (sent, seen) in [
            (
                json!({"stringData": {"a": "x", "b": ""}}),
                json!({"data": {"a": "eA==", "b": ""}}),
            ),
            (
                json!({"data": {"a": "b2xk", "c": "Yw=="}, "stringData": {"a": "x", "n": null}}),
                json!({"data": {"a": "eA==", "c": "Yw==", "n": ""}}),
            ),
            (
                json!({"data": null, "stringData": {"a": "x"}}),
                json!({"data": {"a": "eA=="}}),
            ),
            (json!({"stringData": {}}), json!({})),
            (json!({"stringData": null}), json!({})),
            // The server refuses these.
            (
                json!({"stringData": {"a": 1}}),
                json!({"stringData": {"a": 1}}),
            ),
            (
                json!({"data": 1, "stringData": {"a": "x"}}),
                json!({"data": 1, "stringData": {"a": "x"}}),
            ),
            (json!({"stringData": "x"}), json!({"stringData": "x"})),
        ] {
            assert_eq!(united("", "secrets", &sent), seen, "{sent}");
            // Of other resources it is nothing that the server knows.
            assert_eq!(united("x.io", "secrets", &sent), sent);
            assert_eq!(united("", "configmaps", &sent), sent);
        }
    }

    #[test]
    fn both_names_of_a_service_account_have_its_name() {
        let both = |name: &str| json!({"serviceAccount": name, "serviceAccountName": name});
        for (sent, seen) in [
            (json!({"serviceAccount": "a"}), both("a")),
            (json!({"serviceAccountName": "a"}), both("a")),
            (
                json!({"serviceAccount": "a", "serviceAccountName": "b"}),
                both("b"),
            ),
            (
                json!({"serviceAccount": "a", "serviceAccountName": ""}),
                both("a"),
            ),
            (
                json!({"serviceAccount": "a", "serviceAccountName": null}),
                both("a"),
            ),
            (json!({}), json!({})),
            (json!({"serviceAccount": 1}), json!({"serviceAccount": 1})),
        ] {
            for (group, resource, path) in [
                ("", "pods", "/spec"),
                ("", "podtemplates", "/template/spec"),
                ("apps", "deployments", "/spec/template/spec"),
                ("batch", "cronjobs", "/spec/jobTemplate/spec/template/spec"),
            ] {
                let of = |spec: &Value| {
                    let members = path[1..].rsplit('/');
                    members.fold(spec.clone(), |inner, member| json!({member: inner}))
                };
                assert_eq!(united(group, resource, &of(&sent)), of(&seen), "{resource}");
                assert_eq!(united("x.io", resource, &of(&sent)), of(&sent));
            }
        }
    }
}
