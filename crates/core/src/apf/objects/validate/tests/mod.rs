//! Objects that kube-apiserver refuses are refused, with the same field.

#![expect(
    clippy::needless_pass_by_value,
    reason = "JSON literals read better by value"
)]

mod levels;
mod mandatory;
mod schemas;

use serde_json::{Value, json};

use super::*;
use crate::apf::objects::{ObjectSet, bootstrap};

const API: &str = "flowcontrol.apiserver.k8s.io/v1";

/// The errors in a spec, each as `field: message`, in the order of the findings.
fn mistakes(kind: &str, name: &str, spec: Value) -> Vec<String> {
    let object = json!({
        "apiVersion": API,
        "kind": kind,
        "metadata": { "name": name },
        "spec": spec,
    });
    ObjectSet::read([("test", object)])
        .findings()
        .iter()
        .map(|finding| format!("{}: {}", finding.field, finding.message))
        .collect()
}

fn of_schema(spec: Value) -> Vec<String> {
    mistakes("FlowSchema", "it", spec)
}

fn of_level(spec: Value) -> Vec<String> {
    mistakes("PriorityLevelConfiguration", "it", spec)
}

/// A valid schema of one rule.
fn schema_with(rule: Value) -> Value {
    json!({ "priorityLevelConfiguration": { "name": "exempt" }, "rules": [rule] })
}

/// A valid schema of one rule for one subject.
fn schema_of(subject: Value) -> Value {
    schema_with(json!({
        "subjects": [subject],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    }))
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn names_are_dns_subdomains() {
    let of = |name: &str| {
        let spec = schema_of(json!({ "kind": "User", "user": { "name": "u" } }));
        mistakes("FlowSchema", name, spec)
    };
    assert_eq!(of("a.b-c.1"), nothing());
    assert_eq!(of(&"a".repeat(253)), nothing());
    assert_eq!(
        of(""),
        ["metadata.name: Required value: name or generateName is required"]
    );
    let long = "a".repeat(254);
    assert_eq!(
        of(&long),
        [format!(
            "metadata.name: Invalid value: {long:?}: must be no more than 253 characters"
        )]
    );
    for bad in ["A", "a_b", "-a", "a-", "a..b", ".a", "a b", "ä"] {
        assert_eq!(of(bad).len(), 1, "{bad}");
    }
}

#[test]
fn the_annotation_of_v1beta3_is_forbidden_in_v1() {
    let object = json!({
        "apiVersion": API,
        "kind": "PriorityLevelConfiguration",
        "metadata": { "name": "it", "annotations": { PRESERVE_ZERO_SHARES: "" } },
        "spec": { "type": "Limited", "limited": { "limitResponse": { "type": "Reject" } } },
    });
    let set = ObjectSet::read([("test", object)]);
    assert_eq!(set.findings().len(), 1);
    assert_eq!(set.findings()[0].field, "metadata.annotations");
    assert_eq!(
        set.findings()[0].message,
        format!("Forbidden: annotation '{PRESERVE_ZERO_SHARES}' is forbidden")
    );
}

#[test]
fn condition_types_are_required_and_unique() {
    let object = json!({
        "apiVersion": API,
        "kind": "FlowSchema",
        "metadata": { "name": "it" },
        "spec": { "priorityLevelConfiguration": { "name": "exempt" } },
        "status": { "conditions": [{ "type": "A" }, { "type": "A" }, { "status": "True" }] },
    });
    let set = ObjectSet::read([("test", object)]);
    let found: Vec<String> = set
        .findings()
        .iter()
        .map(|finding| format!("{}: {}", finding.field, finding.message))
        .collect();
    assert_eq!(
        found,
        [
            "status.conditions[1].type: Duplicate value: \"A\"",
            "status.conditions[2].type: Required value",
        ]
    );
}
