//! Expressions that fail for objects without labels or annotations, or at operations without an object or an old one.

use fairgate_admission::{AbsentPart, expressions_that_fail_without};
use fairgate_core::finding::Finding;
use serde_json::Value;

use crate::documents::{FileObject, items};

/// What requests of some operations may lack.
struct Absence {
    part: AbsentPart,
    operations: &'static [&'static str],
    when: &'static str,
    remedy: &'static str,
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];

const ABSENCES: [Absence; 4] = [
    Absence {
        part: AbsentPart::Labels,
        operations: WRITES,
        when: "an object has no labels",
        remedy: "test has(object.metadata.labels) && 'NAME' in object.metadata.labels first, or read object.metadata.?labels[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Annotations,
        operations: WRITES,
        when: "an object has no annotations",
        remedy: "test has(object.metadata.annotations) && 'NAME' in object.metadata.annotations first, or read object.metadata.?annotations[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Object,
        operations: &["DELETE"],
        when: "an object is deleted, since object is null then",
        remedy: "test object != null first, read oldObject, or take DELETE out of the rules",
    },
    Absence {
        part: AbsentPart::OldObject,
        operations: &["CREATE"],
        when: "an object is created, since oldObject is null then",
        remedy: "test oldObject != null first, or take CREATE out of the rules",
    },
];

/// A warning for each expression of the policy that fails when something is absent.
pub(super) fn warnings(policy: &FileObject) -> Vec<Finding> {
    let spec = &policy.value["spec"];
    let constraints = &spec["matchConstraints"];
    let effect = match spec["failurePolicy"].as_str() {
        Some("Ignore") => "the policy does not evaluate it",
        _ => "the request is refused",
    };
    let mut found = Vec::new();
    for absence in ABSENCES {
        let is_evaluated = takes_operation(constraints, absence.operations);
        if !is_evaluated || absence.part == AbsentPart::Labels && has_labels(constraints) {
            continue;
        }
        // What is wrong with an object that cannot be read is reported elsewhere.
        let fields = expressions_that_fail_without(&policy.value, absence.part).unwrap_or_default();
        found.extend(fields.iter().map(|field| {
            let message = format!("it fails when {}: {effect}", absence.when);
            policy.warning(field, message, absence.remedy)
        }));
    }
    found
}

/// Whether the rules are for one of these operations.
fn takes_operation(constraints: &Value, operations: &[&str]) -> bool {
    items(&constraints["resourceRules"]).any(|rule| {
        let mut all = items(&rule["operations"]);
        all.any(|one| one == "*" || operations.iter().any(|of| one == of))
    })
}

/// Whether all objects that match have labels.
fn has_labels(constraints: &Value) -> bool {
    let selector = &constraints["objectSelector"];
    let is_named = selector["matchLabels"]
        .as_object()
        .is_some_and(|labels| !labels.is_empty());
    let is_required = |requirement: &Value| {
        requirement["operator"] == "Exists" || requirement["operator"] == "In"
    };
    // Each namespace has one with its name.
    let is_namespace = |rule: &Value| items(&rule["resources"]).all(|name| name == "namespaces");
    is_named
        || items(&selector["matchExpressions"]).any(is_required)
        || items(&constraints["resourceRules"]).all(is_namespace)
}
