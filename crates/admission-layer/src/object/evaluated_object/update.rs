//! Changes of stored objects.

use serde_json::{Map, Value, json};

use super::{
    changes,
    creation::{Fresh, named, secret_names},
    metadata_mut,
    table::{CreatedStatus, ResourceStrategy},
    take,
};

impl ResourceStrategy {
    /// The object of a PUT or patch.
    pub(super) fn update(&self, object: &mut Value, old: &Value, fresh: &Fresh) {
        settle_metadata(object, old, &[]);
        if let Some(members) = object.as_object_mut() {
            if self.status != CreatedStatus::Ordinary {
                take(members, "status", Some(old));
            }
            for key in self.kept {
                take(members, key, Some(old));
            }
        }
        match (self.group, self.resource) {
            ("", "namespaces") => named(object),
            ("", "serviceaccounts") => secret_names(object),
            ("", "secrets") => {
                if let Some(members) = object.as_object_mut() {
                    fill(members, "type", Some(old), &[""]);
                }
            }
            ("apps", "daemonsets") => changes::count_templates(object, old),
            ("apiextensions.k8s.io", "customresourcedefinitions") => stored_version(object),
            ("resource.k8s.io", "devicetaintrules") => taint_again(object, old, fresh),
            _ => {}
        }
        changes::count(self.counted, object, old);
    }
}

/// The version in which objects of a definition are stored from now on is one of those in which there are some.
fn stored_version(definition: &mut Value) {
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let mut versions = versions.into_iter().flatten();
    let Some(stored) = versions.find(|version| version["storage"] == true) else {
        return;
    };
    let stored = stored["name"].clone();
    let Some(members) = definition.as_object_mut() else {
        return;
    };
    let status = members.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return;
    };
    match status
        .get_mut("storedVersions")
        .and_then(Value::as_array_mut)
    {
        Some(all) if all.contains(&stored) => {}
        Some(all) => all.push(stored),
        None => drop(status.insert("storedVersions".to_owned(), json!([stored]))),
    }
}

/// Another effect of a taint was added now, unless the client says when.
fn taint_again(rule: &mut Value, old: &Value, fresh: &Fresh) {
    let taint = |of: &Value, key: &str| of.pointer("/spec/taint").map(|taint| taint[key].clone());
    let is_other = |key| taint(rule, key) != taint(old, key);
    if is_other("effect")
        && !is_other("timeAdded")
        && let Some(Value::Object(taint)) = rule.pointer_mut("/spec/taint")
    {
        taint.insert("timeAdded".to_owned(), json!(fresh.time()));
    }
}

/// Keeps the metadata that only the server sets, and these fields of it.
pub(super) fn settle_metadata(object: &mut Value, old: &Value, stored: &[&str]) {
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    let old = old.get("metadata");
    for key in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        take(metadata, key, old);
    }
    for key in stored {
        take(metadata, key, old);
    }
    // Another UID, or another version, is refused.
    fill(metadata, "uid", old, &[""]);
    fill(metadata, "resourceVersion", old, &["", "0"]);
    let is_unowned = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    if metadata.get("managedFields").is_none_or(is_unowned) {
        take(metadata, "managedFields", old);
    }
}

/// Gives a field the value that is stored if it has none, or one of these.
fn fill(members: &mut Map<String, Value>, key: &str, old: Option<&Value>, none: &[&str]) {
    let value = members.get(key).and_then(Value::as_str).unwrap_or("");
    if none.contains(&value) {
        take(members, key, old);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_stored_version_of_a_definition_is_added_to_its_status() {
        let of = |stored: &str, status: Value| {
            let version = |name: &str| json!({"name": name, "storage": name == stored});
            json!({"spec": {"versions": [version("v1"), version("v2")]}, "status": status})
        };
        for (stored, status, seen) in [
            (
                "v2",
                json!({"storedVersions": ["v1"]}),
                json!({"storedVersions": ["v1", "v2"]}),
            ),
            (
                "v1",
                json!({"storedVersions": ["v1"]}),
                json!({"storedVersions": ["v1"]}),
            ),
            ("v1", json!({}), json!({"storedVersions": ["v1"]})),
            ("v3", json!({}), json!({})),
        ] {
            let mut definition = of(stored, status);
            stored_version(&mut definition);
            assert_eq!(definition["status"], seen, "{stored}");
        }
    }

    #[test]
    fn a_taint_with_another_effect_was_added_now_unless_the_client_says_when() {
        let fresh = Fresh {
            uid: Uuid::nil(),
            seconds: 1_767_225_600,
        };
        let rule = |effect: &str, added: &str| json!({"spec": {"taint": {"effect": effect, "timeAdded": added}}});
        let (then, later) = ("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z");
        for (effect, sent, added) in [
            ("NoExecute", then, "2026-01-01T00:00:00Z"),
            ("NoExecute", later, later),
            ("NoSchedule", then, then),
        ] {
            let mut changed = rule(effect, sent);
            taint_again(&mut changed, &rule("NoSchedule", then), &fresh);
            assert_eq!(changed, rule(effect, added));
        }
    }
}
