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
const CHANGES: &[&str] = &["UPDATE", "DELETE"];

const LABELS: &[&str] = &["object", "metadata", "labels"];
const ANNOTATIONS: &[&str] = &["object", "metadata", "annotations"];
const OLD_LABELS: &[&str] = &["oldObject", "metadata", "labels"];
const OLD_ANNOTATIONS: &[&str] = &["oldObject", "metadata", "annotations"];
const TEMPLATE_LABELS: &[&str] = &["object", "spec", "template", "metadata", "labels"];
const TEMPLATE_ANNOTATIONS: &[&str] = &["object", "spec", "template", "metadata", "annotations"];

const ABSENCES: [Absence; 12] = [
    Absence {
        part: AbsentPart::Member(LABELS),
        operations: WRITES,
        when: "an object has no labels",
        remedy: "test has(object.metadata.labels) && 'NAME' in object.metadata.labels first, or read object.metadata.?labels[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Member(ANNOTATIONS),
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
    Absence {
        part: AbsentPart::Keys(LABELS),
        operations: WRITES,
        when: "an object has other labels, but not the one that is read",
        remedy: "test 'NAME' in object.metadata.labels, too, or read object.metadata.?labels[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Keys(ANNOTATIONS),
        operations: WRITES,
        when: "an object has other annotations, but not the one that is read",
        remedy: "test 'NAME' in object.metadata.annotations, too, or read object.metadata.?annotations[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Member(OLD_LABELS),
        operations: CHANGES,
        when: "an old object has no labels",
        remedy: "test has(oldObject.metadata.labels) && 'NAME' in oldObject.metadata.labels first, or read oldObject.metadata.?labels[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Keys(OLD_LABELS),
        operations: CHANGES,
        when: "an old object has other labels, but not the one that is read",
        remedy: "test 'NAME' in oldObject.metadata.labels, too, or read oldObject.metadata.?labels[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Member(OLD_ANNOTATIONS),
        operations: CHANGES,
        when: "an old object has no annotations",
        remedy: "test has(oldObject.metadata.annotations) && 'NAME' in oldObject.metadata.annotations first, or read oldObject.metadata.?annotations[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Keys(OLD_ANNOTATIONS),
        operations: CHANGES,
        when: "an old object has other annotations, but not the one that is read",
        remedy: "test 'NAME' in oldObject.metadata.annotations, too, or read oldObject.metadata.?annotations[?'NAME'].orValue('')",
    },
    // The template of a workload has the labels of its selector.
    Absence {
        part: AbsentPart::Keys(TEMPLATE_LABELS),
        operations: WRITES,
        when: "a template has other labels, but not the one that is read",
        remedy: "test 'NAME' in object.spec.template.metadata.labels first, or read object.spec.template.metadata.?labels[?'NAME'].orValue('')",
    },
    Absence {
        part: AbsentPart::Member(TEMPLATE_ANNOTATIONS),
        operations: WRITES,
        when: "a template has no annotations",
        remedy: "test has(object.spec.template.metadata.annotations) && 'NAME' in object.spec.template.metadata.annotations first, or read object.spec.template.metadata.?annotations[?'NAME'].orValue('')",
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
    // What lacks a member whole lacks its keys, too.
    let mut told: Vec<(String, &[&str])> = Vec::new();
    for absence in ABSENCES {
        let is_evaluated = takes_operation(constraints, absence.operations);
        if !is_evaluated || is_of_labels(absence.part) && has_labels(constraints) {
            continue;
        }
        // What is wrong with an object that cannot be read is reported elsewhere.
        let fields = expressions_that_fail_without(&policy.value, absence.part).unwrap_or_default();
        for field in fields {
            if let AbsentPart::Member(path) | AbsentPart::Keys(path) = absence.part {
                let one = (field.clone(), path);
                if told.contains(&one) {
                    continue;
                }
                told.push(one);
            }
            let message = format!("it fails when {}: {effect}", absence.when);
            found.push(policy.warning(&field, message, absence.remedy));
        }
    }
    found
}

/// Whether it is about the labels by which `objectSelector` selects.
fn is_of_labels(part: AbsentPart) -> bool {
    match part {
        AbsentPart::Member(path) | AbsentPart::Keys(path) => [LABELS, OLD_LABELS].contains(&path),
        AbsentPart::Object | AbsentPart::OldObject => false,
    }
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
