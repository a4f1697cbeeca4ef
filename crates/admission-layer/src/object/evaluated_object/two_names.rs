//! Fields that an API has under two names: the server reads either into one, and shows its policies what it has read.
//!
//! Source: Kubernetes `pkg/apis/core/v1/conversion.go` (`Convert_v1_Secret_To_core_Secret`, `Convert_v1_PodSpec_To_core_PodSpec`,
//! `Convert_v1_NodeSpec_To_core_NodeSpec`, `Convert_v1_PodStatus_To_core_PodStatus` and those back).

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
    match (group, resource) {
        ("", "secrets") => unite_data(object),
        ("", "nodes") => unite_first(object.get_mut("spec"), "podCIDR", "podCIDRs", None),
        ("", "pods") => unite_first(object.get_mut("status"), "podIP", "podIPs", Some("ip")),
        _ => {}
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
    // The server's own type has no such field, not even an empty one.
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
    let is_same = name == former;
    let name = if name.is_empty() { former } else { name };
    if !name.is_empty() && !is_same {
        let name = Value::from(name);
        spec.insert("serviceAccount".to_owned(), name.clone());
        spec.insert("serviceAccountName".to_owned(), name);
    }
}

/// The first of a list has a name of its own, and takes precedence over all of the list. The items are texts, or have one in this
/// member.
fn unite_first(members: Option<&mut Value>, first: &str, all: &str, member: Option<&str>) {
    let Some(members) = members.and_then(Value::as_object_mut) else {
        return;
    };
    let is_lacking = |value: Option<&Value>| value.is_none_or(Value::is_null);
    let items = match members.get(all) {
        Some(Value::Array(items)) => &items[..],
        other if is_lacking(other) => &[],
        _ => return,
    };
    let named = match members.get(first) {
        Some(Value::String(text)) => &text[..],
        other if is_lacking(other) => "",
        _ => return,
    };
    let of_list = items.first().and_then(|item| match member {
        Some(member) => item.get(member)?.as_str(),
        None => item.as_str(),
    });
    // As in the original, for older clients, which know nothing of the list.
    if !named.is_empty() && of_list != Some(named) {
        let item = match member {
            Some(member) => json!([{member: named}]),
            None => json!([named]),
        };
        members.insert(all.to_owned(), item);
    } else if let Some(text) = of_list.map(Value::from) {
        members.insert(first.to_owned(), text);
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

    #[test]
    fn the_first_of_a_list_by_its_own_name_is_the_first_of_the_list() {
        let of = |first: &str, all: &[&str]| {
            let mut spec = json!({});
            if !first.is_empty() {
                spec["podCIDR"] = json!(first);
            }
            if !all.is_empty() {
                spec["podCIDRs"] = json!(all);
            }
            json!({"spec": spec})
        };
        for (sent, seen) in [
            (of("a", &[]), of("a", &["a"])),
            (of("", &["a", "b"]), of("a", &["a", "b"])),
            (of("a", &["a", "b"]), of("a", &["a", "b"])),
            (of("b", &["a", "b"]), of("b", &["b"])),
            (of("", &[]), of("", &[])),
            (json!({}), json!({})),
            (
                json!({"spec": {"podCIDR": 1}}),
                json!({"spec": {"podCIDR": 1}}),
            ),
            (
                json!({"spec": {"podCIDR": "a", "podCIDRs": 1}}),
                json!({"spec": {"podCIDR": "a", "podCIDRs": 1}}),
            ),
        ] {
            assert_eq!(united("", "nodes", &sent), seen, "{sent}");
        }
        for (sent, seen) in [
            (
                json!({"podIP": "a"}),
                json!({"podIP": "a", "podIPs": [{"ip": "a"}]}),
            ),
            (
                json!({"podIPs": [{"ip": "a"}, {"ip": "b"}]}),
                json!({"podIP": "a", "podIPs": [{"ip": "a"}, {"ip": "b"}]}),
            ),
            (
                json!({"podIP": "b", "podIPs": [{"ip": "a"}]}),
                json!({"podIP": "b", "podIPs": [{"ip": "b"}]}),
            ),
        ] {
            let object = |status: &Value| json!({"status": status});
            assert_eq!(united("", "pods", &object(&sent)), object(&seen), "{sent}");
        }
    }
}
